//! The commands that there are: what COMMAND tells, what arity is checked against, which words
//! are keys.

use super::reply::Reply;

/// One command.
pub(crate) struct Spec {
    /// In lower case.
    pub name: &'static str,
    /// Words, its name included; negative: at least so many.
    pub arity: i32,
    /// As COMMAND INFO names them.
    flags: &'static [&'static str],
    /// Index of the first key, of the last (negative: from the end), and the step between; zeros:
    /// no keys.
    keys: (i32, i32, i32),
    summary: &'static str,
    group: &'static str,
}

impl Spec {
    /// Whether a command of so many words is possible.
    pub fn takes(&self, words: usize) -> bool {
        let least = self.arity.unsigned_abs() as usize;
        words == least || (self.arity < 0 && words > least)
    }

    /// Which of so many words are keys.
    pub fn key_positions(&self, words: usize) -> impl Iterator<Item = usize> + use<> {
        let (first, last, step) = self.keys;
        let end = if last < 0 { (words as i32 + last + 1).max(0) } else { last + 1 };
        let end = if step == 0 { 0 } else { end.min(words as i32) };
        (first as usize..end.max(first) as usize).step_by(step.max(1) as usize)
    }

    /// Its row in COMMAND and COMMAND INFO.
    pub fn info(&self) -> Reply {
        let (first, last, step) = self.keys;
        let number = |number: i32| Reply::Int(number.into());
        let flags = self.flags.iter().map(|flag| Reply::Simple(flag)).collect();
        let none = || Reply::Array(vec![]);
        Reply::Array(vec![
            Reply::bulk(self.name),
            number(self.arity),
            Reply::Array(flags),
            number(first),
            number(last),
            number(step),
            none(),
            none(),
            none(),
            none(),
        ])
    }

    /// Its entry in COMMAND DOCS.
    pub fn docs(&self) -> (&'static str, Reply) {
        let text = vec![
            ("summary", Reply::bulk(self.summary)),
            ("since", Reply::bulk("1.0.0")),
            ("group", Reply::bulk(self.group)),
        ];
        (self.name, Reply::Map(text))
    }
}

/// The command of this name, in whatever case.
pub(crate) fn find(name: &[u8]) -> Option<&'static Spec> {
    place_of(name).map(|at| &ALL[at])
}

/// Where it stands in the table.
pub(crate) fn place_of(name: &[u8]) -> Option<usize> {
    ALL.iter().position(|spec| spec.name.as_bytes().eq_ignore_ascii_case(name))
}

const NONE: (i32, i32, i32) = (0, 0, 0);
const ONE: (i32, i32, i32) = (1, 1, 1);
const MANY: (i32, i32, i32) = (1, -1, 1);
const PAIRS: (i32, i32, i32) = (1, -1, 2);
const READ: &[&str] = &["readonly", "fast"];
const WRITE: &[&str] = &["write"];
const PLAIN: &[&str] = &["fast", "loading", "stale"];

macro_rules! commands {
    ($($name:literal $arity:literal $flags:ident $keys:ident $group:literal $summary:literal;)*) => {
        /// Every command; those asked for most come first.
        pub(crate) const ALL: &[Spec] = &[$(Spec {
            name: $name, arity: $arity, flags: $flags, keys: $keys, summary: $summary, group: $group,
        },)*];
    };
}

commands! {
    "get" 2 READ ONE "string" "The value of a key";
    "set" -3 WRITE ONE "string" "Set the value of a key: EX PX EXAT PXAT KEEPTTL NX XX GET";
    "mget" -2 READ MANY "string" "The values of several keys";
    "mset" -3 WRITE PAIRS "string" "Set several keys, one by one";
    "del" -2 WRITE MANY "generic" "Remove keys";
    "unlink" -2 WRITE MANY "generic" "Remove keys";
    "exists" -2 READ MANY "generic" "How many of the keys there are";
    "setex" 4 WRITE ONE "string" "Set a key for some seconds";
    "psetex" 4 WRITE ONE "string" "Set a key for some milliseconds";
    "setnx" 3 WRITE ONE "string" "Set a key if there is none";
    "getset" 3 WRITE ONE "string" "Set a key and give the value that it had";
    "getdel" 2 WRITE ONE "string" "Remove a key and give the value that it had";
    "strlen" 2 READ ONE "string" "The length of a value";
    "ttl" 2 READ ONE "generic" "Seconds that a key has to live";
    "pttl" 2 READ ONE "generic" "Milliseconds that a key has to live";
    "type" 2 READ ONE "generic" "string, or none";
    "ping" -1 PLAIN NONE "connection" "PONG, or what it is given";
    "echo" 2 PLAIN NONE "connection" "What it is given";
    "hello" -1 PLAIN NONE "connection" "Choose the protocol: 2 or 3";
    "auth" -2 PLAIN NONE "connection" "Refused: there are no passwords";
    "select" 2 PLAIN NONE "connection" "Choose a database: there is 0";
    "client" -2 PLAIN NONE "connection" "About this connection: ID GETNAME SETNAME SETINFO INFO NO-EVICT NO-TOUCH";
    "multi" 1 PLAIN NONE "transactions" "Begin a transaction, of which no command is carried out";
    "exec" 1 PLAIN NONE "transactions" "End a transaction: refused if it has a command";
    "discard" 1 PLAIN NONE "transactions" "End a transaction";
    "quit" -1 PLAIN NONE "connection" "Close the connection";
    "reset" 1 PLAIN NONE "connection" "Make the connection as if new";
    "command" -1 PLAIN NONE "server" "About the commands: COUNT INFO DOCS LIST";
    "config" -2 PLAIN NONE "server" "GET: some settings as Redis names them";
    "info" -1 PLAIN NONE "server" "About the gateway: server clients memory persistence replication cluster stats";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_stand_where_the_table_says() {
        let rows: &[(&str, usize, &[usize])] = &[
            ("get", 2, &[1]),
            ("SET", 5, &[1]),
            ("mget", 4, &[1, 2, 3]),
            ("mset", 5, &[1, 3]),
            ("ping", 2, &[]),
            ("del", 1, &[]),
        ];
        for (name, words, expected) in rows {
            let spec = find(name.as_bytes()).unwrap();
            let positions: Vec<usize> = spec.key_positions(*words).collect();
            assert_eq!(positions, *expected, "{name}");
        }
        assert!(find(b"nosuch").is_none());
    }
}
