//! What the two halves say to each other.
//!
//! To the store: how many keys to report (16 bits), and how often (32 bits, milliseconds). To the
//! control half: how long it counted (32 bits, milliseconds), then keys, each with its length (8
//! bits) before it and its reads (32 bits) behind it. Numbers in network order.

use std::time::Duration;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use decide::Key;

/// A request of the control half: what a store is to report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReportRequest {
    /// The number of keys in a report.
    pub keys: u16,
    /// The length of a window, after which there is a report.
    pub window: Duration,
}

impl ReportRequest {
    /// Encodes it as a message.
    pub fn encode(&self) -> Bytes {
        let mut bytes = BytesMut::with_capacity(6);
        bytes.put_u16(self.keys);
        bytes.put_u32(self.window.as_millis() as u32);
        bytes.freeze()
    }

    /// Decodes a message; `None` if it is none.
    pub fn decode(mut bytes: &[u8]) -> Option<ReportRequest> {
        Some(ReportRequest {
            keys: bytes.try_get_u16().ok()?,
            window: Duration::from_millis(bytes.try_get_u32().ok()?.into()),
        })
    }
}

/// The keys that were read most at a store, of one tenant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// How long reads were counted.
    pub counted: Duration,
    /// Keys with their reads in that time.
    pub keys: Vec<(Key, u32)>,
}

impl Report {
    /// Encodes it as a message.
    pub fn encode(&self) -> Bytes {
        let mut bytes = BytesMut::new();
        bytes.put_u32(self.counted.as_millis() as u32);
        for (key, reads) in &self.keys {
            bytes.put_u8(key.len() as u8);
            bytes.put_slice(key);
            bytes.put_u32(*reads);
        }
        bytes.freeze()
    }

    /// Decodes a message; `None` if it is none. Each key is copied, so that one does not keep the
    /// whole message in memory.
    pub fn decode(mut bytes: &[u8]) -> Option<Report> {
        let counted = Duration::from_millis(bytes.try_get_u32().ok()?.into());
        let mut keys = vec![];
        while bytes.has_remaining() {
            let len = usize::from(bytes.get_u8());
            let key = bytes.split_off(..len).filter(|key| !key.is_empty())?;
            keys.push((Key::copy_from_slice(key), bytes.try_get_u32().ok()?));
        }
        Some(Report { counted, keys })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::TOP_K_MOST;
    use proptest::prelude::*;

    #[test]
    fn the_longest_report_is_no_longer_than_a_message() {
        let key = Key::from(vec![1; wire::MAX_KEY]);
        let report =
            Report { counted: Duration::MAX, keys: vec![(key, u32::MAX); TOP_K_MOST as usize] };
        assert!(report.encode().len() <= decide::MESSAGE_MAX);
    }

    proptest! {
        #[test]
        fn what_was_written_is_read(keys in 0u16.., ms in 0u32.., reads in prop::collection::vec((prop::collection::vec(0u8.., 1..=255), 0u32..), 0..20)) {
            let window = Duration::from_millis(ms.into());
            let wanted = ReportRequest { keys, window };
            prop_assert_eq!(ReportRequest::decode(&wanted.encode()), Some(wanted));
            let keys = reads.into_iter().map(|(key, n)| (Key::from(key), n)).collect();
            let report = Report { counted: window, keys };
            prop_assert_eq!(Report::decode(&report.encode()), Some(report));
        }

        #[test]
        fn anything_is_read_or_refused(bytes in prop::collection::vec(0u8.., 0..100)) {
            let _ = (ReportRequest::decode(&bytes), Report::decode(&bytes));
        }
    }
}
