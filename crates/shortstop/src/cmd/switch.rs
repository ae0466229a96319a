use std::{collections::BTreeMap, path::PathBuf, process::ExitCode};

use agent::{Agent, Options};
use clap::Subcommand;
use dataplane::{
    Counters, Home, LeaseState, Leases, Mode, PARAMETERS, PageItems, Table, TenantEntry,
};
use serde::Serialize;

use super::common::stopped;

/// Turns this machine (or network namespace) into a switch that answers hot keys itself.
///
/// Attaches to the interfaces, takes over what an earlier agent of the same name left, and serves until it is
/// stopped. The programs stay attached and go on serving when it stops or dies; `detach` removes them.
#[derive(clap::Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "Examples:\n  shortstop switch --id 1 --interface eth0 --interface eth1\n  \
                  shortstop switch status\n  shortstop switch detach"
)]
pub struct Args {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    serve: Serve,
}

#[derive(Subcommand)]
enum Command {
    /// Shows tables, hit ratio, leases, and every drop and bypass counter by name.
    #[command(after_help = "Example:\n  shortstop switch status --json")]
    Status(Status),
    /// Detaches the programs and removes the tables: the kernel forwards everything again.
    #[command(after_help = "Example:\n  shortstop switch detach --name tor1")]
    Detach(Detach),
}

#[derive(clap::Args)]
struct Serve {
    /// This switch's id, 1 to 65535, unique among the switches of the cluster.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..))]
    id: u16,
    /// An interface to attach to; repeat for each that requests or replies cross.
    #[arg(long, short, value_name = "IF")]
    interface: Vec<String>,
    /// Where the program runs: in the driver (native), on socket buffers (generic), or what suits each
    /// interface.
    #[arg(long, value_enum, default_value = "auto")]
    mode: ModeArg,
    #[command(flatten)]
    reach: super::reach::Reach,
    /// Pages of cache memory, of 26.6 kB each; a page holds at least 128 items of a 16-byte key and a
    /// 128-byte value.
    #[arg(long, value_name = "N", default_value_t = 96, value_parser = clap::value_parser!(u32).range(1..=32_768))]
    pages: u32,
    /// The switch's name on this machine.
    #[arg(long, value_name = "NAME", default_value = "default")]
    name: String,
    /// Directory for what must outlive a reboot.
    #[arg(long, value_name = "DIR", default_value = "/var/lib/shortstop")]
    state_dir: PathBuf,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum ModeArg {
    Auto,
    Native,
    Generic,
}

#[derive(clap::Args)]
struct Status {
    /// Only this switch, instead of all on this machine.
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// As JSON.
    #[arg(long)]
    json: bool,
}

#[derive(clap::Args)]
struct Detach {
    /// The switch's name on this machine.
    #[arg(long, value_name = "NAME", default_value = "default")]
    name: String,
}

/// Runs `shortstop switch`.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    match args.command {
        None => serve(args.serve)?,
        Some(Command::Status(args)) => status(&args)?,
        Some(Command::Detach(args)) => detach(&args)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn serve(args: Serve) -> anyhow::Result<()> {
    if args.interface.is_empty() {
        anyhow::bail!(
            "--interface: name at least one interface that requests or replies cross (there are: {})",
            dataplane::interfaces().join(", ")
        );
    }
    let mode = match args.mode {
        ModeArg::Auto => Mode::Auto,
        ModeArg::Native => Mode::Native,
        ModeArg::Generic => Mode::Generic,
    };
    let options = Options {
        name: args.name,
        id: args.id,
        interfaces: args.interface,
        mode,
        pages: args.pages,
        control: args.reach.endpoint()?,
        state_dir: args.state_dir,
        disciplines: disciplines::all(),
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let agent = Agent::start(options)?;
        for attached in agent.attached() {
            let mode = if attached.mode == Mode::Native {
                "native"
            } else {
                "generic"
            };
            let how = if attached.taken_over {
                "taken over"
            } else {
                "attached"
            };
            println!(
                "{}: {how}, {mode} mode ({})",
                attached.interface, attached.reason
            );
        }
        println!("serving; the programs stay attached when this process ends");
        agent.run(stopped()).await?;
        Ok(())
    })
}

#[derive(Serialize)]
struct Report {
    name: String,
    id: u16,
    interfaces: Vec<String>,
    items: usize,
    valid_items: usize,
    slots: u32,
    pages: u32,
    pages_used: usize,
    /// What lies on each page that holds items.
    page_items: Vec<PageItems>,
    memory_bytes: usize,
    /// Per tenant: the words that its discipline gave it.
    parameters: BTreeMap<u32, [u32; PARAMETERS]>,
    invalidation_epoch: u64,
    reads: u64,
    hits: u64,
    hit_ratio: f64,
    leases: Vec<LeaseState>,
    counters: serde_json::Map<String, serde_json::Value>,
}

fn report(name: &str) -> anyhow::Result<Report> {
    let home = Home::new(name)?;
    let table = Table::open(&home)?;
    let held = table.scan();
    let counters = Counters::open(&home)?.read()?;
    let get = |name: &str| {
        counters
            .iter()
            .find(|(c, _)| c.name == name)
            .map_or(0, |(_, v)| *v)
    };
    let hits = get("hit");
    let not_answered = [
        "miss",
        "read_invalid",
        "read_no_lease",
        "read_expired",
        "bypass_no_room",
        "bypass_torn",
    ];
    let reads = hits + not_answered.iter().map(|name| get(name)).sum::<u64>();
    let page_items = PageItems::of(&held);
    Ok(Report {
        name: name.into(),
        id: table.switch_id(),
        interfaces: dataplane::attached(&home)
            .into_iter()
            .map(|(name, _)| name)
            .collect(),
        items: held.len(),
        valid_items: held.iter().filter(|held| held.valid).count(),
        slots: table.slots(),
        pages: table.pages(),
        pages_used: page_items.len(),
        page_items,
        memory_bytes: table.memory(),
        parameters: TenantEntry::parameters(&home)?.into_iter().collect(),
        invalidation_epoch: table.epoch(),
        reads,
        hits,
        hit_ratio: if reads == 0 {
            0.0
        } else {
            hits as f64 / reads as f64
        },
        leases: Leases::open(&home)?.all(),
        counters: counters
            .iter()
            .map(|(c, value)| (c.name.clone(), (*value).into()))
            .collect(),
    })
}

fn status(args: &Status) -> anyhow::Result<()> {
    super::end_when_unread();
    let names = match &args.name {
        Some(name) => vec![name.clone()],
        None => dataplane::switches(),
    };
    let reports = names
        .iter()
        .map(|name| report(name))
        .collect::<anyhow::Result<Vec<_>>>()?;
    if args.json {
        println!("{}", serde_json::to_string_pretty(&reports)?);
    } else if reports.is_empty() {
        println!("no switch on this machine; `shortstop switch --interface IF` starts one");
    } else {
        reports.iter().for_each(print);
    }
    Ok(())
}

fn print(report: &Report) {
    println!(
        "switch {} (id {}) on {}",
        report.name,
        report.id,
        report.interfaces.join(", ")
    );
    println!(
        "  items      {} ({} with a valid value) in {} of {} pages, {} slots, {:.1} MB",
        report.items,
        report.valid_items,
        report.pages_used,
        report.pages,
        report.slots,
        report.memory_bytes as f64 / 1e6
    );
    println!(
        "  reads      {}, answered here {} ({:.1} %)",
        report.reads,
        report.hits,
        report.hit_ratio * 100.0
    );
    for (tenant, words) in &report.parameters {
        if *tenant != wire::TENANT_SYSTEM {
            let words = words.map(|word| word.to_string()).join(" ");
            println!("  tenant     {tenant}: parameters {words}");
        }
    }
    for lease in &report.leases {
        let state = match lease.remaining_ms {
            0 => "none: nothing of this store is served".to_owned(),
            ms => format!("{ms} ms left, term {}", lease.term),
        };
        println!("  lease      {}: {state}", lease.store);
    }
    println!("  counters");
    for counter in Counters::list() {
        let value = report.counters[&counter.name].as_u64().unwrap_or(0);
        if value > 0 {
            println!(
                "    {:<24} {:>12}  {}",
                counter.name, value, counter.meaning
            );
        }
    }
    println!("    (those at zero are left out; --json has all)");
}

fn detach(args: &Detach) -> anyhow::Result<()> {
    let interfaces = dataplane::detach(&Home::new(&args.name)?)?;
    for (interface, _) in interfaces {
        println!("{interface}: detached");
    }
    println!("switch {}: tables removed", args.name);
    Ok(())
}
