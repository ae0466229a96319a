//! `shortstop-lab run`: one experiment of the crate `experiments` in the world that is asked for,
//! and what becomes of its report.

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::{Context, bail, ensure};
use commands::command_line::end_when_unread;
use experiments::{Backend, Choice, Options, Report, World};
use lab::privilege;

use super::experiment::{find, run_in};

/// Run an experiment; print a table, write JSON and plots.
#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  shortstop-lab run coherence --quick --json coherence.json\n  \
    shortstop-lab run demo --backend redis\n  shortstop-lab run demo --world sim\n  \
    shortstop-lab run workloads --quick --world sim --workload twitter-18\n  \
    shortstop-lab run workloads --quick --world sim --trace cluster18.csv"
)]
pub struct Args {
    /// The experiment; see `shortstop-lab list`.
    name: String,
    /// Where: kernel (namespaces and processes of this machine) or sim (in virtual time, without
    /// privilege). By default the kernel where this process may, else the simulator.
    #[arg(long, value_parser = world)]
    world: Option<World>,
    /// The short version, done within 45 seconds.
    #[arg(long)]
    quick: bool,
    /// With the mechanism off that the experiment is about, as `[idle]` of its file says: fails if
    /// anything comes out that is claimed of it.
    #[arg(long)]
    idle: bool,
    /// Decides everything random.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// So many seeds, from that one on (for experiments that hunt; in the simulator 200 if nothing
    /// is said, else 1).
    #[arg(long, value_name = "N")]
    seeds: Option<u64>,
    /// Another value for one of its parameters, as `rack.keys=1000`; they are in the JSON.
    #[arg(long, value_name = "PARAMETER=VALUE", value_parser = parameter)]
    set: Vec<(String, String)>,
    /// Play this recorded trace (for `workloads`; may be said several times): lines of
    /// Twitter's format, timestamp,key,key size,value size,client id,operation,TTL, or of Meta's,
    /// whose first line names its columns, among them key, op and size.
    #[arg(long, value_name = "FILE")]
    trace: Vec<PathBuf>,
    /// Play requests like those of this published workload (likewise): ycsb-a to ycsb-f, or
    /// twitter-N for Twitter's cluster N of March 2020.
    #[arg(long, value_name = "NAME")]
    workload: Vec<String>,
    /// Write the results as JSON to this file (`-`: to standard output, and no table).
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Directory for the plots.
    #[arg(long, value_name = "DIR", default_value = "lab-out")]
    out: PathBuf,
    /// What holds the data: embedded, redis or memcached (the latter two with real servers, fewer
    /// of them).
    #[arg(long, default_value = "embedded", value_parser = backend)]
    backend: Backend,
    /// What the switches do, instead of what the experiment says.
    #[arg(long, value_name = "NAME")]
    discipline: Option<String>,
    /// Name of the lab; a unique one by default.
    #[arg(long)]
    lab: Option<String>,
}

fn backend(text: &str) -> Result<Backend, String> {
    match text {
        "embedded" => Ok(Backend::Embedded),
        "redis" => Ok(Backend::Redis),
        "memcached" => Ok(Backend::Memcached),
        _ => Err("embedded, redis or memcached is expected".into()),
    }
}

impl Args {
    /// Whether the simulator was asked for.
    pub fn is_simulated(&self) -> bool {
        self.world == Some(World::Sim)
    }
}

fn world(text: &str) -> Result<World, String> {
    [World::Kernel, World::Sim]
        .into_iter()
        .find(|world| world.name() == text)
        .ok_or_else(|| "kernel or sim is expected".into())
}

fn parameter(text: &str) -> Result<(String, String), String> {
    let (path, value) = text.split_once('=').ok_or("PARAMETER=VALUE is expected")?;
    Ok((path.into(), value.into()))
}

/// The experiment that plays them.
const WORKLOADS: &str = "workloads";

/// The workloads that were asked for, as TOML has a list of them; none: nobody asked for any.
fn workloads(published: &[String], traces: &[PathBuf]) -> Option<String> {
    // What JSON has between quotation marks, TOML has as well.
    let quoted = |text: &str| serde_json::Value::from(text).to_string();
    let published = published.iter().map(|name| format!("{{ name = {} }}", quoted(name)));
    let traces = traces.iter().map(|path| {
        let name = path.file_stem().unwrap_or(path.as_os_str()).to_string_lossy();
        format!("{{ name = {}, trace = {} }}", quoted(&name), quoted(&path.to_string_lossy()))
    });
    let all: Vec<String> = published.chain(traces).collect();
    (!all.is_empty()).then(|| format!("[{}]", all.join(", ")))
}

/// Seeds of a hunt of which nobody said how many: every kind of fault comes about.
const HUNTED: u64 = 200;

/// Runs it.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let mut experiment = find(&args.name, args.discipline.as_deref())?;
    for (path, value) in args.set {
        experiment.set(&path, &value)?;
    }
    if let Some(all) = workloads(&args.workload, &args.trace) {
        ensure!(
            experiment.name == WORKLOADS,
            "--workload, --trace: experiment {} has no workloads; {WORKLOADS} has",
            experiment.name
        );
        experiment.set_elsewhere("axes.workload", &all)?;
    }
    let mut options = Options {
        quick: args.quick,
        seed: args.seed,
        seeds: args.seeds.unwrap_or(1),
        backend: args.backend,
        name: args.lab,
        idle: args.idle,
        world: args.world.unwrap_or(World::Kernel),
        disciplines: disciplines::all(),
    };
    let needs = experiment.needs(&options)?;
    let missing = match args.world {
        Some(World::Sim) => None,
        _ => privilege::missing(),
    };
    let (world, why) = Choice {
        experiment: &experiment.name,
        asked: args.world,
        needs,
        too_large: experiment.too_large(),
        missing,
    }
    .make()?;
    options.world = world;
    if args.seeds.is_none() && world == World::Sim && experiment.takes_seeds() {
        options.seeds = HUNTED;
    }
    if let Some(why) = why {
        eprintln!("{why}");
    }
    let report = run_in(&experiment, &options)?;
    publish(&report, args.json.as_deref(), &args.out)?;
    if let Some(failure) = report.failure {
        bail!("experiment {}: {failure}", report.experiment);
    }
    Ok(ExitCode::SUCCESS)
}

fn publish(report: &Report, json: Option<&Path>, out: &Path) -> anyhow::Result<()> {
    let text = serde_json::to_string_pretty(report)?;
    let to_stdout = json == Some(Path::new("-"));
    if let Some(path) = json.filter(|_| !to_stdout) {
        std::fs::write(path, &text).with_context(|| path.display().to_string())?;
    }
    let plots = match report.write_plots(out) {
        Ok(plots) => plots,
        // What took minutes to measure is not lost over where it was to go.
        Err(error) => {
            let other = std::env::temp_dir().join(format!("shortstop-{}", std::process::id()));
            eprintln!("{error:#}: written to {} instead", other.display());
            report.write_plots(&other)?
        }
    };
    end_when_unread();
    if to_stdout {
        println!("{text}");
        return Ok(());
    }
    println!("{}", report.text);
    for (name, value) in &report.summary {
        println!("{name:<32} {value}");
    }
    for path in json.into_iter().chain(plots.iter().map(PathBuf::as_path)) {
        println!("written: {}", path.display());
    }
    Ok(())
}
