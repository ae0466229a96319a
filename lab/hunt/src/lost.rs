//! What still holds of a key whose loan lost both of its switches: it went back to a value not
//! older than the bound says.

use std::{collections::BTreeMap, ops::Range};

use history::{Effect, Need, Operation};

/// Whether a key of this history has gone back farther than it may: past a write that was answered,
/// and not within one of these times of the operations' clock, in nanoseconds. None: it has not.
/// Else the write that was read although another one followed it, that other one, and the read.
pub(crate) fn gone_back(operations: &[Operation], lost: &[Range<u64>]) -> Option<[Operation; 3]> {
    let wrote = |o: &Operation| match o.effect {
        Effect::Write(value) => Some((value, *o)),
        _ => None,
    };
    let writes: BTreeMap<u64, Operation> = operations.iter().filter_map(wrote).collect();
    // Of what is kept, by the end: the one that began last.
    let is_kept = |o: &&Operation| {
        let may_be_lost = |ns: u64| lost.iter().any(|times| times.contains(&ns));
        o.effect != Effect::Keep && o.return_ns.is_some_and(|ns| !may_be_lost(ns))
    };
    let mut kept: Vec<Operation> = operations.iter().filter(is_kept).copied().collect();
    kept.sort_unstable_by_key(|o| o.return_ns);
    let mut latest: Vec<Operation> = vec![];
    for operation in &kept {
        let before = latest.last().copied().unwrap_or(*operation);
        latest.push(match before.call_ns > operation.call_ns {
            true => before,
            false => *operation,
        });
    }
    operations.iter().find_map(|read| {
        let Need::Value(value) = read.need else { return None };
        let write = writes.get(&value)?;
        let ended = kept.partition_point(|o| o.return_ns < Some(read.call_ns));
        let after = latest.get(ended.checked_sub(1)?)?;
        let follows = write.return_ns.is_some_and(|ns| ns < after.call_ns);
        (read.return_ns.is_some() && follows).then_some([*write, *after, *read])
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn operation(call_ns: u64, return_ns: u64, need: Need, effect: Effect) -> Operation {
        Operation {
            client: 0,
            key: 0,
            call_ns,
            return_ns: Some(return_ns),
            need,
            effect,
            lapse: None,
        }
    }

    #[test]
    fn only_what_was_answered_near_the_loss_may_be_missing() {
        let write = |ns, value| operation(ns, ns + 5, Need::Any, Effect::Write(value));
        let read = |ns, value| operation(ns, ns + 5, Need::Value(value), Effect::Keep);
        let went_back =
            [write(0, 1), write(10, 2), read(20, 2), read(30, 1), write(40, 3), read(50, 3)];
        assert!(gone_back(&went_back, &[]).is_some());
        assert!(gone_back(&went_back, std::slice::from_ref(&(0..10))).is_some());
        assert!(gone_back(&went_back, std::slice::from_ref(&(12..20))).is_none());
        let too_far = [write(0, 1), write(10, 2), write(20, 3), read(30, 1)];
        assert_eq!(
            gone_back(&too_far, std::slice::from_ref(&(22..30))),
            Some([too_far[0], too_far[1], too_far[3]])
        );
        let at_once = [write(0, 1), operation(2, 9, Need::Any, Effect::Write(2)), read(30, 1)];
        assert!(gone_back(&at_once, &[]).is_none());
    }
}
