//! What still holds of a key whose loan lost both of its switches: it went back to a value not
//! older than the bound says.

use std::{collections::BTreeMap, ops::Range};

use history::{Effect, Need, Operation};

/// Whether a key of this history has gone back farther than it may: past a write that was answered,
/// and not within one of these times of the operations' clock, in nanoseconds; or has what nobody
/// wrote. None: it has not. Else the write that was read although another one followed it, that
/// other one, and the read, as far as there are these.
pub(crate) fn gone_back(operations: &[Operation], lost: &[Range<u64>]) -> Option<Vec<Operation>> {
    let wrote = |o: &Operation| match o.effect {
        Effect::Write(value) => Some((value, *o)),
        _ => None,
    };
    let writes: BTreeMap<u64, Operation> = operations.iter().filter_map(wrote).collect();
    let deletes: Vec<&Operation> =
        operations.iter().filter(|o| o.effect == Effect::Delete).collect();
    let lapses = operations.iter().any(|o| o.lapse.is_some());
    let is_derived = |o: &Operation| matches!(o.effect, Effect::Append(_) | Effect::Add(_));
    let are_derived = operations.iter().any(is_derived);
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
    let is_before =
        |write: &Operation, after: &Operation| write.return_ns.is_some_and(|ns| ns < after.call_ns);
    operations.iter().filter(|read| read.return_ns.is_some()).find_map(|read| {
        let ended = kept.partition_point(|o| o.return_ns < Some(read.call_ns));
        let after = ended.checked_sub(1).and_then(|at| latest.get(at));
        match read.need {
            Need::Value(value) => match (writes.get(&value), after) {
                (Some(write), Some(after)) if is_before(write, after) => {
                    Some(vec![*write, *after, *read])
                }
                (None, _) if !are_derived || value == u64::MAX => Some(vec![*read]),
                _ => None,
            },
            Need::Absent => {
                let after = after.filter(|_| !lapses)?;
                let is_gone = deletes.iter().any(|delete| !is_before(delete, after));
                (!is_gone).then(|| vec![*after, *read])
            }
            Need::Any | Need::Present => None,
        }
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
            Some(vec![too_far[0], too_far[1], too_far[3]])
        );
        let at_once = [write(0, 1), operation(2, 9, Need::Any, Effect::Write(2)), read(30, 1)];
        assert!(gone_back(&at_once, &[]).is_none());
    }

    #[test]
    fn what_nobody_wrote_and_what_nobody_removed_is_no_older_value() {
        let write = |ns, value| operation(ns, ns + 5, Need::Any, Effect::Write(value));
        let read = |ns, need| operation(ns, ns + 5, need, Effect::Keep);
        let bad = |all: &[Operation]| gone_back(all, std::slice::from_ref(&(12..20)));
        let torn = [write(0, 1), read(30, Need::Value(u64::MAX))];
        assert_eq!(bad(&torn), Some(vec![torn[1]]));
        let gone = [write(0, 1), read(30, Need::Absent)];
        assert_eq!(bad(&gone), Some(vec![gone[0], gone[1]]));
        let removed = operation(2, 40, Need::Any, Effect::Delete);
        assert_eq!(bad(&[gone[0], removed, gone[1]]), None);
        let before = operation(0, 3, Need::Any, Effect::Delete);
        assert!(bad(&[before, write(4, 1), gone[1]]).is_some());
        assert_eq!(bad(&[write(10, 1), gone[1]]), None, "the write was lost");
        let lapse = Some(history::Lapse { from_ns: 20, until_ns: None });
        assert_eq!(bad(&[Operation { lapse, ..gone[0] }, gone[1]]), None);
    }
}
