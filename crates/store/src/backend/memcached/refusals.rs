//! What memcached says when it does not do what it was asked, and what that means.

use crate::backend::remote::Outcome;

/// How an answer begins, and what has become of the command. The first row that fits counts.
/// Whatever stands here ends a command whole: the next answer is to the next command.
const REFUSALS: [(&str, Outcome); 3] = [
    // Nothing was written; what the key had is gone.
    ("SERVER_ERROR object too large", Outcome::TooLarge),
    // Likewise. Under `-M` always, else if all items of the slab are being read.
    ("SERVER_ERROR out of memory storing object", Outcome::Full),
    // It had no memory for an answer, or for a line: of this command nothing is known.
    ("SERVER_ERROR", Outcome::Failed),
];

/// What such an answer means. `None`: it is none of memcached's refusals, or one after which nobody
/// knows where the next answer begins; the connection is of no use any more.
pub(super) fn refusal(answer: &str) -> Option<Outcome> {
    let fits = |(begins, _): &&(&str, Outcome)| answer.starts_with(begins);
    REFUSALS.iter().find(fits).map(|(_, outcome)| outcome.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_memcached_says_is_done_refused_or_in_doubt() {
        // (answer, meaning)
        let rows = [
            ("SERVER_ERROR object too large for cache", Some(Outcome::TooLarge)),
            ("SERVER_ERROR out of memory storing object", Some(Outcome::Full)),
            ("SERVER_ERROR out of memory writing get response", Some(Outcome::Failed)),
            ("SERVER_ERROR Out of memory", Some(Outcome::Failed)),
            ("CLIENT_ERROR bad data chunk", None),
            ("CLIENT_ERROR unauthenticated", None),
            ("ERROR Too many open connections", None),
            ("ERROR", None),
            ("", None),
        ];
        for (answer, meaning) in rows {
            assert_eq!(refusal(answer), meaning, "{answer:?}");
        }
    }
}
