//! The store half: a request that came this far has no item in the switch yet.

use std::time::Duration;

use bytes::Bytes;
use decide::{Operation, StoreAction, StoreHalf};
use wire::{Header, Op, Status};

/// Keeps nothing: the numbers are the switch's.
pub struct Store;

impl StoreHalf for Store {
    fn operation(&mut self, _now: Duration, operation: Operation<'_>, out: &mut Vec<StoreAction>) {
        out.push(StoreAction::Report {
            tenant: operation.header.tenant,
            report: Bytes::copy_from_slice(operation.key),
        });
        out.push(StoreAction::Reply {
            request: operation.request,
            header: Header { status: Status::TryAgain, ..Header::new(Op::DisciplineReply) },
            value: Bytes::new(),
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_tells_the_control_half_and_asks_to_try_again() {
        let mut out = vec![];
        let operation = Operation {
            request: 5,
            from: ([10, 0, 0, 9], 4000).into(),
            header: &Header { tenant: 7, ..Header::new(Op::DisciplineRequest) },
            key: b"lot 4",
            value: &[],
            owned: true,
        };
        Store.operation(Duration::ZERO, operation, &mut out);
        let [
            StoreAction::Report { tenant: 7, report },
            StoreAction::Reply { request: 5, header, .. },
        ] = &out[..]
        else {
            panic!("{out:?}");
        };
        assert_eq!((&report[..], header.status), (&b"lot 4"[..], Status::TryAgain));
    }
}
