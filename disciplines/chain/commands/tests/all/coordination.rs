//! Keys that switches alone keep: three of them or four, the controller and `shortstop coord`, as
//! people start them.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    ops::Range,
    process::Output,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    thread::JoinHandle,
    time::Duration,
};

use chain_client::{Client, Options};
use client::{Condition, Error};
use lab::{
    namespace,
    process::command_in,
    rack::{Lab, unique_name},
    testing::{Kind, needs_root, until},
};
use plan::{
    roles::{ETCD_PORT, Etcd, Role},
    topology::Topology,
};

lab::on_both!(
    every_command_of_coord_does_what_it_says,
    many_commands_take_no_more_room_than_one,
    what_is_written_stays_whichever_member_dies,
    what_is_written_stays_when_a_member_dies,
    chains_of_two_tenants_lose_different_members_at_once,
    what_was_kept_is_there_again_after_all_have_died,
    what_was_kept_in_etcd_is_there_again_after_all_have_died,
    a_controller_that_is_stopped_keeps_what_was_written_last
);

const SWITCHES: [&str; 4] = ["switch1", "switch2", "switch3", "switch4"];
const KEYS: usize = 8;
const TENANT: u32 = 7;

/// The disciplines, of which the first is tried where one is enough.
fn names() -> impl Iterator<Item = &'static str> {
    [chain::NETCRAQ.name, chain::NETCHAIN.name].into_iter()
}

/// What a test needs that others do not.
#[derive(Clone, Copy)]
struct Needs {
    switches: usize,
    /// Of each tenant.
    options: &'static str,
    /// The controller's state is in an etcd, on its host; else in a directory.
    in_etcd: bool,
}

impl Default for Needs {
    fn default() -> Needs {
        Needs { switches: 3, options: "--option chains=1 --option snapshot=1", in_etcd: false }
    }
}

/// Switches, with a tenant.
struct Chains {
    lab: Lab,
    kind: Kind,
    switches: &'static [&'static str],
}

/// Three switches and their links, or as many more as are wanted, each like the third.
fn topology(needs: Needs, kind: Kind) -> Topology {
    let mut text = include_str!("coordination.toml").to_string();
    let third = text.find("[[switch]]\nname = \"switch3\"");
    let rest = &text[third.expect("a third one")..];
    let third = rest[..rest.find("[[link]]").expect("links")].to_string();
    for number in 4..=needs.switches {
        let n = number.to_string();
        let another = third.replace("switch3", &format!("switch{n}"));
        let another = another.replace("\"3\"", &format!("\"{n}\""));
        text += &another.replace("agent3", &format!("agent{n}"));
        text += &format!("[[link]]\nends = [\"switch{n}\", \"hub\"]\n");
    }
    if kind == Kind::Soft {
        text = text.replace("\"--mode\", \"generic\"", "\"--soft\"");
        for switch in SWITCHES {
            let pinned = format!("/sys/fs/bpf/shortstop/{{lab}}-{switch}");
            let socket = format!("/run/shortstop/switch-{{lab}}-{switch}.sock");
            text = text.replace(&pinned, &socket);
        }
    }
    if needs.in_etcd {
        let etcd = format!("\"etcd://{{address:hub}}:{ETCD_PORT}/chains\"");
        text = text.replace("\"{dir}/control\"", &etcd);
        // Where there may be several, each says where the others reach it.
        let listen = "\"0.0.0.0:7118\",";
        let url = format!("{listen} \"--url\", \"http://{{address:hub}}:7118\",");
        text = text.replace(listen, &url);
    }
    let mut topology = Topology::parse(&text).expect("a valid topology");
    if needs.in_etcd {
        // Its process is killed, and not its machine: what it wrote stays without a sync, for which
        // a busy disk may take longer than a leader has.
        let etcd = Role::Etcd(Etcd::alone("{address:hub}".into())).process("hub");
        let mut nodes = topology.switches.iter_mut();
        let hub = nodes.find(|node| node.name == "hub").expect("the hub");
        hub.processes.insert(0, etcd);
    }
    topology
}

impl Chains {
    fn up(kind: Kind, discipline: &str) -> Chains {
        Chains::with(kind, discipline, Needs::default())
    }

    fn with(kind: Kind, discipline: &str, needs: Needs) -> Chains {
        let topology = topology(needs, kind);
        let mut lab =
            Lab::create(&unique_name(), topology, false).unwrap_or_else(|e| panic!("{e:#}"));
        lab.start_all(false).unwrap_or_else(|e| panic!("{e:#}"));
        let switches = &SWITCHES[..needs.switches];
        let chains = Chains { lab, kind, switches };
        until("all switches are there", || {
            let said = chains.run("hub", "shortstop control status --json").stdout;
            let said = String::from_utf8_lossy(&said);
            (said.matches("\"attached\": true").count() == switches.len()).then_some(())
        });
        chains.add_tenant(TENANT, discipline, needs.options);
        until("the chain begins", || chains.begins(TENANT).then_some(()));
        chains
    }

    /// Another tenant, with four pages on each switch; how to reach it is in `config-ID.toml`.
    fn add_tenant(&self, id: u32, discipline: &str, options: &str) {
        let quota = 4 * self.switches.len();
        self.done(
            "hub",
            &format!(
                "shortstop tenant create --id {id} --name config{id} --discipline {discipline} \
                 --quota {quota} --policy even-split {options} \
                 && umask 077 && shortstop tenant credentials {id} > config-{id}.toml"
            ),
        );
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
        self.coord_of(TENANT, what)
    }

    fn coord_of(&self, tenant: u32, what: &str) -> (String, i32) {
        let (command, rest) = what.split_once(' ').unwrap_or((what, ""));
        let reach = format!("--cluster config-{tenant}.toml --tenant {tenant}");
        let output = self.run("client", &format!("shortstop coord {command} {reach} {rest}"));
        let said = String::from_utf8_lossy(&output.stdout).trim().to_string();
        let status = output.status.code().expect("it ends by itself");
        if status != 0 {
            println!("{what}: {}", String::from_utf8_lossy(&output.stderr));
        }
        (said, status)
    }

    /// Whether a tenant's chains have taken the first key, which is written once: a write that was
    /// in doubt may have been the one.
    fn begins(&self, tenant: u32) -> bool {
        self.coord_of(tenant, "put --if-absent begun yes").1 == 0
            || self.coord_of(tenant, "get begun").0 == "yes"
    }

    /// Its power fails: with it goes what it has.
    fn dies(&mut self, switch: &str) {
        self.die(&[switch]);
    }

    /// All of these at once.
    fn die(&mut self, switches: &[&str]) {
        for switch in switches {
            let killed = self.lab.stop(switch, "agent", libc::SIGKILL);
            killed.unwrap_or_else(|e| panic!("{e:#}"));
            if self.kind == Kind::Kernel {
                self.lab.forget_switch(switch);
            }
        }
    }

    /// All keys of a tenant are as they were written so many times.
    fn have(&self, tenant: u32, times: u64) {
        for n in 0..KEYS {
            let value = self.coord_of(tenant, &format!("get key{n}"));
            assert_eq!(value, (times.to_string(), 0));
        }
    }

    fn ends(&mut self, what: &str, signal: i32) {
        let stopped = self.lab.stop("hub", what, signal);
        stopped.unwrap_or_else(|e| panic!("{e:#}"));
    }

    /// What runs on the hub, the controller last, and all switches begin again.
    fn all_return(&mut self, on_hub: &[&str]) {
        for what in on_hub {
            let spec = self.lab.spec("hub", what).expect("a process");
            self.lab.start("hub", &spec, false).expect("it starts");
        }
        self.switches.iter().for_each(|switch| self.returns(switch));
        until("the chain is restored", || (self.coord("get begun").0 == "yes").then_some(()));
    }

    fn returns(&mut self, switch: &str) {
        let spec = self.lab.spec(switch, "agent").expect("a process");
        let started = self.lab.start(switch, &spec, false);
        started.unwrap_or_else(|e| panic!("{e:#}"));
    }

    /// Of all switches, in their order.
    fn addresses(&self) -> impl Iterator<Item = IpAddr> {
        let address = |switch: &&str| {
            let text = format!("{{address:{switch}}}");
            let its = self.lab.topology().expand_text(&text, "", "");
            its.expect("a switch has one").parse().expect("an address")
        };
        self.switches.iter().map(address)
    }

    /// The switch of that address.
    fn named(&self, address: IpAddr) -> &'static str {
        let at = self.addresses().position(|its| its == address);
        self.switches[at.expect("one of them")]
    }
}

/// A client that writes all the time, each key a number above the one before, and looks whether it
/// is there.
struct Writer {
    stop: Arc<AtomicBool>,
    /// How often all keys were written, and after the last time the members of each one's chain.
    seen: Arc<Mutex<(u64, Vec<Vec<IpAddr>>)>>,
    thread: JoinHandle<anyhow::Result<()>>,
}

impl Writer {
    fn start(chains: &Chains, tenant: u32) -> Writer {
        let (stop, seen) = (Arc::<AtomicBool>::default(), Arc::default());
        let space = chains.lab.namespace("client");
        let config = chains.lab.dir().join(format!("config-{tenant}.toml"));
        let text = std::fs::read_to_string(config).unwrap();
        let (own_stop, own_seen) = (stop.clone(), Arc::clone(&seen));
        let thread = std::thread::spawn(move || {
            let cluster = wire::Cluster::parse(&text).expect("a valid cluster file");
            namespace::within(&space, || {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
                runtime.block_on(write_on((&cluster, tenant), &own_stop, &own_seen))
            })
        });
        Writer { stop, seen, thread }
    }

    /// Waits until the chains are so long, without these, and all keys were written twice more; the
    /// members of each key's chain.
    fn wait(&self, length: usize, without: &[IpAddr]) -> Vec<Vec<IpAddr>> {
        let from = self.seen.lock().unwrap().0;
        until(&format!("chains of {length} that are written"), || {
            assert!(!self.thread.is_finished(), "a read or a write failed");
            let (times, all) = self.seen.lock().unwrap().clone();
            let is_so = |chain: &Vec<IpAddr>| {
                chain.len() == length && without.iter().all(|gone| !chain.contains(gone))
            };
            (times >= from + 2 && all.iter().all(is_so)).then_some(all)
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
    (cluster, tenant): (&wire::Cluster, u32),
    stop: &AtomicBool,
    seen: &Mutex<(u64, Vec<Vec<IpAddr>>)>,
) -> anyhow::Result<()> {
    let options = Options { deadline: Duration::from_secs(30), ..Options::of(cluster) };
    let client = Client::connect(cluster, tenant, options).await?;
    let mut versions: BTreeMap<usize, u64> = BTreeMap::new();
    for times in 1.. {
        for n in 0..KEYS {
            let key = format!("key{n}");
            let condition = match versions.get(&n) {
                None => Condition::Absent,
                Some(version) => Condition::Version(*version),
            };
            let value = times.to_string();
            let version = write(&client, &key, &value, condition).await?;
            versions.insert(n, version);
            let found = read(&client, &key).await?;
            anyhow::ensure!(found == Some((value.into_bytes(), version)), "{key}: {found:?}");
        }
        let members = |n: usize| {
            let members = client.members(format!("key{n}"));
            members.iter().map(|m| m.ip()).collect()
        };
        *seen.lock().unwrap() = (times, (0..KEYS).map(members).collect());
        if stop.load(SeqCst) {
            break;
        }
    }
    Ok(())
}

/// Writes a key that nobody else writes, however long a machine takes that is busy with others;
/// its new version.
async fn write(
    client: &Client,
    key: &str,
    value: &str,
    condition: Condition,
) -> anyhow::Result<u64> {
    let mut was_sent = false;
    loop {
        match client.put(key, value, condition).await {
            Err(Error::OutcomeUnknown { .. }) => was_sent = true,
            // It was this writer's own, the time before.
            Err(Error::Mismatch { .. }) if was_sent => {
                let found = read(client, key).await?;
                let Some((bytes, version)) = found else { anyhow::bail!("{key} is gone") };
                anyhow::ensure!(bytes == value.as_bytes(), "{key}: {bytes:?}");
                return Ok(version);
            }
            written => return Ok(written?),
        }
    }
}

/// What a key has, and its version, however long that takes.
async fn read(client: &Client, key: &str) -> anyhow::Result<Option<(Vec<u8>, u64)>> {
    loop {
        match client.get(key).await {
            Err(Error::Timeout { .. }) => {}
            found => return Ok(found?.map(|read| (read.bytes.to_vec(), read.version))),
        }
    }
}

fn every_command_of_coord_does_what_it_says(kind: Kind) {
    needs_root();
    // What the commands do is the same for all; a kernel takes its time to load programs.
    let all = if kind == Kind::Kernel { 1 } else { 2 };
    for discipline in names().take(all) {
        let mut chains = Chains::up(kind, discipline);
        let ok = |said: &str| (said.to_string(), 0);
        assert_eq!(chains.coord("put a 1"), ok("version 1"));
        assert_eq!(chains.coord("get a"), ok("1"));
        // Its tenant's clients may not: so it is answered as any other.
        assert_eq!(chains.coord("get --relaxed a"), ok("1"));
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
        assert_eq!(chains.coord(&format!("{list} --json ab")), ok(r#"{"key":"ab","version":1}"#));
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
        // Nobody makes a key's items now: that is not known to be held by others.
        chains.ends("control", libc::SIGKILL);
        let (said, status) = chains.coord("lock --wait 1s --timeout 1s fresh -- /bin/echo done");
        assert_eq!((&*said, status), ("", 2));
    }
}

/// Each is a client, which the switches remember: some 140 would fill the tenant's pages.
fn many_commands_take_no_more_room_than_one(kind: Kind) {
    needs_root();
    let discipline = names().next().expect("there is one");
    let chains = Chains::up(kind, discipline);
    let put = format!("shortstop coord put --cluster config-{TENANT}.toml --tenant {TENANT}");
    let many = format!("for n in $(seq 300); do {put} --state-dir ids counted $n; done");
    let said = chains.done("client", &many);
    assert_eq!(said.lines().last(), Some("version 300"));
}

fn what_is_written_stays_whichever_member_dies(kind: Kind) {
    for discipline in names() {
        what_is_written_stays(kind, discipline, 0..3);
    }
}

/// One discipline and one member, for kernels in which that takes minutes.
fn what_is_written_stays_when_a_member_dies(kind: Kind) {
    let discipline = names().next().expect("there is one");
    what_is_written_stays(kind, discipline, 1..2);
}

/// As one member after the other dies, by its place in the chain.
fn what_is_written_stays(kind: Kind, discipline: &str, places: Range<usize>) {
    needs_root();
    let mut chains = Chains::up(kind, discipline);
    let writer = Writer::start(&chains, TENANT);
    for place in places {
        let gone = writer.wait(3, &[])[0][place];
        let victim = chains.named(gone);
        chains.dies(victim);
        writer.wait(2, &[gone]);
        chains.returns(victim);
    }
    writer.wait(3, &[]);
    let times = writer.finish();
    println!("{discipline}: all keys were written {times} times");
    assert_eq!(chains.coord("get begun"), ("yes".into(), 0));
    chains.have(TENANT, times);
}

/// Two switches die at once that no chain has both of, while both tenants write: nobody's write
/// fails, and nothing is lost.
fn chains_of_two_tenants_lose_different_members_at_once(kind: Kind) {
    needs_root();
    const OPTIONS: &str = "--option chains=2 --option length=2";
    let mut disciplines = names();
    let (first, last) = (disciplines.next(), disciplines.last());
    let first = first.expect("there is one");
    let needs = Needs { switches: 4, options: OPTIONS, ..Needs::default() };
    let mut chains = Chains::with(kind, first, needs);
    let other = TENANT + 1;
    chains.add_tenant(other, last.unwrap_or(first), OPTIONS);
    until("the other tenant's chains begin", || chains.begins(other).then_some(()));
    let writers = [TENANT, other].map(|tenant| (tenant, Writer::start(&chains, tenant)));
    let all: Vec<Vec<IpAddr>> = writers.iter().flat_map(|(_, w)| w.wait(2, &[])).collect();
    // Members first: chance may have left a switch without a chain, and of the others each two have
    // one.
    let members: BTreeSet<IpAddr> = all.iter().flatten().copied().collect();
    let idle = chains.addresses().filter(|a| !members.contains(a));
    let switches: Vec<IpAddr> = members.iter().copied().chain(idle).collect();
    let pairs = (0..switches.len()).flat_map(|b| (0..b).map(move |a| [a, b]));
    let pairs = pairs.map(|pair| pair.map(|n| switches[n]));
    let in_one = |pair: &[IpAddr; 2]| {
        let has_both = |chain: &Vec<IpAddr>| pair.iter().all(|m| chain.contains(m));
        all.iter().any(has_both)
    };
    let mut apart = pairs.filter(|pair| !in_one(pair));
    let gone = apart.next().expect("six pairs and four chains");
    let victims = gone.map(|address| chains.named(address));
    chains.die(&victims);
    for (_, writer) in &writers {
        writer.wait(2, &gone);
    }
    for victim in victims {
        chains.returns(victim);
    }
    for (tenant, writer) in writers {
        writer.wait(2, &[]);
        let times = writer.finish();
        println!("tenant {tenant}: all keys were written {times} times");
        assert_eq!(chains.coord_of(tenant, "get begun"), ("yes".into(), 0));
        chains.have(tenant, times);
    }
}

fn what_was_kept_is_there_again_after_all_have_died(kind: Kind) {
    kept_after_all_have_died(kind, false);
}

/// The etcd loses its power too, and has its disk.
fn what_was_kept_in_etcd_is_there_again_after_all_have_died(kind: Kind) {
    kept_after_all_have_died(kind, true);
}

fn kept_after_all_have_died(kind: Kind, in_etcd: bool) {
    needs_root();
    let discipline = names().next().expect("there is one");
    let needs = Needs { in_etcd, ..Needs::default() };
    let mut chains = Chains::with(kind, discipline, needs);
    assert_eq!(chains.coord("put a 1"), ("version 1".into(), 0));
    let (token, status) = chains.coord("lock nightly -- /bin/true");
    assert_eq!((&*token, status), ("token 1", 0));
    until("two keys are kept, the lock is free", || {
        let said = chains.run("hub", "shortstop control status").stdout;
        let said = String::from_utf8_lossy(&said);
        let kept = said.lines().find(|line| line.contains("chain_kept_keys"))?;
        kept.ends_with(" 2").then_some(())
    });
    chains.die(chains.switches);
    let on_hub: &[&str] = if in_etcd { &["etcd", "control"] } else { &["control"] };
    for what in on_hub.iter().rev() {
        chains.ends(what, libc::SIGKILL);
    }
    chains.all_return(on_hub);
    assert_eq!(chains.coord("get a"), ("1".into(), 0));
    // Whatever was numbered before is below.
    let (token, status) = chains.coord("lock nightly -- /bin/true");
    let token: u64 = token.strip_prefix("token ").expect("one").parse().unwrap();
    assert!(status == 0 && token > 1 << 32, "{token}");
}

fn a_controller_that_is_stopped_keeps_what_was_written_last(kind: Kind) {
    needs_root();
    let needs = Needs { options: "--option chains=1 --option snapshot=3600", ..Needs::default() };
    for discipline in names() {
        let mut chains = Chains::with(kind, discipline, needs);
        assert_eq!(chains.coord("put late 1"), ("version 1".into(), 0));
        chains.ends("control", libc::SIGTERM);
        chains.die(chains.switches);
        chains.all_return(&["control"]);
        assert_eq!(chains.coord("get late"), ("1".into(), 0));
    }
}
