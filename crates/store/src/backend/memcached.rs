//! memcached 1.6, spoken to in its meta text protocol, pipelined.
//!
//! Its clock has one-second steps. A time to live is rounded up to the next second and one more, so
//! that a value is there at least as long as asked. When its life is really over is remembered here
//! ([`Lives`]): from then on nobody finds it. Of a value that is not remembered, because another
//! client or an earlier life of this store wrote it, a reading of the remaining seconds counts for
//! one less, so that a copy never outlives its key. Keys with spaces or control characters travel
//! as base64, which must fit its 250 bytes.
//!
//! It gives a value whole or not at all. So of keys that are not known to have small ones only as
//! many are asked for at once as a batch has bytes for, were they as long as can be; the others are
//! asked for their length first.

mod check;
mod lives;
mod pauses;
mod refusals;
#[cfg(test)]
mod tests;
mod upstream;

use std::{
    borrow::Cow,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use anyhow::{Context, bail};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader, ReadHalf, WriteHalf},
    net::TcpStream,
    sync::mpsc::UnboundedReceiver,
};

use super::{
    Backend, Completion,
    remote::{BATCH_BYTES, Command, Health, OnlyIf, Outcome, Protocol, Remote, SMALL, Verb},
    small::Small,
};
use crate::{clock::boot_ns, coherence::Watch};
use check::ServerProcess;
use lives::Lives;
use pauses::{PAUSE, PAUSES, Pauses};
use refusals::refusal;
pub(crate) use upstream::Upstream;

/// Longest key on the line, in bytes.
const MAX_NAME: usize = 250;
/// Times to live above this are taken as seconds after 1970 by memcached.
const MAX_RELATIVE_S: u64 = 30 * 24 * 3600;
/// Longest value that it may have: more than anybody reads, but it must be read past. memcached
/// itself has 1 MiB, unless `-I` says otherwise.
const MAX_VALUE: usize = 64 << 20;
const NS_PER_MS: u64 = 1_000_000;
/// Bytes of an item beside name and value, at most. Longer ones than memcached takes it must not be
/// sent: it would remove the old one.
const ITEM_OVERHEAD: usize = 128;

/// Connects to `server` (HOST:PORT), which has so long for each answer. One that is not there, or
/// does not answer as memcached 1.6 does, is connected to when it is and does: until then requests
/// are refused. With the backend comes what clients of the memcached port go by.
pub(crate) async fn connect(
    server: &str,
    base_version: u64,
    within: Duration,
) -> (Box<dyn Backend>, UnboundedReceiver<Completion>, Upstream) {
    let health = Health::new();
    let memcached = Memcached::at(server.into(), health.clone());
    let upstream = Upstream::new(server, within, memcached.lives.clone());
    let (completions, done) = tokio::sync::mpsc::unbounded_channel();
    // memcached has no means to tell of what its other clients do.
    let watch = Watch::Unneeded;
    let mut remote = Remote::start(memcached, health, watch, base_version, completions, within);
    remote.has_tried().await;
    (Box::new(remote), done, upstream)
}

/// A connection. Its halves are used at once: memcached reads no further while its answers are
/// not taken.
type Stream = (BufReader<ReadHalf<TcpStream>>, WriteHalf<TcpStream>);

struct Memcached {
    server: String,
    stream: Option<Stream>,
    /// It is one that can be spoken to.
    is_checked: bool,
    health: Health,
    request: Vec<u8>,
    /// Bytes of the longest value that it may have.
    longest: usize,
    small: Small,
    lives: Lives,
    /// Whose values have those.
    process: Option<ServerProcess>,
    pauses: Pauses,
}

impl Memcached {
    fn at(server: String, health: Health) -> Memcached {
        Memcached {
            server,
            stream: None,
            is_checked: false,
            health,
            request: Vec::new(),
            longest: MAX_VALUE,
            small: Small::new(),
            lives: Lives::default(),
            process: None,
            pauses: Pauses::default(),
        }
    }

    /// Bytes of a name and its value that it takes.
    fn takes(&self) -> usize {
        self.longest.saturating_sub(ITEM_OVERHEAD)
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
        let takes = self.takes();
        let fits = |command: &Command| match &command.verb {
            Verb::Put { value, .. } => command.name.len() + value.len() <= takes,
            _ => true,
        };
        let sent: Vec<bool> = commands
            .iter()
            .map(|(command, length)| fits(command) && write_command(command, *length, &mut request))
            .collect();
        self.stream().await?;
        let Memcached { stream: Some((answers, requests)), lives, .. } = self else {
            bail!("memcached: the connection is gone");
        };
        let write = async { Ok(requests.write_all(&request).await?) };
        let mut reader = AnswerReader { answers, lives, asked_ns: boot_ns(), room, line: vec![] };
        let read = async {
            let mut outcomes = Vec::with_capacity(commands.len());
            for ((command, _), sent) in commands.iter().zip(sent) {
                outcomes.push(match sent {
                    true => reader.outcome(command).await?,
                    // It was asked for before it was known what this one takes.
                    false if !fits(command) => Some(Outcome::TooLarge),
                    false if matches!(command.verb, Verb::Put { .. }) => {
                        Some(Outcome::KeyTooLong(longest_key(&command.name)))
                    }
                    false => Some(Outcome::Absent),
                });
            }
            anyhow::Ok(outcomes)
        };
        let ((), outcomes) = tokio::try_join!(write, read)?;
        self.request = request;
        Ok(outcomes)
    }

    /// Removes what is there of these commands' keys although its life is over: it is found no
    /// more.
    async fn end_lives(&mut self, commands: &[Command]) -> anyhow::Result<()> {
        let now_ns = boot_ns();
        let (mut request, mut ended) = (vec![], 0);
        for Command { name, .. } in commands {
            if let Some(cas) = self.lives.take_ended(name, now_ns)
                && let Some((name, flag)) = name_on_line(name)
            {
                request.extend_from_slice(&[b"md ", &name[..], flag].concat());
                // Another value that somebody has written since stays.
                request.extend_from_slice(format!(" C{cas}\r\n").as_bytes());
                ended += 1;
            }
        }
        if ended == 0 {
            return Ok(());
        }
        let (answers, requests) = self.stream().await?;
        requests.write_all(&request).await?;
        let mut line = vec![];
        for _ in 0..ended {
            read_line(answers, &mut line).await?;
            let word = line.split(|byte| *byte == b' ').next();
            if !matches!(word, Some(b"HD" | b"NF" | b"EX")) {
                bail!("memcached: answer {:?} to md", String::from_utf8_lossy(&line));
            }
        }
        Ok(())
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
        if self.is_checked {
            return Ok(());
        }
        // An attempt before may have been given up half-way.
        self.disconnect();
        let server = self.server.clone();
        self.stream().await.with_context(|| format!("cannot connect to memcached at {server}"))?;
        let found = self.check().await.with_context(|| format!("memcached at {server}"))?;
        self.longest = found.item_size_max;
        self.health.takes_up_to(self.takes());
        self.health.can_mark(usize::from(found.evicts));
        if found.process.is_none() || found.process != self.process {
            self.lives.forget_all();
        }
        self.process = found.process;
        self.is_checked = true;
        Ok(())
    }

    async fn execute(&mut self, commands: &[Command]) -> anyhow::Result<Vec<Outcome>> {
        self.end_lives(commands).await?;
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
        self.is_checked = false;
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
    let name = match &command.verb {
        // One key, for one command can mark no more.
        Verb::Mark(keys) => keys.first().map_or(&[][..], |(name, _)| name),
        _ => &command.name,
    };
    let Some((name, flag)) = name_on_line(name) else { return false };
    let name = &name[..];
    let mut put = |parts: &[&[u8]]| parts.iter().for_each(|part| out.extend_from_slice(part));
    match &command.verb {
        Verb::Get { .. } if length => put(&[b"mg ", name, b" s", flag, b"\r\n"]),
        Verb::Get { .. } => put(&[b"mg ", name, b" v t c", flag, b"\r\n"]),
        // Whoever asks for nothing has read it all the same.
        Verb::Delete { only_if: OnlyIf::Absent } | Verb::Mark(_) => {
            put(&[b"mg ", name, flag, b"\r\n"]);
        }
        Verb::Delete { .. } => put(&[b"md ", name, flag, b"\r\n"]),
        Verb::Put { value, ttl_ms, only_if } => {
            let mode = match only_if {
                OnlyIf::Always => "MS",
                OnlyIf::Absent => "ME",
                OnlyIf::Present => "MR",
            };
            let sizes = format!(" {} T{} {mode} c", value.len(), exptime(*ttl_ms));
            put(&[b"ms ", name, sizes.as_bytes(), flag, b"\r\n", value, b"\r\n"]);
        }
    }
    true
}

/// How a key is named to memcached, with the flag that says so; `None` if it cannot be. The name is
/// not empty.
fn name_on_line(name: &[u8]) -> Option<(Cow<'_, [u8]>, &'static [u8])> {
    let (name, flag): (Cow<'_, [u8]>, &[u8]) = match is_plain(name) {
        true => (name.into(), b""),
        false => (STANDARD.encode(name).into_bytes().into(), b" b"),
    };
    (1..=MAX_NAME).contains(&name.len()).then_some((name, flag))
}

/// Bytes that a key may have so that memcached can be told its name: of the same tenant, with or
/// without bytes for which it has to be encoded.
fn longest_key(name: &[u8]) -> u8 {
    let prefix = name.len() - wire::key_of_backend_name(name).1.len();
    let longest = match is_plain(name) {
        true => MAX_NAME,
        // Three bytes become four.
        false => MAX_NAME / 4 * 3,
    };
    longest.saturating_sub(prefix) as u8
}

/// Whether a name can stand on the line as it is.
fn is_plain(name: &[u8]) -> bool {
    name.iter().all(|b| *b > b' ' && *b != 0x7f)
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

/// Reads the answers to the commands of one pipeline.
struct AnswerReader<'a> {
    answers: &'a mut BufReader<ReadHalf<TcpStream>>,
    lives: &'a Lives,
    /// When the commands were sent.
    asked_ns: u64,
    /// Bytes of large values that are still kept, of those that were not asked for as such.
    room: &'a mut usize,
    line: Vec<u8>,
}

impl AnswerReader<'_> {
    /// The answer to a command. `None`: the length of a small value, and nothing more.
    async fn outcome(&mut self, command: &Command) -> anyhow::Result<Option<Outcome>> {
        read_line(self.answers, &mut self.line).await?;
        let line = std::mem::take(&mut self.line);
        let text = std::str::from_utf8(&line).context("memcached: an answer is not text")?;
        let mut words = text.split(' ');
        let outcome = match words.next() {
            Some("VA") => self.value(command, text).await?,
            Some("HD") => match &command.verb {
                Verb::Get { .. } => {
                    let len: usize = words
                        .find_map(|word| word.strip_prefix('s')?.parse().ok())
                        .with_context(|| format!("memcached: no length in {text:?}"))?;
                    self.line = line;
                    return Ok((len > SMALL).then_some(Outcome::Large(len)));
                }
                Verb::Delete { only_if: OnlyIf::Absent } => Outcome::NotStored,
                Verb::Put { ttl_ms, .. } => {
                    let ends_ns = self.asked_ns + u64::from(*ttl_ms) * NS_PER_MS;
                    match cas(text).filter(|_| *ttl_ms > 0) {
                        Some(cas) => self.lives.begin(&command.name, cas, ends_ns, self.asked_ns),
                        None => self.lives.forget(&command.name),
                    }
                    Outcome::Done
                }
                Verb::Delete { .. } | Verb::Mark(_) => Outcome::Done,
            },
            Some("EN" | "NF") => Outcome::Absent,
            Some("NS") => Outcome::NotStored,
            _ => refusal(text).with_context(|| {
                format!("memcached: answer {text:?} to {}", verb_on_line(&command.verb))
            })?,
        };
        self.line = line;
        Ok(Some(outcome))
    }

    /// The value that such a line announces. Of large ones as many are kept as there is room for,
    /// and those that were asked for as such.
    async fn value(&mut self, command: &Command, text: &str) -> anyhow::Result<Outcome> {
        let mut words = text.split(' ').skip(1);
        let len: usize = words
            .next()
            .and_then(|len| len.parse().ok())
            .filter(|len| *len <= MAX_VALUE)
            .with_context(|| format!("memcached: bad length in {text:?}"))?;
        let expiry_ms = expiry_ms(words.find_map(|word| word.strip_prefix('t')))
            .with_context(|| format!("memcached: no time to live in {text:?}"))?;
        let keep = match &command.verb {
            Verb::Get { most, large, .. } => {
                len <= SMALL || (len <= *most && (large.is_some() || len <= *self.room))
            }
            _ => false,
        };
        if !keep {
            pass_over(self.answers, len + 2).await?;
            return Ok(Outcome::Large(len));
        }
        if len > SMALL {
            *self.room = self.room.saturating_sub(len);
        }
        let mut value = vec![0; len];
        self.answers.read_exact(&mut value).await?;
        pass_over(self.answers, 2).await?;
        let left_ns = cas(text).and_then(|cas| self.lives.left_ns(&command.name, cas, boot_ns()));
        Ok(match left_ns {
            Some(0) => Outcome::Absent,
            Some(left_ns) if expiry_ms > 0 => {
                let left_ms = u32::try_from(left_ns / NS_PER_MS).unwrap_or(u32::MAX);
                Outcome::Value { value, expiry_ms: left_ms.max(1) }
            }
            _ => Outcome::Value { value, expiry_ms },
        })
    }
}

/// The number of a value that such a line names; `None`: memcached gives them none (`-C`).
fn cas(text: &str) -> Option<u64> {
    let cas = text.split(' ').skip(1).find_map(|word| word.strip_prefix('c')?.parse().ok());
    cas.filter(|cas| *cas > 0)
}

/// Remaining seconds, -1 for no end, as milliseconds that the key surely has left; 0 for no end.
fn expiry_ms(seconds: Option<&str>) -> Option<u32> {
    let seconds: i64 = seconds?.parse().ok()?;
    Some(match seconds {
        ..0 => 0,
        _ => u32::try_from((seconds - 1).max(0) * 1000).unwrap_or(u32::MAX).max(1),
    })
}

/// What a command is called on the line.
fn verb_on_line(verb: &Verb) -> &'static str {
    match verb {
        Verb::Get { .. } | Verb::Mark(_) => "mg",
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
