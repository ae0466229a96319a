//! How many reads of a history are stale: what a checker's verdict leaves out, which ends with the
//! first of them. Systems that promise less than one copy are compared by this number.

use std::collections::HashMap;

use super::{Effect, Need, Operation};

/// When a value was written, and since when it is known to have been there.
struct Value {
    call_ns: u64,
    /// `u64::MAX`: nobody knows when it was written.
    return_ns: u64,
    /// When its write, or the first read of it, returned.
    known_ns: u64,
}

/// Reads of one key whose value was overwritten before they were called: another was written after
/// the write of that value had returned, and was known before the call, by the return of its write
/// or of a read of it. Reads of what nobody wrote are among them.
///
/// Operations read or write whole values, each another; a key has no value before the first write.
/// Where a client deletes, reads that find nothing are not counted.
pub fn stale_reads(operations: &[Operation]) -> usize {
    let mut values: HashMap<Option<u64>, Value> = HashMap::new();
    let has_deletes = operations.iter().any(|operation| operation.effect == Effect::Delete);
    values.insert(None, Value { call_ns: 0, return_ns: 0, known_ns: 0 });
    for operation in operations {
        if let Effect::Write(value) = operation.effect {
            let return_ns = operation.return_ns.unwrap_or(u64::MAX);
            let value_of = Value { call_ns: operation.call_ns, return_ns, known_ns: return_ns };
            values.insert(Some(value), value_of);
        }
    }
    let reads = || operations.iter().filter_map(found);
    for (found, _, return_ns) in reads() {
        if let Some(value) = values.get_mut(&found) {
            value.known_ns = value.known_ns.min(return_ns);
        }
    }
    // By when they were known: of all that were known before, the one whose write began last.
    let mut known: Vec<[u64; 2]> = values.values().map(|v| [v.known_ns, v.call_ns]).collect();
    known.sort_unstable();
    let mut latest = 0;
    for [_, call_ns] in &mut known {
        latest = latest.max(*call_ns);
        *call_ns = latest;
    }
    let newest_before = |at_ns| {
        let before = known.partition_point(|[known_ns, _]| *known_ns < at_ns);
        before.checked_sub(1).map_or(0, |last| known[last][1])
    };
    let is_stale = |(found, call_ns, _): &(Option<u64>, u64, u64)| match values.get(found) {
        None => true,
        Some(_) if found.is_none() && has_deletes => false,
        Some(value) => newest_before(*call_ns) > value.return_ns,
    };
    reads().filter(is_stale).count()
}

/// What an operation found, if it was a read that was answered: with the times of its call and
/// its return.
fn found(operation: &Operation) -> Option<(Option<u64>, u64, u64)> {
    let found = match (operation.effect, operation.need) {
        (Effect::Keep, Need::Value(value)) => Some(value),
        (Effect::Keep, Need::Absent) => None,
        _ => return None,
    };
    Some((found, operation.call_ns, operation.return_ns?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(value: u64, call_ns: u64, return_ns: Option<u64>) -> Operation {
        let (need, effect) = (Need::Any, Effect::Write(value));
        Operation { client: 0, key: 0, call_ns, return_ns, need, effect, lapse: None }
    }

    fn read(value: Option<u64>, call_ns: u64, return_ns: u64) -> Operation {
        let need = value.map_or(Need::Absent, Need::Value);
        Operation { need, effect: Effect::Keep, ..write(0, call_ns, Some(return_ns)) }
    }

    #[test]
    fn a_read_is_stale_if_another_value_was_known_before_it_began() {
        let writes = [write(1, 10, Some(20)), write(2, 30, Some(40))];
        // (reads, how many of them are stale)
        let rows: [(&[Operation], usize); 9] = [
            (&[read(None, 5, 15), read(Some(1), 12, 14)], 0),
            // While the write goes on either may be read, and the old one no more once the new one
            // was.
            (&[read(Some(1), 35, 50)], 0),
            (&[read(Some(2), 31, 32), read(Some(1), 33, 34)], 1),
            (&[read(Some(2), 31, 36), read(Some(1), 33, 34)], 0),
            (&[read(Some(1), 40, 41)], 0),
            (&[read(Some(1), 41, 42)], 1),
            (&[read(None, 21, 22), read(None, 50, 51)], 2),
            (&[read(Some(2), 50, 51), read(Some(2), 60, 61)], 0),
            (&[read(Some(9), 50, 51)], 1),
        ];
        for (reads, stale) in rows {
            assert_eq!(stale_reads(&[&writes[..], reads].concat()), stale, "{reads:?}");
        }
    }

    #[test]
    fn a_write_of_which_nobody_knows_may_come_at_any_time_and_makes_nothing_stale() {
        let open = [write(1, 10, None), write(2, 30, Some(40))];
        assert_eq!(stale_reads(&[&open[..], &[read(Some(1), 90, 91)]].concat()), 0);
        let open = [write(1, 10, Some(20)), write(2, 30, None)];
        assert_eq!(stale_reads(&[&open[..], &[read(Some(1), 90, 91)]].concat()), 0);
        let seen = [read(Some(2), 50, 60), read(Some(1), 90, 91)];
        assert_eq!(stale_reads(&[&open[..], &seen].concat()), 1);
    }

    #[test]
    fn concurrent_writes_have_no_order() {
        let both = [write(1, 10, Some(40)), write(2, 20, Some(30))];
        let seen = [read(Some(1), 50, 51), read(Some(2), 60, 61)];
        assert_eq!(stale_reads(&[&both[..], &seen[..1]].concat()), 0);
        assert_eq!(stale_reads(&[&both[..], &seen[1..]].concat()), 0);
    }
}
