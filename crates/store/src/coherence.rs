//! The seven rules that keep every copy of a key linearizable, wherever the copy is, as pure
//! decisions.
//!
//! State and message go in; the changed state and what to do go out. Nothing here opens a socket,
//! reads a clock or asks a backend: time is an argument (nanoseconds of the store's clock), sending
//! and applying are left to the caller. The engine calls exactly these functions, and so do the
//! model and the tests: what is checked is what runs.
//!
//! | rule | says | here |
//! | --- | --- | --- |
//! | 1 | a switch X numbers its invalidations with epochs that never repeat | [`wire::Epoch`]; the switch's part |
//! | 2 | a write passing X invalidates X's entry and carries (X, e) on | [`Write::epoch`]; the switch's part |
//! | 3 | the store knows who may hold a copy, and up to which epoch; one write at a time | [`KeyState`], [`KeyState::submit`] |
//! | 4 | a write waits until every copy is invalid for certain | [`KeyState::poll`], [`KeyState::prove_invalid`] |
//! | 5 | granted(X) is raised before a grant leaves; a grant holds the newest value | [`KeyState::grant`] |
//! | 6 | a copy is worth nothing without its lease, in the term it was granted in | [`Leases`] |
//! | 7 | a retransmitted write is answered again, never applied again | [`Window`] |
//!
//! Another store may hold copies as a switch does, and so may clients: [`Replica`],
//! [`BorrowedLease`], [`Epochs`] are that side of the rules. Values in parts need no rule of their
//! own: [`Parts`], [`version_of_part`].
//! What others write to the backend behind the store's back is no part of the rules:
//! [`OutsideWatch`]. A key that is written often may be lent to a switch, which answers reads and
//! writes then: [`Loan`], and [`judge`] for the lives that its writes name (docs/coherence.md,
//! "Write-back").
//!
//! Why each is needed: without 3's epochs a late acknowledgement ends the wait for a younger copy;
//! without 4's comparison a grant that overtook the write on another path survives it; without 5's
//! order a grant in flight is unknown to the write that must stop it; without 6 a switch that is
//! cut off blocks every write for ever; without 7 a write whose answer was lost undoes what others
//! wrote since.

mod asks;
mod copies;
mod inquiry;
mod key;
mod lease;
mod lives;
mod loan;
mod outside;
mod parts;
#[cfg(test)]
mod tests;
mod untold;
mod waits;
mod window;

pub use asks::{Ask, Asks};
pub use copies::Copy;
pub use holder::{BorrowedLease, CopiedValue, Epochs, Nanos, Replica, WriteId, answers};
pub use key::{KeyState, NoGrant, Step, Submission, Write};
#[cfg(test)]
pub(crate) use lease::LOOKED_UP;
pub use lease::{Lease, LeaseAnswer, Leases, counted_ns};
pub use lives::{EndedLoan, KeyLife, LifeVerdict, NamedLife, RETAIN_NS, judge};
pub use loan::{Act, End, Loan, RecordAnswer, Role, Terms, VERSIONS, Whereabouts};
pub use outside::{OutsideWatch, Watch};
pub use parts::{Parts, version_of_part};
pub use waits::Invalidate;
pub use window::{Verdict, Window};

/// The number of a switch, of a store that holds copies of others' keys, or of a holder at the
/// clients' side ([`wire::NodeId`]); never 0. To the rules all are the same.
pub type SwitchId = u16;
