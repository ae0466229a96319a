//! The meta commands: two letters, a key, and flags of one letter each, some with a value behind
//! it.

use std::borrow::Cow;

use base64::{
    Engine as _,
    alphabet::STANDARD,
    engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig},
};

use crate::{
    line::{BLOCK_BYTES, KEY_BYTES, Line, Request},
    number::{signed, unsigned},
};

const BAD_FORMAT: &str = "CLIENT_ERROR bad command line format";
const BAD_KEY: &str = "CLIENT_ERROR error decoding key";
const BAD_FLAG: &str = "CLIENT_ERROR invalid flag";
const BAD_VALUE: &str = "CLIENT_ERROR bad token in command line format";
const TOO_MANY: &str = "CLIENT_ERROR options flags are too long";
/// Flags of a command with a block, at most: fewer than memcached looks at.
const FLAGS: usize = 16;
/// Longest value of the flag that is given back as it came.
const OPAQUE_BYTES: usize = 32;
/// Flags of `mg` that change nothing. The others make an item (N), have it live for another time
/// (T), mark it (R), or are not known.
const READING: &[u8] = b"bcfhklOqstv";

/// Keys as memcached decodes them: bits behind the last byte do not matter to it.
const KEYS: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new()
        .with_decode_allow_trailing_bits(true)
        .with_decode_padding_mode(DecodePaddingMode::RequireCanonical),
);

/// What a line says that begins with this word; none if that is no meta command.
pub(crate) fn line<'a>(
    name: &[u8],
    mut words: impl Iterator<Item = &'a [u8]> + Clone,
) -> Option<Line<'a>> {
    let is_known = matches!(name, b"mn" | b"me" | b"mg" | b"ms" | b"md" | b"ma");
    if !is_known {
        return None;
    }
    if name == b"mn" {
        return Some(Line::NoOp);
    }
    let Some(word) = words.next() else { return Some(Line::refused("ERROR")) };
    Some(match name {
        b"ms" => set(word, words),
        _ => without_block(name, word, words),
    })
}

/// `mg`, `md`, `ma` and `me`: memcached judges what they say.
fn without_block<'a>(
    name: &[u8],
    word: &'a [u8],
    flags: impl Iterator<Item = &'a [u8]> + Clone,
) -> Line<'a> {
    let Some(key) = key_of(word, flags.clone()) else { return Line::refused(BAD_KEY) };
    let mut letters = flags.map(|flag| flag[0]);
    let changes_nothing = match name {
        b"me" => true,
        b"mg" => letters.all(|letter| READING.contains(&letter)),
        _ => false,
    };
    Line::Whole(match changes_nothing {
        true => Request::read(),
        false => Request { may_touch: true, ..Request::write(vec![key]) },
    })
}

/// `ms KEY LENGTH FLAG*`. Whatever is wrong behind the length, memcached takes the block.
fn set<'a>(word: &'a [u8], mut flags: impl Iterator<Item = &'a [u8]> + Clone) -> Line<'a> {
    let len = flags.next().and_then(unsigned).filter(|len| *len <= BLOCK_BYTES);
    let Some(len) = len.filter(|_| word.len() <= KEY_BYTES) else {
        return Line::refused(BAD_FORMAT);
    };
    if let Some(wrong) = wrong_in(flags.clone()) {
        return Line::RefusedBlock(wrong.into(), len);
    }
    let Some(key) = key_of(word, flags) else { return Line::RefusedBlock(BAD_KEY.into(), len) };
    Line::Block(Request { may_touch: true, ..Request::write(vec![key]) }, len)
}

/// What is wrong with the flags of a command with a block. What is not known is wrong: nobody can
/// say whether memcached would take the block then.
fn wrong_in<'a>(flags: impl Iterator<Item = &'a [u8]> + Clone) -> Option<&'static str> {
    if flags.clone().count() > FLAGS {
        return Some(TOO_MANY);
    }
    let mut seen = [false; 256];
    for flag in flags {
        let (letter, value) = (flag[0], &flag[1..]);
        if std::mem::replace(&mut seen[usize::from(letter)], true) {
            return Some("CLIENT_ERROR duplicate flag");
        }
        let (is_right, wrong) = match letter {
            b'b' | b'c' | b'f' | b'h' | b'I' | b'k' | b'l' | b'q' | b's' | b't' | b'v' => {
                (value.is_empty(), BAD_FLAG)
            }
            b'C' | b'E' | b'F' => (unsigned(value).is_some(), BAD_VALUE),
            b'N' | b'R' | b'T' => (signed(value).is_some(), BAD_VALUE),
            b'M' => {
                let is_mode = matches!(value, [mode] if b"EeAaPpRrSs".contains(mode));
                (is_mode, "CLIENT_ERROR invalid mode for ms M token")
            }
            b'O' => (value.len() <= OPAQUE_BYTES, "CLIENT_ERROR opaque token too long"),
            _ => (false, BAD_FLAG),
        };
        if !is_right {
            return Some(wrong);
        }
    }
    None
}

/// The name that a word stands for; none if it is no base64, though a flag says so.
pub(crate) fn key_of<'a>(
    word: &'a [u8],
    mut flags: impl Iterator<Item = &'a [u8]>,
) -> Option<Cow<'a, [u8]>> {
    if !flags.any(|flag| flag[0] == b'b') {
        return Some(Cow::Borrowed(word));
    }
    // Longer ones memcached does not take, whatever they are.
    if word.len() > KEY_BYTES {
        return Some(Cow::Borrowed(word));
    }
    KEYS.decode(word).ok().filter(|key| !key.is_empty()).map(Cow::Owned)
}
