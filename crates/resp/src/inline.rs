//! Commands on a line, as people type them into telnet.

use crate::{error::ProtocolError, words::Span};

/// Takes a line apart: words between white space; "..." with backslash escapes and '...' with \'
/// hold white space together. What words mean goes behind one another into `text`, and where each
/// stands there into `spans`; both are empty before.
///
/// # Errors
/// [`ProtocolError::Quotes`].
pub(crate) fn split(
    line: &[u8],
    text: &mut Vec<u8>,
    spans: &mut Vec<Span>,
) -> Result<(), ProtocolError> {
    let mut rest = line.iter().copied().peekable();
    loop {
        while rest.next_if(|byte| is_space(*byte)).is_some() {}
        if rest.peek().is_none() {
            return Ok(());
        }
        let start = text.len();
        while let Some(byte) = rest.next_if(|byte| !matches!(byte, b' ' | b'\n' | b'\r' | b'\t')) {
            match byte {
                b'"' | b'\'' => {
                    quoted(byte, &mut rest, text)?;
                    // Nothing may follow a closing quote but white space.
                    if rest.peek().is_some_and(|next| !is_space(*next)) {
                        return Err(ProtocolError::Quotes);
                    }
                }
                byte => text.push(byte),
            }
        }
        spans.push(Span::new(start, text.len()));
    }
}

/// As C's `isspace`.
fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t'..=b'\r')
}

/// The rest of a quoted string up to its closing quote.
fn quoted(
    quote: u8,
    rest: &mut std::iter::Peekable<impl Iterator<Item = u8>>,
    word: &mut Vec<u8>,
) -> Result<(), ProtocolError> {
    loop {
        match rest.next().ok_or(ProtocolError::Quotes)? {
            byte if byte == quote => return Ok(()),
            b'\\' if quote == b'"' => {
                let escaped = rest.next().ok_or(ProtocolError::Quotes)?;
                if escaped == b'x' {
                    escaped_hex(rest, word);
                } else {
                    word.push(match escaped {
                        b'n' => b'\n',
                        b'r' => b'\r',
                        b't' => b'\t',
                        b'b' => 8,
                        b'a' => 7,
                        other => other,
                    });
                }
            }
            b'\\' if rest.peek() == Some(&b'\'') => {
                rest.next();
                word.push(b'\'');
            }
            byte => word.push(byte),
        }
    }
}

/// Two hex digits after `\x`; without them it is the letter x and what follows.
fn escaped_hex(rest: &mut std::iter::Peekable<impl Iterator<Item = u8>>, word: &mut Vec<u8>) {
    let digit = |byte: u8| char::from(byte).to_digit(16).map(|digit| digit as u8);
    let Some(high) = rest.next_if(u8::is_ascii_hexdigit) else { return word.push(b'x') };
    match rest.next_if(u8::is_ascii_hexdigit) {
        Some(low) => word.extend(digit(high).zip(digit(low)).map(|(h, l)| h << 4 | l)),
        None => word.extend([b'x', high]),
    }
}
