//! One CPU of a switch in this process: a packet goes in, and what shall become of it comes out.
//! Soft switches, the simulator, the model and tests call it.

#[cfg(debug_assertions)]
use std::ffi::c_void;
use std::sync::Arc;

use super::{Frame, Switch};
use crate::ffi;

/// What a program says shall become of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// To the stack of the switch's own machine.
    Pass,
    /// Nothing more.
    Drop,
    /// Out by the port that it came in by.
    Back,
    /// Out by this port, or round by the recirculation port.
    To(u32),
    /// A copy out by each port of a group, but for the one that it came in by unless it is a clone:
    /// [`Cpu::fan`].
    Fan,
}

/// Which program a packet meets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Program {
    /// The one of every interface.
    Entry,
    /// The one at the far end of the recirculation port.
    ComesBack,
}

/// XDP's verdicts.
const PASS: i32 = 2;
const TX: i32 = 3;
const REDIRECT: i32 = 4;

/// One CPU of a switch: runs one packet after the other.
pub struct Cpu {
    switch: Arc<Switch>,
    raw: *mut ffi::Cpu,
    /// Where the last packet that fans out goes.
    group: *const ffi::Group,
}

// SAFETY: whoever has it is the only one who uses the pointer for running.
unsafe impl Send for Cpu {}

impl Cpu {
    /// CPU `number` of the switch. Nobody else may have the same one.
    ///
    /// # Panics
    /// If the switch has no such CPU.
    pub fn of(switch: &Arc<Switch>, number: u32) -> Cpu {
        assert!(number < switch.cpus(), "CPU {number} of {}", switch.cpus());
        // SAFETY: it lives, and was made with so many.
        let raw = unsafe { (*switch.raw()).cpu[number as usize] };
        Cpu { switch: switch.clone(), raw, group: std::ptr::null() }
    }

    /// How far its coarse clock is behind the fine one from now on, in nanoseconds.
    pub fn late(&mut self, ns: u64) {
        // SAFETY: only ours while no program runs.
        unsafe { (*self.raw).late_ns = ns };
    }

    /// Seeds what the programs draw.
    pub fn seed(&mut self, random: u64) {
        // SAFETY: only ours while no program runs.
        unsafe { (*self.raw).random = random };
    }

    /// What is called where another CPU may come in, with what; or nothing.
    #[cfg(debug_assertions)]
    pub(super) fn set_moment(
        &mut self,
        moment: Option<unsafe extern "C" fn(*mut c_void)>,
        of: *mut c_void,
    ) {
        // SAFETY: only ours while no program runs.
        let raw = unsafe { &mut *self.raw };
        (raw.moment, raw.moment_of) = (moment, of);
    }

    /// Runs a program on a frame that came in by `ingress`, at `now_ns` of the switch's clock.
    #[inline]
    pub fn run(
        &mut self,
        program: Program,
        frame: &mut Frame,
        ingress: u32,
        now_ns: u64,
    ) -> Verdict {
        // SAFETY: set when it was made, never changed.
        let run = unsafe {
            let raw = self.switch.raw();
            match program {
                Program::Entry => (*raw).entry,
                Program::ComesBack => (*raw).comes_back,
            }
        };
        let run = run.expect("entry.bpf.c has both");
        let code = self.call(run, frame, ingress, 0, now_ns);
        // SAFETY: only ours while no program runs.
        let cpu = unsafe { &*self.raw };
        match code {
            PASS => Verdict::Pass,
            TX => Verdict::Back,
            REDIRECT if !cpu.group.is_null() => {
                self.group = cpu.group;
                Verdict::Fan
            }
            REDIRECT => Verdict::To(cpu.port),
            _ => Verdict::Drop,
        }
    }

    fn group(&self) -> Option<&ffi::Group> {
        // SAFETY: an element of a table, which lives as long as the switch.
        unsafe { self.group.as_ref() }
    }

    /// Adds the ports that the last packet of [`Verdict::Fan`] leaves by, having come in by
    /// `ingress`.
    pub fn fan(&self, ingress: u32, ports: &mut Vec<u32>) {
        let Some(group) = self.group() else { return };
        let all = &group.ports[..(group.count as usize).min(ffi::GROUP_PORTS)];
        let may = |port: &&u32| group.comes_back != 0 || **port != ingress;
        ports.extend(all.iter().filter(may));
    }

    /// Runs the program at that group's egress on a copy that leaves by `egress`. False: this copy
    /// ends here.
    pub fn leaves(&mut self, frame: &mut Frame, ingress: u32, egress: u32, now_ns: u64) -> bool {
        match self.group().and_then(|group| group.egress) {
            Some(run) => self.call(run, frame, ingress, egress, now_ns) == PASS,
            None => true,
        }
    }

    #[inline]
    fn call(
        &mut self,
        run: ffi::Run,
        frame: &mut Frame,
        ingress: u32,
        egress: u32,
        now_ns: u64,
    ) -> i32 {
        let (linear, linear_len, head_room, tail_room) = frame.parts();
        let mut packet = ffi::Packet {
            data: linear as i64,
            // SAFETY: the end of the same buffer's bytes.
            data_end: unsafe { linear.add(linear_len as usize) } as i64,
            ingress_ifindex: ingress,
            egress_ifindex: egress,
            linear,
            rest: linear,
            linear_len,
            rest_len: 0,
            head_room,
            tail_room,
        };
        // SAFETY: the packet describes the frame's buffer, which nobody else has; the CPU is
        // only ours.
        let code = unsafe {
            (*self.raw).now_ns = now_ns;
            ffi::user_run(self.raw, &raw mut packet, run)
        };
        frame.moved(packet.head_room, packet.linear_len);
        code
    }
}
