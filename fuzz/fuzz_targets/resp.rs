//! Any bytes, in pieces of any size, are commands or an error, within the gateway's limits.
#![no_main]

use bytes::BytesMut;
use gateway::{
    Limits,
    resp::frame::{Framer, Words},
};

const LIMITS: Limits = Limits {
    connections: 1,
    inline_bytes: 64,
    bulk_bytes: 128,
    words: 16,
    pipeline: 1,
    connection_bytes: 1024,
    output_bytes: 1024,
    memory_bytes: 1024,
};

/// The commands of a stream that arrives in pieces of `step` bytes, and how it ended.
fn commands(bytes: &[u8], step: usize) -> (Vec<Words>, Option<String>) {
    let (mut framer, mut buffer, mut all) = (Framer::default(), BytesMut::new(), vec![]);
    for piece in bytes.chunks(step) {
        buffer.extend_from_slice(piece);
        loop {
            match framer.next(&mut buffer, &LIMITS) {
                Ok(Some(command)) => all.push(command),
                Ok(None) => break,
                Err(error) => return (all, Some(error.to_string())),
            }
        }
    }
    (all, None)
}

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let Some((step, stream)) = bytes.split_first() else { return };
    let (whole, error) = commands(stream, stream.len().max(1));
    for command in &whole {
        assert!(!command.words.is_empty());
        assert!(command.words.iter().all(|word| word.len() <= LIMITS.bulk_bytes));
    }
    // However the bytes arrive, they mean the same; a line may be found too long before its
    // end came.
    let (pieces, other) = commands(stream, usize::from(*step).max(1));
    assert_eq!(pieces, whole);
    assert_eq!(other, error);
});
