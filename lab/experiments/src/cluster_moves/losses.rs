//! What Redis itself loses when a master fails: writes that it had answered and its replica had
//! not. A history of a key is cut there, and what follows begins with what the replica had.

use history::{Effect, Need, Operation, Verdict, check};

/// A master has failed that had a key.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cut {
    /// When, in nanoseconds of the operations' clock.
    pub at_ns: u64,
    /// From then on it has heard that it is none any more. It may have stood still before, gone on,
    /// carried out what was sent to it meanwhile, and answered. `at_ns` for one that was killed.
    pub heard_ns: u64,
    /// From then on no copy is served any more of what was there before.
    pub until_ns: u64,
    /// What its replica had, once it had all that was on its way.
    pub left: Option<u64>,
}

/// A client that nobody is: what a replica had is its write.
const REPLICA: u32 = u32::MAX;
/// One that reads at the nodes, when all is over.
pub(super) const LAST_READER: u32 = u32::MAX - 1;
/// Reads of one key that are found to be wrong, at most.
const MOST: usize = 100;

/// What a key's history comes to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct KeyVerdict {
    /// Reads of what was there before an answered write.
    pub stale_reads: u64,
    /// The key does not have, at last, what was written and what Redis had not lost.
    pub lost: bool,
    /// Redis itself has lost a write.
    pub lost_by_redis: bool,
}

/// Judges the operations on a key whose masters failed so often.
///
/// # Errors
/// A history that cannot be decided.
pub(super) fn judge(operations: &[Operation], cuts: &[Cut]) -> anyhow::Result<KeyVerdict> {
    if check(operations)? == Verdict::Linearizable {
        return Ok(KeyVerdict::default());
    }
    let mut verdict = KeyVerdict { lost_by_redis: !cuts.is_empty(), ..KeyVerdict::default() };
    for mut part in parts(operations, cuts) {
        for _ in 0..MOST {
            let Verdict::Violation(at) = check(&part)? else { break };
            match part[at].client == LAST_READER {
                true => verdict.lost = true,
                false => verdict.stale_reads += 1,
            }
            part.remove(at);
        }
    }
    Ok(verdict)
}

/// The history in parts, which are to be looked at by themselves.
fn parts(operations: &[Operation], cuts: &[Cut]) -> Vec<Vec<Operation>> {
    let mut rest = operations.to_vec();
    let mut parts = vec![];
    for cut in cuts {
        let (before, after) = split(&rest, *cut);
        parts.push(before);
        rest = after;
    }
    parts.push(rest);
    parts
}

fn split(operations: &[Operation], cut: Cut) -> (Vec<Operation>, Vec<Operation>) {
    let is_early = |operation: &&Operation| operation.call_ns < cut.at_ns;
    let is_answered = |operation: &Operation| operation.return_ns.is_some_and(|ns| ns < cut.at_ns);
    let written = |operation: &Operation| match operation.effect {
        Effect::Write(value) => Some(value),
        _ => None,
    };
    let mut before = vec![];
    let mut after = vec![];
    let mut settled = vec![];
    for operation in operations.iter().filter(is_early) {
        let is_write = operation.effect != Effect::Keep;
        if is_answered(operation) {
            before.push(*operation);
            settled.extend(written(operation));
        } else if is_write {
            let open = Operation { return_ns: None, ..*operation };
            before.push(open);
            if written(operation) != cut.left {
                after.push(open);
            }
        }
    }
    if let Some(left) = cut.left {
        after.push(Operation {
            client: REPLICA,
            key: operations.first().map_or(0, |operation| operation.key),
            call_ns: 0,
            return_ns: Some(1),
            need: Need::Any,
            effect: Effect::Write(left),
            lapse: None,
        });
    }
    // Nor what came to the master while it stood still: when it goes on, and has not heard that it
    // is none any more, somebody may read it there, whether or not who wrote it is answered.
    let is_of_old = |operation: &Operation| match operation.return_ns {
        None => operation.call_ns <= cut.until_ns,
        Some(_) => operation.call_ns >= cut.at_ns && operation.call_ns < cut.heard_ns,
    };
    settled.extend(operations.iter().filter(|operation| is_of_old(operation)).filter_map(written));
    for operation in operations.iter().filter(|operation| operation.call_ns >= cut.at_ns) {
        // A copy may be of what was lost, as long as its lease.
        let is_of_before = matches!(operation.need, Need::Value(value) if settled.contains(&value) && Some(value) != cut.left);
        if operation.call_ns > cut.until_ns || !is_of_before {
            let may_be_lost = operation.effect != Effect::Keep && is_of_old(operation);
            let return_ns = operation.return_ns.filter(|_| !may_be_lost);
            after.push(Operation { return_ns, ..*operation });
        }
    }
    (before, after)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(value: u64, call_ns: u64, return_ns: u64) -> Operation {
        operation(call_ns, return_ns, Need::Any, Effect::Write(value))
    }

    fn read(value: u64, call_ns: u64, return_ns: u64) -> Operation {
        operation(call_ns, return_ns, Need::Value(value), Effect::Keep)
    }

    fn operation(call_ns: u64, return_ns: u64, need: Need, effect: Effect) -> Operation {
        let return_ns = Some(return_ns);
        Operation { client: 1, key: 0, call_ns, return_ns, need, effect, lapse: None }
    }

    const CUT: Cut = Cut { at_ns: 50, heard_ns: 50, until_ns: 60, left: Some(1) };

    #[test]
    fn what_redis_lost_is_told_from_what_is_stale() {
        let lost = |stale_reads| KeyVerdict { stale_reads, lost: false, lost_by_redis: true };
        let written = [write(1, 2, 3), write(2, 4, 5)];
        // (reads, verdict)
        let rows = [
            (vec![read(2, 6, 7)], KeyVerdict::default()),
            (vec![read(1, 61, 62)], lost(0)),
            (vec![read(2, 55, 56), read(1, 57, 58)], lost(0)),
            (vec![read(1, 61, 62), read(2, 63, 64)], lost(1)),
            (vec![read(1, 6, 7), read(1, 61, 62)], lost(1)),
        ];
        for (reads, verdict) in rows {
            let all = [&written[..], &reads].concat();
            assert_eq!(judge(&all, &[CUT]).unwrap(), verdict, "{reads:?}");
        }
    }

    /// A master that stood still, and goes on for a moment when another has its place.
    #[test]
    fn what_nobody_was_told_of_may_be_read_until_the_old_master_has_gone() {
        let unanswered = Operation { return_ns: None, ..write(3, 52, 0) };
        for (reads, stale_reads) in
            [([read(3, 54, 55), read(1, 57, 58)], 0), ([read(3, 63, 64), read(1, 65, 66)], 1)]
        {
            let all = [&[write(1, 2, 3), unanswered][..], &reads].concat();
            assert_eq!(judge(&all, &[CUT]).unwrap().stale_reads, stale_reads, "{reads:?}");
        }
    }

    /// The same, with who wrote it waiting for long enough.
    #[test]
    fn what_the_old_master_answered_before_it_had_heard_may_be_lost() {
        let cut = Cut { heard_ns: 56, ..CUT };
        // (called, answered, stale reads of what was there before)
        for (call_ns, return_ns, stale_reads) in [(52, 55, 0), (52, 57, 0), (57, 58, 1)] {
            let all = [write(1, 2, 3), write(3, call_ns, return_ns), read(1, 63, 64)];
            assert_eq!(judge(&all, &[cut]).unwrap().stale_reads, stale_reads, "{call_ns}");
        }
    }

    #[test]
    fn what_is_gone_at_last_is_lost() {
        let last = Operation { client: LAST_READER, ..read(1, 100, 101) };
        let all = [write(1, 2, 3), write(2, 70, 71), last];
        let verdict = judge(&all, &[CUT]).unwrap();
        assert!(verdict.lost && verdict.stale_reads == 0, "{verdict:?}");
        let before = [write(1, 2, 3), write(2, 4, 5), last];
        assert!(!judge(&before, &[CUT]).unwrap().lost, "that was Redis");
        assert!(judge(&before, &[]).unwrap().lost);
    }

    #[test]
    fn a_write_that_was_under_way_may_be_there_or_not() {
        for left in [1, 2] {
            let cut = Cut { left: Some(left), ..CUT };
            for value in [1, 2] {
                let all = [write(1, 2, 3), write(2, 45, 55), read(value, 70, 71)];
                let verdict = judge(&all, &[cut]).unwrap();
                assert_eq!(
                    verdict.stale_reads,
                    u64::from(left == 2 && value == 1),
                    "{left} {value}"
                );
            }
        }
    }
}
