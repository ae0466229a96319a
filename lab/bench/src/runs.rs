//! Programs run on a packet by `BPF_PROG_TEST_RUN`, which itself says how long a run took.

use std::{
    io,
    os::fd::{AsFd, AsRawFd, OwnedFd},
};

use anyhow::{Context, ensure};
use libbpf_rs::{MapCore, Object, ObjectBuilder, libbpf_sys};

/// XDP verdict: left to the kernel.
pub const PASS: u32 = 2;
/// Sent back.
pub const TX: u32 = 3;
/// Sent on by a port.
pub const REDIRECT: u32 = 4;

/// A loaded program.
pub struct Program(pub OwnedFd);

impl Program {
    /// The program of that name in `object`.
    ///
    /// # Errors
    /// There is none, or no descriptor is left.
    pub fn of(object: &Object, name: &str) -> anyhow::Result<Program> {
        let program = object.progs_mut().find(|program| program.name() == name);
        let program = program.with_context(|| format!("no program {name} in its object"))?;
        Ok(Program(program.as_fd().try_clone_to_owned()?))
    }

    /// The same one, for somebody else to hold.
    ///
    /// # Errors
    /// No descriptor is left.
    pub fn again(&self) -> anyhow::Result<Program> {
        Ok(Program(self.0.try_clone()?))
    }

    /// The kernel's number of it.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn id(&self) -> anyhow::Result<u32> {
        let mut info = libbpf_sys::bpf_prog_info::default();
        let mut len = size_of_val(&info) as u32;
        let descriptor = self.0.as_raw_fd();
        // SAFETY: a valid descriptor, and a struct of the stated length.
        let failed =
            unsafe { libbpf_sys::bpf_prog_get_info_by_fd(descriptor, &mut info, &mut len) };
        ensure!(failed == 0, "asking about a program: {}", io::Error::last_os_error());
        Ok(info.id)
    }

    /// Runs the program `repeat` times on one packet, as if it came in by the interface `ingress`.
    /// Returns the nanoseconds of one run and the last verdict; the packet as the last run left it
    /// is in `out`.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn run(
        &self,
        frame: &[u8],
        ingress: u32,
        repeat: u32,
        out: &mut Vec<u8>,
    ) -> anyhow::Result<(f64, u32)> {
        out.resize(4096, 0);
        // struct xdp_md: data, data_end, data_meta, ingress_ifindex, rx_queue_index,
        // egress_ifindex.
        let context = [0, frame.len() as u32, 0, ingress, 0, 0];
        let mut options = libbpf_sys::bpf_test_run_opts {
            sz: size_of::<libbpf_sys::bpf_test_run_opts>() as u64,
            data_in: frame.as_ptr().cast(),
            data_size_in: frame.len() as u32,
            data_out: out.as_mut_ptr().cast(),
            data_size_out: out.len() as u32,
            repeat: repeat as i32,
            ..Default::default()
        };
        if ingress != 0 {
            options.ctx_in = context.as_ptr().cast();
            options.ctx_size_in = size_of_val(&context) as u32;
        }
        // SAFETY: a valid descriptor; buffers live through the call and have the lengths stated.
        let failed =
            unsafe { libbpf_sys::bpf_prog_test_run_opts(self.0.as_raw_fd(), &mut options) };
        ensure!(failed == 0, "test run of a program: {}", io::Error::last_os_error());
        out.truncate(options.data_size_out as usize);
        Ok((f64::from(options.duration), options.retval))
    }

    /// Sends `frames` of what the program makes of a frame, one after the other, as if each came in
    /// by `ingress`.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn send(&self, frame: &[u8], ingress: u32, frames: u32) -> anyhow::Result<()> {
        let context = [0, frame.len() as u32, 0, ingress, 0, 0];
        let mut options = libbpf_sys::bpf_test_run_opts {
            sz: size_of::<libbpf_sys::bpf_test_run_opts>() as u64,
            data_in: frame.as_ptr().cast(),
            data_size_in: frame.len() as u32,
            ctx_in: context.as_ptr().cast(),
            ctx_size_in: size_of_val(&context) as u32,
            repeat: frames as i32,
            flags: libbpf_sys::BPF_F_TEST_XDP_LIVE_FRAMES,
            batch_size: 1,
            ..Default::default()
        };
        // SAFETY: a valid descriptor; buffers live through the call and have the lengths stated.
        let failed =
            unsafe { libbpf_sys::bpf_prog_test_run_opts(self.0.as_raw_fd(), &mut options) };
        ensure!(failed == 0, "sending frames: {}", io::Error::last_os_error());
        Ok(())
    }
}

/// Opens and loads one of this crate's own objects.
///
/// # Errors
/// The kernel refuses it.
pub fn load(bytes: &[u8], what: &str) -> anyhow::Result<Object> {
    let open = ObjectBuilder::default().open_memory(bytes)?;
    open.load().with_context(|| format!("loading the measuring programs in {what}"))
}

/// The map of that name.
///
/// # Errors
/// There is none.
pub fn map<'a>(object: &'a Object, name: &str) -> anyhow::Result<libbpf_rs::Map<'a>> {
    let map = object.maps().find(|map| map.name() == name);
    map.with_context(|| format!("no map {name} in its object"))
}
