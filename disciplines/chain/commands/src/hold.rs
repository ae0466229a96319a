//! `coord lock` and `elect`: hold something while a command runs, or until interrupted.

use std::{
    io,
    os::unix::process::{CommandExt, ExitStatusExt},
    pin::pin,
    process::{Child, Command, ExitCode, ExitStatus},
    time::Duration,
};

use anyhow::Context;
use chain_client::{
    Client,
    recipes::{Candidate, Leader, LockOptions, leader},
};
use client::Error;
use commands::{
    command_line::end_when_unread,
    common::{stopped, time},
    output::print_line,
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
/// refuse a lower one than it has seen. Exit status: the command's, 128 and the signal's number if
/// a signal ended it; 2 if the lock was lost while it ran, whatever it ended with; 1 if others had
/// the lock until --wait was over.
#[derive(clap::Args)]
#[command(
    after_help = "Example:\n  shortstop coord lock --cluster shop.toml --tenant 7 nightly \\\n      -- /usr/local/bin/report"
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
/// --name, print who leads. Exit status as for `coord lock`.
#[derive(clap::Args)]
#[command(
    after_help = "Example:\n  shortstop coord elect --cluster shop.toml --tenant 7 --name $(hostname) \\\n      scheduler -- /usr/local/bin/scheduler\n  \
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
    /// killed 5 s later. If this process is killed, the command is killed with it; what the command
    /// started itself is not.
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
            let mut printed = Ok(());
            let tell = |who: Option<Leader>| {
                let name = who.map(|who| String::from_utf8_lossy(&who.name).into_owned());
                printed = match args.reach.json {
                    true => print_line(json!({ "leader": name })),
                    false => print_line(name.as_deref().unwrap_or("(nobody)")),
                };
                printed.is_ok()
            };
            tokio::select! {
                told = leader(&client, args.key.as_bytes(), tell, u64::MAX) => told?,
                () = stopped() => {}
            }
            printed.map(|()| ExitCode::SUCCESS)
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
    let told = match as_json {
        true => print_line(json!({ "token": held.token() })),
        false => print_line(format_args!("token {}", held.token())),
    };
    if told.is_err() {
        // Nobody knows that it is held.
        let _ = held.release().await;
        return told.map(|()| ExitCode::FAILURE);
    }
    if terms.command.is_empty() {
        let lost = tokio::select! {
            kept = held.keep_until(u64::MAX) => !kept?,
            () = stopped() => false,
        };
        anyhow::ensure!(!lost && held.release().await?, "{key} was lost");
        return Ok(ExitCode::SUCCESS);
    }
    let mut child = start(&terms.command, held.token())?;
    let (status, kept) = run(held.keep_until(u64::MAX), stopped(), &mut child, key).await?;
    // It may have been lost behind our back: this process stood still, and the command did not.
    let kept = kept && held.is_held() && held.release().await?;
    anyhow::ensure!(kept, "{key} was lost while the command ran, which ended with {status}");
    Ok(ExitCode::from(code_of(status)))
}

/// Starts a command that does not outlive this process, which holds what the command goes by.
fn start(command: &[String], token: u64) -> anyhow::Result<Child> {
    let holder = std::process::id();
    let mut child = Command::new(&command[0]);
    child.args(&command[1..]).env(TOKEN, token.to_string());
    // SAFETY: between fork and exec, two system calls and nothing else.
    unsafe { child.pre_exec(move || end_with(holder)) };
    child.spawn().with_context(|| format!("cannot run {:?}", command[0]))
}

/// Has this process, a child, killed when its parent ends, which it is still a child of.
fn end_with(parent: u32) -> io::Result<()> {
    // SAFETY: takes a number, and changes nothing but what happens to this process.
    if unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: always succeeds.
    let now = unsafe { libc::getppid() };
    // Had the parent ended before, nothing would be sent any more.
    match u32::try_from(now) == Ok(parent) {
        true => Ok(()),
        false => Err(io::ErrorKind::BrokenPipe.into()),
    }
}

/// What a shell says of a command that ended so.
fn code_of(status: ExitStatus) -> u8 {
    let by_signal = || status.signal().map(|signal| 128 + signal);
    let code = status.code().or_else(by_signal);
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(u8::MAX)
}

/// Keeps the lock while the command runs, which is asked to end if the lock is lost, or when this
/// process is to stop: then the lock is kept on until the command has ended. How it ended, and
/// whether the lock was kept.
async fn run(
    keep: impl Future<Output = Result<bool, Error>>,
    stop: impl Future<Output = ()>,
    child: &mut Child,
    key: &str,
) -> anyhow::Result<(ExitStatus, bool)> {
    let mut keep = pin!(keep);
    let is_kept = tokio::select! {
        status = ended(child, None) => return Ok((status?, true)),
        kept = &mut keep => matches!(kept, Ok(true)),
        () = stop => true,
    };
    if !is_kept {
        eprintln!("{key} was lost: the command is ended");
    }
    if let Ok(pid) = i32::try_from(child.id()) {
        // SAFETY: signals a child that has not been waited for.
        unsafe { libc::kill(pid, libc::SIGTERM) };
    }
    let mut end = pin!(ended(child, Some(Instant::now() + GRACE)));
    if is_kept {
        tokio::select! {
            biased;
            kept = keep => if !matches!(kept, Ok(true)) {
                eprintln!("{key} was lost while the command ended");
                return Ok((end.await?, false));
            },
            status = &mut end => return Ok((status?, true)),
        }
    }
    Ok((end.await?, is_kept))
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

#[cfg(test)]
mod tests {
    use std::{
        cell::Cell,
        future::poll_fn,
        io::{BufRead, BufReader},
        process::Stdio,
        task::Poll,
    };

    use super::*;

    fn words(command: &[&str]) -> Vec<String> {
        command.iter().map(|word| word.to_string()).collect()
    }

    /// What became of a shell's text whose lock is kept as that says.
    fn ran(text: &str, keep: impl Future<Output = Result<bool, Error>>) -> (ExitStatus, bool) {
        ran_until(text, keep, std::future::pending())
    }

    /// Likewise where the holder is to stop when that says so.
    fn ran_until(
        text: &str,
        keep: impl Future<Output = Result<bool, Error>>,
        stop: impl Future<Output = ()>,
    ) -> (ExitStatus, bool) {
        let mut child = start(&words(&["/bin/sh", "-c", text]), 7).expect("a shell");
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let ran = runtime.expect("a runtime").block_on(run(keep, stop, &mut child, "key"));
        ran.expect("it ends")
    }

    #[test]
    fn a_command_that_makes_light_of_a_lost_lock_has_lost_it_all_the_same() {
        let file = std::env::temp_dir().join(format!("light-of-it-{}", std::process::id()));
        let _ = std::fs::remove_file(&file);
        let path = file.display();
        let text = format!("trap 'exit 0' TERM; : >'{path}'; while :; do sleep 0.01; done");
        // It is not asked to end before it makes light of that.
        let lost_then = async {
            while !file.exists() {
                sleep(LOOK_EVERY).await;
            }
            Ok(false)
        };
        let (status, kept) = ran(&text, lost_then);
        let _ = std::fs::remove_file(&file);
        assert_eq!((status.code(), kept), (Some(0), false));
        let (status, kept) = ran("exit $SHORTSTOP_FENCE", std::future::pending());
        assert_eq!((code_of(status), kept), (7, true));
        let (status, kept) = ran("kill -KILL $$", std::future::pending());
        assert_eq!((code_of(status), kept), (128 + 9, true));
    }

    #[test]
    fn the_lock_is_kept_while_the_command_ends_that_its_holder_asked_to() {
        for is_lost in [false, true] {
            let (stopped, kept_on) = (Cell::new(false), Cell::new(false));
            let keep = poll_fn(|_| {
                kept_on.set(stopped.get());
                match is_lost && stopped.get() {
                    true => Poll::Ready(Ok(false)),
                    false => Poll::Pending,
                }
            });
            let stop = async { stopped.set(true) };
            let (status, kept) = ran_until("exec sleep 600", keep, stop);
            assert_eq!((code_of(status), kept), (128 + 15, !is_lost));
            assert!(kept_on.get());
        }
    }

    const HOLDER: &str = "hold::tests::a_holder_that_another_test_kills";

    #[test]
    #[ignore = "another test starts and kills it"]
    #[allow(clippy::print_stdout)]
    fn a_holder_that_another_test_kills() {
        let mut child = start(&words(&["/bin/sleep", "600"]), 7).expect("a command");
        println!("\ncommand {}", child.id());
        child.wait().expect("it ends");
    }

    #[test]
    fn a_command_does_not_outlive_its_holder() {
        let own = std::env::current_exe().expect("a test");
        let mut holder = Command::new(own)
            .args(["--exact", HOLDER, "--ignored", "--nocapture", "--test-threads", "1"])
            .stdout(Stdio::piped())
            .spawn()
            .expect("it is there");
        let said = BufReader::new(holder.stdout.take().expect("a pipe")).lines();
        let command = said.map_while(Result::ok).find_map(|line| {
            let pid = line.strip_prefix("command ")?;
            pid.parse::<i32>().ok()
        });
        let command = command.expect("the command's number");
        // Whoever adopts it may not look for long.
        let is_there = || {
            let stat = std::fs::read_to_string(format!("/proc/{command}/stat"));
            stat.is_ok_and(|stat| !stat.contains(") Z "))
        };
        assert!(is_there());
        holder.kill().expect("it runs");
        holder.wait().expect("it was killed");
        let begun = std::time::Instant::now();
        while is_there() {
            assert!(begun.elapsed() < Duration::from_secs(20), "the command lives on");
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}
