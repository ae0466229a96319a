//! A history that is not linearizable is long, and most of it beside the point: what experiments
//! show of it is what is left here.

use super::{Effect, Need, Operation, Verdict, check};

/// Cuts a history of one key that is not linearizable down to operations that still are not: all
/// that came after is left out, then whatever can be, in ever smaller pieces. A write goes only
/// with everything that saw its value.
pub fn shrink(operations: &[Operation], violation: usize) -> Vec<Operation> {
    let Some(end_ns) = operations[violation].return_ns else { return operations.to_vec() };
    let mut left: Vec<Operation> =
        operations.iter().copied().filter(|operation| operation.call_ns <= end_ns).collect();
    left.sort_unstable_by_key(|operation| operation.call_ns);
    let mut size = left.len() / 2;
    while size > 0 {
        let mut at = 0;
        while at < left.len() {
            let end = (at + size).min(left.len());
            let rest: Vec<Operation> = left[..at].iter().chain(&left[end..]).copied().collect();
            if is_fair(&left[at..end], &rest) && matches!(check(&rest), Ok(Verdict::Violation(_))) {
                left = rest;
            } else {
                at = end;
            }
        }
        size /= 2;
    }
    left
}

/// Whether what is left could not be bad only for what was taken away.
fn is_fair(taken: &[Operation], left: &[Operation]) -> bool {
    taken.iter().all(|operation| match operation.effect {
        Effect::Keep => true,
        Effect::Write(value) => !left.iter().any(|other| match other.need {
            Need::Present => true,
            Need::Absent => operation.lapse.is_some(),
            need => need == Need::Value(value),
        }),
        Effect::Delete => !left.iter().any(|other| other.need == Need::Absent),
        Effect::Append(_) | Effect::Add(_) => false,
    }) && (taken.iter().all(|operation| operation.effect == Effect::Keep)
        || !left.iter().any(|other| other.effect.derives()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stale_read_is_left_with_the_writes_that_show_it() {
        let op = |at, need, effect| Operation {
            client: 0,
            key: 0,
            call_ns: at,
            return_ns: Some(at + 1),
            need,
            effect,
            lapse: None,
        };
        let mut history = vec![];
        for i in 0..100 {
            history.push(op(10 * i, Need::Any, Effect::Write(i)));
            history.push(op(10 * i + 2, Need::Value(i), Effect::Keep));
        }
        history.push(op(2000, Need::Value(50), Effect::Keep));
        let Verdict::Violation(at) = check(&history).unwrap() else { panic!("not caught") };
        let small = shrink(&history, at);
        assert!(small.len() <= 4, "{small:?}");
        assert!(matches!(check(&small), Ok(Verdict::Violation(_))));
    }
}
