//! Numbers as every memcached takes them: its own reading of spaces and signs before them differs
//! from one place to the next, and is not relied on.

/// Digits, and nothing else.
pub fn unsigned(word: &[u8]) -> Option<u64> {
    let is_number = !word.is_empty() && word.iter().all(u8::is_ascii_digit);
    is_number.then(|| std::str::from_utf8(word).ok()?.parse().ok())?
}

/// Digits, and maybe a minus before them.
pub fn signed(word: &[u8]) -> Option<i64> {
    let digits = word.strip_prefix(b"-").unwrap_or(word);
    unsigned(digits)?;
    std::str::from_utf8(word).ok()?.parse().ok()
}
