//! The state store and the election, against real etcd servers.
//!
//! How long a standby waits is not looked at here, where a machine that is busy with something else
//! would be: it is a matter of arithmetic (`src/state/leader.rs`, `src/state/tenure.rs`). Where
//! nobody is to be replaced, controllers are patient enough.

use std::{
    net::SocketAddr,
    sync::Arc,
    time::{Duration, Instant},
};

use control::state::{Batch, Candidate, Lead, Location, Pace, State, StateError};
use tokio::time::timeout;

use super::etcd::{self, PATIENCE};

/// Nobody is replaced or gives up because a machine is slow.
const PATIENT: Pace = Pace {
    silence: Duration::from_secs(900),
    out_of_reach: Duration::from_secs(900),
    copy_within: PATIENCE,
    page_within: PATIENCE,
};

/// A controller that replaces a silent leader as in production, and leads for as long as nobody
/// replaces it.
async fn open_prompt(name: &str, servers: &[SocketAddr]) -> State {
    let pace = Pace { silence: Pace::default().silence, ..PATIENT };
    open_at_pace(name, servers, pace).await
}

/// A controller as in production.
async fn open(name: &str, servers: &[SocketAddr]) -> State {
    open_at_pace(name, servers, Pace::default()).await
}

/// One that neither replaces a leader nor stops leading because somebody is slow.
async fn open_patient(name: &str, servers: &[SocketAddr]) -> State {
    open_at_pace(name, servers, PATIENT).await
}

async fn open_at_pace(name: &str, servers: &[SocketAddr], pace: Pace) -> State {
    let servers: Vec<String> = servers.iter().map(SocketAddr::to_string).collect();
    open_url(name, &format!("etcd://{}/test", servers.join(",")), pace).await
}

async fn open_url(name: &str, url: &str, pace: Pace) -> State {
    let location: Location = url.parse().unwrap();
    let candidate = Candidate { name: name.into(), url: format!("http://{name}.example:7118") };
    let state = State::open_at_pace(&location, candidate, pace).await;
    state.unwrap()
}

async fn lead(state: &State) -> Lead {
    let lead = timeout(PATIENCE, state.campaign()).await;
    lead.expect("a leader").unwrap()
}

fn rows(prefix: &str, numbers: std::ops::Range<u64>) -> Arc<Batch> {
    let mut batch = Batch::default();
    numbers.for_each(|n| batch.put(format!("{prefix}/{n:05}"), &n));
    Arc::new(batch)
}

#[tokio::test]
async fn one_leads_until_it_resigns() {
    let etcd = etcd::Server::start().await;
    let states =
        [open_patient("a", &[etcd.address()]).await, open_patient("b", &[etcd.address()]).await];
    let [a, b] = &states;
    let (first, leader, standby) = tokio::select! {
        won = lead(a) => (won, a, b),
        won = lead(b) => (won, b, a),
    };
    assert_eq!(first.term(), 1);
    assert!(first.holds());
    first.write(&rows("page", 0..3)).await.unwrap();

    let knows = async {
        while standby.leader().is_none() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::select! {
        _ = standby.campaign() => panic!("two lead"),
        known = timeout(PATIENCE, knows) => known.expect("it looks who leads"),
    }
    let waiting = timeout(Duration::from_millis(500), standby.campaign()).await;
    assert!(waiting.is_err(), "two lead");
    assert_eq!(standby.leader(), leader.leader());
    assert_eq!(standby.leader().map(|l| l.term), Some(1));

    // Long before the standby would lose its patience with a leader that is silent.
    let (second, ()) = tokio::join!(lead(standby), first.resign());
    assert_eq!(second.term(), 2);
    assert_eq!(second.load().await.unwrap().rows.len(), 3);
}

/// Switches have heard of a term that etcd knows nothing of: it was put back.
#[tokio::test]
async fn the_next_lead_begins_above_any_term() {
    let etcd = etcd::Server::start().await;
    let a = open_patient("a", &[etcd.address()]).await;
    let first = lead(&a).await;
    first.write(&rows("page", 0..3)).await.unwrap();
    first.begin_above(41).await.unwrap();
    first.resign().await;
    let second = lead(&a).await;
    assert_eq!(second.term(), 42);
    assert_eq!(second.load().await.unwrap().rows.len(), 3);
    second.begin_above(7).await.unwrap();
    second.resign().await;
    assert_eq!(lead(&a).await.term(), 43);
}

#[tokio::test]
async fn another_leads_when_the_leader_dies() {
    let etcd = etcd::Server::start().await;
    let a = open_patient("a", &[etcd.address()]).await;
    let b = open_prompt("b", &[etcd.address()]).await;
    let first = lead(&a).await;
    let alive = Instant::now();
    first.write(&rows("page", 0..3)).await.unwrap();
    // Nothing is said to etcd, as if it had been killed.
    drop(first);
    let second = lead(&b).await;
    assert!(alive.elapsed() >= Pace::default().silence);
    assert!(second.term() > 1);
    assert_eq!(second.load().await.unwrap().rows.len(), 3);
}

#[tokio::test]
async fn a_standby_has_all_rows_before_it_leads() {
    let etcd = etcd::Server::start().await;
    let a = open_patient("a", &[etcd.address()]).await;
    let b = open_patient("b", &[etcd.address()]).await;
    let first = lead(&a).await;
    let mut batch = Batch::default();
    (0..6).for_each(|n| batch.put(format!("long/{n}"), &"x".repeat(1_000_000)));
    first.write(&Arc::new(batch)).await.unwrap();
    let second = tokio::spawn(async move { lead(&b).await });
    // What comes and goes from now on comes by the watch.
    etcd.is_watched().await;
    first.write(&rows("page", 0..150)).await.unwrap();
    let mut batch = Batch::default();
    (0..6).for_each(|n| batch.delete(format!("long/{n}")));
    batch.put("long/1", &"y".repeat(1_000_000));
    first.write(&Arc::new(batch)).await.unwrap();
    first.resign().await;
    let second = second.await.unwrap();
    // Nobody else reads rows: elections and heartbeats are transactions.
    let reads = etcd.reads();
    let memory = second.load().await.unwrap();
    assert_eq!(etcd.reads(), reads, "rows were read once it led");
    assert_eq!(memory.rows.len(), 151);
    assert_eq!(memory, second.load().await.unwrap());
    assert!(etcd.reads() > reads, "the second time they are");
}

#[tokio::test]
async fn a_leader_that_is_cut_off_stops_before_another_begins() {
    let etcd = etcd::Server::start().await;
    let wire = etcd::Wire::to(etcd.address()).await;
    let a = open("a", &[wire.address]).await;
    let b = open_prompt("b", &[etcd.address()]).await;
    let first = lead(&a).await;
    let late = rows("late", 0..3);
    wire.cut();
    let lost = async {
        let written = first.write(&late).await;
        assert!(matches!(written, Err(StateError::Deposed)), "{written:?}");
        first.lost().await;
        assert!(!first.holds());
    };
    let ((), second) = tokio::join!(lost, async {
        let second = lead(&b).await;
        assert!(!first.holds(), "two lead");
        second
    });

    // What the old leader had sent arrives now, and has no effect.
    let passed = wire.passed();
    wire.mend();
    second.write(&rows("page", 0..1)).await.unwrap();
    wire.passes(passed).await;
    let memory = second.load().await.unwrap();
    let keys: Vec<_> = memory.rows.keys().collect();
    assert_eq!(keys, ["page/00000"]);
}

#[tokio::test]
async fn a_leader_that_does_not_know_yet_that_it_is_deposed_writes_nothing() {
    let etcd = etcd::Server::start().await;
    let a = open_patient("a", &[etcd.address()]).await;
    let b = open_patient("b", &[etcd.address()]).await;
    let first = lead(&a).await;
    let mut client = etcd.client().await;
    client.delete("/test/leader", None).await.unwrap();
    let second = lead(&b).await;
    let written = first.write(&rows("late", 0..1)).await;
    assert!(matches!(written, Err(StateError::Deposed)), "{written:?}");
    assert!(!first.holds());
    assert!(second.load().await.unwrap().rows.is_empty());
}

/// What a leader in a process of its own does: see the test after it.
#[tokio::test]
async fn a_leader_in_a_process_of_its_own() {
    let Ok(server) = std::env::var(STANDS_STILL) else { return };
    let state = open_prompt("a", &[server.parse().unwrap()]).await;
    let lead = lead(&state).await;
    for number in 0.. {
        // Asked before each message to a switch.
        println!("holds {}", lead.holds());
        if let Err(error) = lead.write(&one_row("still", number)).await {
            println!("refused {error}");
            return;
        }
    }
}

/// The test before, by its whole name.
const IN_A_PROCESS_OF_ITS_OWN: &str = "state::a_leader_in_a_process_of_its_own";
/// Tells the leader in a process of its own where etcd is.
const STANDS_STILL: &str = "STANDS_STILL";

#[tokio::test]
async fn a_leader_that_stood_still_is_replaced_and_changes_nothing_when_it_goes_on() {
    use std::io::{BufRead, BufReader, Write};
    let etcd = etcd::Server::start().await;
    let (output, mut mark) = std::io::pipe().unwrap();
    let mut process = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", IN_A_PROCESS_OF_ITS_OWN, "--nocapture"])
        .env(STANDS_STILL, etcd.address().to_string())
        .stdout(mark.try_clone().unwrap())
        .spawn()
        .unwrap();
    let pid = rustix::process::Pid::from_child(&process);
    let signal = |signal| rustix::process::kill_process(pid, signal).unwrap();
    let output = BufReader::new(output);
    let (say, said) = std::sync::mpsc::channel();
    std::thread::spawn(move || output.lines().try_for_each(|line| say.send(line.unwrap())));
    let holds = |line: &String| line.ends_with("holds true");
    assert!(said.iter().any(|line| holds(&line)));
    signal(rustix::process::Signal::STOP);
    let stopped = rustix::process::WaitOptions::UNTRACED;
    rustix::process::waitpid(Some(pid), stopped).unwrap();
    let b = open_prompt("b", &[etcd.address()]).await;
    let second = lead(&b).await;
    let before = second.load().await.unwrap();
    // What it said before it stood still comes before this.
    writeln!(mark, "{STANDS_STILL}").unwrap();
    drop(mark);
    assert!(said.iter().any(|line| line.ends_with(STANDS_STILL)));
    signal(rustix::process::Signal::CONT);
    let rest: Vec<String> = said.iter().collect();
    assert!(process.wait().unwrap().success());
    assert!(rest.iter().any(|line| line.starts_with("refused")), "{rest:?}");
    // Where it stood still it may have asked before, and say so now.
    assert!(rest.iter().filter(|line| holds(line)).count() <= 1, "{rest:?}");
    assert_eq!(second.load().await.unwrap(), before);
    let leads = second.write(&rows("page", 0..1)).await;
    leads.expect("the second one still leads");
}

#[tokio::test]
async fn large_batches() {
    let etcd = etcd::Server::start().await;
    let state = open_patient("a", &[etcd.address()]).await;
    let lead = lead(&state).await;
    lead.write(&rows("page", 0..500)).await.unwrap();
    let mut batch = Batch::default();
    (0..450).for_each(|n| batch.delete(format!("page/{n:05}")));
    (0..600).for_each(|n| batch.put(format!("audit/{n:016}"), &n));
    // Longer together than one answer of etcd may be.
    (0..6).for_each(|n| batch.put(format!("long/{n}"), &"x".repeat(1_000_000)));
    // In one transaction with their writes, or in later ones.
    (0..=550).for_each(|n| batch.delete(format!("audit/{n:016}")));
    lead.write(&Arc::new(batch)).await.unwrap();
    let memory = lead.load().await.unwrap();
    let pages = memory.rows_under::<u64>("page/").unwrap();
    assert_eq!((pages.len(), pages[0]), (50, ("00450", 450)));
    let audit = memory.rows_under::<u64>("audit/").unwrap();
    assert_eq!((audit.len(), audit[0].1), (600 - 551, 551));
    let long = memory.rows_under::<String>("long/").unwrap();
    assert_eq!(long.len(), 6);
}

#[tokio::test]
async fn etcd_goes_away_and_comes_back() {
    let mut etcd = etcd::Server::start().await;
    // The first of these servers is never there.
    let nobody = SocketAddr::from(([127, 0, 0, 1], 1));
    // Longer than a machine stands still that is busy, and no longer than a test may take.
    let out_of_reach = Duration::from_secs(10);
    let pace = Pace { silence: Pace::default().silence, out_of_reach, ..PATIENT };
    let state = open_at_pace("a", &[nobody, etcd.address()], pace).await;
    let first = lead(&state).await;
    let heard = Instant::now();
    first.write(&rows("page", 0..150)).await.unwrap();
    etcd.kill();
    timeout(PATIENCE, first.lost()).await.expect("a leader without etcd gives up");
    assert!(heard.elapsed() > out_of_reach);
    drop(first);
    let (second, ()) = tokio::join!(lead(&state), async {
        etcd.spawn();
        assert!(etcd.is_up().await);
    });
    assert_eq!(second.term(), 2);
    assert_eq!(second.load().await.unwrap().rows.len(), 150);
}

fn one_row(key: &str, value: u64) -> Arc<Batch> {
    let mut batch = Batch::default();
    batch.put(key, &value);
    Arc::new(batch)
}

#[tokio::test]
async fn a_request_that_arrives_late_does_nothing() {
    let etcd = etcd::Server::start().await;
    let wire = etcd::Wire::to(etcd.address()).await;
    let state = open_patient("a", &[wire.address, etcd.address()]).await;
    let lead = lead(&state).await;
    lead.write(&one_row("page/1", 0)).await.unwrap();
    wire.cut();
    // Stays in the wire, and is sent again past it.
    lead.write(&one_row("page/1", 1)).await.unwrap();
    lead.write(&one_row("page/1", 2)).await.unwrap();
    let passed = wire.passed();
    wire.mend();
    wire.passes(passed).await;
    lead.write(&one_row("page/2", 2)).await.unwrap();
    let memory = lead.load().await.unwrap();
    assert_eq!(memory.row("page/1").unwrap(), Some(2));
}

#[tokio::test]
async fn a_write_whose_answer_is_lost_is_done_once() {
    let etcd = etcd::Server::start().await;
    let wire = etcd::Wire::to(etcd.address()).await;
    let state = open_patient("a", &[wire.address, etcd.address()]).await;
    let lead = lead(&state).await;
    wire.cut_answers();
    lead.write(&one_row("page/1", 1)).await.unwrap();
    let mut client = etcd.client().await;
    let row = client.get("/test/rows/page/1", None).await.unwrap();
    assert_eq!(row.kvs()[0].version(), 1, "it was written again");
    lead.write(&one_row("page/1", 2)).await.unwrap();

    // One that nobody waits for is followed by the next all the same.
    let given_up = one_row("page/1", 3);
    let _ = timeout(Duration::from_micros(1), lead.write(&given_up)).await;
    lead.write(&one_row("page/1", 4)).await.unwrap();
    let memory = lead.load().await.unwrap();
    assert_eq!(memory.row("page/1").unwrap(), Some(4));
    assert!(lead.holds());
}

#[tokio::test]
async fn one_member_of_three_may_go_away() {
    let mut members = etcd::Server::cluster(3).await;
    let addresses: Vec<_> = members.iter().map(etcd::Server::address).collect();
    let state = open_patient("a", &addresses).await;
    let lead = lead(&state).await;
    for member in &mut members[..2] {
        member.kill();
        lead.write(&rows("page", 0..150)).await.unwrap();
        member.spawn();
        assert!(member.is_up().await);
    }
    assert!(lead.holds());
    assert_eq!(lead.load().await.unwrap().rows.len(), 150);
}

#[tokio::test]
async fn a_short_outage_is_waited_for() {
    let etcd = etcd::Server::start().await;
    let wire = etcd::Wire::to(etcd.address()).await;
    let state = open_patient("a", &[wire.address]).await;
    let lead = lead(&state).await;
    wire.cut();
    let batch = rows("page", 0..150);
    let (written, ()) = tokio::join!(lead.write(&batch), async {
        wire.is_tried_again().await;
        wire.mend();
    });
    written.unwrap();
    assert!(lead.holds());
    assert_eq!(lead.load().await.unwrap().rows.len(), 150);
}

#[tokio::test]
async fn etcd_with_tls() {
    let etcd = etcd::Server::with_tls().await;
    let authority = etcd.authority.as_ref().unwrap();
    let file = |name| authority.path(name).display().to_string();
    let (address, ca) = (etcd.address(), file("ca.pem"));
    let anybody = open_url("a", &format!("etcds://{address}?ca={ca}"), PATIENT).await;
    let own = format!("cert={}&key={}", file("client.pem"), file("client.key"));
    let state = open_url("b", &format!("etcds://{address}?ca={ca}&{own}"), PATIENT).await;
    let lead = lead(&state).await;
    lead.write(&rows("page", 0..3)).await.unwrap();
    assert_eq!(lead.load().await.unwrap().rows.len(), 3);
    lead.resign().await;
    let denied = timeout(Duration::from_millis(500), anybody.campaign()).await;
    assert!(denied.is_err() && anybody.leader().is_none());

    let missing: Location = format!("etcds://{address}?ca=/missing.pem").parse().unwrap();
    let candidate = Candidate { name: "c".into(), url: String::new() };
    let error = State::open(&missing, candidate).await.err().unwrap();
    assert!(error.to_string().contains("/missing.pem"), "{error}");
}

/// They live for some hours, where an authority renews them by itself.
#[tokio::test]
async fn certificates_that_were_replaced_are_those_of_the_next_connection() {
    let mut etcd = etcd::Server::with_tls().await;
    let authority = etcd.authority.as_ref().unwrap();
    let directory = authority.path("");
    let file = |name| directory.join(name).display().to_string();
    let files =
        format!("ca={}&cert={}&key={}", file("ca.pem"), file("client.pem"), file("client.key"));
    let state = open_url("a", &format!("etcds://{}?{files}", etcd.address()), PATIENT).await;
    let lead = lead(&state).await;
    lead.write(&rows("page", 0..3)).await.unwrap();
    etcd.kill();
    authority::certify(&directory, &["127.0.0.1"], &["server", "client"]);
    etcd.spawn();
    let written = timeout(PATIENCE, lead.write(&rows("page", 3..6))).await;
    written.expect("the new certificate is shown").unwrap();
    assert_eq!(lead.load().await.unwrap().rows.len(), 6);
}

#[tokio::test]
async fn a_later_format_is_refused() {
    let etcd = etcd::Server::start().await;
    let mut client = etcd.client().await;
    client.put("/test/format", "4", None).await.unwrap();
    let state = open("a", &[etcd.address()]).await;
    let error = state.campaign().await.err().unwrap().to_string();
    assert!(error.contains("/test") && error.contains("format 4"), "{error}");
}

#[tokio::test]
async fn a_file_leads_at_once_with_a_higher_term_each_time() {
    let directory = tempfile::tempdir().unwrap();
    let location: Location = directory.path().to_str().unwrap().parse().unwrap();
    let candidate = Candidate { name: "a".into(), url: "http://127.0.0.1:7118".into() };
    for term in 1..3 {
        let state = State::open(&location, candidate.clone()).await.unwrap();
        let lead = state.campaign().await.unwrap();
        assert_eq!(lead.term(), term);
        assert_eq!(state.leader().map(|l| l.term), Some(term));
        lead.write(&rows("page", 0..3)).await.unwrap();
        assert_eq!(lead.load().await.unwrap().rows.len(), 3);
        lead.resign().await;
    }
}
