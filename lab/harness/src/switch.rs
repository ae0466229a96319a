//! A switch without interfaces: programs loaded, maps pinned under a name of its own, gone
//! when dropped.

use std::{
    cell::Cell,
    collections::BTreeMap,
    io,
    net::IpAddr,
    os::fd::{AsFd, AsRawFd, OwnedFd},
    process,
    sync::{
        Arc, Mutex,
        atomic::{
            AtomicBool, AtomicU32, AtomicU64,
            Ordering::{Relaxed, SeqCst},
        },
    },
};

use dataplane::{
    Backing, Counters, Dataplane, Events, Home, Leases, Object, RECIRCULATION, Sizes, Sketches,
    Table, TenantEntry, Traffic,
    native::{self, Clock, Cpu, Fib, Frame, Program, Route},
};
use libbpf_rs::{MapCore, MapHandle, ProgramMut, libbpf_sys};

use crate::{
    message::{address, secret_of},
    namespace::{ifindex, in_namespace, ip, sysctl},
    reuse::{self, LoadedPrograms},
};

/// What becomes of the packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    Drop,
    Pass,
    Tx,
    Redirect,
}

impl Verdict {
    fn of(number: u32) -> Verdict {
        match number {
            1 => Verdict::Drop,
            2 => Verdict::Pass,
            3 => Verdict::Tx,
            4 => Verdict::Redirect,
            other => panic!("verdict {other}: expected DROP, PASS, TX or REDIRECT"),
        }
    }
}

/// Counters by their names, with their values.
type Counts = Vec<(&'static str, u64)>;

/// What one packet led to.
#[derive(Debug)]
pub struct Run {
    pub verdict: Verdict,
    pub frame: Vec<u8>,
    pub moved: BTreeMap<&'static str, u64>,
}

/// A program, to be run from any thread; and how many runs of it, and of others of its switch in
/// the kernel, have begun and ended.
pub struct Runner(RunnerKind, Arc<AtomicU64>);

enum RunnerKind {
    Kernel(OwnedFd),
    Native(Mutex<Cpu>, Program),
}

/// CPUs of a switch in this process.
const CPUS: u32 = 2;

impl Runner {
    fn native(switch: &Arc<native::Switch>, cpu: u32, program: Program) -> Runner {
        Runner(RunnerKind::Native(Mutex::new(Cpu::of(switch, cpu)), program), Arc::default())
    }

    /// Makes the coarse clock late; of a switch in this process.
    ///
    /// # Panics
    /// In the kernel, whose clock is nobody's to set.
    pub fn late(&self, ns: u64) {
        match &self.0 {
            RunnerKind::Kernel(_) => panic!("the kernel's clock"),
            RunnerKind::Native(cpu, _) => cpu.lock().expect("no run panicked").late(ns),
        }
    }

    /// Runs one packet on this thread's CPU, as if it came in by the interface `ingress` of this
    /// thread's network namespace (the loopback if `None`). `out` receives the packet.
    pub fn run(&self, frame: &[u8], ingress: Option<u32>, out: &mut Vec<u8>) -> Verdict {
        let program = match &self.0 {
            RunnerKind::Kernel(program) => program,
            RunnerKind::Native(cpu, program) => {
                let ingress = ingress.unwrap_or(1);
                return run_native(cpu, frame, out, |cpu, frame, now_ns| {
                    cpu.run(*program, frame, ingress, now_ns)
                });
            }
        };
        out.resize(4096, 0);
        // struct xdp_md: data, data_end, data_meta, ingress_ifindex, rx_queue_index,
        // egress_ifindex.
        let context = [0, frame.len() as u32, 0, ingress.unwrap_or(0), 0, 0];
        let mut opts = libbpf_sys::bpf_test_run_opts {
            sz: size_of::<libbpf_sys::bpf_test_run_opts>() as u64,
            data_in: frame.as_ptr().cast(),
            data_size_in: frame.len() as u32,
            data_out: out.as_mut_ptr().cast(),
            data_size_out: out.len() as u32,
            repeat: 1,
            ..Default::default()
        };
        if ingress.is_some() {
            opts.ctx_in = context.as_ptr().cast();
            opts.ctx_size_in = size_of_val(&context) as u32;
        }
        self.1.fetch_add(1, SeqCst);
        // SAFETY: a valid descriptor; buffers live through the call and have the lengths stated.
        let failed =
            unsafe { libbpf_sys::bpf_prog_test_run_opts(program.as_raw_fd(), &mut opts) } != 0;
        self.1.fetch_add(1, SeqCst);
        assert!(!failed, "test run of {} bytes: {}", frame.len(), io::Error::last_os_error());
        out.truncate(opts.data_size_out as usize);
        Verdict::of(opts.retval)
    }

    /// As [`Runner::run`] without an interface, of a switch in this process: calls `moment`
    /// wherever another CPU may come in ([`Cpu::run_with`]).
    ///
    /// # Panics
    /// In the kernel, which stops nowhere.
    #[cfg(debug_assertions)]
    pub fn run_with(&self, frame: &[u8], moment: &mut dyn FnMut()) -> Verdict {
        let RunnerKind::Native(cpu, program) = &self.0 else {
            panic!("the kernel stops nowhere");
        };
        run_native(cpu, frame, &mut vec![], |cpu, frame, now_ns| {
            cpu.run_with(*program, frame, 1, now_ns, moment)
        })
    }
}

fn run_native(
    cpu: &Mutex<Cpu>,
    frame: &[u8],
    out: &mut Vec<u8>,
    run: impl FnOnce(&mut Cpu, &mut Frame, u64) -> native::Verdict,
) -> Verdict {
    let mut frame = Frame::new(frame);
    let now_ns = MOMENT_NS.get().unwrap_or_else(|| Clock::Boot.now_ns());
    let mut cpu = cpu.lock().expect("no run panicked");
    let verdict = run(&mut cpu, &mut frame, now_ns);
    out.clear();
    out.extend_from_slice(frame.bytes());
    match verdict {
        native::Verdict::Pass => Verdict::Pass,
        native::Verdict::Drop => Verdict::Drop,
        native::Verdict::Back => Verdict::Tx,
        native::Verdict::To(_) | native::Verdict::Fan => Verdict::Redirect,
    }
}

thread_local! {
    static NATIVE: Cell<bool> = const { Cell::new(false) };
    static MOMENT_NS: Cell<Option<u64>> = const { Cell::new(None) };
}

/// All that `work` runs on this thread in switches in this process comes at this time of the boot
/// clock.
pub fn at_moment<R>(now_ns: u64, work: impl FnOnce() -> R) -> R {
    MOMENT_NS.set(Some(now_ns));
    let result = work();
    MOMENT_NS.set(None);
    result
}

/// What `work` makes of switches on this thread are ones in this process, instead of the kernel's.
pub fn in_this_process<R>(work: impl FnOnce() -> R) -> R {
    NATIVE.set(true);
    let result = work();
    NATIVE.set(false);
    result
}

thread_local! {
    static ON_ROADS: Cell<bool> = const { Cell::new(false) };
}

/// Runs `work` in a namespace where switches know the way to the hosts .2 to .9 of the tests'
/// network, all but the last of which are neighbours behind [`ROAD`]; those in this process know
/// the same.
pub fn on_roads(work: impl FnOnce() + Send + 'static) {
    in_namespace(|| {
        sysctl("ipv4/ip_forward", "1");
        sysctl("ipv6/conf/all/forwarding", "1");
        let mut commands = format!(
            "link add {ROAD} type veth peer name far0
             link set {ROAD} address 02:00:00:00:00:11
             link set far0 up
             link set {ROAD} up\n"
        );
        for host in 2..=ROAD_END {
            for address in [address(false, host), address(true, host)] {
                commands += &format!("route add {address} dev {ROAD}\n");
                if host < ROAD_END {
                    commands += &format!(
                        "neigh add {address} lladdr 02:00:00:00:01:{host:02x} dev {ROAD} nud permanent\n"
                    );
                }
            }
        }
        ip(&commands);
        ON_ROADS.set(true);
        work();
    });
}

/// The port that all roads begin at.
pub const ROAD: &str = "road0";
/// Its Ethernet address.
pub const ROAD_MAC: [u8; 6] = [2, 0, 0, 0, 0, 0x11];
/// The host whose Ethernet address nobody knows.
pub const ROAD_END: u8 = 9;

/// The Ethernet address of a host on the road.
pub fn mac_on_road(host: u8) -> [u8; 6] {
    [2, 0, 0, 0, 1, host]
}

/// The same routes for switches in this process.
struct Roads;

impl Fib for Roads {
    fn route(&self, _: IpAddr, to: IpAddr, _: u16, _: u32) -> Route {
        let all = (2..=ROAD_END).flat_map(|host| [false, true].map(|ipv6| (host, ipv6)));
        let mut all = all.filter(|(host, ipv6)| address(*ipv6, *host) == to);
        let port = ifindex(ROAD);
        match all.next() {
            None => Route::None,
            Some((ROAD_END, _)) => Route::NoNeighbour { port },
            Some((host, _)) => Route::By { port, from: ROAD_MAC, to: mac_on_road(host) },
        }
    }
}

/// Keeps this thread on one CPU: what programs count per CPU then adds up.
pub fn pin_to_cpu(cpu: usize) {
    let mut set = nix::sched::CpuSet::new();
    set.set(cpu % libbpf_rs::num_possible_cpus().expect("CPUs")).expect("a possible CPU");
    nix::sched::sched_setaffinity(nix::unistd::Pid::from_raw(0), &set).expect("an online CPU");
}

/// A switch with the number [`Switch::ID`]. When it is dropped its programs are left to the next
/// one, unless it keeps them for itself, or the test fails: then they are gone.
pub struct Switch {
    at: SwitchPlace,
    /// Whether packets may come to it that it was not given by [`Switch::run`].
    is_attached: AtomicBool,
    /// Whether nobody else may have its programs.
    is_spent: AtomicBool,
    /// What was counted after so many runs: to read it costs more than to run a packet.
    seen: Mutex<Option<(u64, Counts)>>,
    pub table: Table,
    pub leases: Leases,
    pub counters: Counters,
    pub events: Events,
    pub sketches: Sketches,
    pub traffic: Traffic,
    pub runner: Runner,
    /// The program behind the recirculation port.
    pub comes_back: Runner,
}

/// Where its programs are.
enum SwitchPlace {
    /// In the kernel; `None` once they are left to another switch.
    Kernel(Option<LoadedPrograms>),
    Process(Arc<native::Switch>),
}

static NUMBER: AtomicU32 = AtomicU32::new(0);

impl Switch {
    pub const ID: u16 = 258;

    pub fn load(objects: &[Object], tenants: &[TenantEntry]) -> Switch {
        if NATIVE.get() {
            return Switch::load_native(objects, tenants);
        }
        pin_to_cpu(0);
        let loaded = LoadedPrograms::of(objects, Sizes { pages: 4 }, || {
            let number = NUMBER.fetch_add(1, Relaxed);
            Home::new(&format!("test-{}-{number}", process::id())).expect("a fine name")
        });
        let runs = Arc::default();
        let runner = |program: ProgramMut<'_>| {
            let program = program.as_fd().try_clone_to_owned();
            Runner(RunnerKind::Kernel(program.expect("a descriptor")), Arc::clone(&runs))
        };
        let dataplane = &loaded.dataplane;
        let runners = [dataplane.program(), dataplane.comes_back()].map(runner);
        Switch::of(SwitchPlace::Kernel(Some(loaded)), runners, objects, tenants)
    }

    fn load_native(objects: &[Object], tenants: &[TenantEntry]) -> Switch {
        let sizes = Sizes { pages: 4 };
        let switch = native::Switch::new("test", objects, sizes, CPUS, Clock::Boot);
        let mut switch = switch.expect("native code");
        if ON_ROADS.get() {
            switch = switch.routed(Box::new(Roads));
        }
        let programs = [Program::Entry, Program::ComesBack];
        let runners = programs.map(|program| Runner::native(&switch, 0, program));
        Switch::of(SwitchPlace::Process(switch), runners, objects, tenants)
    }

    fn of(
        programs: SwitchPlace,
        runners: [Runner; 2],
        objects: &[Object],
        tenants: &[TenantEntry],
    ) -> Switch {
        let [runner, comes_back] = runners;
        let at = &programs.backing();
        TenantEntry::install(at, tenants).expect("tenants");
        let table = Table::open(at).expect("tables");
        table.set_identity(Switch::ID, 1_000);
        let own = objects.iter().map(|object| object.counters);
        Switch {
            table,
            leases: Leases::open(at).expect("leases"),
            counters: Counters::open(at, own).expect("counters"),
            events: Events::open(at).expect("events"),
            traffic: Traffic::open(at).expect("traffic"),
            sketches: Sketches::open(at).expect("sketches"),
            runner,
            comes_back,
            at: programs,
            is_attached: AtomicBool::new(false),
            is_spent: AtomicBool::new(false),
            seen: Mutex::new(None),
        }
    }

    /// Where its tables are.
    pub fn backing(&self) -> Backing {
        self.at.backing()
    }

    /// What is loaded into the kernel, to be attached. Who replaces its programs or maps
    /// [keeps them for itself](Switch::keep_for_itself).
    ///
    /// # Panics
    /// If it is a switch in this process.
    pub fn dataplane(&self) -> &Dataplane {
        self.is_attached.store(true, Relaxed);
        self.at.loaded()
    }

    /// No other switch will have its programs, since more than its tables may change.
    pub fn keep_for_itself(&self) {
        self.is_spent.store(true, Relaxed);
    }

    /// What the tables of a switch in this process hold.
    ///
    /// # Panics
    /// If it is a switch of the kernel.
    pub fn lines(&self) -> native::Lines {
        match &self.at {
            SwitchPlace::Process(switch) => switch.lines(),
            SwitchPlace::Kernel(_) => panic!("a switch of the kernel"),
        }
    }

    /// For another thread; of a switch in this process, on its second CPU.
    pub fn another_runner(&self) -> Runner {
        match (&self.runner.0, &self.at) {
            (RunnerKind::Kernel(program), _) => {
                let program = program.try_clone().expect("a descriptor");
                Runner(RunnerKind::Kernel(program), self.runner.1.clone())
            }
            (_, SwitchPlace::Process(switch)) => Runner::native(switch, 1, Program::Entry),
            _ => unreachable!("both are in the same place"),
        }
    }

    /// All counters now.
    pub fn counts(&self) -> Counts {
        let all = self.counters.read().expect("counters");
        all.into_iter().map(|(counter, value)| (counter.name, value)).collect()
    }

    /// Lets programs send packets round and clone to the port that test runs come in by. Nothing
    /// leaves: what was sent round is what [`Switch::run_round`] takes.
    pub fn send_round(&self) {
        // The loopback is the only interface that there is everywhere.
        self.send_round_beside(1, "lo");
    }

    /// Likewise, and clone to the port that roads begin at.
    pub fn send_round_on_roads(&self) {
        self.send_round_beside(ifindex(ROAD), ROAD);
    }

    fn send_round_beside(&self, port: u32, name: &str) {
        const ROUND: u32 = 60;
        match &self.at {
            SwitchPlace::Kernel(_) => self.at.loaded().send_round(&[1], &[port]),
            SwitchPlace::Process(switch) => {
                switch.add_port(port, name).and_then(|()| switch.add_port(ROUND, RECIRCULATION))
            }
        }
        .expect("it recirculates");
    }

    /// Lets programs forward to the port that roads begin at, and send nothing round.
    pub fn open_road(&self) {
        let port = ifindex(ROAD);
        match &self.at {
            SwitchPlace::Kernel(_) => {
                let opened = self.at.loaded().send_round(&[], &[port]);
                opened.expect("a port");
            }
            SwitchPlace::Process(switch) => switch.add_port(port, ROAD).expect("a port"),
        }
    }

    /// Runs one packet, with the counters that it moved.
    pub fn run(&self, frame: &[u8], ingress: Option<u32>) -> Run {
        self.run_by(&self.runner, frame, ingress)
    }

    /// Likewise for a packet that went round.
    pub fn run_round(&self, frame: &[u8]) -> Run {
        self.run_by(&self.comes_back, frame, None)
    }

    fn run_by(&self, runner: &Runner, frame: &[u8], ingress: Option<u32>) -> Run {
        let runs = || runner.1.load(SeqCst);
        let seen = self.seen.lock().expect("no run panicked").take();
        let is_known = matches!(runner.0, RunnerKind::Kernel(_)) && !self.is_attached.load(SeqCst);
        let still = seen.filter(|(after, _)| is_known && *after == runs());
        let before = still.map_or_else(|| self.counts(), |(_, counts)| counts);
        let mut out = vec![];
        let verdict = runner.run(frame, ingress, &mut out);
        let after = runs();
        let now = self.counts();
        let pairs = before.iter().zip(&now);
        let moved = pairs.filter(|((_, old), (_, new))| old != new);
        let moved = moved.map(|((name, old), (_, new))| (*name, new - old)).collect();
        *self.seen.lock().expect("no run panicked") = Some((after, now));
        Run { verdict, frame: out, moved }
    }

    fn map(&self, name: &str) -> MapHandle {
        let path = reuse::pins(self.at.loaded().home()).join(name);
        MapHandle::from_pinned_path(path).expect("every map is pinned")
    }

    /// An array's bytes, all elements.
    pub fn snapshot(&self, name: &str) -> Vec<u8> {
        self.elements(name).concat()
    }

    /// Each of an array's elements.
    pub fn elements(&self, name: &str) -> Vec<Vec<u8>> {
        match &self.at {
            SwitchPlace::Kernel(_) => {
                let map = self.map(name);
                let all = reuse::all_elements(&map);
                all.chunks_exact(map.value_size() as usize).map(<[u8]>::to_vec).collect()
            }
            SwitchPlace::Process(switch) => {
                let at = Backing::from(switch);
                let indices = 0..at.elements(name).expect("an array");
                indices.map(|index| at.element(name, index).expect("an element")).collect()
            }
        }
    }

    /// An array's first element in this thread's memory, as other CPUs see and change it, for as
    /// long as the process lives.
    pub fn shared(&self, name: &str) -> &'static [AtomicU64] {
        use nix::sys::mman::{MapFlags, ProtFlags, mmap};
        self.keep_for_itself();
        self.is_attached.store(true, Relaxed);
        let map = self.map(name);
        let words = map.value_size() as usize / 8;
        let bytes = std::num::NonZeroUsize::new((words * 8).next_multiple_of(4096)).expect("not 0");
        let access = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        // SAFETY: a new mapping that is never unmapped, of at least that many aligned words.
        unsafe {
            let start = mmap(None, bytes, access, MapFlags::MAP_SHARED, map.as_fd(), 0);
            std::slice::from_raw_parts(start.expect("mappable").as_ptr().cast(), words)
        }
    }

    /// Has whoever takes its packets finish checksums that are unfinished, as in generic mode.
    pub fn leave_checksums(&self) {
        const SUMS_LATER: usize = 56; // in `struct config` of `bpf/maps.h`
        self.poke("config", 0, SUMS_LATER, &1u64.to_ne_bytes());
    }

    /// Overwrites bytes of one element of an array, as time or another CPU would.
    pub fn poke(&self, name: &str, index: u32, at: usize, bytes: &[u8]) {
        let tables = self.backing();
        let mut value = tables.element(name, index).expect("an element");
        value[at..at + bytes.len()].copy_from_slice(bytes);
        tables.set_element(name, index, &value).expect("writable");
    }
}

impl SwitchPlace {
    fn backing(&self) -> Backing {
        match self {
            SwitchPlace::Kernel(_) => self.loaded().home().into(),
            SwitchPlace::Process(switch) => switch.into(),
        }
    }

    fn loaded(&self) -> &Dataplane {
        match self {
            SwitchPlace::Kernel(loaded) => {
                &loaded.as_ref().expect("it is not dropped yet").dataplane
            }
            SwitchPlace::Process(_) => panic!("a switch in this process"),
        }
    }
}

impl Drop for Switch {
    fn drop(&mut self) {
        let SwitchPlace::Kernel(loaded) = &mut self.at else { return };
        let loaded = loaded.take().expect("it is dropped once");
        if !self.is_spent.load(Relaxed) && !std::thread::panicking() {
            loaded.leave();
        }
    }
}

/// A tenant with the secret that the tests give it, without a limit.
pub fn tenant(id: u32, discipline: u32) -> TenantEntry {
    let entry = TenantEntry::new(id, secret_of(id), discipline);
    TenantEntry { parameters: [u32::MAX >> 8, 0], ..entry }
}

/// Every packet is counted under exactly one counter at which its way ends; this is the verdict
/// that goes with it. `None`: a counter of what happened on the way.
pub fn ending(counter: &str) -> Option<Verdict> {
    match counter {
        "forward" => Some(Verdict::Redirect),
        "recirculate" | "fan_out" => Some(Verdict::Redirect),
        "hit" | "answer" | "invalidate" | "lease_offer" => Some(Verdict::Tx),
        "lent_read" | "lent_padding" | "lent_other_life" => Some(Verdict::Tx),
        "keep" | "keep_again" | "lend" | "lend_refused" | "take" => Some(Verdict::Tx),
        "consume" | "fetch_reply" | "lease_renewed" | "lease_stale" | "invalidate_contended" => {
            Some(Verdict::Drop)
        }
        "round_gone" => Some(Verdict::Drop),
        _ if counter.starts_with("pass_") => Some(Verdict::Pass),
        _ if counter.starts_with("drop_") => Some(Verdict::Drop),
        _ => None,
    }
}
