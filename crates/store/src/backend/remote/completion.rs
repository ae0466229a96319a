//! What the engine is told of a command.

use super::{Command, OnlyIf, Outcome, Verb};
use crate::backend::{Change, Completion, Item, ReadOutcome};

/// What a command has come to; nothing, if nobody waits for it.
pub(super) fn completion(command: Command, outcome: Outcome) -> Option<Completion> {
    let Command { ticket, version, verb, .. } = command;
    Some(match verb {
        Verb::Get { .. } => Completion::Get(ticket, read(version, outcome)),
        Verb::Put { .. } | Verb::Delete { .. } => {
            Completion::Change(ticket, change(&verb, version, outcome))
        }
        Verb::Mark(_) => return None,
    })
}

fn read(version: u64, outcome: Outcome) -> ReadOutcome {
    match outcome {
        Outcome::Value { value, expiry_ms } => {
            ReadOutcome::Item(Item { value, version, expiry_ms })
        }
        Outcome::Untold(found) => {
            ReadOutcome::Untold(found.map(|(value, expiry_ms)| Item { value, version, expiry_ms }))
        }
        Outcome::Absent => ReadOutcome::Absent,
        Outcome::TooLarge | Outcome::Large(_) => ReadOutcome::TooLarge(version),
        Outcome::Refused(refusal) => ReadOutcome::Refused(refusal),
        _ => ReadOutcome::Failed,
    }
}

fn change(verb: &Verb, version: u64, outcome: Outcome) -> Change {
    match (outcome, verb) {
        (Outcome::Done, _) => Change::Done(version),
        // It is there, with the version that this write has raised it to all the same.
        (Outcome::NotStored, Verb::Put { only_if: OnlyIf::Absent, .. }) => {
            Change::Mismatch(version)
        }
        (Outcome::NotStored, Verb::Delete { .. }) => Change::Mismatch(version),
        (Outcome::NotStored, _) => Change::Mismatch(wire::VERSION_ABSENT),
        (Outcome::Absent, Verb::Delete { only_if: OnlyIf::Present }) => {
            Change::Mismatch(wire::VERSION_ABSENT)
        }
        (Outcome::Absent, _) => Change::NotFound,
        (Outcome::TooLarge, _) => Change::TooLarge,
        (Outcome::KeyTooLong(most), _) => Change::KeyTooLong(most),
        (Outcome::Full, _) => Change::Full,
        (Outcome::Refused(refusal), _) => Change::Refused(refusal),
        _ => Change::Failed,
    }
}
