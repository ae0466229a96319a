//! What a connection remembers, and the commands that need nothing else.

use std::{net::SocketAddr, time::Instant};

use bytes::Bytes;
use resp::integer;

use super::{
    reply::Reply,
    table::{self, Spec},
};
use crate::{info, shared::GatewayState};

/// Longest name that a client may give itself, in bytes.
const MAX_NAME: usize = 256;
/// Longest quote of a client's words in an error, as in Redis.
const MAX_QUOTE: usize = 128;

/// What is remembered of a connection.
pub(crate) struct Session {
    /// 2 or 3.
    pub protocol: u8,
    /// Whether the connection ends after the answers under way.
    pub closing: bool,
    id: u64,
    peer: SocketAddr,
    since: Instant,
    name: Bytes,
    library: Bytes,
    library_version: Bytes,
    transaction: Transaction,
}

/// Where a connection stands between MULTI and EXEC, of which no command is carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Transaction {
    None,
    Empty,
    /// A command of it was refused.
    Refused,
}

/// The error for a command with a wrong number of words.
pub(crate) fn wrong_arity(name: &str) -> String {
    format!("ERR wrong number of arguments for '{name}' command")
}

/// The error for a command that there is not, and why.
pub(crate) fn unknown_command(name: &[u8], why: &str) -> String {
    format!("ERR unknown command '{}': {why}", quote(name, MAX_QUOTE))
}

/// The error for a command of a transaction, and why there are none.
pub(crate) fn no_transaction(why: &str) -> String {
    format!("ERR no command of a transaction is carried out: {why}")
}

fn quote(word: &[u8], most: usize) -> String {
    String::from_utf8_lossy(&word[..word.len().min(most)]).into_owned()
}

type Answer = Result<Reply, String>;

impl Session {
    /// A connection that was just accepted.
    pub fn new(id: u64, peer: SocketAddr) -> Session {
        Session {
            protocol: 2,
            closing: false,
            id,
            peer,
            since: Instant::now(),
            name: Bytes::new(),
            library: Bytes::new(),
            library_version: Bytes::new(),
            transaction: Transaction::None,
        }
    }

    /// Whether a command belongs to a transaction, and so is not carried out.
    pub fn queues(&self, name: &str) -> bool {
        let ends = ["exec", "discard", "multi", "quit", "reset"].contains(&name);
        self.transaction != Transaction::None && !ends
    }

    /// A command was refused: EXEC will be too, if there is a transaction.
    pub fn refused(&mut self) {
        if self.transaction != Transaction::None {
            self.transaction = Transaction::Refused;
        }
    }

    /// Answers a command that touches no key; its number of words has been checked.
    pub fn answer(&mut self, spec: &Spec, words: &[Bytes], shared: &GatewayState) -> Reply {
        let answer = match spec.name {
            "ping" => match words {
                [_] => Ok(Reply::Simple("PONG")),
                [_, text] => Ok(Reply::Bulk(text.clone())),
                _ => Err(wrong_arity("ping")),
            },
            "echo" => Ok(Reply::Bulk(words[1].clone())),
            "hello" => self.hello(&words[1..]),
            "auth" => match words.len() {
                2 => Err(NO_PASSWORD.into()),
                3 => Err(WRONG_PASSWORD.into()),
                _ => Err("ERR syntax error".into()),
            },
            "select" => select(&words[1]),
            "quit" => {
                self.closing = true;
                Ok(Reply::OK)
            }
            "reset" => {
                *self = Session::new(self.id, self.peer);
                Ok(Reply::Simple("RESET"))
            }
            "multi" | "exec" | "discard" => self.transaction(spec.name),
            "client" => self.client(words),
            "command" => command(words),
            "config" => config(words, shared),
            "info" => Ok(Reply::Text(info::text(&words[1..], shared))),
            name => Err(format!("ERR '{name}' is not implemented")),
        };
        answer.unwrap_or_else(Reply::error)
    }

    fn hello(&mut self, options: &[Bytes]) -> Answer {
        let mut protocol = self.protocol;
        let mut name = None;
        let mut options = options.iter();
        if let Some(version) = options.next() {
            protocol = match integer(version) {
                Some(2) => 2,
                Some(3) => 3,
                Some(_) => return Err("NOPROTO unsupported protocol version".into()),
                None => {
                    return Err("ERR Protocol version is not an integer or out of range".into());
                }
            };
        }
        while let Some(option) = options.next() {
            let known = option.to_ascii_lowercase();
            match (&known[..], options.len()) {
                (b"auth", 2..) => return Err(WRONG_PASSWORD.into()),
                (b"setname", 1..) => name = options.next(),
                _ => {
                    let option = quote(option, MAX_QUOTE);
                    return Err(format!("ERR Syntax error in HELLO option '{option}'"));
                }
            }
        }
        if let Some(name) = name {
            self.name = checked(name, "Client names")?;
        }
        self.protocol = protocol;
        Ok(Reply::Map(vec![
            ("server", Reply::bulk("redis")),
            ("version", Reply::bulk(info::REDIS_VERSION)),
            ("proto", Reply::Int(protocol.into())),
            ("id", Reply::Int(self.id as i64)),
            ("mode", Reply::bulk("standalone")),
            ("role", Reply::bulk("master")),
            ("modules", Reply::Array(vec![])),
        ]))
    }

    /// MULTI is not refused, because clients would have sent what follows by then: it would be
    /// carried out.
    fn transaction(&mut self, name: &str) -> Answer {
        if name == "multi" {
            if self.transaction != Transaction::None {
                return Err("ERR MULTI calls can not be nested".into());
            }
            self.transaction = Transaction::Empty;
            return Ok(Reply::OK);
        }
        match (std::mem::replace(&mut self.transaction, Transaction::None), name) {
            (Transaction::None, _) => {
                Err(format!("ERR {} without MULTI", name.to_ascii_uppercase()))
            }
            (_, "discard") => Ok(Reply::OK),
            (Transaction::Empty, _) => Ok(Reply::Array(vec![])),
            (Transaction::Refused, _) => {
                Err("EXECABORT Transaction discarded because of previous errors.".into())
            }
        }
    }

    fn client(&mut self, words: &[Bytes]) -> Answer {
        let (sub, arguments) = subcommand(words);
        let arity = |expected: usize| expect("client", &sub, arguments, expected);
        match &sub[..] {
            "id" => arity(0).map(|()| Reply::Int(self.id as i64)),
            "getname" => arity(0).map(|()| {
                if self.name.is_empty() { Reply::Nil } else { Reply::Bulk(self.name.clone()) }
            }),
            "info" => arity(0).map(|()| Reply::Text(self.describe())),
            "setname" => {
                arity(1)?;
                self.name = checked(&arguments[0], "Client names")?;
                Ok(Reply::OK)
            }
            "setinfo" => {
                arity(2)?;
                match &arguments[0].to_ascii_lowercase()[..] {
                    b"lib-name" => self.library = checked(&arguments[1], "lib-name")?,
                    b"lib-ver" => self.library_version = checked(&arguments[1], "lib-ver")?,
                    _ => {
                        let option = quote(&arguments[0], MAX_QUOTE);
                        return Err(format!("ERR Unrecognized option '{option}'"));
                    }
                }
                Ok(Reply::OK)
            }
            // Nothing of a client's is ever evicted here, and no key has an access time.
            "no-evict" | "no-touch" => {
                arity(1)?;
                match &arguments[0].to_ascii_lowercase()[..] {
                    b"on" | b"off" => Ok(Reply::OK),
                    _ => Err("ERR syntax error".into()),
                }
            }
            _ => Err(unknown_subcommand("CLIENT", words)),
        }
    }

    fn describe(&self) -> String {
        let text = |bytes: &Bytes| String::from_utf8_lossy(bytes).into_owned();
        format!(
            "id={} addr={} name={} age={} db=0 resp={} user=default lib-name={} lib-ver={}\n",
            self.id,
            self.peer,
            text(&self.name),
            self.since.elapsed().as_secs(),
            self.protocol,
            text(&self.library),
            text(&self.library_version),
        )
    }
}

const NO_PASSWORD: &str = "ERR AUTH <password> called without any password configured for the \
    default user. Are you sure your configuration is correct?";
const WRONG_PASSWORD: &str =
    "WRONGPASS invalid username-password pair or user is disabled: this gateway has no users.";

/// A name without what would spoil CLIENT INFO.
fn checked(name: &Bytes, what: &str) -> Result<Bytes, String> {
    let printable = |byte: &u8| (b'!'..=b'~').contains(byte);
    if !name.iter().all(printable) {
        return Err(format!("ERR {what} cannot contain spaces, newlines or special characters."));
    }
    if name.len() > MAX_NAME {
        return Err(format!("ERR {what} cannot be longer than {MAX_NAME} bytes"));
    }
    // A copy: the name must not keep alive all the bytes that it came with.
    Ok(Bytes::copy_from_slice(name))
}

fn select(database: &[u8]) -> Answer {
    match integer(database) {
        Some(0) => Ok(Reply::OK),
        Some(_) => Err("ERR DB index is out of range".into()),
        None => Err("ERR value is not an integer or out of range".into()),
    }
}

fn subcommand(words: &[Bytes]) -> (String, &[Bytes]) {
    (quote(&words[1], MAX_QUOTE).to_ascii_lowercase(), &words[2..])
}

fn expect(command: &str, sub: &str, arguments: &[Bytes], expected: usize) -> Result<(), String> {
    if arguments.len() == expected {
        return Ok(());
    }
    Err(wrong_arity(&format!("{command}|{sub}")))
}

fn unknown_subcommand(command: &str, words: &[Bytes]) -> String {
    let sub = quote(&words[1], MAX_QUOTE);
    format!("ERR unknown subcommand '{sub}'. Try {command} HELP.")
}

fn command(words: &[Bytes]) -> Answer {
    if words.len() == 1 {
        return Ok(Reply::Array(table::ALL.iter().map(Spec::info).collect()));
    }
    let (sub, arguments) = subcommand(words);
    let named = || arguments.iter().map(|name| table::find(name));
    match &sub[..] {
        "count" => {
            expect("command", &sub, arguments, 0)?;
            Ok(Reply::Int(table::ALL.len() as i64))
        }
        "list" => {
            expect("command", &sub, arguments, 0)?;
            let names = table::ALL.iter().map(|spec| Reply::bulk(spec.name));
            Ok(Reply::Array(names.collect()))
        }
        "info" if arguments.is_empty() => {
            Ok(Reply::Array(table::ALL.iter().map(Spec::info).collect()))
        }
        "info" => {
            let row = |spec: Option<&Spec>| spec.map_or(Reply::Nil, Spec::info);
            Ok(Reply::Array(named().map(row).collect()))
        }
        "docs" if arguments.is_empty() => {
            Ok(Reply::Map(table::ALL.iter().map(Spec::docs).collect()))
        }
        "docs" => {
            // One entry per command, however often it is named.
            let wanted: Vec<_> = named().flatten().map(|spec| spec.name).collect();
            let specs = table::ALL.iter().filter(|spec| wanted.contains(&spec.name));
            Ok(Reply::Map(specs.map(Spec::docs).collect()))
        }
        _ => Err(unknown_subcommand("COMMAND", words)),
    }
}

fn config(words: &[Bytes], shared: &GatewayState) -> Answer {
    let (sub, arguments) = subcommand(words);
    match &sub[..] {
        "get" if arguments.is_empty() => Err(wrong_arity("config|get")),
        "get" => {
            let matches = |name: &str| {
                let hit =
                    |pattern: &Bytes| info::glob(&pattern.to_ascii_lowercase(), name.as_bytes());
                arguments.iter().any(hit)
            };
            let settings = info::settings(shared).into_iter();
            let wanted = settings.filter(|(name, _)| matches(name));
            Ok(Reply::Map(wanted.map(|(name, value)| (name, Reply::bulk(value))).collect()))
        }
        "set" => Err("ERR CONFIG SET is not possible: a gateway is set up by its options".into()),
        _ => Err(unknown_subcommand("CONFIG", words)),
    }
}
