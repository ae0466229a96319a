//! `shortstop switch`: the agent that makes a machine a switch, and what is asked of switches on
//! this machine: `status`, `detach`, and which programs the kernel takes (`--check`).
//!
//! Here options become what the crate `agent` is started with, and what it reports becomes text.
//! `status` and `detach` do without a running agent where the programs are the kernel's, for these
//! outlive it.

use std::{io::Write, net::IpAddr, path::PathBuf, process::ExitCode};

use agent::{Agent, Ending, Options, ProgramPlace, status::Mode};
use clap::Subcommand;
use commands::{
    command_line::end_when_unread,
    common::stopped,
    output::{print, print_line},
    reach::Reach,
};
use dataplane::{Counters, Home, LoanCounts, Loops, SourceCheck};

use super::table::table;

/// Turns this machine (or network namespace) into a switch that answers hot keys itself.
///
/// Attaches to the interfaces, takes over what an earlier agent of the same name left, and serves
/// until it is stopped. The programs stay attached and go on serving when it stops or dies;
/// `detach` removes them. With --soft they run in this process, and end with it.
#[derive(clap::Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "Examples:\n  shortstop switch --id 1 --interface eth0 --interface eth1\n  \
                  shortstop switch --soft --interface eth0\n  \
                  shortstop switch --check\n  shortstop switch status\n  shortstop switch detach"
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
    /// Ends the agent, gives the stores what they have lent back, detaches the programs and removes
    /// the tables: the kernel forwards everything again, and no write waits for this switch.
    ///
    /// It stays so until `shortstop switch` is started again: the agent ends with status 0, which
    /// a unit with `Restart=on-failure` (as docs/systemd has it) leaves at that. A unit that is
    /// enabled is started at the next boot; `systemctl disable` it for longer. To stop or upgrade
    /// the agent alone and have the programs go on serving, end its process (`systemctl stop`).
    /// A unit whose agent has just failed starts it again: `systemctl stop` it first.
    #[command(after_help = "Example:\n  shortstop switch detach --name tor1")]
    Detach(Detach),
}

#[derive(clap::Args)]
struct Serve {
    /// This switch's id, 1 to 32767, unique among the switches of the cluster.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=i64::from(wire::SWITCH_MOST)))]
    id: u16,
    /// An interface to attach to; repeat for each that requests or replies cross. One that an
    /// earlier agent of this switch had, and that is not named, is detached.
    #[arg(long, short, value_name = "IF")]
    interface: Vec<String>,
    /// Where the program runs: in the driver (native), on socket buffers (generic), or what suits
    /// each interface.
    #[arg(long, value_enum, default_value = "auto")]
    mode: ModeArg,
    /// Without XDP and BPF: the same programs in this process, on packet sockets. A packet costs
    /// some microseconds in the place of a fraction of one, and the switch ends with this
    /// process. Takes CAP_NET_RAW and CAP_NET_ADMIN.
    #[arg(long, conflicts_with = "mode")]
    soft: bool,
    /// Drops packets of ours whose source address no route leads back to (loose), or none by the
    /// interface that they came in by (strict). What a switch forwards does not pass the kernel's
    /// rp_filter.
    #[arg(long, value_enum, default_value = "off")]
    source_check: SourceCheckArg,
    /// Where packets for the switch itself go: an address of one of its interfaces, by which other
    /// switches and clients reach what it keeps. The cluster file's `[[switch]]` of its name says
    /// it as well.
    #[arg(long, value_name = "IP")]
    address: Option<IpAddr>,
    #[command(flatten)]
    reach: Reach,
    /// Pages of cache memory, of 26.6 kB each; a page holds at least 128 items of a 16-byte key and
    /// a 128-byte value.
    #[arg(long, value_name = "N", default_value_t = 96, value_parser = clap::value_parser!(u32).range(1..=32_768))]
    pages: u32,
    /// Ports by which packets are sent round, where a discipline does so; each carries some 128.
    /// With four, copies do not go by those that carry what switches alone have.
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=4), conflicts_with = "soft")]
    recirculation_ports: u32,
    /// The CPU that does the work of these ports: the last one, unless told otherwise. It is busy
    /// while values go round.
    #[arg(long, value_name = "N", conflicts_with = "soft")]
    recirculation_cpu: Option<u32>,
    /// The switch's name on this machine.
    #[arg(long, value_name = "NAME", default_value = "default")]
    name: String,
    /// Directory for what must outlive a reboot.
    #[arg(long, value_name = "DIR", default_value = "/var/lib/shortstop")]
    state_dir: PathBuf,
    /// Attach nothing: load every program, let it go again, and print what this kernel says of
    /// each. Exit status: 0 if it takes all, 1 if it refuses some. `--log libbpf=debug` has the
    /// verifier's whole log.
    #[arg(long, conflicts_with = "soft")]
    check: bool,
    /// As JSON.
    #[arg(long, requires = "check")]
    json: bool,
    /// Send no probes to neighbouring switches: a link that loses everything and keeps its carrier
    /// is not noticed.
    #[arg(long)]
    no_probes: bool,
}

/// What becomes of a switch in the kernel.
const KERNEL: &str = "the programs stay attached when this process ends";
/// What a soft switch costs.
const SOFT: &str = "soft: in this process, at microseconds a packet in the place of XDP's hundreds of nanoseconds; \
                    when it ends, the kernel forwards alone";

/// What becomes of programs that are pinned where nobody else looks.
const OF_ITS_OWN: &str = "/sys/fs/bpf is this mount namespace's own: the programs end with its last process, and \
                          `switch status` and `detach` from elsewhere find nothing. Start it with CAP_SYS_ADMIN, or give \
                          the container the machine's /sys/fs/bpf: docs/operations/containers.md";

#[derive(Clone, Copy, clap::ValueEnum)]
enum ModeArg {
    Auto,
    Native,
    Generic,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum SourceCheckArg {
    Off,
    Loose,
    Strict,
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
        None if args.serve.check => return check(&args.serve),
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
    let at = match args.mode {
        _ if args.soft => ProgramPlace::Soft,
        ModeArg::Auto => ProgramPlace::Kernel(dataplane::Mode::Auto),
        ModeArg::Native => ProgramPlace::Kernel(dataplane::Mode::Native),
        ModeArg::Generic => ProgramPlace::Kernel(dataplane::Mode::Generic),
    };
    let options = Options {
        name: args.name,
        id: args.id,
        interfaces: args.interface,
        at,
        source_check: match args.source_check {
            SourceCheckArg::Off => SourceCheck::Off,
            SourceCheckArg::Loose => SourceCheck::Loose,
            SourceCheckArg::Strict => SourceCheck::Strict,
        },
        pages: args.pages,
        control: args.reach.endpoint()?,
        state_dir: args.state_dir,
        disciplines: disciplines::all(),
        probes: !args.no_probes,
        loops: Loops {
            ports: args.recirculation_ports,
            cpu: args.recirculation_cpu.or(Loops::default().cpu),
        },
        address: args.address,
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let on = options.interfaces.join(", ");
    let who = format!("switch {} (id {}) on {on}", options.name, options.id);
    let controllers = options.control.urls.join(", ");
    runtime.block_on(async {
        let agent = Agent::start(options).await?;
        for attached in agent.attached() {
            let mode = if attached.mode == dataplane::Mode::Native { "native" } else { "generic" };
            let how = if attached.taken_over { "taken over" } else { "attached" };
            say(&format!("{}: {how}, {mode} mode ({})", attached.interface, attached.reason));
        }
        for (what, refusal) in agent.refused() {
            say(&format!("{what}: not here: {refusal}; its packets are forwarded"));
        }
        let until = match at {
            ProgramPlace::Kernel(_) if dataplane::is_seen_by_all() => KERNEL,
            ProgramPlace::Kernel(_) => OF_ITS_OWN,
            ProgramPlace::Soft => SOFT,
        };
        say(&format!("{who}, controller {controllers}: serving; {until}"));
        let ends = async {
            tokio::select! {
                () = stopped() => Ending::Agent,
                () = agent::told_to_leave() => Ending::Switch,
            }
        };
        agent.run(ends).await?;
        Ok(())
    })
}

/// Prints what this kernel says of every program.
fn check(args: &Serve) -> anyhow::Result<ExitCode> {
    let sizes = dataplane::Sizes { pages: args.pages };
    let checked = dataplane::check(&agent::objects(disciplines::all(), sizes), sizes)?;
    end_when_unread();
    if args.json {
        let programs: Vec<_> = checked.iter().map(as_json).collect();
        print_line(serde_json::to_string_pretty(&programs)?)?;
    } else {
        let rows: Vec<_> = checked.iter().map(as_row).collect();
        print(table(&["program", "of", "verifier steps", "ms", "refused for"], &rows))?;
    }
    let is_whole = checked.iter().all(|program| program.verdict.is_ok());
    Ok(ExitCode::from(u8::from(!is_whole)))
}

fn as_row(checked: &dataplane::ProgramCheck) -> Vec<String> {
    let (steps, reason) = match &checked.verdict {
        Ok(steps) => (steps.to_string(), String::new()),
        Err(refusal) => ("-".into(), refusal.reason.clone()),
    };
    let of = match checked.disciplines[..] {
        [] => "every switch".into(),
        ref some => some.join(", "),
    };
    let ms = checked.took.as_millis().to_string();
    vec![checked.program.clone(), of, steps, ms, reason]
}

fn as_json(checked: &dataplane::ProgramCheck) -> serde_json::Value {
    serde_json::json!({
        "program": checked.program,
        "disciplines": checked.disciplines,
        "verified_steps": checked.verdict.as_ref().ok(),
        "took_ms": checked.took.as_millis() as u64,
        "refused": checked.verdict.as_ref().err().map(|refusal| &refusal.reason),
    })
}

/// Tells whoever still reads; serving goes on without.
fn say(line: &str) {
    let _ = writeln!(std::io::stdout(), "{line}");
}

fn status(args: &Status) -> anyhow::Result<()> {
    end_when_unread();
    let (names, unseen) = match &args.name {
        Some(name) => (vec![name.clone()], None),
        None => agent::status::switches(),
    };
    match unseen {
        Some(unseen) if names.is_empty() => return Err(unseen.into()),
        Some(unseen) => eprintln!("there may be more: {unseen}"),
        None => {}
    }
    let read = |name: &String| agent::status::read(name, disciplines::all());
    let reports = names.iter().map(read).collect::<Result<Vec<_>, _>>()?;
    if args.json {
        print_line(serde_json::to_string_pretty(&reports)?)
    } else if reports.is_empty() {
        print_line("no switch on this machine; `shortstop switch --interface IF` starts one")
    } else {
        print(reports.iter().map(describe).collect::<anyhow::Result<String>>()?)
    }
}

/// What `status` says of a switch.
fn describe(report: &agent::status::Status) -> anyhow::Result<String> {
    use std::fmt::Write as _;
    let mut text = String::new();
    let soft = match report.mode {
        Mode::Kernel => "",
        Mode::Soft => ", soft",
    };
    writeln!(
        text,
        "switch {} (id {}{soft}) on {}",
        report.name,
        report.id,
        report.interfaces.join(", ")
    )?;
    match report.agent {
        Some(process) => writeln!(text, "  agent      process {process}"),
        None => writeln!(
            text,
            "  agent      none runs: the programs serve what they have, and nothing else is cached; start it again, as \
             `systemctl start shortstop-switch` does"
        ),
    }?;
    writeln!(
        text,
        "  items      {} ({} with a valid value) in {} of {} pages, {} slots, {:.1} MB",
        report.items,
        report.valid_items,
        report.pages_used,
        report.pages,
        report.slots,
        report.memory_bytes as f64 / 1e6
    )?;
    writeln!(
        text,
        "  reads      {}, answered here {} ({:.1} %)",
        report.reads,
        report.hits,
        report.hit_ratio * 100.0
    )?;
    for (tenant, words) in &report.parameters {
        if *tenant != wire::TENANT_SYSTEM {
            let words = words.map(|word| word.to_string()).join(" ");
            writeln!(text, "  tenant     {tenant}: parameters {words}")?;
        }
    }
    for lease in &report.leases {
        let state = match lease.remaining_ms {
            0 => "none: nothing of this store is served".to_owned(),
            ms => format!("{ms} ms left, term {}", lease.term),
        };
        writeln!(text, "  lease      {}: {state}", lease.store)?;
    }
    if report.lent != LoanCounts::default() {
        writeln!(
            text,
            "  lent       {} keys answered here, {} kept for other switches, {} given back",
            report.lent.owns, report.lent.keeps, report.lent.sealed
        )?;
    }
    if !report.round.ports.is_empty() {
        let round = &report.round;
        let cpu = match round.cpu {
            Some(cpu) => format!("CPU {cpu}"),
            None => "whichever CPU sends".into(),
        };
        writeln!(
            text,
            "  round      {} values go round by {} on {cpu}; parked {} times",
            round.values,
            round.ports.join(", "),
            round.parked
        )?;
    }
    for (what, why) in &report.refused {
        writeln!(text, "  refused    {what}: {why}")?;
    }
    if let Some(lost) = report.lost {
        writeln!(
            text,
            "  lost       {} coming in, {} going out, {} on the way to the kernel, {} going round",
            lost.received, lost.sent, lost.passed, lost.recirculated
        )?;
    }
    writeln!(text, "  counters")?;
    let own = disciplines::all().iter().map(|discipline| discipline.counters);
    for counter in Counters::list(own) {
        let value = report.counters.get(counter.name).copied().unwrap_or(0);
        if value > 0 {
            writeln!(text, "    {:<24} {:>12}  {}", counter.name, value, counter.meaning)?;
        }
    }
    writeln!(text, "    (those at zero are left out; --json has all)")?;
    Ok(text)
}

fn detach(args: &Detach) -> anyhow::Result<()> {
    let home = Home::new(&args.name)?;
    if !home.exists() && agent::status::switches().0.contains(&args.name) {
        anyhow::bail!("switch {} is soft: it ends when its process is stopped", args.name);
    }
    // Or it would go on with tables that nobody reads, or attach again.
    let had_agent = home.exists() && agent::stop(&args.name)?;
    // Nor is one to begin meanwhile.
    let _unserved = home.exists().then(|| agent::keep_away(&args.name)).transpose()?;
    let left = match home.exists() {
        true => agent::leave(&home),
        false => Ok(agent::DepartureReport::default()),
    };
    let interfaces = dataplane::detach(&home)?;
    agent::status::forget_refused(&args.name);
    end_when_unread();
    let mut said = String::new();
    if had_agent {
        said += &format!("switch {}: its agent was stopped\n", args.name);
    }
    match left {
        Ok(left) => {
            let told = left.stores - left.mute.len();
            if left.stores > 0 {
                said += &format!(
                    "switch {}: {told} of {} stores have their leases back\n",
                    args.name, left.stores
                );
            }
            for store in left.mute {
                eprintln!(
                    "store {store} did not answer: its writes of keys that were cached here wait for up to a lease"
                );
            }
        }
        // What cannot be given back lapses; detaching is what was asked for.
        Err(error) => eprintln!("leases were not given back, and lapse: {error}"),
    }
    for (interface, _) in interfaces {
        said += &format!("{interface}: detached\n");
    }
    said += &format!("switch {}: tables removed\n", args.name);
    print(said)
}
