//! Keys that switches alone keep: three of them, the controller and `shortstop coord`, as people start them.

use std::{
    collections::BTreeMap,
    net::IpAddr,
    process::Output,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    thread::JoinHandle,
    time::Duration,
};

use client::{
    Condition,
    coord::{Client, Options},
};
use decide::Items;
use lab::{
    namespace,
    process::command_in,
    rack::{Lab, unique_name},
    topology::Topology,
};

use crate::support::{Kind, needs_root, until};

on_both!(
    every_command_of_coord_does_what_it_says,
    what_is_written_stays_whichever_member_dies,
    what_was_kept_is_there_again_after_all_have_died,
    a_controller_that_is_stopped_keeps_what_was_written_last
);

const SWITCHES: [&str; 3] = ["switch1", "switch2", "switch3"];
const KEYS: usize = 8;

/// Disciplines whose items are nowhere else.
fn names() -> impl Iterator<Item = &'static str> {
    let all = disciplines::all().iter();
    all.filter(|d| d.items == Items::Truth).map(|d| d.name)
}

/// Three switches, with a tenant.
struct Chains {
    lab: Lab,
    kind: Kind,
}

impl Chains {
    fn up(kind: Kind, discipline: &str) -> Chains {
        Chains::keeping(kind, discipline, 1)
    }

    /// With snapshots every so many seconds.
    fn keeping(kind: Kind, discipline: &str, snapshot: u32) -> Chains {
        let mut text = include_str!("coordination.toml").to_string();
        if kind == Kind::Soft {
            text = text.replace("\"--mode\", \"generic\"", "\"--soft\"");
            for switch in SWITCHES {
                let pinned = format!("/sys/fs/bpf/shortstop/{{lab}}-{switch}");
                let socket = format!("/run/shortstop/switch-{{lab}}-{switch}.sock");
                text = text.replace(&pinned, &socket);
            }
        }
        let topology = Topology::parse(&text).expect("a valid topology");
        let mut lab =
            Lab::create(&unique_name(), topology, false).unwrap_or_else(|e| panic!("{e:#}"));
        lab.start_all(false).unwrap_or_else(|e| panic!("{e:#}"));
        let chains = Chains { lab, kind };
        until("all switches are there", || {
            let said = chains.run("hub", "shortstop control status --json").stdout;
            let said = String::from_utf8_lossy(&said);
            (said.matches("\"attached\": true").count() == SWITCHES.len()).then_some(())
        });
        chains.done(
            "hub",
            &format!(
                "shortstop tenant create --id 7 --name config --discipline {discipline} \
                 --quota 12 --policy even-split --option chains=1 --option snapshot={snapshot} \
                 && umask 077 && shortstop tenant credentials 7 > config.toml"
            ),
        );
        until("the chain begins", || {
            (chains.coord("put begun yes").1 == 0).then_some(())
        });
        chains
    }

    /// Runs shell text on a node, in the lab's directory.
    fn run(&self, node: &str, text: &str) -> Output {
        let words = ["/bin/sh", "-e", "-c", text].map(String::from);
        let command = command_in(&self.lab.namespace(node), &words);
        let mut command = command.unwrap_or_else(|e| panic!("{e:#}"));
        let output = command.current_dir(self.lab.dir()).output();
        output.expect("the shell can be started")
    }

    fn done(&self, node: &str, text: &str) -> String {
        let output = self.run(node, text);
        assert!(output.status.success(), "{text}\n{output:?}");
        String::from_utf8(output.stdout).expect("text")
    }

    /// `shortstop coord` of the client: what it printed, and its exit status.
    fn coord(&self, what: &str) -> (String, i32) {
        let (command, rest) = what.split_once(' ').unwrap_or((what, ""));
        let reach = "--cluster config.toml --tenant 7";
        let output = self.run(
            "client",
            &format!("shortstop coord {command} {reach} {rest}"),
        );
        let said = String::from_utf8_lossy(&output.stdout).trim().to_string();
        let status = output.status.code().expect("it ends by itself");
        if status != 0 {
            println!("{what}: {}", String::from_utf8_lossy(&output.stderr));
        }
        (said, status)
    }

    /// Its power fails: with it goes what it has.
    fn dies(&mut self, switch: &str) {
        let killed = self.lab.stop(switch, "agent", libc::SIGKILL);
        killed.unwrap_or_else(|e| panic!("{e:#}"));
        if self.kind == Kind::Kernel {
            self.lab.forget_switch(switch);
        }
    }

    fn control_ends(&mut self, signal: i32) {
        let stopped = self.lab.stop("hub", "control", signal);
        stopped.unwrap_or_else(|e| panic!("{e:#}"));
    }

    /// The controller and all switches begin again.
    fn all_return(&mut self) {
        let control = self.lab.spec("hub", "control").expect("a process");
        self.lab.start("hub", &control, false).expect("it starts");
        SWITCHES.into_iter().for_each(|switch| self.returns(switch));
        until("the chain is restored", || {
            (self.coord("get begun").0 == "yes").then_some(())
        });
    }

    fn returns(&mut self, switch: &str) {
        let spec = self.lab.spec(switch, "agent").expect("a process");
        let started = self.lab.start(switch, &spec, false);
        started.unwrap_or_else(|e| panic!("{e:#}"));
    }

    /// The switch of that address.
    fn named(&self, address: IpAddr) -> &'static str {
        let is_it = |switch: &&str| {
            let text = format!("{{address:{switch}}}");
            let its = self.lab.topology().expand_text(&text, "", "");
            its.is_ok_and(|its| its.parse() == Ok(address))
        };
        SWITCHES.into_iter().find(is_it).expect("one of them")
    }
}

/// A client that writes all the time, each key a number above the one before, and looks whether it is there.
struct Writer {
    stop: Arc<AtomicBool>,
    /// How often all keys were written, and the chain's members after the last time.
    seen: Arc<Mutex<(u64, Vec<IpAddr>)>>,
    thread: JoinHandle<anyhow::Result<()>>,
}

impl Writer {
    fn start(chains: &Chains) -> Writer {
        let (stop, seen) = (Arc::<AtomicBool>::default(), Arc::default());
        let space = chains.lab.namespace("client");
        let text = std::fs::read_to_string(chains.lab.dir().join("config.toml")).unwrap();
        let (own_stop, own_seen) = (stop.clone(), Arc::clone(&seen));
        let thread = std::thread::spawn(move || {
            let cluster = wire::Cluster::parse(&text).expect("a valid cluster file");
            namespace::within(&space, || {
                let runtime = tokio::runtime::Builder::new_current_thread()
                    .enable_all()
                    .build()?;
                runtime.block_on(write_on(&cluster, &own_stop, &own_seen))
            })
        });
        Writer { stop, seen, thread }
    }

    /// Waits until the chain is so long and all keys were written twice more; its members.
    fn wait(&self, length: usize) -> Vec<IpAddr> {
        let from = self.seen.lock().unwrap().0;
        until(&format!("a chain of {length} that is written"), || {
            assert!(!self.thread.is_finished(), "a read or a write failed");
            let (times, members) = self.seen.lock().unwrap().clone();
            (times >= from + 2 && members.len() == length).then_some(members)
        })
    }

    fn finish(self) -> u64 {
        self.stop.store(true, SeqCst);
        let result = self.thread.join().expect("the writer does not panic");
        result.unwrap_or_else(|e| panic!("{e:#}"));
        self.seen.lock().unwrap().0
    }
}

async fn write_on(
    cluster: &wire::Cluster,
    stop: &AtomicBool,
    seen: &Mutex<(u64, Vec<IpAddr>)>,
) -> anyhow::Result<()> {
    let options = Options {
        deadline: Duration::from_secs(30),
        ..Options::of(cluster)
    };
    let client = Client::connect(cluster, 7, options).await?;
    let mut versions: BTreeMap<usize, u64> = BTreeMap::new();
    for times in 1.. {
        for n in 0..KEYS {
            let key = format!("key{n}");
            let condition = match versions.get(&n) {
                None => Condition::Absent,
                Some(version) => Condition::Version(*version),
            };
            let value = times.to_string();
            let version = client.put(&key, &value, condition).await?;
            versions.insert(n, version);
            let read = client.get(&key).await?;
            let read = read.map(|read| (read.bytes.to_vec(), read.version));
            anyhow::ensure!(
                read == Some((value.into_bytes(), version)),
                "{key}: {read:?}"
            );
        }
        let members = client.members("key0").iter().map(|m| m.ip()).collect();
        *seen.lock().unwrap() = (times, members);
        if stop.load(SeqCst) {
            break;
        }
    }
    Ok(())
}

fn every_command_of_coord_does_what_it_says(kind: Kind) {
    needs_root();
    // What the commands do is the same for all; a kernel takes its time to load programs.
    let all = if kind == Kind::Kernel { 1 } else { 2 };
    for discipline in names().take(all) {
        let chains = Chains::up(kind, discipline);
        let ok = |said: &str| (said.to_string(), 0);
        assert_eq!(chains.coord("put a 1"), ok("version 1"));
        assert_eq!(chains.coord("get a"), ok("1"));
        assert_eq!(chains.coord("put --if-absent a 2").1, 1);
        assert_eq!(chains.coord("cas a 1 2"), ok("version 2"));
        assert_eq!(chains.coord("cas a 1 3").1, 1);
        assert_eq!(chains.coord("put ab 1"), ok("version 1"));
        assert_eq!(chains.coord("put b 1"), ok("version 1"));
        let list = "list --control http://$HUB:7118";
        let hub = chains.lab.topology().expand_text("{address:hub}", "", "");
        let list = list.replace("$HUB", &hub.expect("its address"));
        let all = "a  2\nab  1\nb  1\nbegun  1";
        assert_eq!(chains.coord(&list), ok(all));
        assert_eq!(chains.coord(&format!("{list} a")), ok("a  2\nab  1"));
        assert_eq!(
            chains.coord(&format!("{list} --json ab")),
            ok(r#"{"key":"ab","version":1}"#)
        );
        assert_eq!(chains.coord("delete --if-version 7 a").1, 1);
        assert_eq!(chains.coord("delete a"), ok(""));
        assert_eq!(chains.coord("get a").1, 1);
        assert_eq!(chains.coord("delete a").1, 1);
        assert_eq!(chains.coord(&format!("{list} a")), ok("ab  1"));
        assert_eq!(chains.coord("watch --count 1 ab").1, 0);
        let (said, status) = chains.coord("lock nightly -- /bin/sh -c 'echo $SHORTSTOP_FENCE'");
        assert_eq!((&*said, status), ("token 1\n1", 0));
        let (said, status) = chains.coord("elect --name me chief -- /bin/true");
        assert_eq!((&*said, status), ("token 1", 0));
    }
}

fn what_is_written_stays_whichever_member_dies(kind: Kind) {
    needs_root();
    for discipline in names() {
        let mut chains = Chains::up(kind, discipline);
        let writer = Writer::start(&chains);
        for place in 0..3 {
            let members = writer.wait(3);
            let victim = chains.named(members[place]);
            chains.dies(victim);
            let without = writer.wait(2);
            assert!(!without.contains(&members[place]), "{victim} is in it");
            chains.returns(victim);
        }
        writer.wait(3);
        let times = writer.finish();
        println!("{discipline}: all keys were written {times} times");
        assert_eq!(chains.coord("get begun"), ("yes".into(), 0));
        for n in 0..KEYS {
            assert_eq!(chains.coord(&format!("get key{n}")), (times.to_string(), 0));
        }
    }
}

fn what_was_kept_is_there_again_after_all_have_died(kind: Kind) {
    needs_root();
    let discipline = names().next().expect("there is one");
    let mut chains = Chains::up(kind, discipline);
    assert_eq!(chains.coord("put a 1"), ("version 1".into(), 0));
    let (token, status) = chains.coord("lock nightly -- /bin/true");
    assert_eq!((&*token, status), ("token 1", 0));
    until("two keys are kept, the lock is free", || {
        let said = chains.run("hub", "shortstop control status").stdout;
        let said = String::from_utf8_lossy(&said);
        let kept = said.lines().find(|line| line.contains("chain_kept_keys"))?;
        kept.ends_with(" 2").then_some(())
    });
    SWITCHES.into_iter().for_each(|switch| chains.dies(switch));
    chains.control_ends(libc::SIGKILL);
    chains.all_return();
    assert_eq!(chains.coord("get a"), ("1".into(), 0));
    // Whatever was numbered before is below.
    let (token, status) = chains.coord("lock nightly -- /bin/true");
    let token: u64 = token.strip_prefix("token ").expect("one").parse().unwrap();
    assert!(status == 0 && token > 1 << 32, "{token}");
}

fn a_controller_that_is_stopped_keeps_what_was_written_last(kind: Kind) {
    needs_root();
    for discipline in names() {
        let mut chains = Chains::keeping(kind, discipline, 3600);
        assert_eq!(chains.coord("put late 1"), ("version 1".into(), 0));
        chains.control_ends(libc::SIGTERM);
        // Without a controller there is nobody who could ask for it now.
        assert_eq!(chains.coord("put later 1"), ("version 1".into(), 0));
        SWITCHES.into_iter().for_each(|switch| chains.dies(switch));
        chains.all_return();
        assert_eq!(chains.coord("get late"), ("1".into(), 0));
        assert_ne!(chains.coord("get later").1, 0);
    }
}
