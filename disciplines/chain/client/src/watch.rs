//! What a watch tells, and in which order.

use bytes::Bytes;
use wire::{Header, Status};

/// What a key is now, as a watch tells it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyState {
    /// Its version; 0: it is absent, and nobody knows that it ever was anything else.
    pub version: u64,
    /// Its value; none: it is absent.
    pub value: Option<Bytes>,
}

/// What was told last.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct WatchMemory {
    last: Option<Notice>,
}

#[derive(Clone, Copy, Debug)]
struct Notice {
    version: u64,
    is_there: bool,
    /// The newest request that was sent when it was told.
    request: u64,
}

impl WatchMemory {
    /// Whether this answer, to request `request` of which `newest` is the newest, is news.
    ///
    /// Packets overtake one another. Versions say which is the newer one; but an absent key whose
    /// last version nobody remembers has none, so that such an answer counts only if it was asked
    /// for after what was told last.
    pub fn is_news(&mut self, header: &Header, newest: u64) -> bool {
        let is_there = header.status == Status::Ok;
        let version = header.version;
        let is_news = match self.last {
            None => true,
            Some(last) if version == 0 => last.is_there && header.request > last.request,
            Some(last) => version > last.version,
        };
        if is_news {
            let before = self.last.map_or(0, |last| last.version);
            self.last = Some(Notice { version: version.max(before), is_there, request: newest });
        }
        is_news
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::Op;

    fn told(seen: &mut WatchMemory, version: u64, request: u64, newest: u64) -> bool {
        let status = match version {
            0 => Status::NotFound,
            _ => Status::Ok,
        };
        let header = Header { status, version, request, ..Header::new(Op::ChainReadReply) };
        seen.is_news(&header, newest)
    }

    #[test]
    fn nothing_old_is_told_after_something_new() {
        let mut seen = WatchMemory::default();
        assert!(told(&mut seen, 0, 1, 1), "the first answer");
        assert!(!told(&mut seen, 0, 2, 2), "still absent");
        assert!(told(&mut seen, 5, 1, 3));
        assert!(!told(&mut seen, 4, 3, 3), "overtaken");
        assert!(!told(&mut seen, 0, 3, 3), "asked for before it came to be");
        assert!(told(&mut seen, 0, 4, 4), "its tombstone is gone");
        assert!(!told(&mut seen, 5, 4, 4));
        assert!(told(&mut seen, 6, 4, 4));
    }
}
