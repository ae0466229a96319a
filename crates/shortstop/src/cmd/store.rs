//! `shortstop store`.

use std::{
    io::ErrorKind,
    net::SocketAddr,
    path::{Path, PathBuf},
    process::ExitCode,
    time::{Duration, UNIX_EPOCH},
};

use anyhow::anyhow;
use api::{
    ControlEndpoint, StoreNews,
    proto::{HalfReport, StoreHello},
};
use commands::{
    command_line::end_when_unread,
    common::{memory, moment, size, socket_address, stopped},
    output::print,
    reach::Credentials,
    secrets,
};
use store::{
    BackendConfig, BackendState, BackendTroubleStatus, Config, MemcachedAddress, OutsideWrites,
    OutsideWritesStatus, RespAddress,
    backend::{Admission, Backend},
};

use super::{
    certificates::{BackendTrust, ServerCertificate},
    open_files,
};

/// Serve keys beside their data, and keep the switches' copies of them coherent.
///
/// A store answers requests from an embedded table, a Redis or a memcached server. Without
/// --cluster it owns all partitions by itself.
#[derive(clap::Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "Examples:\n  \
        shortstop store --listen 127.0.0.1:7117 \\\n      --status-socket /run/shortstop/store.sock\n  \
        shortstop store --listen 10.0.2.1:7117 --cluster cluster.toml \\\n      --backend redis://127.0.0.1:6379\n  \
        shortstop store --listen 10.0.2.1:7117 --cluster cluster.toml \\\n      --backend memcached://127.0.0.1:11211 --memcached 127.0.0.1:11311\n  \
        shortstop store status"
)]
pub struct Args {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    serve: Serve,
}

#[derive(clap::Subcommand)]
enum Command {
    /// Print what a running store tells about itself.
    #[command(after_help = "Example:\n  shortstop store status --json | head")]
    Status(Status),
}

/// Where a store's status socket is mostly: by hand, and of the unit.
const SOCKETS: [&str; 2] = ["/run/shortstop/store.sock", "/run/shortstop-store/status.sock"];

#[derive(clap::Args)]
struct Status {
    /// The store's --status-socket [default: /run/shortstop/store.sock, or where there is none that
    /// of the unit, /run/shortstop-store/status.sock].
    #[arg(long, visible_alias = "status-socket", value_name = "PATH")]
    socket: Option<PathBuf>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// Options of a store that serves.
#[derive(clap::Args)]
pub struct Serve {
    /// Address and port to listen on.
    #[arg(long, value_name = "ADDR:PORT", default_value = "127.0.0.1:7117", value_parser = socket_address)]
    listen: SocketAddr,
    /// Cluster file: partitions, stores, tenants.
    #[arg(long, value_name = "FILE")]
    cluster: Option<PathBuf>,
    /// The controllers, separated by commas: tenants are taken from the one that leads, as they
    /// change. Until one answers, those of the cluster file are served.
    #[arg(long, value_name = "URL[,URL]")]
    control: Option<String>,
    #[command(flatten)]
    credentials: Credentials,
    /// This store's address in the cluster file, where it is not the one listened on.
    #[arg(long = "as", value_name = "ADDR:PORT", requires = "cluster", value_parser = socket_address)]
    identity: Option<SocketAddr>,
    /// Number of partitions, without a cluster file.
    #[arg(long, value_name = "N", default_value_t = 1, conflicts_with = "cluster")]
    partitions: u32,
    /// Where the data is: embedded, redis://HOST:PORT[/DB], by TLS rediss://HOST:PORT[/DB],
    /// redis+unix:///PATH, memcached://HOST:PORT. Several of Redis, separated by commas: where the
    /// one master may be. Or redis+sentinel://HOST:PORT,HOST:PORT/NAME: the master of that name.
    /// A HOST that is a name is followed when it comes to mean another address.
    #[arg(long, value_name = "BACKEND", default_value = "embedded")]
    backend: BackendConfig,
    /// File with the password of a Redis; or else the variable SHORTSTOP_BACKEND_PASSWORD has it. A
    /// user's name may stand in the URL: redis://USER@HOST:PORT.
    #[arg(long, value_name = "FILE")]
    backend_password_file: Option<PathBuf>,
    /// What to do about writes that other clients make directly in Redis: track, or ignore (old
    /// copies do not matter, or nobody else writes). A Redis that cannot track: no copies are
    /// granted, unless they are ignored.
    #[arg(long, value_name = "track|ignore", default_value = "track")]
    outside_writes: OutsideWrites,
    /// Speak Redis's own protocol here, every command, to clients that need not know of copies: a
    /// port of the loopback, a Unix socket, or by TLS (rediss://ADDR:PORT) a port of any address.
    /// Needs a Redis as the backend, which decides who may what. Several, separated by commas.
    #[arg(long, value_name = "[rediss://]ADDR:PORT|unix:PATH", value_delimiter = ',')]
    resp: Vec<RespAddress>,
    /// Speak memcached's own protocol here (text and meta commands, over TCP) to clients that need
    /// not know of copies: a port of the loopback, a Unix socket, or by TLS
    /// (memcacheds://ADDR:PORT, with --tls-client-ca) a port of any address. Needs a memcached as
    /// the backend. What is written here is answered when no switch serves the old value any more.
    /// Several, separated by commas.
    #[arg(long, value_name = "[memcacheds://]ADDR:PORT|unix:PATH", value_delimiter = ',')]
    memcached: Vec<MemcachedAddress>,
    #[command(flatten)]
    shown: ServerCertificate,
    #[command(flatten)]
    believed: BackendTrust,
    /// Memory for the embedded backend, overhead included.
    #[arg(long, value_name = "SIZE", default_value = "1GiB", value_parser = memory)]
    memory_limit: u64,
    /// Memory for values that are written in parts, until their writes are over, and as much for
    /// those that are read in parts from Redis or memcached. Half of it is shared out equally
    /// among tenants.
    #[arg(long, value_name = "SIZE", default_value = "256MiB", value_parser = memory)]
    parts_limit: u64,
    /// Memory for copies of other stores' keys, which disciplines have held here to answer reads of
    /// them, overhead included. Half of it is shared out equally among tenants.
    #[arg(long, value_name = "SIZE", default_value = "64MiB", value_parser = size)]
    replica_memory: u64,
    /// Writes of a key within a second from which on it is lent to switches (write-back); below
    /// half of that it is called back. By default as many as make it worth it: 2 within the
    /// tenant's bound, and 8 at least.
    #[arg(long, value_name = "WRITES", value_parser = clap::value_parser!(u32).range(1..))]
    lend_from: Option<u32>,
    /// Directory of what outlives the store, where its data is in Redis or memcached: what the next
    /// store needs to take writes at once after this one was stopped, and which keys are lent to
    /// switches (write-back; without it none is). It is made if there is none; each store needs its
    /// own.
    #[arg(long, value_name = "DIR")]
    state: Option<PathBuf>,
    /// Unix socket that tells the store's status as JSON to whoever connects.
    #[arg(long, value_name = "PATH")]
    status_socket: Option<PathBuf>,
}

/// Runs the store, or asks a running one for its status.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    match args.command {
        Some(Command::Status(status)) => print_status(&status),
        None => serve(args.serve, |_, _, _| Ok(None)),
    }
}

/// Serves until it is told to stop. `prepare` sees the data first, as
/// [`store::Server::start_around`] has it.
///
/// # Errors
/// What is wrong with the options, or what the system refused; the message names it.
pub fn serve(
    options: Serve,
    prepare: impl FnOnce(&mut dyn Backend, &Config, u64) -> anyhow::Result<Option<Admission>>,
) -> anyhow::Result<ExitCode> {
    let mut config = Config::new(options.listen);
    match &options.cluster {
        Some(file) => {
            config.cluster = secrets::cluster(file)?.1;
            config.identity = Some(options.identity.unwrap_or(options.listen));
        }
        None => config.cluster = wire::Cluster::single(options.listen, options.partitions),
    }
    config.backend = options.backend;
    config.backend_password = secrets::backend_password(options.backend_password_file.as_deref())?;
    config.outside_writes = options.outside_writes;
    config.memory_limit = options.memory_limit;
    config.parts_limit = usize::try_from(options.parts_limit)?;
    config.replica_memory = usize::try_from(options.replica_memory)?;
    config.status_socket = options.status_socket;
    if !options.resp.is_empty() || !options.memcached.is_empty() {
        // Each client of such a port takes two: its own, and one to the server behind.
        open_files::raise();
    }
    config.resp = options.resp;
    config.memcached = options.memcached;
    config.tls = options.shown.files();
    config.backend_tls = options.believed.files();
    config.state = options.state;
    config.lend_from = options.lend_from;
    config.halves = registered_halves();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let controllers =
        options.control.as_deref().map(|urls| options.credentials.endpoint(urls)).transpose()?;
    runtime.block_on(async {
        let name = config.identity.unwrap_or(options.listen).to_string();
        let server = store::Server::start_around(config, prepare).await?;
        let handle = server.handle();
        let follow = async {
            match controllers {
                Some(endpoint) => follow(&endpoint, &name, &handle).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            result = server.run(stopped()) => result,
            () = follow => Ok(()),
        }
    })?;
    Ok(ExitCode::SUCCESS)
}

/// The halves of the registered disciplines that have one in a store.
fn registered_halves() -> Vec<store::Half> {
    let half = |name, maker| store::Half { name, maker };
    disciplines::all().iter().filter_map(|known| Some(half(known.name, known.store?))).collect()
}

/// Gives the store what the controllers say, and them what it reports.
async fn follow(endpoint: &ControlEndpoint, name: &str, handle: &store::Handle) {
    let hello = StoreHello { name: name.into(), address: name.into() };
    let take = async |told| match told {
        StoreNews::Cluster(cluster) => {
            if let Err(e) = handle.update(cluster).await {
                tracing::warn!("the controller's tenants cannot be served: {e}");
            }
        }
        StoreNews::Began => handle.report_again(),
        StoreNews::Placements(all) => handle.place(all).await,
        StoreNews::Message { discipline, tenant, message } => {
            match handle.tell(&discipline, tenant, message).await {
                Ok(()) => {}
                // Not acknowledged: the store gets it again when it is back.
                Err(store::TellError::Ended) => std::future::pending().await,
                // The same would be said of it each time.
                Err(e) => tracing::warn!("a message of the controller is dropped: {e}"),
            }
        }
    };
    let reports = async || {
        let proto = |report: store::Report| HalfReport {
            discipline: report.half.into(),
            tenant: report.tenant,
            report: report.report,
        };
        handle.reports().await.into_iter().map(proto).collect()
    };
    api::follow(endpoint, &hello, take, reports).await;
}

/// Asks by the first of these sockets that is there and has not outlived its store. If there is
/// none but such, the error is the first one's.
fn read_status_at(sockets: &[&str]) -> anyhow::Result<store::Status> {
    let mut first = None;
    for socket in sockets.iter().map(Path::new).filter(|socket| socket.exists()) {
        match store::read_status(socket) {
            Err(error) if is_refused(&error) => drop(first.get_or_insert(error)),
            other => return other,
        }
    }
    Err(first.unwrap_or_else(|| {
        anyhow!(
            "no status: there is no {}; is a store running with --status-socket? If at another path: --socket PATH",
            sockets.join(", and no ")
        )
    }))
}

/// Whether nobody listens at a socket.
fn is_refused(error: &anyhow::Error) -> bool {
    let errors = error.chain().filter_map(|cause| cause.downcast_ref::<std::io::Error>());
    errors.map(std::io::Error::kind).any(|kind| kind == ErrorKind::ConnectionRefused)
}

fn print_status(options: &Status) -> anyhow::Result<ExitCode> {
    let status = match &options.socket {
        Some(socket) => store::read_status(socket)?,
        None => read_status_at(&SOCKETS)?,
    };
    end_when_unread();
    let text = if options.json {
        serde_json::to_string_pretty(&status)? + "\n"
    } else {
        describe(&status)?
    };
    print(text)?;
    Ok(ExitCode::SUCCESS)
}

fn mib(bytes: u64) -> f64 {
    bytes as f64 / (1 << 20) as f64
}

fn describe_trouble(trouble: &BackendTroubleStatus) -> String {
    let BackendTroubleStatus { for_ms, since_unix_ms, words, .. } = trouble;
    let what = match trouble.state {
        BackendState::Away => "is away, and requests are refused",
        BackendState::Slow => "does not answer, and is waited for",
        BackendState::Refuses => "refuses requests",
    };
    let since = UNIX_EPOCH + Duration::from_millis(*since_unix_ms);
    let since = moment(since);
    format!("{what}, since {since} ({:.1} s): {words}", *for_ms as f64 / 1000.0)
}

fn describe(status: &store::Status) -> anyhow::Result<String> {
    use std::fmt::Write;
    let (served, dropped) =
        status.partitions.iter().fold((0, 0), |(s, d), p| (s + p.served, d + p.dropped));
    let mut out = String::new();
    writeln!(out, "listens on   {}", status.listen)?;
    writeln!(out, "backend      {}", status.backend)?;
    if let Some(trouble) = &status.backend_trouble {
        writeln!(out, "             {}", describe_trouble(trouble))?;
    }
    let outside = match status.outside_writes {
        OutsideWritesStatus::Ignored => None,
        OutsideWritesStatus::Tracked => Some("tracked"),
        OutsideWritesStatus::Impossible => Some("cannot be tracked: no copies are granted"),
    };
    if let Some(outside) = outside {
        writeln!(out, "outside      writes by others {outside}")?;
    }
    if let (Some(items), Some(bytes)) = (status.items, status.memory_bytes) {
        writeln!(out, "items        {items} in {:.1} MiB", mib(bytes))?;
    }
    writeln!(
        out,
        "in parts     {:.1} MiB of values being written, {:.1} MiB being read",
        mib(status.writing_bytes),
        mib(status.reading_bytes)
    )?;
    writeln!(out, "takes writes {}", if status.takes_writes { "yes" } else { "not yet" })?;
    let partitions = status.partitions.len();
    writeln!(out, "partitions   {partitions}, {served} requests served, {dropped} dropped")?;
    let leases = status.leases.iter();
    let stores = leases.filter(|l| l.switch > wire::SWITCH_MOST).count();
    writeln!(
        out,
        "copies       {} at {} switches and {stores} stores",
        status.copies,
        status.leases.len() - stores
    )?;
    let replicas = &status.replicas;
    if replicas.keys > 0 {
        writeln!(
            out,
            "replicas     {} of {} keys of other stores are valid, in {:.1} MiB; {} have no room",
            replicas.valid,
            replicas.keys,
            mib(replicas.bytes),
            replicas.no_room
        )?;
    }
    let loans = &status.loans;
    match &loans.none_because {
        Some(why) => writeln!(out, "lent         nothing: {why}")?,
        None if loans.lent + loans.returning > 0 => writeln!(
            out,
            "lent         {} keys, and {} are being called back",
            loans.lent, loans.returning
        )?,
        None => {}
    }
    let totals = serde_json::to_value(&status.totals)?;
    for (name, count) in totals.as_object().into_iter().flatten() {
        if count.as_u64() != Some(0) {
            writeln!(out, "  {name:24} {count}")?;
        }
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_socket_that_is_there_is_asked() {
        let error = |sockets: &[&str]| read_status_at(sockets).err().unwrap().to_string();
        let none = error(&["/nonexistent/a", "/nonexistent/b"]);
        assert!(none.contains("no /nonexistent/a, and no /nonexistent/b;"), "{none}");
        // It is there, and answers nothing.
        let second = error(&["/nonexistent/a", "/dev/null"]);
        assert!(second.contains("no status from /dev/null"), "{second}");
    }

    #[test]
    fn a_socket_that_outlived_its_store_is_passed_over() {
        use std::{io::Write, os::unix::net::UnixListener};
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name).to_str().unwrap().to_string();
        let (dead, other, alive) = (path("dead"), path("other"), path("alive"));
        drop([&dead, &other].map(|at| UnixListener::bind(at).unwrap()));
        let error = read_status_at(&[&dead, &other]).err().unwrap().to_string();
        assert!(error.contains(&format!("no status from {dead}")), "{error}");
        let listener = UnixListener::bind(&alive).unwrap();
        let text = serde_json::to_string(&store::Status::default()).unwrap();
        let answers = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            stream.write_all(text.as_bytes()).unwrap();
        });
        assert_eq!(read_status_at(&[&dead, &alive]).map_err(|e| e.to_string()).err(), None);
        answers.join().unwrap();
    }

    #[test]
    fn the_status_has_the_backends_own_words_and_since_when() {
        let rows = [
            (BackendState::Away, "is away, and requests are refused"),
            (BackendState::Slow, "does not answer, and is waited for"),
            (BackendState::Refuses, "refuses requests"),
        ];
        for (state, said) in rows {
            let trouble = BackendTroubleStatus {
                state,
                for_ms: 12_345,
                since_unix_ms: 1_700_000_000_000,
                words: "OOM no room".into(),
            };
            let status = store::Status { backend_trouble: Some(trouble), ..Default::default() };
            let line = format!("{said}, since 2023-11-14T22:13:20Z (12.3 s): OOM no room");
            assert!(describe(&status).unwrap().contains(&line), "{line}");
        }
        let well = describe(&store::Status::default()).unwrap();
        assert!(!well.contains("since"), "{well}");
    }
}
