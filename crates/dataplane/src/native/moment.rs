//! Moments of a packet's way through the programs, for tests: wherever the C orders what it reads
//! and writes, or takes a lock, another CPU may come in. Only builds with debug assertions stop
//! there.

use std::ffi::c_void;

use super::{Cpu, Frame, Program, Verdict};

/// What is called at each moment.
type Moment<'a> = &'a mut dyn FnMut();

/// # Safety
/// `of` leads to a [`Moment`] that nobody else has now.
unsafe extern "C" fn call(of: *mut c_void) {
    // SAFETY: the caller says so.
    let moment = unsafe { &mut *of.cast::<Moment<'_>>() };
    moment();
}

impl Cpu {
    /// As [`Cpu::run`], and calls `moment` wherever another CPU may come in: before each word that
    /// others look at is written, before each lock is tried or left, and between what is read in an
    /// order. It may change what tables have, and run other CPUs of the switch, but not this one.
    /// One that panics ends the process.
    pub fn run_with(
        &mut self,
        program: Program,
        frame: &mut Frame,
        ingress: u32,
        now_ns: u64,
        mut moment: Moment<'_>,
    ) -> Verdict {
        self.set_moment(Some(call), (&raw mut moment).cast());
        let verdict = self.run(program, frame, ingress, now_ns);
        self.set_moment(None, std::ptr::null_mut());
        verdict
    }
}
