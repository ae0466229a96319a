//! How long a call's requests are, so that they and their answers fit the path; and what a call
//! finds out about the path.
//!
//! A read leaves room for its answer. If nothing comes, that may be because one of the two was too
//! long for the path: the read is then made anew so that both are short, whatever the value's
//! length: it names a part of no version, so the answer brings the first part at most. What is
//! known of the path beforehand ([`Paths`](crate::paths::Paths)) spares that time.
//!
//! A write is made anew only as long as no store can have done it. So where it is not known that
//! the path carries a long one, that first names no life of the store, as any write does before a
//! store was heard of: its answer shows that it arrived, and a silence leads to parts.

use std::net::SocketAddr;

use wire::{Flags, HEADER_LEN, Header, Op, PART_BYTES, Secret, VERSION_PRESENT};

use crate::{
    payload::{max_payload, short_payload},
    rules::Rules,
};

/// Silences after which a request is made shorter: of one that is long, where no long one was
/// answered lately; of others.
const PATIENCE: (u32, u32) = (1, 3);

/// One call's requests to one store.
pub(crate) struct Fit {
    store: SocketAddr,
    /// The store's number in the routes.
    window: usize,
    /// A read asks for no more than a part.
    in_parts: bool,
    /// Nothing is padded beyond what a short path carries.
    capped: bool,
    /// Bytes that the value has, if an answer said that they need more room.
    need: usize,
    silences: u32,
    /// Its request was made shorter after a silence, and nothing was heard since.
    fell_back: bool,
    /// When anything was sent last before that.
    whole_ns: u64,
    long: Option<Long>,
    /// The system did not send what cannot be made shorter.
    refused: bool,
}

/// A request that is longer than a short path carries, and was not answered.
#[derive(Clone, Copy)]
struct Long {
    /// None: others have its id, too.
    request: Option<u64>,
    since_ns: u64,
}

impl Fit {
    pub fn new(store: SocketAddr, window: usize) -> Fit {
        Fit {
            store,
            window,
            in_parts: false,
            capped: false,
            need: 0,
            silences: 0,
            fell_back: false,
            whole_ns: 0,
            long: None,
            refused: false,
        }
    }

    /// Whether a datagram of this length may be too long for the path.
    pub fn is_long(&self, len: usize) -> bool {
        len > short_payload(self.store)
    }

    /// An answer said that the value, of this length, needs more room.
    pub fn needs(&mut self, len: usize) {
        self.need = self.need.max(len);
    }

    /// Gives the request that it is about to be sent as what this call asks for by now, and says
    /// how long its datagram is to be at least.
    pub fn prepare(&mut self, rules: &Rules, header: &mut Header, now_ns: u64) -> usize {
        let (most, short) = (max_payload(self.store), short_payload(self.store));
        let beside = HEADER_LEN + usize::from(header.key_len);
        if header.op.is_write() {
            // Room for why it was refused, if it was.
            return if self.need > 0 { (beside + self.need).min(short) } else { 0 };
        }
        let known = rules.sizes.of_key(&header.key_hash);
        let one_packet = most - beside;
        // Of what no packet holds an answer brings a part.
        let need = match self.need {
            need if need > one_packet => PART_BYTES,
            need => need.max(known.unwrap_or_else(|| rules.sizes.of_any())),
        };
        let is_short = self.capped || rules.paths.is_short(self.window, now_ns);
        let is_known = known.is_some() || self.need > 0;
        if !is_read(header.op) {
            let most = if is_short && self.need == 0 { short } else { most };
            return (beside + need).min(most);
        }
        self.in_parts |= is_short && is_known && beside + need > short;
        header.flags = Flags::NONE;
        (header.part, header.total, header.version) = (0, 0, 0);
        if self.in_parts {
            name_a_part(header);
            let len = beside + PART_BYTES;
            return if self.need > 0 { len } else { len.min(short) };
        }
        if rules.takes_all() && header.op == Op::ReadRequest {
            header.flags = Flags::ALL;
        }
        (beside + need).min(if is_short { short } else { most })
    }

    /// A request has been sent.
    pub fn sent(&mut self, request: u64, len: usize, now_ns: u64) {
        if !self.fell_back {
            self.whole_ns = now_ns;
        }
        if self.is_long(len) {
            let since_ns = self.long.map_or(now_ns, |long| long.since_ns);
            let request = Some(request);
            self.long = Some(Long { request, since_ns });
        }
    }

    /// Whether a write of this length, of which so much is the value, is one that the path may not
    /// carry, and parts would be shorter.
    pub fn is_doubtful(&self, rules: &Rules, len: usize, value_len: usize, now_ns: u64) -> bool {
        self.is_long(len) && value_len > PART_BYTES && !rules.paths.is_long(self.window, now_ns)
    }

    /// A write that was not answered goes in parts from now on, under its id.
    pub fn falls_back(&mut self) {
        self.fell_back = true;
        if let Some(long) = &mut self.long {
            long.request = None;
        }
    }

    /// No answer came in time to a request of this length. Whether it is to be made anew.
    pub fn is_silent(&mut self, rules: &Rules, op: Op, len: usize, now_ns: u64) -> bool {
        self.silences += 1;
        if self.in_parts || self.capped || op.is_write() {
            return false;
        }
        let long = self.is_long(len);
        let patience = match long && !rules.paths.is_long(self.window, now_ns) {
            true => PATIENCE.0,
            false => PATIENCE.1,
        };
        // The answer may be long where it may be longer than the request.
        let may_help = long || is_read(op) && rules.secrets.tag != Secret::NONE;
        if !may_help || self.silences < patience {
            return false;
        }
        if is_read(op) {
            self.in_parts = true;
            self.fell_back = true;
        } else {
            // Its id stays, so nobody can tell which of the two is answered.
            self.capped = true;
            self.long = None;
        }
        true
    }

    /// An answer came; `long`: its request may have been a long one of several.
    pub fn heard(&mut self, rules: &Rules, header: &Header, long: bool, now_ns: u64) {
        let answer = |value_len| HEADER_LEN + usize::from(header.key_len) + value_len;
        let long = long
            || self.is_long(answer(usize::from(header.value_len)))
            || self.long.is_some_and(|long| long.request == Some(header.request));
        // What a switch answers says nothing of the rest of the way to the store.
        if !header.flags.has(Flags::CACHED) {
            rules.paths.heard(self.window, long, now_ns);
        }
        let fell_back = std::mem::take(&mut self.fell_back);
        // What no packet holds would have come in parts anyway.
        let whole = answer(header.total as usize);
        let was_long = header.is_part() && self.is_long(whole) && whole <= max_payload(self.store);
        if fell_back && !long && (self.long.is_some() || was_long) {
            rules.paths.lost(self.window, self.whole_ns, now_ns);
        }
    }

    /// The system did not send a datagram because it is too long for the interface.
    pub fn refused(&mut self, rules: &Rules, now_ns: u64) {
        rules.paths.refused(self.window, now_ns);
        self.refused = true;
    }

    /// It was made shorter since.
    pub fn was_shortened(&mut self) {
        self.refused = false;
        self.long = None;
    }

    /// Whether the path seems to have kept answers away.
    pub fn is_to_blame(&self, rules: &Rules) -> bool {
        let short_at = |then_ns| rules.paths.is_short(self.window, then_ns);
        let lost = |long: Long| rules.paths.loses_long(self.window, long.since_ns);
        let lost = |long: Long| lost(long) || short_at(long.since_ns);
        self.refused || self.long.is_some_and(lost) || self.fell_back && short_at(self.whole_ns)
    }
}

/// A header of a read that asks for the first part of whatever is there, or for the whole if that
/// is no longer than a part.
fn name_a_part(header: &mut Header) {
    header.flags = Flags::NONE;
    header.part = 0;
    header.total = 1;
    header.version = VERSION_PRESENT;
}

fn is_read(op: Op) -> bool {
    matches!(op, Op::ReadRequest | Op::CorrectionRequest)
}
