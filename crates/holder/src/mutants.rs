//! Ways to break the rules of `docs/coherence.md` in stores and in who holds copies, for tests that
//! must notice. In a release build none is ever in force, and nothing of them is left in the
//! program.

/// Makes the list.
macro_rules! mutants {
    ($($name:ident, $rule:literal, $breaks:literal;)*) => {
        /// A way to break a rule.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Mutant {
            $(#[doc = $breaks] $name,)*
        }

        impl Mutant {
            /// All of them, in the order of the rules.
            pub const ALL: &[Mutant] = &[$(Mutant::$name,)*];

            /// Its name, for example `EpochNotCompared`.
            pub fn name(self) -> &'static str {
                match self { $(Mutant::$name => stringify!($name),)* }
            }

            /// The rule that it breaks.
            pub fn rule(self) -> u8 {
                match self { $(Mutant::$name => $rule,)* }
            }

            /// What happens.
            pub fn breaks(self) -> &'static str {
                match self { $(Mutant::$name => $breaks,)* }
            }
        }
    };
}

mutants! {
    TwoWritesAtOnce, 3, "a write that queued behind another does not wait for what the other's answer granted";
    GrantDuringWrite, 3, "a grant is made while a write waits";
    VersionNotRaised, 3, "a write gets the version of the one before";
    ForgottenWithTenant, 3, "a tenant that is removed takes along its copies, and what the backend has not answered";
    RecallUnrecorded, 3, "a key that is called back while its loan is being recorded is lent all the same";
    PartOfAnyVersion, 3, "a read of a part gets that part of the present value, whatever version it asked for";
    EpochNotCompared, 4, "(X, e) of a write is trusted without comparing it to granted(X)";
    PartNotCompared, 4, "(X, e) of a part of a write is trusted without comparing it to granted(X)";
    OffPathNotInvalidated, 4, "a write does not wait for copies off its path";
    AppliedBeforeAcknowledged, 4, "a write is applied when invalidations are sent, not when they are acknowledged";
    WaitTimesOut, 4, "a write waits for an acknowledgement for 50 ms at most";
    AckNotCompared, 4, "any acknowledgement of a switch ends the wait for it";
    AnyHolderToken, 4, "who knows a holder's number and client id speaks for it, without the token that the store gave it";
    GrantedNotRaised, 5, "granted(X) is not raised before a grant leaves";
    GrantedFalls, 5, "granted(X) is the epoch of the last grant, not of the highest";
    GrantedUntold, 5, "what was read at a server that does not tell of changes, of a slot that moved, is granted";
    JoinedUntold, 5, "a read that joined a question is answered with what a server said that does not tell of changes";
    KeptOn, 5, "a value that is kept for the next grant stays when its key is written";
    KeptLate, 5, "a value that was read before a write, and came after it, is kept for the next grant";
    RepeatedAnswerGrants, 5, "the answer to a retransmitted write is a grant again";
    TermNotRaised, 6, "a lease that had lapsed is renewed in its old term";
    AnyClockRenewed, 6, "a lease is renewed in its term although the switch's clock, or the store's, went back";
    RepeatedRequestLent, 6, "a request for a lease that was heard before is lent once more";
    LongerLeaseForgotten, 6, "a store whose leases are shorter than they were waits for the shorter ones alone";
    LeaseCutShort, 6, "the store counts half of each lease that it lends";
    NoWaitAfterRestart, 6, "a store that restarted takes writes at once";
    AppliedAgain, 7, "a retransmitted write that was answered is applied again";
    PendingAppliedAgain, 7, "a retransmitted write is applied beside the one that is under way";
    WindowForgets, 7, "a client's last write is remembered, those before it are new again";
    ClientForgotten, 7, "a new client takes the place of one that may still retransmit";
    ClientOfAnyTenant, 7, "a client is known by the number that it drew, whatever its tenant";
    DecidedForgotten, 7, "what was decided for a tenant is forgotten when it is removed";
    AppliedUnfinished, 7, "a write in parts is applied when its first part has come";
    LentWithCopies, 4, "a key is lent before its copies are called back";
    WrittenWhileLent, 3, "a write is applied while its key is lent";
    ReadWhileLent, 3, "a read of a lent key is answered from the backend";
    JournalForgotten, 6, "a store that restarts does not call back what its former life lent";
    OwnerNotWaitedFor, 6, "a loan is over when the keeper has answered, whatever the owner still serves";
    AppliedWithoutAsking, 7, "a write that names a loan is applied without asking whether the keeper kept it";
    OldestFlushed, 5, "of what owner and keeper give back, what came first is kept";
    LifeKept, 7, "after a loan its key has the store's life again";
    MovedForgotten, 7, "a write that was moved to a loan is new again when nobody can tell whether it was kept";
    ReplicaStaysValid, 2, "a store's copy is served on after its epoch was raised";
    UpdateLeavesValid, 4, "a store acknowledges an update and leaves its copy as it is";
    ReplicaOfAnyEpoch, 5, "a store installs a grant although its copy's epoch moved on";
    CandidateOfAnyWrite, 5, "a store installs what it was sent of another write than the one that was applied last";
    CandidateServed, 5, "a store serves what a switch has sent it of a write before the key's home has confirmed that";
    ReplicaWithoutLease, 6, "a store serves a copy after the lease of its home";
    ReplicaOfAnyTerm, 6, "a store serves a copy of an earlier term";
    NotHeld, 4, "a command by the RESP port that may change a key is carried out without a hold of the key";
    EverythingWithCopies, 4, "a command that may change every key is carried out before all copies are called back";
    ExecKeyForgotten, 4, "of a transaction the keys of its last command alone are held";
    HoldLetGoEarly, 4, "a hold is let go before its command is answered";
    HoldForgotten, 4, "a hold is let go when its client or its connection is lost, though its command may take place still";
    OlderAnswerPassedOn, 6, "a store answers a read with what its home said before the read came";
}

impl Mutant {
    /// Whether it breaks what keeps lent keys right: found where tenants have write-back.
    pub fn is_of_loans(self) -> bool {
        use Mutant::*;
        matches!(
            self,
            LentWithCopies
                | WrittenWhileLent
                | ReadWhileLent
                | JournalForgotten
                | OwnerNotWaitedFor
                | AppliedWithoutAsking
                | OldestFlushed
                | LifeKept
                | MovedForgotten
        )
    }
}

impl Mutant {
    /// The test of its own that notices it: mostly neither model nor hunt does, for it takes clocks
    /// that go back, a tenant that is removed, somebody on the path, or a holder that is not what
    /// it says.
    pub fn noticed_by(self) -> Option<&'static str> {
        use Mutant::*;
        Some(match self {
            AnyClockRenewed => "disciplines/tests/all/stood_still.rs",
            KeptOn | KeptLate => "crates/store/src/engine/tests/granted_values.rs",
            GrantedUntold | JoinedUntold => "crates/store/src/engine/tests/slots.rs",
            AnyHolderToken => "crates/store/src/engine/tests/holders.rs",
            ForgottenWithTenant | DecidedForgotten => "crates/store/src/engine/tests/tenants.rs",
            RepeatedRequestLent => "crates/store/src/engine/tests/leaving.rs",
            LongerLeaseForgotten => "crates/store/src/engine/tests/lives.rs",
            RecallUnrecorded => "crates/store/src/coherence/loan/tests.rs",
            _ => return None,
        })
    }

    /// Whether it takes a slot that has moved to a server which tells of no changes: found by a
    /// model, and by the hunt where somebody writes there.
    pub fn is_of_slots(self) -> bool {
        matches!(self, Mutant::GrantedUntold | Mutant::JoinedUntold)
    }

    /// Whether it takes a command of several keys by the RESP port: found by the hunt, and by tests
    /// of the store.
    pub fn is_of_several_keys(self) -> bool {
        matches!(self, Mutant::ExecKeyForgotten | Mutant::EverythingWithCopies)
    }

    /// Whether it breaks what keeps commands by the RESP port right: found where clients send
    /// some.
    pub fn is_of_holds(self) -> bool {
        use Mutant::*;
        matches!(
            self,
            NotHeld | EverythingWithCopies | ExecKeyForgotten | HoldLetGoEarly | HoldForgotten
        )
    }

    /// Whether it takes more clients than a store has room for, or tenants whose clients have one
    /// number: found by the hunt.
    pub fn is_of_clients(self) -> bool {
        matches!(self, Mutant::ClientForgotten | Mutant::ClientOfAnyTenant)
    }

    /// Whether it breaks what keeps copies in stores right: found by the model, and where a
    /// discipline has some held.
    pub fn is_of_replicas(self) -> bool {
        use Mutant::*;
        matches!(
            self,
            ReplicaStaysValid
                | UpdateLeavesValid
                | ReplicaOfAnyEpoch
                | CandidateOfAnyWrite
                | CandidateServed
                | ReplicaWithoutLease
                | ReplicaOfAnyTerm
                | OlderAnswerPassedOn
        )
    }
}

#[cfg(debug_assertions)]
mod chosen {
    use std::cell::Cell;

    use super::Mutant;

    thread_local! {
        static CHOSEN: Cell<Option<Mutant>> = const { Cell::new(None) };
    }

    /// Breaks a rule in the stores and holders that this thread runs from now on, or none.
    pub fn choose(mutant: Option<Mutant>) {
        CHOSEN.set(mutant);
    }

    /// Whether a test notices: it fails while this rule is broken.
    pub fn is_noticed(mutant: Mutant, test: fn()) -> bool {
        choose(Some(mutant));
        let result = std::panic::catch_unwind(test);
        choose(None);
        result.is_err()
    }

    /// Whether this one is in force on this thread.
    pub fn mutant(mutant: Mutant) -> bool {
        CHOSEN.get() == Some(mutant)
    }
}

#[cfg(debug_assertions)]
pub use chosen::{choose, is_noticed, mutant};

/// Whether this one is in force.
#[cfg(not(debug_assertions))]
pub const fn mutant(_: Mutant) -> bool {
    false
}
