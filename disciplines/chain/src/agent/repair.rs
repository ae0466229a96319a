//! Versions whose acknowledgement was lost with whoever would have asked again: the tail is asked
//! about each that waits for long.

use wire::{Header, Op};

use super::Item;
use crate::{
    packets::{Peer, PeerKind},
    record::KeyRecord,
    view::View,
};

/// A version waits for long after this time, and items are looked through as often.
const WAITS_NS: u64 = 500_000_000;
/// Questions in one look through the items.
const ASKS: usize = 256;

/// How far the items are looked through.
#[derive(Debug, Default)]
pub struct Repair {
    next: u32,
    /// When the present look began.
    began_ns: u64,
    is_over: bool,
    asked: usize,
}

impl Repair {
    /// Where to look on, if it is time.
    pub fn next(&mut self, now_ns: u64) -> Option<u32> {
        if self.is_over && now_ns < self.began_ns + WAITS_NS {
            return None;
        }
        if self.is_over || self.began_ns == 0 {
            (self.next, self.began_ns, self.is_over, self.asked) = (0, now_ns, false, 0);
        }
        Some(self.next)
    }

    /// Items were looked at, up to there.
    pub fn walked(&mut self, next: Option<u32>) {
        match next {
            Some(next) => self.next = next,
            None => self.is_over = true,
        }
    }

    /// The question that an item makes necessary, and to whom.
    pub fn item(
        &mut self,
        view: &View,
        own: u8,
        now_ns: u64,
        item: &Item<'_>,
    ) -> Option<(u8, Header, Vec<u8>)> {
        let record = KeyRecord::decode(item.record?)?;
        let chain = chain_of(view, item)?;
        let waited = ((now_ns >> 20) as u32).wrapping_sub(record.since);
        let waits =
            record.last != record.clean && i64::from(waited as i32) > (WAITS_NS >> 20) as i64;
        let tail = *chain.slots.last()?;
        let asks = waits && tail != own && chain.slots.contains(&own) && self.asked < ASKS;
        if !asks {
            return None;
        }
        self.asked += 1;
        let header = Header { version: record.last, ..Header::new(Op::PeerMessage) };
        Some((tail, header, Peer::new(PeerKind::Ask).encode().to_vec()))
    }
}

/// The chain that a user's key is in.
pub(super) fn chain_of<'a>(view: &'a View, item: &Item<'_>) -> Option<&'a crate::view::Chain> {
    let number = chain_wire::chain_of(item.hash, view.chains.len() as u16);
    view.chains.get(usize::from(number))
}
