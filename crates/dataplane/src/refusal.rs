//! What a kernel's verifier refuses, as the agent reports it and people read it.

use std::fmt;

/// A program that this kernel refuses to load.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The program, as the C calls it.
    pub program: String,
    /// The kernel's release.
    pub kernel: String,
    /// The last lines of the verifier's log, or what the system call came to where it has none.
    pub reason: String,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Refusal { program, kernel, reason } = self;
        write!(f, "Linux {kernel} refuses the program {program}: {reason}")
    }
}
