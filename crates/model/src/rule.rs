/// A rule of docs/coherence.md, or a part of one, that can be switched off.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Rule {
    /// Epochs repeat: an eviction sets the counter back.
    R1EpochsRepeat,
    /// A write is stamped but invalidates nothing on its way.
    R2WriteDoesNotInvalidate,
    /// A grant is made while a write is pending.
    R3GrantDuringWrite,
    /// (X, e) is trusted without comparing it to granted(X).
    R4EpochNotCompared,
    /// Copies off the write's path are not invalidated.
    R4OffPathNotInvalidated,
    /// A grant is installed although the entry's epoch moved on.
    R5InstallOfAnyEpoch,
    /// granted(X) is not raised before the reply leaves.
    R5GrantedNotRaised,
    /// An entry is served without a lease.
    R6NoLeaseNeeded,
    /// An entry of an earlier term is served.
    R6TermIgnored,
    /// A store that restarted takes writes at once.
    R6NoWaitAfterRestart,
    /// A retransmitted write is applied again.
    R7AppliedAgain,
}

impl Rule {
    /// All of them, in order.
    pub const ALL: [Rule; 11] = [
        Rule::R1EpochsRepeat,
        Rule::R2WriteDoesNotInvalidate,
        Rule::R3GrantDuringWrite,
        Rule::R4EpochNotCompared,
        Rule::R4OffPathNotInvalidated,
        Rule::R5InstallOfAnyEpoch,
        Rule::R5GrantedNotRaised,
        Rule::R6NoLeaseNeeded,
        Rule::R6TermIgnored,
        Rule::R6NoWaitAfterRestart,
        Rule::R7AppliedAgain,
    ];

    /// The rule's number and what happens when it is off, for a line of a test's output.
    pub fn title(self) -> &'static str {
        match self {
            Rule::R1EpochsRepeat => "rule 1: epochs repeat after an eviction",
            Rule::R2WriteDoesNotInvalidate => "rule 2: a write does not invalidate on its way",
            Rule::R3GrantDuringWrite => "rule 3: a grant during a pending write",
            Rule::R4EpochNotCompared => "rule 4: (X, e) trusted without comparing it to granted(X)",
            Rule::R4OffPathNotInvalidated => "rule 4: copies off the path not invalidated",
            Rule::R5InstallOfAnyEpoch => "rule 5: a grant installed although the epoch moved on",
            Rule::R5GrantedNotRaised => "rule 5: granted(X) not raised before the reply",
            Rule::R6NoLeaseNeeded => "rule 6: an entry served without a lease",
            Rule::R6TermIgnored => "rule 6: an entry of an earlier term served",
            Rule::R6NoWaitAfterRestart => "rule 6: a restarted store takes writes at once",
            Rule::R7AppliedAgain => "rule 7: a retransmitted write applied again",
        }
    }
}
