//! What a switch tells about itself: read from the pinned tables of one in the kernel, whether its
//! agent runs or not; told by the agent of a soft one on a socket, one JSON document per
//! connection.

use std::{
    collections::BTreeMap,
    fs,
    io::{self, Read},
    os::unix::{fs::PermissionsExt, net::UnixStream},
    path::{Path, PathBuf},
    time::Duration,
};

use dataplane::{
    Backing, Counter, Counters, Home, LeaseState, Leases, LoanCounts, PARAMETERS, PageItems,
    RecirculationPorts, Refusal, Table, TenantEntry,
};
use decide::{Registration, Totals};
use serde::{Deserialize, Serialize};
use soft::{LossCounts, Soft};
use tokio::{
    io::AsyncWriteExt,
    net::UnixListener,
    task::{JoinHandle, JoinSet},
    time::timeout,
};
use tracing::warn;

use crate::{AgentError, LOCKS, epoch, lock_directories};

/// How long whoever asks for a status may take to read it, and waits for it.
const TOLD_WITHIN: Duration = Duration::from_secs(5);
/// Most who are told at a time; the next ones wait.
const TOLD_MAX: usize = 16;

/// A switch's status.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Status {
    /// Its name on this machine.
    pub name: String,
    /// Its id.
    pub id: u16,
    /// Where its programs run.
    pub mode: Mode,
    /// The process of its agent; none: it has ended, and programs in the kernel serve on without.
    #[serde(default)]
    pub agent: Option<i32>,
    /// The interfaces that it serves.
    pub interfaces: Vec<String>,
    /// Items that it holds.
    pub items: usize,
    /// Those of them with a value that was granted.
    pub valid_items: usize,
    /// Slots of the lookup table.
    pub slots: u32,
    /// Pages of memory.
    pub pages: u32,
    /// Pages that hold items.
    pub pages_used: usize,
    /// What lies on each page that holds items.
    pub page_items: Vec<PageItems>,
    /// Bytes of all tables.
    pub memory_bytes: usize,
    /// Per tenant: the words that its discipline gave it.
    pub parameters: BTreeMap<u32, [u32; PARAMETERS]>,
    /// The last epoch that was handed out.
    pub invalidation_epoch: u64,
    /// Reads of keys that it holds or might.
    pub reads: u64,
    /// Those answered here.
    pub hits: u64,
    /// Their share.
    pub hit_ratio: f64,
    /// One for each store.
    pub leases: Vec<LeaseState>,
    /// What stores lent to it.
    pub lent: LoanCounts,
    /// What goes round in it.
    pub round: Round,
    /// What a soft switch lost beside what its programs counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lost: Option<LossCounts>,
    /// What this kernel refuses, disciplines by name and write-back, with why.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub refused: BTreeMap<String, String>,
    /// Every counter by name.
    pub counters: BTreeMap<String, u64>,
}

/// What goes round in a switch.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Round {
    /// The interfaces by which it is sent out, to come back by their far ends.
    pub ports: Vec<String>,
    /// The CPU that does their work; `None`: whichever sends.
    pub cpu: Option<u32>,
    /// Values that go round now, lost ones among them until somebody asks for them.
    pub values: u64,
    /// Times that a value stopped because nobody asked for it.
    pub parked: u64,
}

impl Round {
    fn of(going: RecirculationPorts, sums: &Sums<'_>) -> Round {
        let begun = sums.of(&[], |totals| totals.rounds_begun);
        Round {
            ports: going.ports,
            cpu: going.cpu,
            values: begun.saturating_sub(sums.of(&[], |totals| totals.rounds_ended)),
            parked: sums.of(&[], |totals| totals.rounds_parked),
        }
    }
}

/// Where a switch's programs run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// As XDP programs.
    Kernel,
    /// In its agent's process.
    Soft,
}

/// The names of the switches of this machine, sorted; and why there may be more, if some may not be
/// looked at.
pub fn switches() -> (Vec<String>, Option<AgentError>) {
    let (mut names, mut unseen) = match dataplane::switches() {
        Ok(names) => (names, None),
        Err(e) => (vec![], Some(e)),
    };
    for directory in lock_directories() {
        for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
            let file = entry.file_name().into_string().unwrap_or_default();
            let name = file.strip_prefix("switch-").and_then(|name| name.strip_suffix(".sock"));
            let Some(name) = name else { continue };
            match UnixStream::connect(entry.path()) {
                Ok(_) => names.push(name.to_owned()),
                Err(e) if e.kind() == io::ErrorKind::PermissionDenied => {
                    unseen.get_or_insert(dataplane::Error::NotSeen(entry.path()));
                }
                // One that was killed leaves its socket behind.
                Err(_) => {}
            }
        }
    }
    names.sort();
    names.dedup();
    (names, unseen.map(AgentError::from))
}

/// The status of the switch of that name, wherever its programs run.
///
/// `disciplines` are those that its tenants may have chosen.
///
/// # Errors
/// There is none, or it does not answer.
pub fn read(name: &str, disciplines: &[Registration]) -> Result<Status, AgentError> {
    let home = Home::new(name)?;
    let sockets = lock_directories().into_iter().map(|directory| socket(&directory, name));
    if !home.exists()
        && let Some(stream) = sockets.flat_map(UnixStream::connect).next()
    {
        return ask(stream).map_err(|source| AgentError::Status { name: name.into(), source });
    }
    let attached = dataplane::attached(&home).into_iter().map(|(name, _)| name);
    let refused = fs::read(noted(name)).unwrap_or_default();
    Ok(Status {
        agent: epoch::agent_of(name),
        refused: serde_json::from_slice(&refused).unwrap_or_default(),
        ..of(&Backing::from(&home), disciplines, Mode::Kernel, attached.collect(), None)?
    })
}

/// Where an agent notes what its kernel refuses: as long as pins last there, which are gone after
/// a boot.
fn noted(name: &str) -> PathBuf {
    Path::new(LOCKS).join(format!("switch-{name}.refused"))
}

/// Notes for whoever asks for the status what the kernel refused of this switch.
pub(crate) fn note_refused(name: &str, refused: &[(&str, Refusal)]) {
    let path = noted(name);
    let all: BTreeMap<_, _> = refused.iter().map(|(of, why)| (*of, why.to_string())).collect();
    let done = match all.is_empty() {
        true => fs::remove_file(&path).or_else(|e| match e.kind() {
            io::ErrorKind::NotFound => Ok(()),
            _ => Err(e),
        }),
        false => fs::write(&path, serde_json::to_vec(&all).unwrap_or_default()),
    };
    if let Err(e) = done {
        warn!("{}: {e}: `switch status` does not show what the kernel refuses", path.display());
    }
}

/// Takes the note away of a switch that is gone.
pub fn forget_refused(name: &str) {
    note_refused(name, &[]);
}

fn socket(directory: &Path, name: &str) -> PathBuf {
    directory.join(format!("switch-{name}.sock"))
}

fn ask(mut stream: UnixStream) -> io::Result<Status> {
    stream.set_read_timeout(Some(TOLD_WITHIN))?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    Ok(serde_json::from_str(&text)?)
}

/// Tells a soft switch's status until it is dropped.
pub(crate) struct StatusServer {
    path: PathBuf,
    work: JoinHandle<()>,
}

impl StatusServer {
    /// In the directory of the switch's lock. Needs a tokio runtime.
    pub fn open(
        directory: &Path,
        soft: &Soft,
        disciplines: &'static [Registration],
        interfaces: &[String],
    ) -> Result<StatusServer, AgentError> {
        let path = socket(directory, soft.switch().name());
        let failed = |source| AgentError::State { path: path.clone(), source };
        match fs::remove_file(&path) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(failed(e)),
            _ => {}
        }
        let listener = UnixListener::bind(&path).map_err(failed)?;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).map_err(failed)?;
        let (at, losses) = (Backing::from(soft.switch()), soft.losses());
        let interfaces = interfaces.to_owned();
        let status = move || {
            let losses = Some(losses.now());
            let status = of(&at, disciplines, Mode::Soft, interfaces.clone(), losses);
            Ok(serde_json::to_vec(&status.map_err(io::Error::other)?)?)
        };
        Ok(StatusServer { path, work: tokio::spawn(tell_all(listener, status)) })
    }
}

/// Tells whoever connects, each for itself: one that does not read keeps nobody waiting.
async fn tell_all(listener: UnixListener, status: impl Fn() -> io::Result<Vec<u8>>) {
    let mut told = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            Some(_) = told.join_next() => continue,
            accepted = listener.accept(), if told.len() < TOLD_MAX => accepted,
        };
        let Ok((stream, _)) = accepted else {
            // Out of descriptors, most likely: others must close some first.
            tokio::time::sleep(Duration::from_millis(100)).await;
            continue;
        };
        match status() {
            Ok(text) => drop(told.spawn(tell(stream, text))),
            Err(e) => warn!("status: {e}"),
        }
    }
}

async fn tell(mut stream: tokio::net::UnixStream, text: Vec<u8>) {
    match timeout(TOLD_WITHIN, stream.write_all(&text)).await {
        // Whoever only looked whether there is a switch, or has read enough.
        Ok(Err(e)) if e.kind() == io::ErrorKind::BrokenPipe => {}
        Ok(Err(e)) => warn!("status: {e}"),
        Ok(Ok(())) | Err(_) => {}
    }
}

impl Drop for StatusServer {
    fn drop(&mut self) {
        self.work.abort();
        let _ = fs::remove_file(&self.path);
    }
}

/// Counters of the shared code: of reads that were answered here, and of others.
const HITS: [&str; 2] = ["hit", "lent_read"];
const MISSES: [&str; 6] =
    ["miss", "read_invalid", "read_no_lease", "read_expired", "bypass_no_room", "bypass_torn"];

/// What a switch counted, and who lists counters of its own.
struct Sums<'a> {
    counters: &'a [(Counter, u64)],
    disciplines: &'a [Registration],
}

impl Sums<'_> {
    /// Of these counters of the shared code and of those that disciplines name, each once.
    fn of(&self, shared: &[&str], own: impl Fn(&Totals) -> &'static [&'static str]) -> u64 {
        let is_own = |name: &str| self.disciplines.iter().any(|d| own(&d.totals).contains(&name));
        let counts = self.counters.iter();
        let of = counts.filter(|(c, _)| shared.contains(&c.name) || is_own(c.name));
        of.map(|(_, count)| count).sum()
    }
}

fn of(
    at: &Backing,
    disciplines: &[Registration],
    mode: Mode,
    interfaces: Vec<String>,
    lost: Option<LossCounts>,
) -> Result<Status, dataplane::Error> {
    let table = Table::open(at)?;
    let held = table.scan();
    let own = disciplines.iter().map(|discipline| discipline.counters);
    let counters = Counters::open(at, own)?.read()?;
    let sums = Sums { counters: &counters, disciplines };
    let hits = sums.of(&HITS, |totals| totals.hits);
    let overflows = sums.of(&[], |totals| totals.overflows);
    let reads = hits + overflows + sums.of(&MISSES, |totals| totals.misses);
    let going = match at {
        Backing::Pinned(home) => RecirculationPorts::of(home),
        Backing::Native(_) => RecirculationPorts::default(),
    };
    let page_items = PageItems::of(&held);
    Ok(Status {
        name: at.name().into(),
        id: table.switch_id(),
        mode,
        agent: i32::try_from(std::process::id()).ok(),
        interfaces,
        items: held.len(),
        valid_items: held.iter().filter(|held| held.valid).count(),
        slots: table.slots(),
        pages: table.pages(),
        pages_used: page_items.len(),
        page_items,
        memory_bytes: table.memory(),
        parameters: TenantEntry::parameters(at)?.into_iter().collect(),
        invalidation_epoch: table.epoch(),
        reads,
        hits,
        hit_ratio: if reads == 0 { 0.0 } else { hits as f64 / reads as f64 },
        leases: Leases::open(at)?.all(),
        lent: LoanCounts::of(at)?,
        round: Round::of(going, &sums),
        lost,
        refused: BTreeMap::new(),
        counters: counters.iter().map(|(c, value)| (c.name.to_owned(), *value)).collect(),
    })
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncReadExt;

    use super::*;

    #[tokio::test]
    async fn who_does_not_read_keeps_nobody_waiting() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("status.sock");
        let listener = UnixListener::bind(&path).unwrap();
        // More than the system holds for a reader.
        let text = vec![b' '; 8 << 20];
        let status = text.clone();
        let work = tokio::spawn(tell_all(listener, move || Ok(status.clone())));
        let connect = || tokio::net::UnixStream::connect(&path);
        let mut mute = connect().await.unwrap();
        // It is told by now, and reads nothing more.
        mute.read_u8().await.unwrap();
        let mut read = vec![];
        connect().await.unwrap().read_to_end(&mut read).await.unwrap();
        assert_eq!(read.len(), text.len());
        work.abort();
    }
}
