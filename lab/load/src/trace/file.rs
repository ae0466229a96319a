//! Traces as files have them: Twitter's, without a line of names,
//! `timestamp,key,key size,value size,client id,operation,TTL`; and Meta's of its key-value caches,
//! whose first line names its columns, among them `key`, `op` and `size`. They come compressed, and
//! are read as text.

use std::{collections::HashMap, io::BufRead};

use anyhow::{Context, bail, ensure};

use super::{Action, Trace};

/// How files begin that are compressed by zstd and by gzip.
const COMPRESSED: [(&[u8], &str); 2] =
    [(&[0x28, 0xb5, 0x2f, 0xfd], "zstd -d"), (&[0x1f, 0x8b], "gunzip")];
/// Longest line in bytes.
const LINE_MOST: u64 = 64 << 10;

/// Reads a trace, at most so many of its requests.
///
/// # Errors
/// A line that is none of the format: which, and what was expected.
pub fn read(mut from: impl BufRead, most: usize) -> anyhow::Result<Trace> {
    let begin = from.fill_buf()?;
    let compressed = COMPRESSED.iter().find(|(magic, _)| begin.starts_with(magic));
    if let Some((_, by)) = compressed {
        bail!("it is compressed: decompress it first, with {by}");
    }
    let (mut trace, mut keys) = (Trace::default(), HashMap::new());
    let mut columns = None;
    let mut line = vec![];
    for number in 1u64.. {
        line.clear();
        let read = std::io::Read::take(&mut from, LINE_MOST).read_until(b'\n', &mut line)?;
        if read == 0 || trace.requests.len() >= most {
            break;
        }
        let text = String::from_utf8_lossy(&line);
        let text = text.trim_end_matches(['\r', '\n']);
        let at = || format!("line {number}");
        ensure!(
            line.ends_with(b"\n") || (read as u64) < LINE_MOST,
            "line {number}: longer than {LINE_MOST} bytes, which no line of a trace is"
        );
        if number == 1 {
            columns = Columns::named_in(text).with_context(at)?;
            if columns.is_some() {
                continue;
            }
        }
        if text.is_empty() {
            continue;
        }
        let row = match &columns {
            Some(columns) => columns.row(text),
            None => twitter(text),
        };
        let Row { key, action, value_len, count } = row.with_context(at)?;
        if count == 0 {
            continue;
        }
        let next = keys.len() as u32;
        let key = *keys.entry(key.to_owned()).or_insert(next);
        for _ in 0..count.min((most - trace.requests.len()) as u64) {
            trace.add(key, action, value_len);
        }
    }
    trace.finished()
}

/// A line.
struct Row<'l> {
    key: &'l str,
    action: Action,
    /// In bytes; 0: nobody knows it.
    value_len: usize,
    /// How often in a row.
    count: u64,
}

/// What an operation does, in either format.
///
/// # Errors
/// Nobody knows it.
fn action(operation: &str) -> anyhow::Result<Action> {
    Ok(match operation.to_ascii_lowercase().as_str() {
        "get" | "gets" | "get_lease" => Action::Read,
        "set" | "add" | "replace" | "cas" | "set_lease" => Action::Write,
        "append" | "prepend" | "delete" | "incr" | "decr" => Action::Change,
        _ => bail!(
            "operation {operation:?}: get, gets, set, add, replace, cas, append, prepend, delete, incr or decr is \
             expected, of Meta's also get_lease or set_lease"
        ),
    })
}

fn number<T: std::str::FromStr>(text: &str, what: &str) -> anyhow::Result<T> {
    let number = text.trim().parse().ok();
    number.with_context(|| format!("{what} {text:?}: a number is expected"))
}

/// A line in Twitter's format. Keys may have commas in them.
fn twitter(line: &str) -> anyhow::Result<Row<'_>> {
    let mut from_end = line.rsplitn(6, ',');
    let mut column = || from_end.next();
    let (ttl, operation, _client) = (column(), column(), column());
    let (value_len, key_len, front) = (column(), column(), column());
    let key = front.and_then(|front| front.split_once(','));
    let (Some(ttl), Some(operation), Some(value_len), Some(key_len), Some((timestamp, key))) =
        (ttl, operation, value_len, key_len, key)
    else {
        bail!(
            "{} columns: Twitter's format has 7 (timestamp,key,key size,value size,client id,operation,TTL), and \
             Meta's begins with a line that names its columns, among them key, op and size",
            line.split(',').count()
        );
    };
    for (text, what) in [(timestamp, "timestamp"), (key_len, "key size"), (ttl, "TTL")] {
        number::<f64>(text, what)?;
    }
    Ok(Row {
        key,
        action: action(operation)?,
        value_len: number(value_len, "value size")?,
        count: 1,
    })
}

/// Where the columns of Meta's format are that are read.
struct Columns {
    count: usize,
    key: usize,
    operation: usize,
    size: usize,
    /// How often in that second; none: once.
    op_count: Option<usize>,
}

impl Columns {
    /// Those that the first line names; none: it names none, so it is in Twitter's format.
    ///
    /// # Errors
    /// It names some, and not all that are needed.
    fn named_in(line: &str) -> anyhow::Result<Option<Columns>> {
        let names: Vec<&str> = line.split(',').map(str::trim).collect();
        let place = |name: &str| names.iter().position(|other| other.eq_ignore_ascii_case(name));
        let Some(operation) = place("op") else { return Ok(None) };
        let needed = |name: &str| {
            place(name).with_context(|| {
                format!("it names the columns {names:?}: {name} is expected among them")
            })
        };
        Ok(Some(Columns {
            count: names.len(),
            key: needed("key")?,
            operation,
            size: needed("size")?,
            op_count: place("op_count"),
        }))
    }

    fn row<'l>(&self, line: &'l str) -> anyhow::Result<Row<'l>> {
        let columns: Vec<&str> = line.split(',').collect();
        ensure!(
            columns.len() == self.count,
            "{} columns: the first line names {}",
            columns.len(),
            self.count
        );
        let count = self.op_count.map(|at| number(columns[at], "op_count")).transpose()?;
        Ok(Row {
            key: columns[self.key],
            action: action(columns[self.operation])?,
            value_len: number(columns[self.size], "size")?,
            count: count.unwrap_or(1),
        })
    }
}
