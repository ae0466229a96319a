//! Loads objects, and finds out what the kernel's verifier refuses and why: libbpf says so in its
//! messages only.

use std::cell::RefCell;

use libbpf_rs::{Object as Loaded, OpenObject};

use super::kernel;
use crate::Refusal;

/// Lines of the verifier's log that tell why.
const LAST_LINES: usize = 3;

thread_local! {
    /// The programs that were refused since this thread began to load.
    static HEARD: RefCell<Vec<Refusal>> = const { RefCell::new(vec![]) };
}

/// Has libbpf's own messages go to the log, and refusals be remembered for [`load`].
pub(crate) fn listen() {
    libbpf_rs::set_print(Some((libbpf_rs::PrintLevel::Debug, |level, text| {
        match level {
            libbpf_rs::PrintLevel::Warn => tracing::debug!(target: "libbpf", "{}", text.trim_end()),
            _ => tracing::trace!(target: "libbpf", "{}", text.trim_end()),
        }
        if let Some(refusal) = read(&text) {
            HEARD.with_borrow_mut(|heard| heard.push(refusal));
        }
    })));
}

/// Why an object was not loaded.
pub(crate) enum LoadError {
    /// The verifier does not take one of its programs.
    Refused(Refusal),
    /// Anything else.
    Failed(libbpf_rs::Error),
}

/// Loads an object.
pub(crate) fn load(open: OpenObject) -> Result<Loaded, LoadError> {
    HEARD.take();
    open.load().map_err(|error| match HEARD.take().into_iter().next_back() {
        Some(refusal) => LoadError::Refused(refusal),
        None => LoadError::Failed(error),
    })
}

/// A message of libbpf's with a verifier's log.
fn read(text: &str) -> Option<Refusal> {
    let (head, log) = text.split_once("-- BEGIN PROG LOAD LOG --")?;
    let (_, named) = head.split_once("prog '")?;
    let (program, _) = named.split_once('\'')?;
    let log = log.split("-- END PROG LOAD LOG --").next()?;
    // What the verifier did is counted last; registers and instructions of the program stand before
    // what it says. Linux 7.3 explains that afterwards, on a page of its own.
    let says = |line: &&str| {
        let line = line.trim();
        let is_state = line.contains(": R") && line.contains("R10=");
        !line.is_empty() && !line.starts_with("processed ") && !is_state
    };
    let lines = log.lines().take_while(|line| !line.starts_with("Verification failed:"));
    let lines: Vec<&str> = lines.filter(says).map(str::trim).collect();
    let last = lines[lines.len().saturating_sub(LAST_LINES)..].join("; ");
    Some(Refusal {
        program: program.into(),
        kernel: kernel::release().into(),
        reason: if last.is_empty() { "its verifier does not say why".into() } else { last },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_has_the_program_and_what_the_verifier_said_last() {
        let text = "libbpf: prog 'lent_packet': -- BEGIN PROG LOAD LOG --\n\
                    0: R1=ctx(off=0,imm=0) R10=fp0\n\
                    ; if (len && bpf_xdp_load_bytes(ctx, at, record->value, len) < 0)\n\
                    812: (85) call bpf_xdp_load_bytes#189\n\
                    invalid access to map value, value_size=1784 off=384 size=0\n\
                    R3 min value is outside of the allowed memory range\n\
                    processed 812 insns (limit 1000000) max_states_per_insn 1 total_states 40\n\
                    -- END PROG LOAD LOG --\n";
        let refusal = read(text).unwrap();
        assert_eq!(refusal.program, "lent_packet");
        assert_eq!(
            refusal.reason,
            "812: (85) call bpf_xdp_load_bytes#189; \
             invalid access to map value, value_size=1784 off=384 size=0; \
             R3 min value is outside of the allowed memory range"
        );
        assert!(refusal.to_string().contains("refuses the program lent_packet"));
    }

    #[test]
    fn what_a_newer_verifier_explains_is_left_out() {
        let text = "libbpf: prog 'first': -- BEGIN PROG LOAD LOG --\n\
                    4: (71) r0 = *(u8 *)(r1 +20)\n\
                    invalid access to packet, off=20 size=1, R1(id=0,off=20,r=0)\n\
                    R1 min value is outside of the allowed memory range\n\n\
                    Verification failed: Memory Safety: Access outside bounds\n\n\
                    Suggestion:\n  Add or adjust a bounds check.\n\n\
                    processed 5 insns (limit 1000000) max_states_per_insn 0 total_states 0\n\
                    -- END PROG LOAD LOG --\n";
        assert_eq!(
            read(text).unwrap().reason,
            "4: (71) r0 = *(u8 *)(r1 +20); \
             invalid access to packet, off=20 size=1, R1(id=0,off=20,r=0); \
             R1 min value is outside of the allowed memory range"
        );
    }

    #[test]
    fn other_messages_are_no_refusal() {
        assert_eq!(read("libbpf: map 'pages': created successfully, fd=7\n"), None);
    }
}
