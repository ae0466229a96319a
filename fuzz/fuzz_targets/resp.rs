//! Any bytes, in pieces of any size, are commands or an error, within the limits.
#![no_main]

use resp::{Limits, RequestParser};

const LIMITS: Limits = Limits { word_bytes: 128, words: 16 };

/// The commands of a stream that arrives in pieces of `step` bytes, and how it ended.
fn commands(bytes: &[u8], step: usize) -> (Vec<Vec<Vec<u8>>>, Option<String>) {
    let (mut parser, mut buffer, mut all) = (RequestParser::default(), vec![], vec![]);
    for piece in bytes.chunks(step) {
        buffer.extend_from_slice(piece);
        loop {
            let mut skipped = 0;
            let taken = match parser.next(&buffer, &LIMITS, &mut skipped) {
                Ok(Some(request)) => {
                    all.push(request.words.iter().map(<[u8]>::to_vec).collect());
                    Some(request.bytes.len())
                }
                Ok(None) => None,
                Err(error) => return (all, Some(error.to_string())),
            };
            buffer.drain(..skipped + taken.unwrap_or_default());
            if taken.is_none() {
                break;
            }
        }
    }
    (all, None)
}

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let Some((step, stream)) = bytes.split_first() else { return };
    let (whole, error) = commands(stream, stream.len().max(1));
    for command in &whole {
        assert!(!command.is_empty());
    }
    // However the bytes arrive, they mean the same.
    let (pieces, other) = commands(stream, usize::from(*step).max(1));
    assert_eq!(pieces, whole);
    assert_eq!(other, error);
});
