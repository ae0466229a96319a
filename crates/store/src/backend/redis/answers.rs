//! What Redis's answers mean: one table for all of them.
//!
//! A refusal is an answer: the request was not carried out, and who asked is told in Redis's own
//! words. In doubt is only what Redis did not answer, or in words that are not Redis's: a proxy
//! before it may have passed the request on and lost the answer.

use anyhow::anyhow;
use redis::{RedisError, RedisResult, Value};

use crate::backend::Refusal;

/// What an answer means for its request, and for the connection that it came on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Class {
    /// It was carried out.
    Done,
    /// It was not.
    Refused,
    /// It was not, because this Redis is no master any more, and its master is to be looked for.
    Demoted,
    /// It was not, and nothing else will be on this connection.
    Gone,
    /// Nobody knows.
    InDoubt,
}

/// The codes that errors of Redis begin with, and whether they say how the server is, rather than
/// what this one request was: those are worth a line in the log.
const CODES: &[(&str, Class, bool)] = &[
    // A server of a Redis cluster that does not have the key, or only half of it.
    ("ASK", Class::Refused, true),
    // A script runs for longer than `busy-reply-threshold`.
    ("BUSY", Class::Refused, true),
    ("CLUSTERDOWN", Class::Refused, true),
    // Protected mode: it takes nobody from other machines, and has closed the connection.
    ("DENIED", Class::Gone, true),
    ("ERR", Class::Refused, false),
    // It reads its data from disk, or from its master.
    ("LOADING", Class::Refused, true),
    // A replica whose master is away.
    ("MASTERDOWN", Class::Demoted, true),
    // It could not write its data to disk.
    ("MISCONF", Class::Refused, true),
    ("MOVED", Class::Refused, true),
    // No password, or one that is not the user's any more.
    ("NOAUTH", Class::Gone, true),
    ("NOPERM", Class::Refused, true),
    // `min-replicas-to-write`.
    ("NOREPLICAS", Class::Refused, true),
    // `maxmemory`, and nothing that may be evicted.
    ("OOM", Class::Refused, true),
    ("READONLY", Class::Demoted, true),
    // A cluster that moves keys.
    ("TRYAGAIN", Class::Refused, true),
    ("WRONGPASS", Class::Gone, true),
    // The key's value is no string.
    ("WRONGTYPE", Class::Refused, false),
];

/// What to do about a backend that is a node of a Redis cluster.
const OF_A_CLUSTER: &str = "the backend is a node of a Redis Cluster, with some of the keys only: `shortstop cluster import` writes \
     the cluster file for one";

/// The row of an error's code.
fn row(error: &RedisError) -> Option<&'static (&'static str, Class, bool)> {
    let code = error.code()?;
    CODES.iter().find(|(known, ..)| *known == code)
}

/// The class of an answer.
pub(super) fn class_of<T>(answer: &RedisResult<T>) -> Class {
    match answer {
        Ok(_) => Class::Done,
        Err(error) => row(error).map_or(Class::InDoubt, |(_, class, _)| *class),
    }
}

/// Whether an error says how the server is.
pub(super) fn is_of_server(error: &RedisError) -> bool {
    row(error).is_some_and(|(.., is_of_server)| *is_of_server)
}

/// Whether a node of a Redis Cluster says that it is cut off from most of the others, or that the
/// cluster lacks some slots and serves none. Of a slot that nobody has it speaks otherwise.
pub(super) fn is_of_cluster_down(error: &RedisError) -> bool {
    let detail = error.detail().unwrap_or_default();
    error.code() == Some("CLUSTERDOWN") && detail.starts_with("The cluster is down")
}

/// What Redis said, as it said it, and what to do about it where that does not say so; or what went
/// wrong with the connection.
pub(super) fn words_of(error: &RedisError) -> String {
    match (error.code(), error.detail()) {
        (Some(code @ ("ASK" | "MOVED")), Some(detail)) => {
            format!("{code} {detail} ({OF_A_CLUSTER})")
        }
        (Some(code), Some(detail)) => format!("{code} {detail}"),
        (Some(code), None) => code.into(),
        (None, _) => error.to_string(),
    }
}

/// What is said of a connection on which that went wrong.
pub(super) fn lost(error: RedisError) -> anyhow::Error {
    anyhow!("{}", words_of(&error))
}

/// The refusal that an answer is; none if it is something else.
pub(super) fn refusal(answer: &RedisResult<Value>) -> Option<Refusal> {
    let error = answer.as_ref().err()?;
    match class_of(answer) {
        Class::Refused | Class::Demoted | Class::Gone => Some(Refusal::new(&words_of(error))),
        Class::Done | Class::InDoubt => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_in_order_and_names_each_code_once() {
        assert!(CODES.windows(2).all(|pair| pair[0].0 < pair[1].0));
    }

    #[test]
    fn what_redis_did_not_say_is_in_doubt() {
        let answer = |line: &[u8]| {
            let value = redis::parse_redis_value(line).unwrap();
            value.extract_error()
        };
        let moved = format!("MOVED 12 10.0.0.1:6379 ({OF_A_CLUSTER})");
        let ask = format!("ASK 12 10.0.0.1:6379 ({OF_A_CLUSTER})");
        let rows: [(&[u8], Class, Option<&str>); 8] = [
            (b"+OK\r\n", Class::Done, None),
            (b"$-1\r\n", Class::Done, None),
            (b"-OOM no room\r\n", Class::Refused, Some("OOM no room")),
            (b"-READONLY You can't\r\n", Class::Demoted, Some("READONLY You can't")),
            (
                b"-NOAUTH Authentication required.\r\n",
                Class::Gone,
                Some("NOAUTH Authentication required."),
            ),
            (b"-MOVED 12 10.0.0.1:6379\r\n", Class::Refused, Some(&moved)),
            (b"-ASK 12 10.0.0.1:6379\r\n", Class::Refused, Some(&ask)),
            (b"-upstream failure\r\n", Class::InDoubt, None),
        ];
        for (line, class, words) in rows {
            let answer = answer(line);
            assert_eq!(class_of(&answer), class, "{answer:?}");
            assert_eq!(refusal(&answer).as_ref().map(Refusal::words), words);
        }
        let is_down = |line: &[u8]| is_of_cluster_down(&answer(line).unwrap_err());
        assert!(is_down(b"-CLUSTERDOWN The cluster is down\r\n"));
        assert!(is_down(b"-CLUSTERDOWN The cluster is down and only accepts read commands\r\n"));
        assert!(!is_down(b"-CLUSTERDOWN Hash slot not served\r\n"));
        let lost = RedisError::from(std::io::Error::from(std::io::ErrorKind::BrokenPipe));
        assert_eq!(class_of::<Value>(&Err(lost)), Class::InDoubt);
    }
}
