//! What programs tell the agent through a ring: keys that are read often, and granted values that
//! found no room. The layout is `struct event` of `bpf/events.h`.

use std::sync::mpsc;

use libbpf_rs::{MapHandle, RingBuffer, RingBufferBuilder};

use super::{backing::Backing, local::LocalMap, map::Map};
use crate::{
    Error,
    layout::{EVENT_HEADER as HEADER, EVENT_HOT, EVENT_TOO_LARGE, EVENT_UNANSWERED},
};

/// What the programs tell the agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A key was read often enough in this window by requests that no item answered.
    Hot {
        /// Whose key space.
        tenant: u32,
        /// The key.
        key: Vec<u8>,
        /// One CPU's estimate of reads in the window so far.
        count: u32,
        /// The window that it was counted in.
        window: u32,
        /// Whether it has an item.
        has_item: bool,
    },
    /// A granted value did not fit the cells of its item.
    TooLarge {
        /// Whose key space.
        tenant: u32,
        /// The key.
        key: Vec<u8>,
        /// What the value needs in bytes.
        value_len: u16,
    },
}

/// Events taken at a time; the ring holds some twenty thousand.
const MOST_AT_ONCE: usize = 8_192;

impl Event {
    /// `struct event` of `bpf/events.h`; `None` for bytes that are not one.
    fn parse(bytes: &[u8]) -> Option<Event> {
        let word = |at: usize| Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
        let (kind, key_len) = (*bytes.first()?, usize::from(*bytes.get(1)?));
        let value_len = u16::from_ne_bytes(bytes.get(2..4)?.try_into().ok()?);
        let key = bytes.get(HEADER..HEADER + key_len)?.to_vec();
        let tenant = word(4)?;
        match kind {
            EVENT_HOT | EVENT_UNANSWERED => Some(Event::Hot {
                tenant,
                key,
                count: word(8)?,
                window: word(12)?,
                has_item: kind == EVENT_UNANSWERED,
            }),
            EVENT_TOO_LARGE => Some(Event::TooLarge { tenant, key, value_len }),
            _ => None,
        }
    }
}

/// The ring of events, emptied by polling: programs wake nobody.
pub struct Events(Ring);

enum Ring {
    Kernel { ring: RingBuffer<'static>, parsed: mpsc::Receiver<Event> },
    Native(LocalMap),
}

impl Events {
    /// The ring of a switch. One reader at a time.
    ///
    /// # Errors
    /// If it is not there or cannot be mapped.
    pub fn open(at: impl Into<Backing>) -> Result<Events, Error> {
        let wrong = || Error::bpf("opening the ring of events");
        let map = match at.into().map("events")? {
            Map::Native(ring) => return Ok(Events(Ring::Native(ring))),
            Map::Kernel(map) => map,
        };
        // The ring's lifetime is tied to its map's; an agent opens one, once.
        let map: &'static MapHandle = Box::leak(Box::new(map));
        let (sender, parsed) = mpsc::channel();
        let mut builder = RingBufferBuilder::new();
        builder
            .add(map, move |bytes| {
                if let Some(event) = Event::parse(bytes) {
                    let _ = sender.send(event);
                }
                0
            })
            .map_err(wrong())?;
        let ring = builder.build().map_err(wrong())?;
        Ok(Events(Ring::Kernel { ring, parsed }))
    }

    /// Takes what is in the ring, up to a bound, so that programs that write as fast as it is read
    /// cannot keep the reader here.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn drain(&self) -> Result<impl Iterator<Item = Event> + '_, Error> {
        if let Ring::Kernel { ring, .. } = &self.0 {
            let taken = ring.consume_raw_n(MOST_AT_ONCE);
            if taken < 0 {
                let source = std::io::Error::from_raw_os_error(-taken);
                return Err(Error::System { what: "reading the ring of events", source });
            }
        }
        let next = move || match &self.0 {
            Ring::Kernel { parsed, .. } => parsed.try_recv().ok(),
            Ring::Native(ring) => std::iter::repeat_with(|| ring.take())
                .map_while(|bytes| bytes)
                .find_map(|bytes| Event::parse(&bytes)),
        };
        Ok(std::iter::from_fn(next).take(MOST_AT_ONCE))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_that_are_no_event_are_none() {
        assert_eq!(Event::parse(&[]), None);
        assert_eq!(Event::parse(&[1; 15]), None);
        assert_eq!(Event::parse(&[9; 300]), None);
        assert_eq!(Event::parse(&[1, 5, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]), None);
    }
}
