//! A lab that runs: namespaces, links and processes of a topology, removed when dropped.

use std::{
    fs::OpenOptions,
    io::Write,
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::PathBuf,
    process::Child,
    time::{Duration, Instant},
};

use anyhow::{Context, bail, ensure};
use plan::{
    roles,
    topology::{Fault, Interface, ProcessSpec, ReadinessProbe, Topology, check_name},
};

use crate::{
    interrupt, namespace,
    process::{Launch, ProcessId, command_in, launch},
    state::State,
};

/// How long a process may take to begin: for ever, almost, for a machine without acceleration that
/// others keep busy besides. Whoever has ended is not waited for.
const PATIENCE: Duration = Duration::from_secs(120);

/// A running lab. Dropping it removes everything, unless it was made to stay.
pub struct Lab {
    state: State,
    children: Vec<(String, Child)>,
}

/// A name that no other lab has.
pub fn unique_name() -> String {
    let id = ProcessId::own();
    static COUNT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
    let count = COUNT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    if count == 0 { format!("lab{}", id.pid) } else { format!("lab{}x{count}", id.pid) }
}

impl Lab {
    /// Builds the namespaces and links of a topology; starts nothing but its faulty links. With
    /// `detached`, the lab stays after [`Lab::leave`], until `lab down`.
    ///
    /// # Errors
    /// The name is taken, this is not root, or `ip` failed. Nothing is left behind then.
    pub fn create(name: &str, topology: Topology, detached: bool) -> anyhow::Result<Lab> {
        check_name(name)?;
        let faulty = (0..topology.links.len()).filter(|i| topology.links[*i].fault.is_some());
        let nodes = topology.nodes().map(|node| State::namespace_of(name, &node.name));
        let namespaces = nodes.chain(faulty.map(|i| fault_namespace(name, i))).collect();
        let switches = topology.switches.iter().map(|s| format!("{name}-{}", s.name)).collect();
        let state = State {
            name: name.into(),
            owner: ProcessId::own(),
            detached: false,
            namespaces,
            switches,
            processes: vec![],
            topology,
        };
        state.create()?;
        // From here on, dropping the lab removes what there is of it.
        let mut lab = Lab { state, children: vec![] };
        lab.build(detached).with_context(|| format!("building lab {name}"))?;
        Ok(lab)
    }

    fn build(&mut self, detached: bool) -> anyhow::Result<()> {
        let dir = self.dir();
        // What processes are told lies there, secrets included.
        let mut owners_only = std::fs::DirBuilder::new();
        owners_only.recursive(true).mode(0o700);
        owners_only.create(&dir).with_context(|| dir.display().to_string())?;
        let topology = self.state.topology.clone();
        for (name, text) in &topology.files {
            let text = topology.expand_text(text, self.name(), &dir.to_string_lossy())?;
            // They may hold secrets.
            let file = OpenOptions::new()
                .write(true)
                .create(true)
                .truncate(true)
                .mode(0o600)
                .open(dir.join(name));
            file?.write_all(text.as_bytes())?;
        }
        if !topology.switches.is_empty() {
            namespace::mount_bpffs()?;
        }
        for name in &self.state.namespaces {
            interrupt::check()?;
            namespace::ip(&["netns", "add", name])?;
        }
        for node in topology.nodes() {
            let mut settings = vec![
                ("net/ipv6/conf/all/accept_dad", "0"),
                ("net/ipv6/conf/default/accept_dad", "0"),
                ("net/ipv6/conf/default/accept_ra", "0"),
            ];
            if topology.is_switch(&node.name) {
                settings.extend([
                    ("net/ipv4/ip_forward", "1"),
                    ("net/ipv6/conf/all/forwarding", "1"),
                    ("net/ipv4/conf/all/rp_filter", "0"),
                    ("net/ipv4/conf/default/rp_filter", "0"),
                    ("net/ipv4/conf/all/send_redirects", "0"),
                    // A link that was cut and mended is as it was.
                    ("net/ipv6/conf/all/keep_addr_on_down", "1"),
                    ("net/ipv6/conf/default/keep_addr_on_down", "1"),
                ]);
            }
            namespace::sysctls(&self.namespace(&node.name), &settings)?;
        }
        for (i, ends) in topology.interfaces().iter().enumerate() {
            self.build_link(i, ends, topology.links[i].fault, topology.links[i].mtu, detached)?;
        }
        self.add_addresses(&topology)
    }

    fn build_link(
        &mut self,
        index: usize,
        ends: &[Interface; 2],
        fault: Option<Fault>,
        mtu: u32,
        detached: bool,
    ) -> anyhow::Result<()> {
        let [a, b] = ends;
        let spaces = [self.namespace(&a.node), self.namespace(&b.node)];
        let mtu = mtu.to_string();
        let pair = |x: (&str, &str, Option<&str>), y: (&str, &str, Option<&str>)| {
            let mut words = vec!["link", "add", "name", x.1, "netns", x.0, "mtu", &mtu];
            x.2.inspect(|mac| words.extend(["address", mac]));
            words.extend(["type", "veth", "peer", "name", y.1, "netns", y.0, "mtu", &mtu]);
            y.2.inspect(|mac| words.extend(["address", mac]));
            namespace::ip(&words)
        };
        let end_a = (spaces[0].as_str(), a.name.as_str(), Some(a.mac.as_str()));
        let end_b = (spaces[1].as_str(), b.name.as_str(), Some(b.mac.as_str()));
        let mut all = vec![(end_a.0, end_a.1), (end_b.0, end_b.1)];
        let middle = fault_namespace(self.name(), index);
        if fault.is_some() {
            namespace::sysctls(
                &middle,
                &[
                    ("net/ipv6/conf/all/disable_ipv6", "1"),
                    ("net/ipv6/conf/default/disable_ipv6", "1"),
                ],
            )?;
            pair(end_a, (&middle, "a", None))?;
            pair(end_b, (&middle, "b", None))?;
            all.extend([(middle.as_str(), "a"), (middle.as_str(), "b")]);
        } else {
            pair(end_a, end_b)?;
        }
        for (space, interface) in all {
            namespace::offloads_off(space, interface)?;
            namespace::ip(&["-n", space, "link", "set", "dev", interface, "up"])?;
        }
        let Some(fault) = fault else { return Ok(()) };
        let name = format!("fault-{}", index + 1);
        let command = roles::faulty_link(&serde_json::to_string(&fault)?);
        let log = self.dir().join(format!("{name}.log"));
        let child = launch(&Launch {
            namespace: &middle,
            command: &command,
            log: &log,
            cpu: None,
            nice: 0,
            detached,
            piped: false,
        })?;
        self.note(&name, child)?;
        interrupt::wait_for("a faulty link's process", PATIENCE, || {
            let said = std::fs::read_to_string(&log).unwrap_or_default();
            if said.contains("ready") {
                return Ok(Some(()));
            }
            ensure!(self.is_running(&name), "the faulty link ended: {}", said.trim());
            Ok(None)
        })
    }

    fn add_addresses(&self, topology: &Topology) -> anyhow::Result<()> {
        let ends = topology.interfaces();
        let routes = topology.routes();
        for node in topology.nodes() {
            let mut lines = vec!["link set lo up".to_string()];
            for pair in &ends {
                for (own, far) in [(&pair[0], &pair[1]), (&pair[1], &pair[0])] {
                    if own.node != node.name {
                        continue;
                    }
                    let dev = &own.name;
                    lines.push(format!("addr add {}/24 dev {dev}", own.v4));
                    lines.push(format!("addr add {}/64 dev {dev} nodad", own.v6));
                    for address in [far.v4.to_string(), far.v6.to_string()] {
                        let mac = &far.mac;
                        lines.push(format!(
                            "neigh replace {address} lladdr {mac} dev {dev} nud permanent"
                        ));
                    }
                }
            }
            for route in routes.iter().filter(|route| route.node == node.name) {
                let subnet = &ends[route.link][0];
                let [a, b, c, _] = subnet.v4.octets();
                // A controller that keeps routes takes precedence in a switch; the kernel's metric
                // for IPv6 lets it as it is.
                let metric = match topology.is_switch(&node.name) {
                    true => " metric 1024",
                    false => "",
                };
                lines.push(format!("route replace {a}.{b}.{c}.0/24 via {}{metric}", route.via_v4));
                let n = subnet.v6.segments()[3];
                lines.push(format!("-6 route replace fd00:0:0:{n:x}::/64 via {}", route.via_v6));
            }
            // `-6` is an option, not part of a batch line: those go by themselves.
            let (six, rest): (Vec<String>, Vec<String>) =
                lines.into_iter().partition(|line| line.starts_with("-6 "));
            let space = self.namespace(&node.name);
            namespace::ip_batch(&space, &rest)?;
            for line in six {
                let mut words = vec!["-n", &space];
                words.extend(line.split(' '));
                namespace::ip(&words)?;
            }
        }
        Ok(())
    }

    /// The lab's name.
    pub fn name(&self) -> &str {
        &self.state.name
    }

    /// Its directory.
    pub fn dir(&self) -> PathBuf {
        State::dir(&self.state.name)
    }

    /// Its topology.
    pub fn topology(&self) -> &Topology {
        &self.state.topology
    }

    /// The full name of a node's namespace.
    pub fn namespace(&self, node: &str) -> String {
        State::namespace_of(&self.state.name, node)
    }

    /// Starts the processes of the topology that start by themselves, in the order of `switches`
    /// after `hosts`, waiting for each to be ready.
    ///
    /// # Errors
    /// A process that does not start; its log is part of the message.
    pub fn start_all(&mut self, detached: bool) -> anyhow::Result<()> {
        let nodes: Vec<_> = self.topology().nodes().cloned().collect();
        for node in nodes {
            for spec in node.processes.iter().filter(|spec| spec.autostart) {
                self.start(&node.name, spec, detached)?;
            }
        }
        Ok(())
    }

    /// Starts one process on a node and waits until it is ready.
    ///
    /// # Errors
    /// It does not start or is not ready in time; its log is part of the message.
    pub fn start(&mut self, node: &str, spec: &ProcessSpec, detached: bool) -> anyhow::Result<()> {
        let name = format!("{node}-{}", spec.name);
        let dir = self.dir();
        let dir_text = dir.to_string_lossy();
        let topology = self.topology();
        let command = topology.expand(node, &spec.command, self.name(), &dir_text)?;
        let ready = spec.ready.as_deref();
        let ready = ready.map(|r| topology.expand_text(r, self.name(), &dir_text)).transpose()?;
        let log = dir.join(format!("{name}.log"));
        if let Some(path) = &ready {
            // What an earlier run of this process left would say "ready" too soon.
            let _ = std::fs::remove_file(path);
        }
        let child = launch(&Launch {
            namespace: &self.namespace(node),
            command: &command,
            log: &log,
            cpu: spec.cpu,
            nice: spec.nice,
            detached,
            piped: false,
        })?;
        self.note(&name, child)?;
        let Some(path) = ready else { return Ok(()) };
        interrupt::wait_for(&format!("{name}: {path}"), PATIENCE, || {
            ensure!(self.is_running(&name), "{name} ended:\n{}", tail(&log));
            Ok(std::path::Path::new(&path).exists().then_some(()))
        })
        .with_context(|| format!("log {}:\n{}", log.display(), tail(&log)))
    }

    /// Waits until every process that was started by itself has settled, as the topology says how
    /// to see.
    ///
    /// # Errors
    /// One that does not settle within 30 seconds; what was last heard is part of the message.
    pub fn settle(&self) -> anyhow::Result<()> {
        for node in self.topology().nodes() {
            let started = node.processes.iter().filter(|spec| spec.autostart);
            for (spec, settled) in started.filter_map(|s| Some((s, s.settled.as_ref()?))) {
                self.wait_until_settled(&node.name, spec, settled)?;
            }
        }
        Ok(())
    }

    fn wait_until_settled(
        &self,
        node: &str,
        spec: &ProcessSpec,
        settled: &ReadinessProbe,
    ) -> anyhow::Result<()> {
        let (name, dir) = (format!("{node}-{}", spec.name), self.dir());
        let words =
            self.topology().expand(node, &settled.command, self.name(), &dir.to_string_lossy())?;
        let mut heard = String::new();
        let what = format!("{name} to be ready for use");
        interrupt::wait_for(&what, PATIENCE, || {
            let output = command_in(&self.namespace(node), &words)?.output()?;
            heard = String::from_utf8_lossy(&output.stdout).into_owned();
            heard.push_str(&String::from_utf8_lossy(&output.stderr));
            Ok(heard.contains(&settled.says).then_some(()))
        })
        .with_context(|| {
            let log = dir.join(format!("{name}.log"));
            format!(
                "`{}` should say {:?}; it said:\n{}\nlog {}:\n{}",
                words.join(" "),
                settled.says,
                heard.trim(),
                log.display(),
                tail(&log)
            )
        })
    }

    /// The process of this name on a node, as the topology describes it.
    ///
    /// # Errors
    /// There is no such node or process.
    pub fn spec(&self, node: &str, process: &str) -> anyhow::Result<ProcessSpec> {
        let found = self.topology().nodes().find(|n| n.name == node);
        let found = found.and_then(|n| n.processes.iter().find(|p| p.name == process));
        found.cloned().with_context(|| format!("{node}: no process {process} in this topology"))
    }

    /// Starts a process whose standard input and output are pipes.
    ///
    /// # Errors
    /// It does not start.
    pub fn start_piped(&mut self, node: &str, spec: &ProcessSpec) -> anyhow::Result<Child> {
        let dir = self.dir();
        let text = dir.to_string_lossy();
        let command = self.topology().expand(node, &spec.command, self.name(), &text)?;
        let child = launch(&Launch {
            namespace: &self.namespace(node),
            command: &command,
            log: &dir.join(format!("{node}-{}.log", spec.name)),
            cpu: spec.cpu,
            nice: spec.nice,
            detached: false,
            piped: true,
        })?;
        self.remember(&format!("{node}-{}", spec.name), child.id())?;
        Ok(child)
    }

    fn remember(&mut self, name: &str, pid: u32) -> anyhow::Result<()> {
        if let Some(id) = ProcessId::of(pid as i32) {
            self.state.processes.retain(|(other, _)| other != name);
            self.state.processes.push((name.into(), id));
            self.state.save()?;
        }
        Ok(())
    }

    fn note(&mut self, name: &str, child: Child) -> anyhow::Result<()> {
        let pid = child.id();
        self.children.retain(|(other, _)| other != name);
        self.children.push((name.into(), child));
        self.remember(name, pid)
    }

    /// Whether the process `NODE-PROCESS` runs.
    pub fn is_running(&mut self, name: &str) -> bool {
        let child = self.children.iter_mut().find(|(other, _)| other == name);
        child.is_some_and(|(_, child)| matches!(child.try_wait(), Ok(None)))
    }

    /// The id of the process `NODE-PROCESS`, if it was started.
    pub fn process(&self, name: &str) -> Option<ProcessId> {
        self.state.processes.iter().find(|(other, _)| other == name).map(|(_, id)| *id)
    }

    /// Ends a process by a signal and waits until it is gone; SIGKILL follows after five seconds.
    ///
    /// # Errors
    /// No such process was started.
    pub fn stop(&mut self, node: &str, process: &str, signal: i32) -> anyhow::Result<()> {
        let name = format!("{node}-{process}");
        let Some(at) = self.children.iter().position(|(other, _)| *other == name) else {
            bail!("{name} was never started");
        };
        let (_, mut child) = self.children.remove(at);
        let id = ProcessId::of(child.id() as i32);
        if let Some(id) = id {
            id.signal(signal);
            let start = Instant::now();
            while id.is_alive() && start.elapsed() < Duration::from_secs(5) {
                std::thread::sleep(Duration::from_millis(2));
            }
            id.signal(libc::SIGKILL);
        }
        child.wait()?;
        self.state.processes.retain(|(other, _)| *other != name);
        self.state.save()
    }

    /// Takes a switch's program and tables away, as after a reboot.
    pub fn forget_switch(&self, switch: &str) {
        let only =
            State { switches: vec![format!("{}-{switch}", self.name())], ..self.state.clone() };
        only.detach_switches();
    }

    /// Lets the lab stay when this process ends.
    ///
    /// # Errors
    /// The state file cannot be written.
    pub fn leave(mut self) -> anyhow::Result<()> {
        self.state.detached = true;
        self.state.save()?;
        self.children.clear();
        std::mem::forget(self);
        Ok(())
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        self.state.remove();
        for (_, child) in &mut self.children {
            let _ = child.wait();
        }
    }
}

fn fault_namespace(lab: &str, link: usize) -> String {
    format!("ss-{lab}-fault{}", link + 1)
}

/// The last lines of a log, for a message.
pub fn tail(log: &std::path::Path) -> String {
    let text = std::fs::read_to_string(log).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(12)..].join("\n")
}
