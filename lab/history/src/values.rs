//! Values as clients write them here: each says its own number, and what was done to it since, so
//! that a read says which value it was. Numbers of histories come out.

/// What fits one packet beside any key that clients here ask for.
const ONE_PACKET: usize = 1350;
/// A value of several parts; those that are much longer are rare.
const SOME_PARTS: usize = 6 << 10;

/// A value that says its number in every word: a torn one does not pass for another. In one of 23
/// lengths; with a `longest`, in every length from a word's to that. Of values that no packet
/// holds, one in four has some parts, one in sixteen any number.
pub(crate) fn encode(number: u64, longest: usize) -> Vec<u8> {
    let word = number.to_be_bytes();
    if longest == 0 {
        return word.repeat(2 + (number % 23) as usize);
    }
    // Spread: numbers of one client follow one another.
    let spread = (number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize;
    let longest = match (number.wrapping_mul(0xd6e8_feb8_6659_fd93) >> 60, longest) {
        (_, ..=1400) => longest,
        (0, _) => longest,
        (1..5, _) => longest.min(SOME_PARTS),
        _ => ONE_PACKET,
    };
    let len = word.len() + spread % (longest.max(word.len()) - word.len() + 1);
    word.into_iter().cycle().take(len).collect()
}

/// What a value says, as the number that stands for it in a history: that of the text or counter
/// that it begins with, changed by what was appended. None: no client wrote it.
pub(crate) fn decode(bytes: &[u8], longest: usize) -> Option<u64> {
    let (mut rest, mut added) = (bytes, vec![]);
    while let Some((before, last)) = rest.split_last_chunk::<CHUNK>()
        && let Some(number) = last.strip_prefix(APPENDED)
    {
        added.push(u64::from_be_bytes(*number.first_chunk()?));
        rest = before;
    }
    let begins = match rest {
        [] if added.is_empty() => return None,
        [] => None,
        _ => Some(counter_in(rest).or_else(|| text_in(rest, longest))?),
    };
    added.iter().rev().fold(begins, |state, number| Some(appended(state, *number)))
}

fn text_in(bytes: &[u8], longest: usize) -> Option<u64> {
    let number = u64::from_be_bytes(*bytes.first_chunk()?);
    (encode(number, longest) == bytes).then_some(number)
}

fn counter_in(bytes: &[u8]) -> Option<u64> {
    let is_number = bytes.iter().all(u8::is_ascii_digit);
    let number = is_number.then(|| str::from_utf8(bytes).ok()?.parse::<u64>().ok())??;
    (number < COUNTER).then_some(counter(number))
}

/// Bytes that are appended to a value at once, a number among them.
const CHUNK: usize = 16;
/// What they begin with; no word of a value does.
const APPENDED: &[u8] = b"\xffappend\xff";

/// The bytes with which a client appends this number to a value.
pub(crate) fn chunk(number: u64) -> Vec<u8> {
    [APPENDED, &number.to_be_bytes()].concat()
}

/// Marks what stands for a counter; numbers of texts are below it.
const COUNTER: u64 = 1 << 62;
/// Marks what stands for a value to which something was appended.
const LONGER: u64 = 1 << 63;

/// What stands for a counter that has come to this.
pub(crate) fn counter(number: u64) -> u64 {
    COUNTER | number
}

/// Whether what stands for this was made of what was there before.
pub(crate) fn is_derived(state: u64) -> bool {
    state & (COUNTER | LONGER) != 0
}

/// What a counter has come to, if a value is one.
pub(crate) fn counted(state: u64) -> Option<u64> {
    (state & (COUNTER | LONGER) == COUNTER).then_some(state & !COUNTER)
}

/// What stands for a value, or for none, to which a number was appended: chances are that no other
/// does.
pub(crate) fn appended(state: Option<u64>, number: u64) -> u64 {
    let mix = |a: u64, b: u64| {
        let product = u128::from(a ^ b.rotate_left(29)) * u128::from(0x9e37_79b9_7f4a_7c15_u64);
        (product >> 64) as u64 ^ product as u64
    };
    LONGER | mix(mix(state.map_or(1, |state| mix(state, 2)), number), 3)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn a_torn_value_is_noticed() {
        for longest in [0, 1400, 65_536] {
            assert_eq!(decode(&encode(7, longest), longest), Some(7));
            let mut torn = encode(7, longest);
            torn[9] ^= 1;
            assert_eq!(decode(&torn, longest), None);
            assert_eq!(decode(b"", longest), None);
        }
        assert_eq!(decode(&encode(7, 0)[..8], 0), None);
    }

    #[test]
    fn values_have_every_length() {
        let lengths: BTreeSet<usize> = (1..50_000).map(|n| encode(n, 1400).len()).collect();
        assert_eq!((lengths.len(), lengths.first()), (1393, Some(&8)));
        assert_eq!(lengths.last(), Some(&1400));
    }

    #[test]
    fn some_values_have_parts_and_few_have_many() {
        let lengths: Vec<usize> = (1..10_000).map(|n| encode(n, 65_536).len()).collect();
        let longer = |than| lengths.iter().filter(|len| **len > than).count();
        assert!((2000..2700).contains(&longer(ONE_PACKET)));
        assert!((400..700).contains(&longer(SOME_PARTS)));
        assert!(lengths.iter().all(|len| *len <= 65_536) && longer(60_000) > 0);
    }

    #[test]
    fn what_was_appended_to_is_another_value_each_time() {
        let text = encode(7, 0);
        let states: [(Vec<u8>, u64); 5] = [
            (text.clone(), 7),
            (b"81".to_vec(), counter(81)),
            ([&text[..], &chunk(1)].concat(), appended(Some(7), 1)),
            (
                [&b"81"[..], &chunk(1), &chunk(2)].concat(),
                appended(Some(appended(Some(counter(81)), 1)), 2),
            ),
            (chunk(2), appended(None, 2)),
        ];
        for (bytes, state) in &states {
            assert_eq!(decode(bytes, 0), Some(*state), "{bytes:?}");
        }
        let all: BTreeSet<u64> = states.iter().map(|(_, state)| *state).collect();
        assert_eq!(all.len(), states.len());
        assert_eq!(
            (counted(counter(81)), counted(7), counted(states[2].1)),
            (Some(81), None, None)
        );
        let torn = [&text[..9], &chunk(1)].concat();
        assert_eq!(decode(&torn, 0), None);
    }
}
