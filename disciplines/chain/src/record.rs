//! What stands behind a key, and behind a client's session, in a switch (`record.h`): in the order
//! of the switch's processor.

use bytes::Bytes;
use chain_wire::WRITES_MOST;
use wire::Status;

/// Bytes of a key's record before its versions.
pub const HEADER: usize = 64;
/// Bytes of a version before its value.
pub const VERSION_HEADER: usize = 48;
/// How many versions of a key a switch can have, as powers of two, each with the bytes that one
/// takes.
pub const STRIDES: [usize; 5] = [1680, 840, 416, 208, 104];
/// Bytes of a session's record.
pub const SESSION: usize = 32 + WRITES_MOST as usize * NOTE;
const NOTE: usize = 24;
const DELETED: u8 = 1;

/// Bytes of a value, at most, where a key has `1 << shift` versions; `None`: it cannot have as
/// many.
pub fn value_most(shift: u8) -> Option<usize> {
    let stride = STRIDES.get(usize::from(shift))?;
    Some(stride - VERSION_HEADER)
}

/// One version of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Version {
    /// Its number: each key's are counted up by one.
    pub seq: u64,
    /// The number of the view under which the head took it.
    pub accepted: u64,
    /// The client whose write it was.
    pub client: u64,
    /// The number of the client's request.
    pub request: u64,
    /// The low half of the hash of the client's session.
    pub session: u64,
    /// The value; `None`: the write was a delete.
    pub value: Option<Bytes>,
}

/// What a switch has of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyRecord {
    /// The newest version that was applied here.
    pub last: u64,
    /// The newest of which it is known that it is committed.
    pub clean: u64,
    /// The one below the first that was applied here.
    pub base: u64,
    /// The fill number under which it was filled.
    pub filled: u64,
    /// The fill number of the chain when...
    pub mark_number: u64,
    /// ... this version was applied here, the first under that number.
    pub mark_seq: u64,
    /// When it was last known that it makes progress, in steps of 2^20 ns of CLOCK_BOOTTIME;
    /// meaningful while `last` is not `clean`.
    pub since: u32,
    /// It has room for `1 << shift` versions.
    pub shift: u8,
    /// The versions that are there, in no order.
    pub versions: Vec<Version>,
}

/// A record without a version. Versions begin with `floor + 1`. `filled`: 0 for a member that is
/// still to be filled, else the present number of the view. `None`: no key has as many versions.
pub fn new_key(floor: u64, filled: u64, shift: u8) -> Option<Bytes> {
    let stride = STRIDES.get(usize::from(shift))?;
    let mut bytes = vec![0; HEADER + (stride << shift)];
    for (at, word) in [(0, floor), (8, floor), (16, floor), (24, filled)] {
        bytes[at..at + 8].copy_from_slice(&word.to_ne_bytes());
    }
    bytes[56] = shift;
    Some(bytes.into())
}

/// A record whose only version is this one, committed; of a value that was restored. `None`: the
/// value is too long.
pub fn restored_key(version: &Version, filled: u64, shift: u8) -> Option<Bytes> {
    let value = version.value.as_deref().unwrap_or_default();
    if value.len() > value_most(shift)? {
        return None;
    }
    let mut bytes = new_key(version.seq, filled, shift)?.to_vec();
    let stride = STRIDES[usize::from(shift)];
    let at = HEADER + (version.seq as usize & ((1 << shift) - 1)) * stride;
    let words = [version.seq, version.accepted, version.client, version.request, version.session];
    for (i, word) in words.into_iter().enumerate() {
        bytes[at + 8 * i..at + 8 * i + 8].copy_from_slice(&word.to_ne_bytes());
    }
    bytes[at + 40..at + 42].copy_from_slice(&(value.len() as u16).to_ne_bytes());
    bytes[at + 42..at + 44].copy_from_slice(&sum_of(value).to_ne_bytes());
    bytes[at + 44] = if version.value.is_none() { DELETED } else { 0 };
    bytes[at + VERSION_HEADER..at + VERSION_HEADER + value.len()].copy_from_slice(value);
    Some(bytes.into())
}

/// The same sum as `sum_of` in `bpf/checksum.h`.
fn sum_of(value: &[u8]) -> u16 {
    let mut sum = 0u64;
    for pair in value.chunks(2) {
        sum += u64::from(u16::from_ne_bytes([pair[0], pair.get(1).copied().unwrap_or(0)]));
    }
    while sum >> 16 != 0 {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

impl KeyRecord {
    /// Reads a record as it was at one moment. `None`: no record of a key.
    pub fn decode(record: &[u8]) -> Option<KeyRecord> {
        let shift = *record.get(56)?;
        let stride = *STRIDES.get(usize::from(shift))?;
        let slots = record.get(HEADER..HEADER + (stride << shift))?;
        let versions = slots.chunks_exact(stride).enumerate();
        let versions = versions.filter_map(|(at, slot)| {
            version_at(slot).filter(|v| v.seq as usize & ((1 << shift) - 1) == at)
        });
        Some(KeyRecord {
            last: word(record, 0)?,
            clean: word(record, 8)?,
            base: word(record, 16)?,
            filled: word(record, 24)?,
            mark_number: word(record, 32)?,
            mark_seq: word(record, 40)?,
            since: u32::from_ne_bytes(*record[48..].first_chunk()?),
            shift,
            versions: versions.collect(),
        })
    }

    /// The version of that number, if it is there.
    pub fn version(&self, seq: u64) -> Option<&Version> {
        self.versions.iter().find(|version| version.seq == seq)
    }

    /// The newest version that was applied here before the chain was filled under this number. What
    /// came later is passed on by the programs.
    pub fn boundary(&self, fill_number: u64) -> u64 {
        match self.mark_number == fill_number {
            true => self.mark_seq.saturating_sub(1),
            false => self.last,
        }
    }
}

fn version_at(slot: &[u8]) -> Option<Version> {
    let seq = word(slot, 0)?;
    let len = usize::from(u16::from_ne_bytes(*slot.get(40..)?.first_chunk()?));
    let value = slot.get(VERSION_HEADER..VERSION_HEADER + len)?;
    let deleted = slot[44] & DELETED != 0;
    (seq != 0).then_some(())?;
    Some(Version {
        seq,
        accepted: word(slot, 8)?,
        client: word(slot, 16)?,
        request: word(slot, 24)?,
        session: word(slot, 32)?,
        value: (!deleted).then(|| Bytes::copy_from_slice(value)),
    })
}

/// What is remembered of one of a client's last writes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Note {
    /// The request of the write; 0: none.
    pub request: u64,
    /// What became of it: the version that it made, or that refused it.
    pub seq: u64,
    /// Why it was refused; `None`: it was applied.
    pub refused: Option<Status>,
    /// It was refused because there was no such key.
    pub absent: bool,
    /// The chain that the write's key is in; `None`: not known.
    pub chain: Option<u8>,
    /// The low half of the number of the view under which this switch made the note; 0: it was
    /// copied here.
    pub under: u32,
}

impl Note {
    /// The note of one who knows that the write was begun, and not what became of it.
    pub fn forgotten(self) -> Note {
        Note { request: self.request, refused: Some(Status::Forgotten), ..Note::default() }
    }

    /// The note of one who knows nothing of the write, but that those that its client had at the
    /// same place before have ended.
    pub fn before(self) -> Note {
        let places = WRITES_MOST;
        match self.request.checked_sub(places).filter(|before| *before >= places) {
            Some(request) => Note { request, ..self }.forgotten(),
            None => Note::default(),
        }
    }
}

/// What a switch remembers of a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionRecord {
    /// The number of the view under which it was last used.
    pub seen: u64,
    /// The fill number under which it was filled.
    pub filled: u64,
    /// The client.
    pub client: u64,
    /// Its last writes, each at the place that its request says.
    pub notes: [Note; WRITES_MOST as usize],
}

impl SessionRecord {
    /// The session of a client which has written nothing. `filled` as in [`new_key`], `seen` the
    /// present number.
    pub fn new(client: u64, seen: u64, filled: u64) -> SessionRecord {
        SessionRecord { seen, filled, client, notes: Default::default() }
    }

    /// Encodes it as programs read it.
    pub fn encode(&self) -> Bytes {
        let mut bytes = vec![];
        for word in [self.seen, self.filled, self.client, 0] {
            bytes.extend(word.to_ne_bytes());
        }
        for note in &self.notes {
            bytes.extend(note.request.to_ne_bytes());
            bytes.extend(note.seq.to_ne_bytes());
            let refused = note.refused.map_or(0, |status| status as u8 + 1);
            bytes.extend([refused, note.absent.into(), note.chain.map_or(0, |chain| chain + 1), 0]);
            bytes.extend(note.under.to_ne_bytes());
        }
        bytes.into()
    }

    /// Reads a record. `None`: no record of a session.
    pub fn decode(record: &[u8]) -> Option<SessionRecord> {
        let notes = record.get(32..SESSION)?;
        let mut session = SessionRecord::new(word(record, 16)?, word(record, 0)?, word(record, 8)?);
        for (note, bytes) in session.notes.iter_mut().zip(notes.chunks_exact(NOTE)) {
            *note = Note {
                request: word(bytes, 0)?,
                seq: word(bytes, 8)?,
                refused: match bytes[16] {
                    0 => None,
                    status => Some(Status::from_bits(status - 1).ok()?),
                },
                absent: bytes[17] != 0,
                chain: bytes[18].checked_sub(1),
                under: u32::from_ne_bytes(*bytes[20..].first_chunk()?),
            };
        }
        Some(session)
    }
}

fn word(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn version(value: Option<&'static [u8]>) -> Version {
        Version {
            seq: 1 << 40 | 6,
            accepted: 3,
            client: 4,
            request: 16,
            session: 5,
            value: value.map(Bytes::from_static),
        }
    }

    /// What docs/operations/sizing.md says that a key and a client take, and how many a page has.
    #[test]
    fn the_page_about_sizing_has_these_numbers() {
        let page = include_str!("../../../docs/operations/sizing.md");
        let cells =
            |key_len, len| usize::from(dataplane::cells_needed_given(key_len, len).unwrap());
        // Cells of a page, and those in which an item may start.
        let on_a_page =
            |cells: usize| (415 / cells).min((decide::PAGE_START_CELLS - 1) / cells + 1);
        let of_keys = |key_len| {
            let rings = (0..STRIDES.len()).map(|shift| HEADER + (STRIDES[shift] << shift));
            let all: Vec<usize> = rings.map(|len| cells(key_len, len)).collect();
            let (least, most) = (*all.iter().min().unwrap(), *all.iter().max().unwrap());
            assert_eq!(on_a_page(least), on_a_page(most));
            (least, most)
        };
        assert_eq!((of_keys(1), of_keys(64)), ((28, 29), (29, 29)));
        let (short, (long, longest)) = (on_a_page(29), of_keys(250));
        assert_eq!((long, longest), (32, 32));
        let client = cells(10, SESSION);
        let rows = [
            format!("| a key of up to 64 bytes, whatever its value | 28 or 29 | {short} |"),
            format!("| a key of 250 bytes | {long} | {} |", on_a_page(long)),
            format!(
                "| a client that wrote within some twelve minutes | {client} | {} |",
                on_a_page(client)
            ),
            format!("{} keys and {} clients", 3 * short, on_a_page(client)),
        ];
        for row in rows {
            assert!(page.contains(&row), "docs/operations/sizing.md does not have: {row}");
        }
    }

    #[test]
    fn a_new_key_has_no_version() {
        for shift in 0..5 {
            let bytes = new_key(7, 9, shift).expect("possible");
            assert!(bytes.len() <= 1744);
            let key = KeyRecord::decode(&bytes).expect("a record");
            assert_eq!((key.last, key.clean, key.base, key.filled), (7, 7, 7, 9));
            assert_eq!((key.shift, key.versions.len()), (shift, 0));
            assert_eq!(value_most(shift).map(|most| most % 8), Some(0));
        }
        assert_eq!(new_key(0, 0, 5), None);
    }

    #[test]
    fn a_restored_key_has_its_version() {
        for (shift, value) in [(0, Some(&b"value"[..])), (4, None), (1, Some(b""))] {
            let wanted = version(value);
            let bytes = restored_key(&wanted, 9, shift).expect("possible");
            let key = KeyRecord::decode(&bytes).expect("a record");
            assert_eq!((key.last, key.clean), (wanted.seq, wanted.seq));
            assert_eq!(key.version(wanted.seq), Some(&wanted));
            assert_eq!(key.boundary(1), wanted.seq);
        }
        let long = Version { value: Some(Bytes::from_static(&[0; 57])), ..version(None) };
        assert_eq!(restored_key(&long, 9, 4), None);
    }

    #[test]
    fn the_boundary_is_below_what_was_applied_under_the_number() {
        let mut key = KeyRecord::decode(&new_key(7, 9, 1).expect("possible")).expect("a record");
        (key.last, key.mark_number, key.mark_seq) = (9, 5, 8);
        assert_eq!((key.boundary(5), key.boundary(6)), (7, 9));
    }

    #[test]
    fn a_session_is_read_as_it_was_written() {
        let mut session = SessionRecord::new(0xc11e, 3, 4);
        session.notes[2] = Note {
            request: 18,
            seq: 77,
            refused: Some(Status::Mismatch),
            absent: true,
            chain: Some(63),
            under: 9,
        };
        session.notes[15].request = 31;
        let bytes = session.encode();
        assert_eq!(bytes.len(), 416);
        assert_eq!(SessionRecord::decode(&bytes), Some(session));
        assert_eq!(SessionRecord::decode(&bytes[1..]), None);
    }
}
