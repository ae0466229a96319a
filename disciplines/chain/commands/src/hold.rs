//! `coord lock` and `elect`: hold something while a command runs, or until interrupted.

use std::{
    process::{Child, Command, ExitCode, ExitStatus},
    time::Duration,
};

use anyhow::Context;
use chain_client::{
    Client,
    recipes::{Candidate, HeldLock, Leader, LockOptions, leader},
};
use commands::{
    command_line::end_when_unread,
    common::{stopped, time},
};
use serde_json::json;
use tokio::time::{Instant, sleep};

use crate::reach::Reach;

/// Variable in which a command finds its fencing token.
const TOKEN: &str = "SHORTSTOP_FENCE";
/// How long a command may take to end when its lock is lost, before it is killed.
const GRACE: Duration = Duration::from_secs(5);
/// Between two looks at whether a command has ended.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Take a lock and run a command while it is held, or hold it until interrupted. The fencing token
/// is printed, and in the command's environment (SHORTSTOP_FENCE): whatever the lock guards must
/// refuse a lower one than it has seen.
#[derive(clap::Args)]
#[command(
    after_help = "Example:\n  shortstop coord lock --cluster shop.toml --tenant 7 nightly -- /usr/local/bin/report"
)]
pub struct Lock {
    /// The lock's key.
    key: String,
    /// How long to wait for it.
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = time)]
    wait: Duration,
    #[command(flatten)]
    terms: Terms,
    #[command(flatten)]
    reach: Reach,
}

/// Stand for an election and run a command while leading, or lead until interrupted; without
/// --name, print who leads.
#[derive(clap::Args)]
#[command(
    after_help = "Example:\n  shortstop coord elect --cluster shop.toml --tenant 7 --name $(hostname) scheduler -- /usr/local/bin/scheduler\n  \
    shortstop coord elect --cluster shop.toml --tenant 7 scheduler"
)]
pub struct Elect {
    /// The election's key.
    key: String,
    /// The name that others read while this one leads.
    #[arg(long)]
    name: Option<String>,
    #[command(flatten)]
    terms: Terms,
    #[command(flatten)]
    reach: Reach,
}

#[derive(clap::Args)]
struct Terms {
    /// How long it stays with a holder that says nothing more; it is renewed three times as often.
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = time)]
    lease: Duration,
    /// The command, and its arguments. It is asked to end (SIGTERM) when the lease is lost, and
    /// killed 5 s later.
    #[arg(last = true)]
    command: Vec<String>,
}

/// Takes a lock.
pub fn lock(args: Lock) -> anyhow::Result<ExitCode> {
    let options =
        LockOptions { lease: checked(args.terms.lease)?, patience: args.wait, name: String::new() };
    args.reach
        .write(async |client| hold(client, &args.key, options, &args.terms, args.reach.json).await)
}

/// Stands for an election, or looks on.
pub fn elect(args: Elect) -> anyhow::Result<ExitCode> {
    let Some(name) = args.name.clone() else {
        end_when_unread();
        return args.reach.read(async |client| {
            let tell = |who: Option<Leader>| {
                let name = who.map(|who| String::from_utf8_lossy(&who.name).into_owned());
                match args.reach.json {
                    true => println!("{}", json!({ "leader": name })),
                    false => println!("{}", name.as_deref().unwrap_or("(nobody)")),
                }
                true
            };
            tokio::select! {
                told = leader(&client, args.key.as_bytes(), tell, u64::MAX) => told?,
                () = stopped() => {}
            }
            Ok(ExitCode::SUCCESS)
        });
    };
    let options = LockOptions {
        lease: checked(args.terms.lease)?,
        // As long as it takes: whoever stands wants to lead.
        patience: Duration::from_secs(10 * 365 * 86_400),
        name,
    };
    args.reach
        .write(async |client| hold(client, &args.key, options, &args.terms, args.reach.json).await)
}

fn checked(lease: Duration) -> anyhow::Result<Duration> {
    let possible = Duration::from_millis(100)..=Duration::from_secs(86_400);
    anyhow::ensure!(possible.contains(&lease), "--lease {lease:?}: expected 100ms to 1d");
    Ok(lease)
}

/// Acquires, runs, renews, releases.
async fn hold(
    client: Client,
    key: &str,
    options: LockOptions,
    terms: &Terms,
    as_json: bool,
) -> anyhow::Result<ExitCode> {
    let candidate = Candidate::new(client, key, options);
    let held = tokio::select! {
        held = candidate.campaign() => held?,
        () = stopped() => return Ok(ExitCode::FAILURE),
    };
    let Some(mut held) = held else {
        eprintln!("others hold {key}");
        return Ok(ExitCode::FAILURE);
    };
    match as_json {
        true => println!("{}", json!({ "token": held.token() })),
        false => println!("token {}", held.token()),
    }
    if terms.command.is_empty() {
        let lost = tokio::select! {
            kept = held.keep_until(u64::MAX) => !kept?,
            () = stopped() => false,
        };
        if lost {
            eprintln!("{key} was lost");
            return Ok(ExitCode::FAILURE);
        }
        held.release().await?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut child = start(&terms.command, held.token())?;
    let status = run(&mut held, &mut child, key).await?;
    held.release().await?;
    let code = status.code().and_then(|code| u8::try_from(code).ok());
    Ok(code.map_or(ExitCode::FAILURE, ExitCode::from))
}

fn start(command: &[String], token: u64) -> anyhow::Result<Child> {
    Command::new(&command[0])
        .args(&command[1..])
        .env(TOKEN, token.to_string())
        .spawn()
        .with_context(|| format!("cannot run {:?}", command[0]))
}

/// Renews while the command runs; ends it if the lock is lost.
async fn run(
    held: &mut HeldLock<Client>,
    child: &mut Child,
    key: &str,
) -> anyhow::Result<ExitStatus> {
    let lost = tokio::select! {
        status = ended(child, None) => return status,
        kept = held.keep_until(u64::MAX) => !matches!(kept, Ok(true)),
        () = stopped() => false,
    };
    if lost {
        eprintln!("{key} was lost: the command is ended");
    }
    if let Ok(pid) = i32::try_from(child.id()) {
        // SAFETY: signals a child that has not been waited for.
        unsafe { libc::kill(pid, libc::SIGTERM) };
    }
    ended(child, Some(Instant::now() + GRACE)).await
}

/// Waits for the end of a command, and kills it if it has not come by then.
async fn ended(child: &mut Child, kill_at: Option<Instant>) -> anyhow::Result<ExitStatus> {
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        if kill_at.is_some_and(|at| Instant::now() >= at) {
            child.kill()?;
        }
        sleep(LOOK_EVERY).await;
    }
}
