//! Rule 7 across loans: which life a write must name, and what is done with one that names another.
//!
//! The owner of a loan knows nothing of the store's window, nor the store of the keeper's. So a
//! write is decided by one of them only: each loan has a life of its own, the key another one after
//! it, and a client moves a write to another life only if that began before it sent the
//! write first.

use super::Nanos;
use holder::mutants::{Mutant, mutant};

/// A keeper can tell for so long after a loan what it kept.
pub const RETAIN_NS: Nanos = 10_000_000_000;

/// The loan that was a key's last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EndedLoan {
    /// The life of its writes.
    pub life: u16,
    /// The keeper is there to be asked.
    pub tells: bool,
}

/// What is known of a key that was lent in this life of the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyLife {
    /// The life of writes that the store decides, since then.
    pub life: u16,
    /// When the last loan ended.
    pub since_ns: Nanos,
    /// The key's life before that loan.
    pub before: u16,
    /// The last loan.
    pub ended: EndedLoan,
}

/// A write, as far as its life matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NamedLife {
    /// The life that it names.
    pub life: u16,
    /// It goes past owners: its client will never send it under another life.
    pub past_owners: bool,
    /// An owner could have absorbed it.
    pub absorbable: bool,
}

/// What is done with a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LifeVerdict {
    /// It is the store's to decide: its window knows whether it is new.
    Decide,
    /// First the loan must be over, and its keeper asked.
    Ask,
    /// It is refused: the key has this life, for so many nanoseconds.
    KeyHas(u16, Nanos),
    /// It is refused: the key has the store's life.
    StoreHas,
}

/// Decides what is done with a write that names a life. `own`: the store's; `key`: what is known of
/// its key; `loan`: the life of a loan whose owner may have begun, and since when.
pub fn judge(
    named: NamedLife,
    own: u16,
    key: Option<&KeyLife>,
    loan: Option<(u16, Nanos)>,
    now_ns: Nanos,
) -> LifeVerdict {
    let current = key.map_or(own, |key| key.life);
    // What the store's window alone decides, and no owner ever: the client says that it is for
    // nobody else.
    let is_ours = named.life == own
        || named.life == current
        || key.is_some_and(|key| key.before == named.life);
    let is_past = named.past_owners && is_ours;
    let asks = if named.absorbable && !mutant(Mutant::AppliedWithoutAsking) {
        LifeVerdict::Ask
    } else {
        LifeVerdict::Decide
    };
    if named.life == 0 || is_past {
        return LifeVerdict::Decide;
    }
    if let Some((life, since_ns)) = loan {
        return if named.life == life {
            asks
        } else {
            LifeVerdict::KeyHas(life, now_ns.saturating_sub(since_ns))
        };
    }
    let Some(key) = key else {
        return if named.life == own { LifeVerdict::Decide } else { LifeVerdict::StoreHas };
    };
    let age_ns = now_ns.saturating_sub(key.since_ns);
    if named.life == key.life || mutant(Mutant::LifeKept) && named.life == own {
        return LifeVerdict::Decide;
    }
    if named.life == key.ended.life
        && age_ns < RETAIN_NS
        && (key.ended.tells || asks == LifeVerdict::Decide)
    {
        return asks;
    }
    LifeVerdict::KeyHas(key.life, age_ns)
}

#[cfg(test)]
pub(super) mod tests {
    use LifeVerdict::{Ask, Decide, KeyHas, StoreHas};

    use super::*;

    const MS: Nanos = 1_000_000;
    const OWN: u16 = 10;
    const LOAN: u16 = 20;
    const AFTER: u16 = 30;
    const OTHER: u16 = 99;

    fn write(life: u16) -> NamedLife {
        NamedLife { life, past_owners: false, absorbable: true }
    }

    fn past(life: u16) -> NamedLife {
        NamedLife { past_owners: true, ..write(life) }
    }

    fn delete(life: u16) -> NamedLife {
        NamedLife { absorbable: false, ..write(life) }
    }

    fn key(tells: bool) -> KeyLife {
        KeyLife { life: AFTER, since_ns: 0, before: OWN, ended: EndedLoan { life: LOAN, tells } }
    }

    #[test]
    pub fn what_is_done_with_a_write_that_names_a_life() {
        let lent = Some((LOAN, 5 * MS));
        let rows = [
            // A key that was never lent.
            (write(OWN), None, None, Decide),
            (write(0), None, None, Decide),
            (write(OTHER), None, None, StoreHas),
            (past(OTHER), None, None, StoreHas),
            // One that is lent for the first time.
            (write(LOAN), None, lent, Ask),
            (delete(LOAN), None, lent, Decide),
            (write(OWN), None, lent, KeyHas(LOAN, 2 * MS)),
            (delete(OWN), None, lent, KeyHas(LOAN, 2 * MS)),
            (past(OWN), None, lent, Decide),
            (write(wire::LIFE_UNKNOWN), None, lent, KeyHas(LOAN, 2 * MS)),
            (write(OTHER), None, lent, KeyHas(LOAN, 2 * MS)),
            // After the loan.
            (write(AFTER), Some(key(true)), None, Decide),
            (write(LOAN), Some(key(true)), None, Ask),
            (write(LOAN), Some(key(false)), None, KeyHas(AFTER, 7 * MS)),
            (delete(LOAN), Some(key(false)), None, Decide),
            (write(OWN), Some(key(true)), None, KeyHas(AFTER, 7 * MS)),
            (past(OWN), Some(key(true)), None, Decide),
            (past(OTHER), Some(key(true)), None, KeyHas(AFTER, 7 * MS)),
        ];
        for (named, key, loan, says) in rows {
            let got = judge(named, OWN, key.as_ref(), loan, 7 * MS);
            assert_eq!(got, says, "{named:?} {key:?} {loan:?}");
        }
    }

    #[test]
    fn a_loan_that_ended_long_ago_is_asked_about_no_more() {
        for named in [write(LOAN), delete(LOAN)] {
            let says = |now_ns| judge(named, OWN, Some(&key(true)), None, now_ns);
            assert_ne!(says(RETAIN_NS - 1), KeyHas(AFTER, RETAIN_NS - 1));
            assert_eq!(says(RETAIN_NS), KeyHas(AFTER, RETAIN_NS));
        }
    }
}
