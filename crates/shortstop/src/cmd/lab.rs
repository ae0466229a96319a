use std::{
    io::{BufReader, Write},
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::{Context, bail, ensure};
use disciplines::experiments;
use experiments::{Backend, Choice, Comparison, Experiment, Options, Report, World};
use lab::{
    interrupt, link, privilege, process, rack,
    state::State,
    topology::{Fault, Topology},
};
use load::LoadConfig;
use serde_json::json;

/// Racks of network namespaces on this machine: try things out, measure, reproduce.
///
/// Needs root and iproute2; most experiments also run in the simulator, without privilege. Everything a lab makes is removed
/// when it ends, also after a crash.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  \
    shortstop lab list\n  \
    shortstop lab run demo\n  \
    shortstop lab up rack\n  \
    shortstop lab exec client1 -- ping -c 3 10.0.3.1\n  \
    shortstop lab down")]
pub struct Args {
    #[command(subcommand)]
    command: LabCommand,
}

#[derive(clap::Subcommand)]
enum LabCommand {
    /// List experiments, topologies and running labs.
    List(List),
    /// Run an experiment; print a table, write JSON and plots.
    Run(Run),
    /// Run an experiment in the kernel and in the simulator; print both side by side.
    Compare(Compare),
    /// Build a topology and leave it running.
    Up(Up),
    /// Run a command on a host of a running lab.
    Exec(Exec),
    /// Remove a running lab.
    Down(Down),
    /// Offer load as a configuration says (used by experiments).
    #[command(hide = true)]
    Load(Load),
    /// Offer load at chains of switches as a configuration says (used by experiments).
    #[command(hide = true)]
    CoordLoad(Clients),
    /// Offer the same load at an etcd (used by experiments).
    #[command(hide = true)]
    EtcdLoad(Clients),
    /// Be clients that record what they see, until standard input ends (used by experiments).
    #[command(hide = true)]
    Clients(Clients),
    /// Be a faulty link between two interfaces (used by topologies).
    #[command(hide = true)]
    Link(FaultyLink),
}

#[derive(clap::Args)]
#[command(after_help = "Example:\n  shortstop lab list --json")]
struct List {
    /// As JSON.
    #[arg(long)]
    json: bool,
}

#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  shortstop lab run coherence --quick --json coherence.json\n  \
    shortstop lab run demo --backend redis\n  shortstop lab run demo --world sim"
)]
struct Run {
    /// The experiment; see `shortstop lab list`.
    name: String,
    /// Where: kernel (namespaces and processes of this machine) or sim (in virtual time, without privilege). By default
    /// the kernel where this process may, else the simulator.
    #[arg(long, value_parser = world)]
    world: Option<World>,
    /// The short version, done within 45 seconds.
    #[arg(long)]
    quick: bool,
    /// Decides everything random.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// So many seeds, from that one on (for experiments that hunt; in the simulator 200 if nothing is said, else 1).
    #[arg(long, value_name = "N")]
    seeds: Option<u64>,
    /// Another value for one of its parameters, as `rack.keys=1000`; they are in the JSON.
    #[arg(long, value_name = "PARAMETER=VALUE", value_parser = parameter)]
    set: Vec<(String, String)>,
    /// Write the results as JSON to this file (`-`: to standard output, and no table).
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Directory for the plots.
    #[arg(long, value_name = "DIR", default_value = "lab-out")]
    out: PathBuf,
    /// What holds the data: embedded, redis or memcached (the latter two with real servers, fewer of them).
    #[arg(long, default_value = "embedded", value_parser = backend)]
    backend: Backend,
    /// What the switches do, instead of what the experiment says.
    #[arg(long, value_name = "NAME")]
    discipline: Option<String>,
    /// Name of the lab; a unique one by default.
    #[arg(long)]
    lab: Option<String>,
}

#[derive(clap::Args)]
#[command(after_help = "Example:\n  shortstop lab compare demo --quick")]
struct Compare {
    /// The experiment; see `shortstop lab list`.
    name: String,
    /// The short version, in both worlds.
    #[arg(long)]
    quick: bool,
    /// Decides everything random, in both worlds.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Write the comparison as JSON to this file (`-`: to standard output, and no table).
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

#[derive(clap::Args)]
#[command(after_help = "Example:\n  shortstop lab up rack")]
struct Up {
    /// A built-in topology (`rack`) or a TOML file.
    topology: String,
    /// Name of the lab.
    #[arg(long, default_value = "lab")]
    name: String,
}

#[derive(clap::Args)]
#[command(after_help = "Example:\n  shortstop lab exec client1 -- ping -c 3 10.0.3.1")]
struct Exec {
    /// The host or switch.
    host: String,
    /// Name of the lab; needed only if several run.
    #[arg(long)]
    name: Option<String>,
    /// Command and arguments; `shortstop` is this binary.
    #[arg(last = true, required = true)]
    command: Vec<String>,
}

#[derive(clap::Args)]
#[command(after_help = "Examples:\n  shortstop lab down\n  shortstop lab down --all")]
struct Down {
    /// Name of the lab; needed only if several run.
    #[arg(long, conflicts_with = "all")]
    name: Option<String>,
    /// Remove every lab that was left running.
    #[arg(long)]
    all: bool,
}

#[derive(clap::Args)]
struct Load {
    /// Configuration (JSON).
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
    /// Write results here instead of to standard output.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

#[derive(clap::Args)]
struct Clients {
    /// Configuration (JSON).
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
}

#[derive(clap::Args)]
struct FaultyLink {
    /// One interface.
    #[arg(long)]
    a: String,
    /// The other interface.
    #[arg(long)]
    b: String,
    /// What goes wrong (JSON).
    #[arg(long)]
    fault: String,
}

/// Topologies that need no file: name, what it is, text.
const TOPOLOGIES: &[(&str, &str, &str)] = &[(
    "rack",
    "two clients, a switch, 128 emulated servers",
    include_str!("rack.toml"),
)];

fn backend(text: &str) -> Result<Backend, String> {
    match text {
        "embedded" => Ok(Backend::Embedded),
        "redis" => Ok(Backend::Redis),
        "memcached" => Ok(Backend::Memcached),
        _ => Err("embedded, redis or memcached is expected".into()),
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

/// Runs the subcommand.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    match args.command {
        LabCommand::List(args) => list(&args),
        LabCommand::Run(args) => run_experiment(args),
        LabCommand::Compare(args) => compare(args),
        LabCommand::Up(args) => up(&args),
        LabCommand::Exec(args) => exec(args),
        LabCommand::Down(args) => down(&args),
        LabCommand::Load(args) => offer_load(&args),
        LabCommand::CoordLoad(args) => offer_coord_load(&args),
        LabCommand::EtcdLoad(args) => offer_etcd_load(&args),
        LabCommand::Clients(args) => be_clients(&args),
        LabCommand::Link(args) => be_faulty_link(&args),
    }
}

fn list(args: &List) -> anyhow::Result<ExitCode> {
    super::end_when_unread();
    let experiments = experiments()?;
    let labs = State::all();
    let state = |lab: &State| match (lab.is_stale(), lab.detached) {
        (true, _) => "left behind",
        (false, true) => "up",
        (false, false) => "running",
    };
    if args.json {
        let named = |name: &str, title: &str| json!({ "name": name, "title": title });
        let document = json!({
            "experiments": experiments.iter().map(|e| named(&e.name, &e.title)).collect::<Vec<_>>(),
            "topologies": TOPOLOGIES.iter().map(|(name, title, _)| named(name, title)).collect::<Vec<_>>(),
            "labs": labs.iter().map(|l| json!({ "name": l.name, "state": state(l) })).collect::<Vec<_>>(),
        });
        println!("{}", serde_json::to_string_pretty(&document)?);
        return Ok(ExitCode::SUCCESS);
    }
    println!("experiments (shortstop lab run NAME [--quick])");
    for experiment in experiments {
        println!("  {:<18} {}", experiment.name, experiment.title);
    }
    println!("topologies (shortstop lab up NAME)");
    for (name, title, _) in TOPOLOGIES {
        println!("  {name:<18} {title}");
    }
    if !labs.is_empty() {
        println!("labs");
    }
    for lab in labs {
        let what = match state(&lab) {
            "left behind" => "; the next lab removes it",
            "up" => "; `shortstop lab down` removes it",
            _ => " an experiment",
        };
        println!("  {:<18} {}{what}", lab.name, state(&lab));
    }
    Ok(ExitCode::SUCCESS)
}

/// The experiment of this name, about another discipline if one is given.
fn find(name: &str, discipline: Option<&str>) -> anyhow::Result<Experiment> {
    let mut all = experiments()?;
    let Some(at) = all.iter().position(|experiment| experiment.name == name) else {
        let names: Vec<&str> = all.iter().map(|e| e.name.as_str()).collect();
        bail!(
            "experiment {name}: there is none; known are {}",
            names.join(", ")
        );
    };
    let mut experiment = all.swap_remove(at);
    if let Some(name) = discipline {
        let known = disciplines::find(name);
        experiment.discipline = known
            .with_context(|| format!("discipline {name}: this build has none of that name"))?
            .name
            .into();
    }
    Ok(experiment)
}

/// Seeds of a hunt of which nobody said how many: every kind of fault comes about.
const HUNTED: u64 = 200;

fn run_experiment(args: Run) -> anyhow::Result<ExitCode> {
    let mut experiment = find(&args.name, args.discipline.as_deref())?;
    for (path, value) in args.set {
        experiment.set(&path, &value)?;
    }
    let mut options = Options {
        quick: args.quick,
        seed: args.seed,
        seeds: args.seeds.unwrap_or(1),
        backend: args.backend,
        name: args.lab,
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

fn compare(args: Compare) -> anyhow::Result<ExitCode> {
    let mut experiment = find(&args.name, None)?;
    // The simulator's full run may be another one; what is compared has to be the same.
    experiment.same_in_both();
    let options = |world| Options {
        quick: args.quick,
        seed: args.seed,
        seeds: 1,
        backend: Backend::Embedded,
        name: None,
        world,
        disciplines: disciplines::all(),
    };
    for (asked, missing) in [(World::Kernel, privilege::missing()), (World::Sim, None)] {
        let choice = Choice {
            experiment: &experiment.name,
            asked: Some(asked),
            needs: experiment.needs(&options(asked))?,
            too_large: experiment.too_large(),
            missing,
        };
        choice.make()?;
    }
    let kernel = run_in(&experiment, &options(World::Kernel))?;
    let sim = run_in(&experiment, &options(World::Sim))?;
    let comparison = Comparison::of(&kernel, &sim);
    super::end_when_unread();
    let text = serde_json::to_string_pretty(&comparison)?;
    match &args.json {
        Some(path) if path == Path::new("-") => {
            println!("{text}");
            return Ok(ExitCode::SUCCESS);
        }
        Some(path) => std::fs::write(path, text).with_context(|| path.display().to_string())?,
        None => {}
    }
    println!("{}", comparison.render());
    let worst = comparison.worst.as_deref().unwrap_or("nothing judged");
    println!(
        "{:<32} {:.3} ({worst})",
        "worst_relative_difference", comparison.worst_relative_difference
    );
    Ok(ExitCode::SUCCESS)
}

/// Runs an experiment; what a lab leaves is removed, also after an interruption.
fn run_in(experiment: &Experiment, options: &Options) -> anyhow::Result<Report> {
    interrupt::install();
    if options.world == World::Kernel {
        State::remove_stale();
    }
    experiment.run(options)
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
    super::end_when_unread();
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

fn up(args: &Up) -> anyhow::Result<ExitCode> {
    let built_in = TOPOLOGIES.iter().find(|(name, ..)| *name == args.topology);
    let text = match built_in {
        Some((_, _, text)) => text.to_string(),
        None => std::fs::read_to_string(&args.topology).with_context(|| {
            format!(
                "topology {}: neither built in (rack) nor a file",
                args.topology
            )
        })?,
    };
    let topology = Topology::parse(&text)?;
    need_root()?;
    interrupt::install();
    State::remove_stale();
    let mut lab = rack::Lab::create(&args.name, topology, true)?;
    lab.start_all(true)?;
    // Stores take no writes in their first seconds: the first command that is typed shall work.
    lab.settle()?;
    let nodes: Vec<String> = lab
        .topology()
        .nodes()
        .map(|node| node.name.clone())
        .collect();
    let addresses: Vec<String> = nodes
        .iter()
        .map(|node| {
            let address = lab.topology().address_of(node);
            format!(
                "  {node:<12} {}",
                address.map_or("-".into(), |a| a.to_string())
            )
        })
        .collect();
    let dir = lab.dir();
    lab.leave()?;
    super::end_when_unread();
    let name = &args.name;
    let option = if name == "lab" {
        String::new()
    } else {
        format!(" --name {name}")
    };
    println!(
        "lab {name} is up; logs in {}\n{}\n",
        dir.display(),
        addresses.join("\n")
    );
    if built_in.is_some() {
        println!(
            "Try:\n  \
             shortstop lab exec client1{option} -- shortstop set --cluster {dir}/cluster.toml greeting hello\n  \
             shortstop lab exec client2{option} -- shortstop get --cluster {dir}/cluster.toml greeting\n  \
             shortstop lab exec client1{option} -- ping -c 3 10.0.3.1\n  \
             shortstop lab exec client1{option} -- ping -c 3 fd00:0:0:3::1\n  \
             shortstop lab exec switch{option} -- shortstop switch status --name {name}-switch",
            dir = dir.display(),
        );
    } else {
        println!(
            "Try:\n  shortstop lab exec{option} {} -- ip address",
            nodes[0]
        );
    }
    println!("  shortstop lab down{option}");
    Ok(ExitCode::SUCCESS)
}

/// The lab of this name, or the only one that is up.
fn choose(name: Option<&str>) -> anyhow::Result<State> {
    if let Some(name) = name {
        return State::load(name);
    }
    // One that was left up comes before what an experiment runs meanwhile.
    let (mut labs, others): (Vec<State>, Vec<State>) =
        State::all().into_iter().partition(|lab| lab.detached);
    if labs.is_empty() {
        labs = others
            .into_iter()
            .filter(|lab| lab.owner.is_alive())
            .collect();
    }
    labs.sort_by(|a, b| a.name.cmp(&b.name));
    match labs.len() {
        0 => bail!("no lab is up; `shortstop lab up rack` makes one"),
        1 => Ok(labs.remove(0)),
        _ => {
            let names: Vec<&str> = labs.iter().map(|lab| lab.name.as_str()).collect();
            bail!(
                "several labs are up ({}): choose one with --name",
                names.join(", ")
            )
        }
    }
}

fn exec(args: Exec) -> anyhow::Result<ExitCode> {
    need_root()?;
    let lab = choose(args.name.as_deref())?;
    if !lab.topology.nodes().any(|node| node.name == args.host) {
        let names: Vec<&str> = lab
            .topology
            .nodes()
            .map(|node| node.name.as_str())
            .collect();
        bail!(
            "lab {}: there is no {}; it has {}",
            lab.name,
            args.host,
            names.join(", ")
        );
    }
    let mut command =
        process::command_in(&State::namespace_of(&lab.name, &args.host), &args.command)?;
    // On success this process becomes the command, with its exit code.
    let error = command.exec();
    Err(error).with_context(|| format!("cannot run {}", args.command[0]))
}

fn down(args: &Down) -> anyhow::Result<ExitCode> {
    need_root()?;
    let stale = State::remove_stale();
    let removed = removed_by_name(args, &stale)?;
    super::end_when_unread();
    for name in stale {
        println!("lab {name}: removed (left behind by a crash)");
    }
    for name in removed {
        println!("lab {name}: removed");
    }
    Ok(ExitCode::SUCCESS)
}

/// Removes what was asked for, besides the stale labs that are gone already; the names.
fn removed_by_name(args: &Down, stale: &[String]) -> anyhow::Result<Vec<String>> {
    let labs = match &args.name {
        _ if args.all => State::all().into_iter().filter(|l| l.detached).collect(),
        Some(name) if stale.contains(name) => vec![],
        None if !stale.is_empty() && !State::all().iter().any(|lab| lab.detached) => vec![],
        name => vec![choose(name.as_deref())?],
    };
    for lab in &labs {
        if !lab.detached && lab.owner.is_alive() {
            bail!(
                "lab {}: an experiment is running in it (process {}); stop that instead",
                lab.name,
                lab.owner.pid
            );
        }
        lab.remove();
    }
    Ok(labs.into_iter().map(|lab| lab.name).collect())
}

fn offer_load(args: &Load) -> anyhow::Result<ExitCode> {
    let path = args.config.display();
    let text = std::fs::read_to_string(&args.config).with_context(|| path.to_string())?;
    let config: LoadConfig = serde_json::from_str(&text).with_context(|| path.to_string())?;
    let input = BufReader::new(std::io::stdin());
    match &args.json {
        Some(file) => {
            let out = std::fs::File::create(file).with_context(|| file.display().to_string())?;
            load::run(config, input, out)?;
        }
        None => load::run(config, input, std::io::stdout())?,
    }
    Ok(ExitCode::SUCCESS)
}

fn offer_coord_load(args: &Clients) -> anyhow::Result<ExitCode> {
    let path = args.config.display();
    let text = std::fs::read_to_string(&args.config).with_context(|| path.to_string())?;
    let config = serde_json::from_str(&text).with_context(|| path.to_string())?;
    load::coord::run(config, BufReader::new(std::io::stdin()), std::io::stdout())?;
    Ok(ExitCode::SUCCESS)
}

fn offer_etcd_load(args: &Clients) -> anyhow::Result<ExitCode> {
    let path = args.config.display();
    let text = std::fs::read_to_string(&args.config).with_context(|| path.to_string())?;
    let config = serde_json::from_str(&text).with_context(|| path.to_string())?;
    load::etcd::run(&config, BufReader::new(std::io::stdin()), std::io::stdout())?;
    Ok(ExitCode::SUCCESS)
}

fn be_clients(args: &Clients) -> anyhow::Result<ExitCode> {
    let path = args.config.display();
    let text = std::fs::read_to_string(&args.config).with_context(|| path.to_string())?;
    let config = serde_json::from_str(&text).with_context(|| path.to_string())?;
    history::clients(&config, BufReader::new(std::io::stdin()), std::io::stdout())?;
    Ok(ExitCode::SUCCESS)
}

fn be_faulty_link(args: &FaultyLink) -> anyhow::Result<ExitCode> {
    let fault: Fault = serde_json::from_str(&args.fault).context("--fault")?;
    let counts = link::run(&args.a, &args.b, fault, || {
        println!("ready");
        let _ = std::io::stdout().flush();
    })?;
    println!("{}", serde_json::to_string(&counts)?);
    Ok(ExitCode::SUCCESS)
}

fn need_root() -> anyhow::Result<()> {
    // The effective user decides what may be done to namespaces.
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let uid = status.lines().find_map(|line| line.strip_prefix("Uid:"));
    let effective = uid.and_then(|line| line.split_whitespace().nth(1));
    ensure!(
        effective == Some("0"),
        "a lab makes network namespaces: run it as root"
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use lab::roles::{Control, Role, Store, Switch};

    use super::*;

    #[test]
    fn the_rack_starts_roles_as_experiments_do() {
        let rack = Topology::parse(include_str!("rack.toml")).unwrap();
        let store = Role::Store(Store {
            listen: "{address:server}:7117".into(),
            control: Some("http://{address:switch}:7118".into()),
            populate: Some((100_000, "128".into())),
            socket: "{dir}/store.sock".into(),
            ..Store::default()
        });
        let switch = Role::Switch(Switch {
            id: 1,
            node: "switch".into(),
            control: "http://127.0.0.1:7118".into(),
            state: "{dir}/agent".into(),
            ..Switch::default()
        });
        let control = Role::Control(Control {
            state: "{dir}/control".into(),
            listen: Some("0.0.0.0:7118".into()),
            ..Control::default()
        });
        let started = rack.nodes().flat_map(|node| &node.processes).cloned();
        let roles = [store, switch, control].map(|role| role.process());
        assert_eq!(started.collect::<Vec<_>>(), roles);
    }
}
