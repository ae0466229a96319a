//! Answers of several stores, made one.

use std::io::Write;

use resp::ReplyScanner;

/// How the answers of several stores become one. The first that is an error is the answer, but
/// where [`Join::Any`] says otherwise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Join {
    /// They are alike: the first.
    First,
    /// Numbers: their sum.
    Sum,
    /// Numbers: the least.
    Least,
    /// Lists of 0 and 1: 1 where all have it.
    All,
    /// The first that is neither an error nor nothing, if there is one; from this part on.
    Any(usize),
    /// Lists: one behind the other.
    Lists,
    /// Lists of which each element has its place: of which part it is, of each.
    Places(Vec<usize>),
    /// A list with a cursor before it, of this store of so many.
    Cursor { store: usize, stores: usize },
}

/// The one answer of answers that are whole, at least one.
pub(super) fn join(how: &Join, parts: &[Vec<u8>]) -> Vec<u8> {
    let first = parts.first().map(Vec::as_slice).unwrap_or_default();
    if let Join::Any(from) = how {
        let turned = (0..parts.len()).map(|at| &parts[(from + at) % parts.len()]);
        let mut said = turned.filter(|part| !is_error(part));
        let is_nothing = |part: &[u8]| part.starts_with(b"$-1") || part.starts_with(b"_");
        let found = said.clone().find(|part| !is_nothing(part));
        return found.or_else(|| said.next()).map_or(first, Vec::as_slice).to_vec();
    }
    if let Some(error) = parts.iter().find(|part| is_error(part)) {
        return error.clone();
    }
    let numbers = || parts.iter().filter_map(|part| number(part));
    match how {
        Join::First | Join::Any(_) => first.to_vec(),
        Join::Sum => format!(":{}\r\n", numbers().sum::<i64>()).into_bytes(),
        Join::Least => format!(":{}\r\n", numbers().min().unwrap_or_default()).into_bytes(),
        Join::All => {
            let lists: Vec<Vec<&[u8]>> = parts.iter().map(|part| elements(part)).collect();
            let len = lists.iter().map(Vec::len).min().unwrap_or_default();
            let mut out = format!("*{len}\r\n").into_bytes();
            for at in 0..len {
                let all = lists.iter().all(|list| list[at].starts_with(b":1"));
                out.extend_from_slice(if all { b":1\r\n" } else { b":0\r\n" });
            }
            out
        }
        Join::Lists => {
            let is_list = |part: &Vec<u8>| matches!(part.first(), Some(b'*' | b'~'));
            if !parts.iter().all(is_list) {
                return first.to_vec();
            }
            let all: Vec<&[u8]> = parts.iter().flat_map(|part| elements(part)).collect();
            let mut out = vec![first[0]];
            let _ = write!(out, "{}\r\n", all.len());
            all.into_iter().for_each(|element| out.extend_from_slice(element));
            out
        }
        Join::Places(places) => {
            let lists = parts.iter().map(|part| elements(part).into_iter());
            let mut lists: Vec<_> = lists.collect();
            let mut out = format!("*{}\r\n", places.len()).into_bytes();
            for part in places {
                let element = lists.get_mut(*part).and_then(Iterator::next);
                out.extend_from_slice(element.unwrap_or(b"$-1\r\n"));
            }
            out
        }
        Join::Cursor { store, stores } => {
            let [cursor, rest] = elements(first)[..] else { return first.to_vec() };
            let Some(cursor) = text(cursor).and_then(|text| text.parse().ok()) else {
                return first.to_vec();
            };
            let Some(next) = of_store(cursor, *store, *stores) else {
                return b"-ERR the store's cursor is too large\r\n".to_vec();
            };
            let next = next.to_string();
            let mut out = format!("*2\r\n${}\r\n{next}\r\n", next.len()).into_bytes();
            out.extend_from_slice(rest);
            out
        }
    }
}

/// What a client is told as a cursor, of the cursor that a store told: the next store begins where
/// one has ended.
fn of_store(cursor: u64, store: usize, stores: usize) -> Option<u64> {
    let (store, stores) = (store as u64, stores as u64);
    match cursor {
        0 if store + 1 == stores => Some(0),
        0 => Some(store + 1),
        cursor => cursor.checked_mul(stores)?.checked_add(store),
    }
}

/// The store that a client's cursor names, and the cursor there.
pub(super) fn to_store(cursor: u64, stores: usize) -> (usize, u64) {
    let stores = stores as u64;
    ((cursor % stores) as usize, cursor / stores)
}

pub(super) fn is_error(part: &[u8]) -> bool {
    matches!(part.first(), Some(b'-' | b'!'))
}

fn number(part: &[u8]) -> Option<i64> {
    let line = part.strip_prefix(b":")?.strip_suffix(b"\r\n")?;
    std::str::from_utf8(line).ok()?.parse().ok()
}

/// What a string says.
fn text(part: &[u8]) -> Option<&str> {
    std::str::from_utf8(part.split(|byte| *byte == b'\n').nth(1)?).ok().map(str::trim_end)
}

/// The elements of a list, each as it came.
fn elements(part: &[u8]) -> Vec<&[u8]> {
    let Some(end) = memchr::memchr(b'\n', part) else { return vec![] };
    let mut rest = &part[end + 1..];
    let mut elements = vec![];
    while let Ok(Some(reply)) = ReplyScanner::default().scan(rest) {
        let (element, behind) = rest.split_at(reply.len);
        elements.push(element);
        rest = behind;
    }
    elements
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_become_one() {
        // (how, parts, one)
        let rows: [(Join, &[&str], &str); 15] = [
            (Join::First, &["+OK\r\n", "+OK\r\n"], "+OK\r\n"),
            (Join::First, &["+OK\r\n", "-OOM x\r\n"], "-OOM x\r\n"),
            (Join::Sum, &[":1\r\n", ":41\r\n"], ":42\r\n"),
            (Join::Least, &[":3\r\n", ":2\r\n"], ":2\r\n"),
            (Join::All, &["*2\r\n:1\r\n:1\r\n", "*2\r\n:0\r\n:1\r\n"], "*2\r\n:0\r\n:1\r\n"),
            (Join::Any(0), &["$-1\r\n", "$1\r\na\r\n"], "$1\r\na\r\n"),
            (Join::Any(1), &["$1\r\na\r\n", "$1\r\nb\r\n"], "$1\r\nb\r\n"),
            (Join::Any(0), &["-NOTBUSY a\r\n", "+OK\r\n"], "+OK\r\n"),
            (Join::Any(0), &["-NOTBUSY a\r\n", "-NOTBUSY b\r\n"], "-NOTBUSY a\r\n"),
            (Join::Any(0), &["_\r\n", "_\r\n"], "_\r\n"),
            (Join::Lists, &["*1\r\n$1\r\na\r\n", "*0\r\n"], "*1\r\n$1\r\na\r\n"),
            (
                Join::Lists,
                &["*1\r\n*1\r\n:1\r\n", "*1\r\n$1\r\nb\r\n"],
                "*2\r\n*1\r\n:1\r\n$1\r\nb\r\n",
            ),
            (
                Join::Places(vec![1, 0, 1]),
                &["*1\r\n$1\r\na\r\n", "*2\r\n$2\r\n\r\n\r\n$-1\r\n"],
                "*3\r\n$2\r\n\r\n\r\n$1\r\na\r\n$-1\r\n",
            ),
            (
                Join::Cursor { store: 0, stores: 2 },
                &["*2\r\n$1\r\n0\r\n*0\r\n"],
                "*2\r\n$1\r\n1\r\n*0\r\n",
            ),
            (
                Join::Cursor { store: 1, stores: 2 },
                &["*2\r\n$1\r\n8\r\n*1\r\n$1\r\nk\r\n"],
                "*2\r\n$2\r\n17\r\n*1\r\n$1\r\nk\r\n",
            ),
        ];
        for (how, parts, one) in rows {
            let parts: Vec<Vec<u8>> = parts.iter().map(|part| part.as_bytes().to_vec()).collect();
            let joined = String::from_utf8(join(&how, &parts)).unwrap();
            assert_eq!(joined, one, "{how:?}");
        }
    }

    #[test]
    fn cursors_come_back_to_their_stores() {
        for stores in 2..5 {
            for store in 0..stores {
                for cursor in [1, 2, 7, 1 << 40] {
                    let told = of_store(cursor, store, stores).unwrap();
                    assert!(told != 0);
                    assert_eq!(to_store(told, stores), (store, cursor));
                }
            }
            assert_eq!(to_store(of_store(0, 0, stores).unwrap(), stores), (1, 0));
            assert_eq!(of_store(0, stores - 1, stores), Some(0));
            assert_eq!(of_store(u64::MAX, 0, stores), None);
        }
    }
}
