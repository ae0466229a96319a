//! memcached 1.6, spoken to in its meta text protocol, pipelined.
//!
//! Its clock has one-second steps. A time to live is rounded up to the next second and one more, so
//! that a key lives at least as long as asked; a reading of the remaining seconds counts for one
//! less, so that a copy never outlives its key. Keys with spaces or control characters travel as
//! base64, which must fit its 250 bytes.
//!
//! It gives a value whole or not at all. So of keys that are not known to have small ones only as
//! many are asked for at once as a batch has bytes for, were they as long as can be; the others are
//! asked for their length first.

mod pauses;

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, bail};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader, ReadHalf, WriteHalf},
    net::TcpStream,
    sync::mpsc::UnboundedReceiver,
};

use super::{
    Backend, Completion,
    remote::{BATCH_BYTES, Command, OnlyIf, Outcome, Protocol, Remote, SMALL, Verb},
    small::Small,
};
use crate::coherence::Watch;
use pauses::{PAUSE, PAUSES, Pauses};

/// Longest key on the line, in bytes.
const MAX_NAME: usize = 250;
/// Times to live above this are taken as seconds after 1970 by memcached.
const MAX_RELATIVE_S: u64 = 30 * 24 * 3600;
/// Longest value that it may have: more than anybody reads, but it must be read past. memcached
/// itself has 1 MiB, unless `-I` says otherwise.
const MAX_VALUE: usize = 64 << 20;
/// Bytes of an item beside name and value, at most. Longer ones than memcached takes it must not be
/// sent: it would remove the old one.
const ITEM_OVERHEAD: usize = 128;
/// How long it may take at least to say what it is, when the store starts.
const CHECKED_WITHIN: Duration = Duration::from_secs(5);

/// Connects to `server` (HOST:PORT), which has so long for each answer.
///
/// # Errors
/// It does not answer, or not as memcached 1.6 does.
pub async fn connect(
    server: &str,
    base_version: u64,
    within: Duration,
) -> anyhow::Result<(Box<dyn Backend>, UnboundedReceiver<Completion>)> {
    let mut protocol = Memcached::at(server.into());
    let item_size_max = protocol
        .check(within.max(CHECKED_WITHIN))
        .await
        .with_context(|| format!("memcached at {server}"))?;
    protocol.longest = item_size_max;
    let (completions, done) = tokio::sync::mpsc::unbounded_channel();
    // memcached has no means to tell of what its other clients do.
    let remote = Remote::start(protocol, Watch::Unneeded, base_version, completions, within)
        .that_takes(item_size_max.saturating_sub(ITEM_OVERHEAD));
    Ok((Box::new(remote), done))
}

/// A connection. Its halves are used at once: memcached reads no further while its answers are
/// not taken.
type Stream = (BufReader<ReadHalf<TcpStream>>, WriteHalf<TcpStream>);

struct Memcached {
    server: String,
    stream: Option<Stream>,
    request: Vec<u8>,
    /// Bytes of the longest value that it may have.
    longest: usize,
    small: Small,
    pauses: Pauses,
}

impl Memcached {
    fn at(server: String) -> Memcached {
        Memcached {
            server,
            stream: None,
            request: Vec::new(),
            longest: MAX_VALUE,
            small: Small::new(),
            pauses: Pauses::default(),
        }
    }

    async fn stream(&mut self) -> anyhow::Result<&mut Stream> {
        if self.stream.is_none() {
            let stream = TcpStream::connect(&self.server).await?;
            stream.set_nodelay(true)?;
            // Given up, it takes along what has not arrived: behind a partition the system would
            // deliver a write much later, over those that were acknowledged since.
            stream.set_zero_linger()?;
            // Of these halves none ends the connection when it is dropped, and the last one
            // resets it.
            let (answers, requests) = tokio::io::split(stream);
            self.stream = Some((BufReader::with_capacity(64 << 10, answers), requests));
        }
        Ok(self.stream.as_mut().expect("connected above"))
    }

    /// Asks for a meta no-op: only memcached 1.6 and later knows it. And how large its items may
    /// be, in bytes.
    async fn check(&mut self, within: Duration) -> anyhow::Result<usize> {
        let ask = async {
            let (stream, requests) = self.stream().await?;
            requests.write_all(b"mn\r\nstats settings\r\n").await?;
            let mut line = Vec::new();
            read_line(stream, &mut line).await?;
            if line != b"MN" {
                bail!("it does not know meta commands; version 1.6 or later is needed");
            }
            let mut most = MAX_VALUE;
            while line != b"END" {
                read_line(stream, &mut line).await?;
                let text = String::from_utf8_lossy(&line);
                if let Some(size) = text.strip_prefix("STAT item_size_max ") {
                    most = size.parse().context("item_size_max is no number")?;
                } else if !text.starts_with("STAT ") && text != "END" {
                    bail!("answer {text:?} to stats settings");
                }
            }
            Ok(most)
        };
        tokio::time::timeout(within, ask)
            .await
            .with_context(|| format!("no answer within {within:?}"))?
    }

    /// Whether a read of each command is of the length only.
    fn lengths_first(&self, commands: &[Command]) -> Vec<bool> {
        let large: usize = commands.iter().map(Command::large_bytes).sum();
        let mut unknown = (BATCH_BYTES.saturating_sub(large) / self.longest.max(1)).max(1);
        let length_first = |command: &Command| {
            let unasked = matches!(command.verb, Verb::Get { large: None, .. });
            let is_unknown = unasked && !self.small.has(&command.name);
            let length_first = is_unknown && unknown == 0;
            unknown -= usize::from(is_unknown && !length_first);
            length_first
        };
        commands.iter().map(length_first).collect()
    }

    /// One pipeline of commands, each with whether it reads a length only. `None`: that was asked
    /// for, and is small.
    async fn ask(
        &mut self,
        commands: &[(&Command, bool)],
        room: &mut usize,
    ) -> anyhow::Result<Vec<Option<Outcome>>> {
        let mut request = std::mem::take(&mut self.request);
        request.clear();
        let sent: Vec<bool> = commands
            .iter()
            .map(|(command, length)| write_command(command, *length, &mut request))
            .collect();
        let (answers, requests) = self.stream().await?;
        let write = async { Ok(requests.write_all(&request).await?) };
        let read = async {
            let (mut outcomes, mut line) = (Vec::with_capacity(commands.len()), Vec::new());
            for ((command, _), sent) in commands.iter().zip(sent) {
                outcomes.push(match sent {
                    true => read_outcome(answers, &command.verb, &mut line, room).await?,
                    false if matches!(command.verb, Verb::Put { .. }) => Some(Outcome::TooLarge),
                    false => Some(Outcome::Absent),
                });
            }
            anyhow::Ok(outcomes)
        };
        let ((), outcomes) = tokio::try_join!(write, read)?;
        self.request = request;
        Ok(outcomes)
    }

    /// Which conditional writes are refused, before anything of them is sent. memcached makes room
    /// for a value first and looks at the condition then; where there is none (`-M`) it drops what
    /// the key has, whatever the condition.
    async fn refused_before(
        &mut self,
        commands: &[Command],
        room: &mut usize,
    ) -> anyhow::Result<Vec<Option<Outcome>>> {
        let mut refused = vec![None; commands.len()];
        let mut conditional = vec![];
        for (at, command) in commands.iter().enumerate() {
            if let Verb::Put { only_if: only_if @ (OnlyIf::Absent | OnlyIf::Present), .. } =
                command.verb
            {
                let looks = Verb::Delete { only_if: OnlyIf::Absent };
                conditional.push((at, only_if, Command { verb: looks, ..command.clone() }));
            }
        }
        if conditional.is_empty() {
            return Ok(refused);
        }
        let looks: Vec<_> = conditional.iter().map(|(_, _, look)| (look, false)).collect();
        let found = self.ask(&looks, room).await?;
        for ((at, only_if, _), found) in conditional.iter().zip(found) {
            let is_there = found == Some(Outcome::NotStored);
            if is_there == (*only_if == OnlyIf::Absent) {
                refused[*at] = Some(Outcome::NotStored);
            }
        }
        Ok(refused)
    }

    /// Writes again what there was no room for. memcached has dropped the key's value, which may
    /// just be the room: at once, or, if it was read lately, when its own thread has let go of it.
    /// That is waited for where the value is known to have been there, but not for long in all: the
    /// others wait as well. Who finds no room then is refused, and his value is gone.
    async fn put_again(
        &mut self,
        commands: &[Command],
        outcomes: &mut [Option<Outcome>],
        room: &mut usize,
    ) -> anyhow::Result<()> {
        for pause in 0..=PAUSES {
            let (full, again): (Vec<_>, Vec<_>) = full_puts(commands, outcomes, pause > 0).unzip();
            if again.is_empty() || pause > 0 && !self.pauses.take(Instant::now()) {
                break;
            }
            if pause > 0 {
                tokio::time::sleep(PAUSE).await;
            }
            let asked: Vec<_> = again.iter().map(|command| (command, false)).collect();
            for (at, outcome) in full.into_iter().zip(self.ask(&asked, room).await?) {
                outcomes[at] = outcome;
            }
        }
        Ok(())
    }

    /// Remembers whose values are small.
    fn learn(&mut self, command: &Command, outcome: &Outcome) {
        let len = match (&command.verb, outcome) {
            (Verb::Get { .. }, Outcome::Value { value, .. }) => value.len(),
            (Verb::Get { .. }, Outcome::Large(len)) => *len,
            (Verb::Put { value, .. }, Outcome::Done) => value.len(),
            (_, Outcome::Absent) => 0,
            // Nothing of what there is was seen.
            _ => return,
        };
        self.small.saw(&command.name, len <= SMALL);
    }
}

impl Protocol for Memcached {
    async fn connect(&mut self) -> anyhow::Result<()> {
        self.stream().await.context("cannot connect to memcached").map(drop)
    }

    async fn execute(&mut self, commands: &[Command]) -> anyhow::Result<Vec<Outcome>> {
        let lengths = self.lengths_first(commands);
        let mut room = BATCH_BYTES;
        let mut outcomes = self.refused_before(commands, &mut room).await?;
        for lengths_only in [true, false] {
            let open = |at: &usize| outcomes[*at].is_none();
            let open: Vec<usize> = (0..commands.len()).filter(open).collect();
            let asks = |at: &usize| (&commands[*at], lengths_only && lengths[*at]);
            let asked: Vec<_> = open.iter().map(asks).collect();
            if asked.is_empty() {
                break;
            }
            for (at, outcome) in open.into_iter().zip(self.ask(&asked, &mut room).await?) {
                outcomes[at] = outcome;
            }
        }
        self.put_again(commands, &mut outcomes, &mut room).await?;
        let outcomes: Option<Vec<Outcome>> = outcomes.into_iter().collect();
        let outcomes = outcomes.context("memcached: a length in the place of a value")?;
        for (command, outcome) in commands.iter().zip(&outcomes) {
            self.learn(command, outcome);
        }
        Ok(outcomes)
    }

    fn name(&self) -> String {
        format!("memcached at {}", self.server)
    }

    fn disconnect(&mut self) {
        self.stream = None;
    }
}

/// The writes that found no room, each with its place, as they are to be sent again: whatever the
/// key has by now. With `was_there` only those whose key is known to have had a value.
fn full_puts(
    commands: &[Command],
    outcomes: &[Option<Outcome>],
    was_there: bool,
) -> impl Iterator<Item = (usize, Command)> {
    let again = move |(at, (command, outcome)): (usize, (&Command, &Option<Outcome>))| {
        let (Some(Outcome::Full), Verb::Put { value, ttl_ms, only_if }) = (outcome, &command.verb)
        else {
            return None;
        };
        let is_due = match only_if {
            OnlyIf::Always => !was_there,
            OnlyIf::Absent => false,
            OnlyIf::Present => true,
        };
        let (value, ttl_ms) = (value.clone(), *ttl_ms);
        let verb = Verb::Put { value, ttl_ms, only_if: OnlyIf::Always };
        is_due.then(|| (at, Command { verb, ..command.clone() }))
    };
    commands.iter().zip(outcomes).enumerate().filter_map(again)
}

/// Appends a command, or of a read the one for the length of its value; false if its key cannot be
/// named to memcached, and nothing was appended.
fn write_command(command: &Command, length: bool, out: &mut Vec<u8>) -> bool {
    let plain = command.name.iter().all(|b| *b > b' ' && *b != 0x7f);
    let encoded;
    let (name, flag): (&[u8], &str) = if plain {
        (&command.name, "")
    } else {
        encoded = STANDARD.encode(&command.name);
        (encoded.as_bytes(), " b")
    };
    if name.len() > MAX_NAME {
        return false;
    }
    let mut put = |parts: &[&[u8]]| parts.iter().for_each(|part| out.extend_from_slice(part));
    let flag = flag.as_bytes();
    match &command.verb {
        Verb::Get { .. } if length => put(&[b"mg ", name, b" s", flag, b"\r\n"]),
        Verb::Get { .. } => put(&[b"mg ", name, b" v t", flag, b"\r\n"]),
        Verb::Delete { only_if: OnlyIf::Absent } => put(&[b"mg ", name, flag, b"\r\n"]),
        Verb::Delete { .. } => put(&[b"md ", name, flag, b"\r\n"]),
        Verb::Put { value, ttl_ms, only_if } => {
            let mode = match only_if {
                OnlyIf::Always => "MS",
                OnlyIf::Absent => "ME",
                OnlyIf::Present => "MR",
            };
            let sizes = format!(" {} T{} {mode}", value.len(), exptime(*ttl_ms));
            put(&[b"ms ", name, sizes.as_bytes(), flag, b"\r\n", value, b"\r\n"]);
        }
    }
    true
}

/// A time to live as memcached takes it: see the module's documentation.
fn exptime(ttl_ms: u32) -> u64 {
    let seconds = u64::from(ttl_ms).div_ceil(1000) + 1;
    match ttl_ms {
        0 => 0,
        _ if seconds <= MAX_RELATIVE_S => seconds,
        _ => seconds + SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs()),
    }
}

/// Reads the answer to a command. Of large values it keeps as many as `room` has bytes for, and
/// those that were asked for as such. `None`: the length of a small one, and nothing more.
async fn read_outcome(
    stream: &mut BufReader<ReadHalf<TcpStream>>,
    verb: &Verb,
    line: &mut Vec<u8>,
    room: &mut usize,
) -> anyhow::Result<Option<Outcome>> {
    read_line(stream, line).await?;
    let text = std::str::from_utf8(line).context("memcached: an answer is not text")?;
    let mut words = text.split(' ');
    Ok(Some(match words.next() {
        Some("VA") => {
            let len: usize = words
                .next()
                .and_then(|len| len.parse().ok())
                .filter(|len| *len <= MAX_VALUE)
                .with_context(|| format!("memcached: bad length in {text:?}"))?;
            let expiry_ms = expiry_ms(words.find_map(|word| word.strip_prefix('t')))
                .with_context(|| format!("memcached: no time to live in {text:?}"))?;
            let keep = match verb {
                Verb::Get { most, large, .. } => {
                    len <= SMALL || (len <= *most && (large.is_some() || len <= *room))
                }
                _ => false,
            };
            if !keep {
                pass_over(stream, len + 2).await?;
                return Ok(Some(Outcome::Large(len)));
            }
            if len > SMALL {
                *room = room.saturating_sub(len);
            }
            let mut value = vec![0; len];
            stream.read_exact(&mut value).await?;
            pass_over(stream, 2).await?;
            Outcome::Value { value, expiry_ms }
        }
        Some("HD") => match verb {
            Verb::Get { .. } => {
                let len: usize = words
                    .find_map(|word| word.strip_prefix('s')?.parse().ok())
                    .with_context(|| format!("memcached: no length in {text:?}"))?;
                return Ok((len > SMALL).then_some(Outcome::Large(len)));
            }
            Verb::Delete { only_if: OnlyIf::Absent } => Outcome::NotStored,
            _ => Outcome::Done,
        },
        Some("EN" | "NF") => Outcome::Absent,
        Some("NS") => Outcome::NotStored,
        _ if text.starts_with("SERVER_ERROR object too large") => Outcome::TooLarge,
        _ if text.starts_with("SERVER_ERROR out of memory") => Outcome::Full,
        _ => bail!("memcached: answer {text:?} to {}", name(verb)),
    }))
}

/// Remaining seconds, -1 for no end, as milliseconds that the key surely has left; 0 for no end.
fn expiry_ms(seconds: Option<&str>) -> Option<u32> {
    let seconds: i64 = seconds?.parse().ok()?;
    Some(match seconds {
        ..0 => 0,
        _ => u32::try_from((seconds - 1).max(0) * 1000).unwrap_or(u32::MAX).max(1),
    })
}

fn name(verb: &Verb) -> &'static str {
    match verb {
        Verb::Get { .. } => "mg",
        Verb::Put { .. } => "ms",
        Verb::Delete { .. } => "md",
    }
}

/// Takes so many bytes and keeps none: memcached has no means to give a part of a value only, or
/// none of it if it is long.
async fn pass_over(
    stream: &mut BufReader<ReadHalf<TcpStream>>,
    mut len: usize,
) -> anyhow::Result<()> {
    while len > 0 {
        let some = stream.fill_buf().await?.len().min(len);
        if some == 0 {
            bail!("memcached closed the connection");
        }
        stream.consume(some);
        len -= some;
    }
    Ok(())
}

async fn read_line(
    stream: &mut BufReader<ReadHalf<TcpStream>>,
    line: &mut Vec<u8>,
) -> anyhow::Result<()> {
    line.clear();
    stream.take(1024).read_until(b'\n', line).await?;
    if line.last() != Some(&b'\n') {
        bail!("memcached closed the connection");
    }
    line.pop();
    if line.last() == Some(&b'\r') {
        line.pop();
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_never_outlives_its_key_nor_the_key_its_promise() {
        assert_eq!([exptime(0), exptime(1), exptime(1000), exptime(1001)], [0, 2, 2, 3]);
        assert!(exptime(u32::MAX) > 1_000_000_000, "more than 30 days: an absolute time");
        let left = |s| expiry_ms(Some(s));
        assert_eq!(
            [left("-1"), left("0"), left("1"), left("2")],
            [Some(0), Some(1), Some(1), Some(1000)]
        );
        assert_eq!([left("x"), expiry_ms(None)], [None, None]);
    }

    #[tokio::test]
    async fn what_has_not_arrived_when_the_connection_is_given_up_never_does() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut memcached = Memcached::at(listener.local_addr().unwrap().to_string());
        memcached.stream().await.unwrap();
        let (mut server, _) = listener.accept().await.unwrap();
        memcached.disconnect();
        let read = server.read(&mut [0]).await;
        let kind = read.map_err(|error| error.kind());
        assert_eq!(kind, Err(std::io::ErrorKind::ConnectionReset));
    }

    fn get(name: String) -> Command {
        let (track, most, large) = (false, 1 << 20, None);
        Command {
            ticket: 0,
            tenant: 0,
            name: name.into_bytes(),
            version: 0,
            verb: Verb::Get { track, most, large },
        }
    }

    /// A server whose values have so many bytes. Counts how often it was asked for a value, and for
    /// a length.
    async fn server(len: usize) -> (Memcached, tokio::task::JoinHandle<[usize; 2]>) {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut memcached = Memcached::at(listener.local_addr().unwrap().to_string());
        memcached.longest = 1 << 20;
        let serve = async move {
            let (stream, mut answers) = tokio::io::split(listener.accept().await.unwrap().0);
            let mut stream = BufReader::new(stream);
            let (mut asked, mut line) = ([0, 0], vec![]);
            while read_line(&mut stream, &mut line).await.is_ok() {
                let length = line.ends_with(b" s");
                asked[usize::from(length)] += 1;
                let mut answer = format!("HD s{len}\r\n").into_bytes();
                if !length {
                    answer = format!("VA {len} t-1\r\n").into_bytes();
                    answer.resize(answer.len() + len, b'x');
                    answer.extend_from_slice(b"\r\n");
                }
                answers.write_all(&answer).await.unwrap();
            }
            asked
        };
        (memcached, tokio::spawn(serve))
    }

    #[tokio::test]
    async fn values_that_may_be_large_are_asked_for_their_lengths_first() {
        let commands: Vec<Command> = (0..100).map(|n| get(format!("k{n}"))).collect();
        // (length of the values, batches, values and lengths that are asked for)
        let rows = [(1 << 20, 1, [4, 96]), (10, 1, [100, 96]), (10, 3, [300, 96])];
        for (len, batches, expected) in rows {
            let (mut memcached, served) = server(len).await;
            for _ in 0..batches {
                let outcomes = memcached.execute(&commands).await.unwrap();
                let whole = |outcome: &&Outcome| matches!(outcome, Outcome::Value { .. });
                let values = outcomes.iter().filter(whole).count();
                assert_eq!(values, if len == 10 { 100 } else { 4 });
            }
            drop(memcached);
            assert_eq!(served.await.unwrap(), expected, "{batches} of {len} bytes");
        }
    }

    /// As memcached does: it reads nothing while somebody does not take its answer.
    #[tokio::test]
    async fn large_values_go_both_ways_at_once() {
        const LEN: usize = 32 << 20;
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut memcached = Memcached::at(listener.local_addr().unwrap().to_string());
        let serve = async {
            let (stream, mut answers) = tokio::io::split(listener.accept().await.unwrap().0);
            let mut stream = BufReader::new(stream);
            let mut line = vec![];
            read_line(&mut stream, &mut line).await.unwrap();
            let mut answer = format!("VA {LEN} t-1\r\n").into_bytes();
            answer.resize(answer.len() + LEN, b'x');
            answers.write_all(&answer).await.unwrap();
            read_line(&mut stream, &mut line).await.unwrap();
            pass_over(&mut stream, LEN + 2).await.unwrap();
            answers.write_all(b"\r\nHD\r\n").await.unwrap();
            (stream, answers)
        };
        let read = Verb::Get { track: false, most: LEN, large: Some(LEN) };
        let write = Verb::Put { value: vec![b'y'; LEN].into(), ttl_ms: 0, only_if: OnlyIf::Always };
        let commands = [read, write].map(|verb| Command { verb, ..get("k".into()) });
        let both = async { tokio::join!(memcached.execute(&commands), serve) };
        let both = tokio::time::timeout(Duration::from_secs(90), both).await;
        let outcomes = both.expect("neither waits for the other").0.unwrap();
        assert!(matches!(&outcomes[0], Outcome::Value { value, .. } if value.len() == LEN));
        assert_eq!(outcomes[1], Outcome::Done);
    }
}
