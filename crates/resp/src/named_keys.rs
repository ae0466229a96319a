//! The words of a command that are keys: by its specifications, and where these say too little.

use crate::{keys::KeyWord, table::Command, words::Words};

impl Command {
    /// The words of a command of this kind that are keys, into `out`, which need not be empty. Some
    /// may stand there twice, and some may be none: where the server does not say, or the command
    /// is wrong, which the server will say.
    pub fn keys(&self, words: Words<'_>, out: &mut Vec<KeyWord>) {
        for spec in &self.keys {
            spec.find(words, out);
        }
        let changes = |index: usize| KeyWord { index, may_change: true };
        match &self.name[..] {
            // Redis takes the last of several, and says of SORT nothing at all.
            "sort" | "georadius" | "georadiusbymember" => {
                let stores = |word: &[u8]| {
                    word.eq_ignore_ascii_case(b"store") || word.eq_ignore_ascii_case(b"storedist")
                };
                let behind = words.iter().enumerate().skip(2).filter(|(_, word)| stores(word));
                let behind = behind.map(|(at, _)| at + 1).filter(|at| *at < words.len());
                out.extend(behind.map(changes));
            }
            // Where KEYS stands it takes the first of several; a key may be called KEYS.
            "migrate" => {
                let is_keys = |word: &[u8]| word.eq_ignore_ascii_case(b"keys");
                let found = words.iter().enumerate().skip(6).find(|(_, word)| is_keys(word));
                out.extend(found.into_iter().flat_map(|(at, _)| at + 1..words.len()).map(changes));
            }
            _ => {
                if self.keys_are_unsaid {
                    out.extend((1..words.len()).map(changes));
                }
            }
        }
    }
}
