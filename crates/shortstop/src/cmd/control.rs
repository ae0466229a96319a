//! `shortstop control`: the controller as a server, and `control status`, which asks one.
//!
//! Here options become what the crate `control` is started with; what a server then does, and the
//! state it keeps, are that crate's affair.

use std::{net::SocketAddr, path::PathBuf, process::ExitCode};

use anyhow::{Context, bail};
use api::status;
use clap::Subcommand;
use commands::{
    command_line::end_when_unread,
    common::{socket_address, stopped},
    output::{print, print_line},
    reach::Reach,
    secrets,
};
use control::{Options, Server, ServerError, serve::Listen, state::Location};
use decide::Limits;

use super::{certificates::ServerCertificate, open_files};

/// Decides what the switches cache: takes in what is hot, tells each switch what to insert
/// and evict.
#[derive(clap::Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "Example:\n  shortstop control --cluster rack.toml\n  shortstop control status"
)]
pub struct Args {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    serve: Serve,
}

#[derive(Subcommand)]
enum Command {
    /// Shows switches, cached items, rates and counters of a running controller.
    #[command(
        after_help = "Example:\n  shortstop control status --control http://127.0.0.1:7118 --json"
    )]
    Status(StatusArgs),
}

#[derive(clap::Args)]
struct StatusArgs {
    #[command(flatten)]
    reach: Reach,
    /// As JSON.
    #[arg(long)]
    json: bool,
}

#[derive(clap::Args)]
struct Serve {
    /// The cluster file (TOML): stores, partitions, tenants.
    #[arg(long, value_name = "FILE")]
    cluster: Option<PathBuf>,
    /// Where to listen, for switches, stores and people. Beyond loopback --tls-cert, --tls-key and
    /// --tokens are needed.
    #[arg(long, value_name = "ADDR:PORT", default_value = "127.0.0.1:7118", value_parser = socket_address)]
    listen: SocketAddr,
    #[command(flatten)]
    shown: ServerCertificate,
    /// The tokens that are accepted, and what each may do (TOML); `shortstop token` makes them.
    #[arg(long, value_name = "FILE")]
    tokens: Option<PathBuf>,
    /// Listen beyond loopback, with neither encryption nor authentication.
    #[arg(long)]
    insecure: bool,
    /// Where the state is kept: a directory, or etcd://HOST:PORT[,HOST:PORT][/PREFIX], where
    /// several controllers stand by and one leads.
    #[arg(long, value_name = "PLACE", default_value = "/var/lib/shortstop")]
    state: Location,
    /// This controller's name among several [default: the address it listens on].
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// URL at which the others reach this controller [default: the address it listens on].
    #[arg(long, value_name = "URL")]
    url: Option<String>,
    /// What switches do with requests of tenants that chose nothing else; `none` only forwards
    /// [default: the first that this build knows].
    #[arg(long, value_name = "NAME")]
    discipline: Option<String>,
    /// Sets a number of a discipline; may be given several times. A name that no discipline has
    /// lists all that there are.
    #[arg(long = "set", value_name = "DISCIPLINE.NAME=N", value_parser = setting)]
    settings: Vec<(String, u32)>,
    /// Most items that a tenant has cached on one switch, however many pages it has.
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    max_items: u32,
    /// Most cache updates per second and switch.
    #[arg(long, value_name = "N", default_value_t = 20_000, value_parser = clap::value_parser!(u32).range(1..))]
    updates_per_s: u32,
    /// Hot keys that a switch should report per window at most.
    #[arg(long, value_name = "N", default_value_t = 5_000, value_parser = clap::value_parser!(u32).range(16..))]
    reports_per_window: u32,
    /// Length of a statistics window in milliseconds.
    #[arg(long, value_name = "MS", default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(100..=60_000))]
    window_ms: u32,
    /// Switches count one request in 2^N.
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=16))]
    sample_shift: u32,
    /// Seed of random choices.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
}

fn setting(text: &str) -> Result<(String, u32), String> {
    let (name, number) = text.split_once('=').ok_or("expected DISCIPLINE.NAME=N")?;
    let number = number.parse().map_err(|e| format!("{number:?}: {e}"))?;
    Ok((name.into(), number))
}

/// Runs the controller until it is interrupted, or shows the status of one.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .context("cannot start the runtime")?;
    match args.command {
        Some(Command::Status(args)) => runtime.block_on(show_status(args)),
        None => runtime.block_on(serve(args.serve)),
    }
}

async fn show_status(args: StatusArgs) -> anyhow::Result<ExitCode> {
    let endpoint = args.reach.endpoint()?;
    let reply = status::fetch_from(&endpoint).await.map_err(anyhow::Error::msg)?;
    end_when_unread();
    if args.json {
        print_line(format_args!("{:#}", status::to_json(&reply)))?;
    } else {
        print(status::to_text(&reply))?;
    }
    Ok(ExitCode::SUCCESS)
}

async fn serve(args: Serve) -> anyhow::Result<ExitCode> {
    open_files::raise();
    let path =
        args.cluster.context("--cluster FILE is needed: the stores, partitions and tenants")?;
    let (cluster, _) = secrets::cluster(&path)?;
    let limits = Limits {
        max_items: args.max_items as usize,
        reports_per_window: args.reports_per_window,
        window_ms: args.window_ms,
        seed: args.seed,
        ..Limits::default()
    };
    let default = args.discipline.unwrap_or_else(|| disciplines::default().name.into());
    let tls = args.shown.files();
    let several = !matches!(args.state, Location::Directory(_));
    if several && args.url.is_none() && args.listen.ip().is_unspecified() {
        bail!(
            "--listen {}: the other controllers cannot reach it under that address; say where with --url",
            args.listen
        );
    }
    let options = Options {
        listen: Listen {
            tls,
            tokens: args.tokens,
            insecure: args.insecure,
            ..Listen::on(args.listen)
        },
        name: args.name.unwrap_or_else(|| args.listen.to_string()),
        url: args.url,
        state: args.state,
        cluster,
        disciplines: disciplines::all(),
        default_discipline: default,
        limits,
        settings: args.settings.into_iter().collect(),
        updates_per_s: args.updates_per_s,
        sample_shift: args.sample_shift,
    };
    let mut server = match Server::start(options).await {
        Err(error @ ServerError::Cluster(_)) => {
            return Err(error).with_context(|| path.display().to_string());
        }
        Err(ServerError::Setting(line)) => bail!("--set {line}"),
        Err(ServerError::Discipline { name, known }) => {
            bail!("--discipline {name}: expected one of {known}");
        }
        other => other?,
    };
    tokio::select! {
        () = stopped() => {}
        error = server.failed() => return Err(error.into()),
    }
    server.stop().await?;
    Ok(ExitCode::SUCCESS)
}
