//! What members of a chain say to each other (`packet.h`): the beginnings of the values of
//! [`wire::Op::PeerMessage`] and [`wire::Op::PeerSignal`], in network order. Each has the number of
//! the view in `epoch`, the sender's slot plus 1 in `node`.

use chain_wire::WRITES_MOST;
use wire::Status;

use crate::record::{Note, SessionRecord};

/// What a [`wire::Op::PeerMessage`] is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum PeerKind {
    /// To the next member: a version of a key, and whose write it is.
    Pass = 1,
    /// To the next member: a write was refused, and is to be remembered so.
    Lost = 2,
    /// To the previous member: what comes after `version` of this key has not come.
    Nack = 3,
    /// To the last member, from an agent: `version` is what the sender has, is it committed?
    Ask = 4,
    /// To a filling tail, from an agent: the newest version from before it began to be filled.
    Copy = 5,
    /// To that agent: `version` is what the tail has of the key, `fill` what it was filled under.
    Copied = 6,
    /// To a filling tail, from an agent: a client's session ([`encode_notes`]); `version` is when
    /// it was last used.
    CopySession = 7,
}

/// `flags` of a [`Peer`].
pub mod flags {
    /// The source is the client, who is to be answered.
    pub const REPLY: u8 = 1;
    /// Asked for again: the last member acknowledges or answers what it has.
    pub const AGAIN: u8 = 2;
    /// The first version that a filling tail is passed of a key.
    pub const JUMP: u8 = 4;
    /// The client signed with the tenant's other secret.
    pub const ALSO: u8 = 8;
    /// The version is a delete.
    pub const DELETE: u8 = 16;
    /// The next version follows; within one switch.
    pub const MORE: u8 = 32;
    /// In a Copy: there is no version in it. The tail is to take note that there is none up to
    /// `version`, if `fill` is not 0, or else to say only what it has.
    pub const BARE: u8 = 64;
    /// Answers to the client pass all members that the message came by: they need no other word
    /// that it is committed.
    pub const HEARD: u8 = 128;
}

/// What the value of a [`wire::Op::PeerMessage`] begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    /// What the message is about.
    pub kind: PeerKind,
    /// See [`flags`].
    pub flags: u8,
    /// Why a write was refused ([`PeerKind::Lost`]).
    pub status: Status,
    /// The low half of the hash of the client's session.
    pub session: u64,
    /// The newest version that the sender knows to be committed.
    pub clean: u64,
    /// The number of the view under which the head took the version.
    pub accepted: u64,
    /// The fill number that a copy is for.
    pub fill: u64,
}

impl Peer {
    /// The message's length in bytes.
    pub const LEN: usize = 40;

    /// A message with nothing but its kind.
    pub const fn new(kind: PeerKind) -> Peer {
        Peer { kind, flags: 0, status: Status::Ok, session: 0, clean: 0, accepted: 0, fill: 0 }
    }

    /// Encodes it as the bytes that programs read.
    pub fn encode(&self) -> [u8; Peer::LEN] {
        let mut bytes = [0; Peer::LEN];
        bytes[..2].copy_from_slice(&[self.kind as u8, self.flags]);
        bytes[2..4].copy_from_slice(&(self.status as u16).to_be_bytes());
        for (at, word) in
            [(8, self.session), (16, self.clean), (24, self.accepted), (32, self.fill)]
        {
            bytes[at..at + 8].copy_from_slice(&word.to_be_bytes());
        }
        bytes
    }

    /// Reads it from the beginning of a value, and what follows it. `None`: no such message.
    pub fn decode(value: &[u8]) -> Option<(Peer, &[u8])> {
        let (bytes, rest) = value.split_first_chunk::<{ Peer::LEN }>()?;
        let word = |at: usize| Some(u64::from_be_bytes(*bytes.get(at..)?.first_chunk()?));
        let peer = Peer {
            kind: match bytes[0] {
                1 => PeerKind::Pass,
                2 => PeerKind::Lost,
                3 => PeerKind::Nack,
                4 => PeerKind::Ask,
                5 => PeerKind::Copy,
                6 => PeerKind::Copied,
                7 => PeerKind::CopySession,
                _ => return None,
            },
            flags: bytes[1],
            status: Status::from_bits(u8::try_from(u16::from_be_bytes([bytes[2], bytes[3]])).ok()?)
                .ok()?,
            session: word(8)?,
            clean: word(16)?,
            accepted: word(24)?,
            fill: word(32)?,
        };
        Some((peer, rest))
    }
}

/// Bytes of [`encode_notes`].
pub const NOTES: usize = WRITES_MOST as usize * 24;

/// What follows the [`Peer`] of a [`PeerKind::CopySession`]: a session's notes.
pub fn encode_notes(session: &SessionRecord) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(NOTES);
    for Note { request, seq, refused, absent, chain, .. } in session.notes {
        bytes.extend(request.to_be_bytes());
        bytes.extend(seq.to_be_bytes());
        let refused = refused.map_or(0, |status| status as u8 + 1);
        let chain = chain.map_or(0, |chain| chain + 1);
        bytes.extend([refused, absent.into(), chain, 0, 0, 0, 0, 0]);
    }
    bytes
}

/// What a [`wire::Op::PeerSignal`] says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum BeatKind {
    /// From an agent: its switch is there. The programs do the rest.
    Beat = 1,
    /// The answer to a beat.
    Echo = 2,
    /// The answer to an echo.
    Back = 3,
}

/// The value of a [`wire::Op::PeerSignal`]. Times are of CLOCK_BOOTTIME in nanoseconds, each of its
/// own switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Beat {
    /// What the beat says.
    pub kind: BeatKind,
    /// The slot of who began.
    pub from: u8,
    /// The slot of the other one.
    pub to: u8,
    /// When the exchange began.
    pub t_from_ns: u64,
    /// When the other one answered.
    pub t_to_ns: u64,
    /// The life of the sender's tables.
    pub life: u64,
}

impl Beat {
    /// The beat's length in bytes.
    pub const LEN: usize = 32;

    /// Encodes it as the bytes that programs read.
    pub fn encode(&self) -> [u8; Beat::LEN] {
        let mut bytes = [0; Beat::LEN];
        bytes[..3].copy_from_slice(&[self.kind as u8, self.from, self.to]);
        for (at, word) in [(8, self.t_from_ns), (16, self.t_to_ns), (24, self.life)] {
            bytes[at..at + 8].copy_from_slice(&word.to_be_bytes());
        }
        bytes
    }

    /// Reads a value. `None`: no such message.
    pub fn decode(value: &[u8]) -> Option<Beat> {
        let bytes: &[u8; Beat::LEN] = value.first_chunk()?;
        let word = |at: usize| Some(u64::from_be_bytes(*bytes.get(at..)?.first_chunk()?));
        Some(Beat {
            kind: match bytes[0] {
                1 => BeatKind::Beat,
                2 => BeatKind::Echo,
                3 => BeatKind::Back,
                _ => return None,
            },
            from: bytes[1],
            to: bytes[2],
            t_from_ns: word(8)?,
            t_to_ns: word(16)?,
            life: word(24)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_read_as_they_were_written() {
        let peer = Peer {
            flags: flags::REPLY | flags::DELETE,
            status: Status::Mismatch,
            session: 1,
            clean: 2,
            accepted: 3,
            fill: 4,
            ..Peer::new(PeerKind::Lost)
        };
        let bytes = [&peer.encode()[..], b"value"].concat();
        assert_eq!(bytes[..4], [2, 17, 0, 2]);
        assert_eq!(Peer::decode(&bytes), Some((peer, &b"value"[..])));
        assert_eq!(Peer::decode(&bytes[..39]), None);
        assert_eq!(Peer::decode(&[0; 40]), None);
    }

    #[test]
    fn signals_are_read_as_they_were_written() {
        let beat = Beat { kind: BeatKind::Echo, from: 3, to: 4, t_from_ns: 5, t_to_ns: 6, life: 7 };
        let bytes = beat.encode();
        assert_eq!((bytes[..3].to_vec(), bytes[15]), (vec![2, 3, 4], 5));
        assert_eq!(Beat::decode(&bytes), Some(beat));
        assert_eq!(Beat::decode(&bytes[..31]), None);
    }

    #[test]
    fn notes_travel_in_network_order() {
        let mut session = SessionRecord::new(1, 2, 3);
        session.notes[1] =
            Note { request: 17, seq: 5, refused: Some(Status::NotFound), ..Note::default() };
        session.notes[1].chain = Some(3);
        let bytes = encode_notes(&session);
        assert_eq!(bytes.len(), NOTES);
        assert_eq!((bytes[31], bytes[39], bytes[40], bytes[42]), (17, 5, 2, 4));
    }
}
