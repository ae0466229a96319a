//! The store half: a request that came this far has no item in the switch yet.

use std::time::Duration;

use bytes::Bytes;
use decide::{StoreAction, StoreEvent, StoreHalf};
use wire::{Header, Op, Status};

/// Keeps nothing: the numbers are the switch's.
pub struct Store;

impl StoreHalf for Store {
    fn on(&mut self, _now: Duration, event: StoreEvent<'_>, out: &mut Vec<StoreAction>) {
        let StoreEvent::Request {
            request,
            header,
            key,
            ..
        } = event
        else {
            return;
        };
        out.push(StoreAction::Report {
            tenant: header.tenant,
            report: Bytes::copy_from_slice(key),
        });
        out.push(StoreAction::Reply {
            request,
            header: Header {
                status: Status::TryAgain,
                ..Header::new(Op::DisciplineReply)
            },
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
        let request = StoreEvent::Request {
            request: 5,
            from: ([10, 0, 0, 9], 4000).into(),
            header: &Header {
                tenant: 7,
                ..Header::new(Op::DisciplineRequest)
            },
            key: b"lot 4",
            value: &[],
            owned: true,
        };
        Store.on(Duration::ZERO, request, &mut out);
        let [StoreAction::Report { tenant: 7, report }, StoreAction::Reply { request: 5, header, .. }] = &out[..] else {
            panic!("{out:?}");
        };
        assert_eq!((&report[..], header.status), (&b"lot 4"[..], Status::TryAgain));
    }
}
