//! Any bytes, in pieces of any size, are commands or refusals, and the same ones; and answers, or
//! an error.
#![no_main]

use memcached::{Front, Limits, ReplyScanner, RequestParser};

const LIMITS: Limits = Limits { value_bytes: 128 };

/// What a stream says that arrives in pieces of `step` bytes, and what is left of it.
fn fronts(bytes: &[u8], step: usize) -> (Vec<String>, Vec<u8>) {
    let (mut parser, mut buffer, mut all) = (RequestParser::default(), vec![], vec![]);
    for piece in bytes.chunks(step) {
        buffer.extend_from_slice(piece);
        loop {
            let front = parser.next(&buffer, &LIMITS);
            let len = match &front {
                Front::Partial => break,
                Front::Command(request) => request.len,
                Front::NoOp(len) | Front::Quit(len) | Front::PortQuestion(len) => *len,
                Front::Refused(refusal) if refusal.closes => {
                    all.push(refusal.answer.to_string());
                    return (all, vec![]);
                }
                Front::Refused(refusal) => refusal.len,
                Front::Skipped(len) => *len,
            };
            assert!(len > 0 && len <= buffer.len());
            if !matches!(front, Front::Skipped(_)) {
                all.push(format!("{front:?}"));
            }
            buffer.drain(..len);
        }
    }
    (all, buffer)
}

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let Some((step, stream)) = bytes.split_first() else { return };
    let whole = fronts(stream, stream.len().max(1));
    // However the bytes arrive, they mean the same.
    assert_eq!(fronts(stream, usize::from(*step).max(1)), whole);
    if let Ok(found) = ReplyScanner::default().scan(stream) {
        assert!(found.answers <= found.taken && found.taken <= stream.len());
    }
});
