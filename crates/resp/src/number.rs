//! Numbers as Redis reads them.

/// Digits, with a minus before them or without, and nothing that could be left out: no plus, no
/// white space, no zeros in front. `None`: it is none of 64 bits.
pub fn integer(word: &[u8]) -> Option<i64> {
    let (negative, digits) = match word {
        [b'-', digits @ ..] => (true, digits),
        digits => (false, digits),
    };
    match digits {
        [b'0'] if !negative => return Some(0),
        [b'1'..=b'9', ..] => {}
        _ => return None,
    }
    let mut number = 0i64;
    for digit in digits {
        if !digit.is_ascii_digit() {
            return None;
        }
        let digit = i64::from(digit - b'0');
        number = number.checked_mul(10)?;
        number = if negative { number.checked_sub(digit) } else { number.checked_add(digit) }?;
    }
    Some(number)
}
