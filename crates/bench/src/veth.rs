//! Rows over real links: one socket client against the switch, a bare reflector, a store and memcached, each in
//! a network namespace of its own.

use std::{
    io::{Read, Write},
    net::{IpAddr, SocketAddr, TcpStream},
    os::fd::AsRawFd,
    time::Duration,
};

use anyhow::{Context, bail, ensure};
use dataplane::Mode;
use lab::{
    namespace,
    rack::{Lab, unique_name},
    topology::{Link, Node, ProcessSpec, Topology},
};
use libbpf_rs::libbpf_sys;
use wire::{Flags, Header, Op, Packet, Secret};

use crate::{
    Options,
    cache::{self, Cache, pages_for},
    client::{Client, Outcome},
    cpu::Others,
    gateway::{self, Gateway},
    kernel, packet,
    report::{
        Report, Side,
        Target::{AtLeast, AtMost, Report as Told},
    },
    runs::Program,
    soft,
};

const VALUE_LEN: usize = 128;
/// Keys that the store and memcached hold.
const KEYS: usize = 40_000;
/// Of which the switch holds so many; another share is asked for as misses.
const CACHED: usize = 10_000;
/// How long one side of a ratio is asked in one batch.
const BATCH: Duration = Duration::from_millis(200);
const MEMCACHED_PORT: u16 = 11_211;

const CLIENT: &str = "client";
const SWITCH: &str = "switch";
const SOFT: &str = "soft";
const PLAIN: &str = "plain";
const STORE: &str = "store";
const MIRROR: &str = "mirror";
const NEAR: &str = "near";
const FAR: &str = "far";
/// CPU of the client, and of the servers.
const CLIENT_CPU: usize = 0;
const SERVER_CPU: usize = 1;

fn key(number: usize) -> Vec<u8> {
    format!("key{number:013}").into_bytes()
}

/// A value as `store --populate` makes it: the key again and again.
fn value(number: usize) -> Vec<u8> {
    key(number).into_iter().cycle().take(VALUE_LEN).collect()
}

fn words(text: &str) -> Vec<String> {
    text.split(' ').map(String::from).collect()
}

fn process(name: &str, command: &str, ready: &str) -> ProcessSpec {
    ProcessSpec {
        name: name.into(),
        command: words(command),
        cpu: Some(SERVER_CPU),
        nice: 0,
        ready: Some(ready.into()),
        settled: None,
        autostart: true,
    }
}

/// A client with five ways: through the switch to a store, through a router of the same kind without our
/// program to memcached, straight to memcached, straight to a reflector, straight to a soft switch.
fn topology() -> Topology {
    let node = |name: &str, processes| Node {
        name: name.into(),
        processes,
    };
    let memcached = |host: &str| {
        let command = format!(
            "memcached -u root -t 1 -m 256 -l {{address:{host}}} -p {MEMCACHED_PORT} -U {MEMCACHED_PORT} \
             -P {{dir}}/{host}.pid"
        );
        vec![process(
            "memcached",
            &command,
            &format!("{{dir}}/{host}.pid"),
        )]
    };
    let store = format!(
        "shortstop store --listen {{address:{STORE}}}:{} --populate {KEYS}:{VALUE_LEN} \
         --status-socket {{dir}}/store.sock",
        wire::PORT
    );
    let link = |a: &str, b: &str| Link {
        ends: [a.into(), b.into()],
        addresses: None,
        fault: None,
        mtu: 1500,
    };
    Topology {
        hosts: vec![
            node(CLIENT, vec![]),
            node(MIRROR, vec![]),
            node(STORE, vec![process("store", &store, "{dir}/store.sock")]),
            node(NEAR, memcached(NEAR)),
            node(FAR, memcached(FAR)),
        ],
        switches: vec![
            node(SWITCH, vec![]),
            node(PLAIN, vec![]),
            node(SOFT, vec![]),
        ],
        links: vec![
            link(CLIENT, SWITCH),
            link(CLIENT, MIRROR),
            link(CLIENT, NEAR),
            link(CLIENT, PLAIN),
            link(SWITCH, STORE),
            link(PLAIN, FAR),
            link(CLIENT, SOFT),
        ],
        ..Topology::default()
    }
}

/// A read request, padded to its reply.
fn our_request(number: usize) -> anyhow::Result<Vec<u8>> {
    let key = key(number);
    let header = Header {
        client: 0xbe7c_0001,
        request: number as u64,
        key_hash: Secret::NONE.key_hash(wire::TENANT_OPEN, &key),
        ..Header::new(Op::ReadRequest)
    };
    packet::payload(header, &key, b"", VALUE_LEN, &Secret::NONE)
}

fn is_hit(answer: &[u8]) -> bool {
    Packet::decode(answer).is_ok_and(|p| {
        p.header.op == Op::ReadReply
            && p.header.flags.has(Flags::CACHED)
            && p.value.len() == VALUE_LEN
    })
}

fn is_from_store(answer: &[u8]) -> bool {
    Packet::decode(answer).is_ok_and(|p| {
        p.header.op == Op::ReadReply
            && !p.header.flags.has(Flags::CACHED)
            && p.value.len() == VALUE_LEN
    })
}

fn is_reflected(answer: &[u8]) -> bool {
    Packet::decode(answer).is_ok_and(|p| p.header.op == Op::ReadRequest)
}

/// memcached's UDP frame header: request id, index and number of datagrams, nothing.
fn memcached_request(number: usize) -> Vec<u8> {
    let mut bytes = (number as u16).to_be_bytes().to_vec();
    bytes.extend([0, 0, 0, 1, 0, 0]);
    bytes.extend(b"get ");
    bytes.extend(key(number));
    bytes.extend(b"\r\n");
    bytes
}

fn is_memcached_value(answer: &[u8]) -> bool {
    answer.len() > 8 + VALUE_LEN && answer[8..].starts_with(b"VALUE ")
}

/// The same order everywhere, and not the order in memory.
fn shuffled(mut numbers: Vec<usize>) -> Vec<usize> {
    let mut random = 7u64;
    for i in (1..numbers.len()).rev() {
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        numbers.swap(i, ((random >> 33) as usize) % (i + 1));
    }
    numbers
}

fn fill_memcached(namespace: &str, address: IpAddr) -> anyhow::Result<()> {
    namespace::within(namespace, || {
        let mut stream = TcpStream::connect((address, MEMCACHED_PORT))
            .with_context(|| format!("memcached at {address}"))?;
        let mut text = vec![];
        for number in 0..KEYS {
            let key = String::from_utf8(key(number))?;
            text.extend(format!("set {key} 0 0 {VALUE_LEN} noreply\r\n").into_bytes());
            text.extend(value(number));
            text.extend(b"\r\n");
        }
        text.extend(b"version\r\n");
        stream.write_all(&text)?;
        let mut reply = [0; 64];
        let got = stream.read(&mut reply)?;
        ensure!(
            reply[..got].starts_with(b"VERSION"),
            "memcached refused what it was to hold"
        );
        Ok(())
    })
}

/// Attaches the bare reflector to an interface, on socket buffers, as the switch's program is.
fn reflect_at(namespace: &str, interface: &str) -> anyhow::Result<()> {
    const SKB_MODE: u32 = 1 << 1;
    namespace::within(namespace, || {
        let floors = kernel::floors()?;
        let reflector = Program::of(&floors, "reflect")?;
        let index = nix::net::if_::if_nametoindex(interface)?;
        // SAFETY: a valid descriptor, which the interface holds on to; no options.
        let failed = unsafe {
            libbpf_sys::bpf_xdp_attach(
                index as i32,
                reflector.0.as_raw_fd(),
                SKB_MODE,
                std::ptr::null(),
            )
        };
        if failed != 0 {
            bail!(
                "attaching the reflector: {}",
                std::io::Error::from_raw_os_error(-failed)
            );
        }
        Ok(())
    })
}

/// Fills a switch with the first keys and attaches it. Returns the numbers of the keys that it holds.
fn fill_switch(cache: &mut Cache, interfaces: &[String]) -> anyhow::Result<Vec<usize>> {
    let tenant = cache::tenant(wire::TENANT_OPEN, Secret::NONE);
    let mut held = vec![];
    for number in 0..CACHED {
        let key = key(number);
        let hash = tenant.secret.key_hash(tenant.id, &key);
        if cache.fill(&tenant, hash, &key, &value(number))? {
            held.push(number);
        }
    }
    for number in 0..gateway::KEYS {
        let key = gateway::key(number);
        let hash = tenant.secret.key_hash(tenant.id, &key);
        cache.fill(&tenant, hash, &key, &value(number))?;
    }
    for interface in interfaces {
        cache.attach(interface, Mode::Generic)?;
    }
    Ok(held)
}

/// One server as the client sees it, with what each batch came to.
struct Way {
    what: &'static str,
    client: Client,
    others: Others,
    outcomes: Vec<Outcome>,
}

impl Way {
    fn rates(&self) -> Side {
        let rates: Vec<f64> = self.outcomes.iter().map(|o| o.rate).collect();
        Side::new(self.what, &rates)
    }

    fn cpu(&self) -> Side {
        let cpu: Vec<f64> = self.outcomes.iter().map(|o| o.cpu_us).collect();
        Side::new(self.what, &cpu)
    }

    fn check(&self) -> anyhow::Result<()> {
        let sum = |of: fn(&Outcome) -> u64| self.outcomes.iter().map(of).sum::<u64>();
        let (right, wrong, lost) = (sum(|o| o.answered), sum(|o| o.wrong), sum(|o| o.lost));
        ensure!(
            wrong * 1000 <= right && lost * 100 <= right,
            "{}: {right} right answers, {wrong} wrong, {lost} lost: expected nearly all right",
            self.what
        );
        Ok(())
    }
}

/// Measures the rows and adds them to the report.
///
/// # Errors
/// No privilege, no memcached, or a process that does not start.
pub fn measure(options: &Options, report: &mut Report, say: &impl Fn(&str)) -> anyhow::Result<()> {
    let keys = [
        "veth_hit_over_reflector",
        "veth_hit_cpu_over_memcached_udp",
        "veth_hit_rate_over_memcached_udp",
        "soft_hit_over_memcached_udp",
        "miss_path_over_direct",
        "gateway_cpu_over_redis",
    ];
    if !options.wants(&keys) {
        return Ok(());
    }
    say("building links and servers");
    let mut lab = Lab::create(&unique_name(), topology(), false)?;
    lab.start_all(false)?;
    let address = |node: &str| lab.topology().address_of(node).context("an address");
    let (near, far, mirror, store, soft_address) = (
        address(NEAR)?,
        address(FAR)?,
        address(MIRROR)?,
        address(STORE)?,
        address(SOFT)?,
    );
    fill_memcached(&lab.namespace(NEAR), near.into())?;
    fill_memcached(&lab.namespace(FAR), far.into())?;
    reflect_at(&lab.namespace(MIRROR), "eth0")?;
    let gateway = Gateway::start(&mut lab, CLIENT, NEAR, store.into(), VALUE_LEN);
    let gateway = gateway
        .inspect_err(|e| say(&format!("gateway_cpu_over_redis left out: {e:#}")))
        .ok();
    let pid = |name: &str| Ok::<_, anyhow::Error>(lab.process(name).context("a server")?.pid);
    let pids = [
        pid("near-memcached")?,
        pid("far-memcached")?,
        pid("store-store")?,
    ];
    let interfaces = lab.topology().interfaces_of(SWITCH);

    // The switch is made in a thread inside its namespace, and stays there until the client has finished.
    let (filled, when_filled) = std::sync::mpsc::channel();
    let (done, when_done) = std::sync::mpsc::channel::<()>();
    let switch = lab.namespace(SWITCH);
    std::thread::scope(|scope| {
        let switch_thread = scope.spawn(move || {
            namespace::within(&switch, move || {
                let pages = pages_for(CACHED + gateway::KEYS, 16, VALUE_LEN)?;
                let discipline = cache::discipline(options.discipline, pages);
                let tenant = cache::tenant(wire::TENANT_OPEN, Secret::NONE);
                let mut cache =
                    Cache::load("veth", &[discipline], tenant, pages, IpAddr::V4(store))?;
                filled.send(fill_switch(&mut cache, &interfaces)?)?;
                let _ = when_done.recv(); // an error means that the client has gone: done as well
                Ok(())
            })
        });
        let (soft_ready, when_soft_is_ready) = std::sync::mpsc::channel();
        let (soft_done, when_soft_is_done) = tokio::sync::oneshot::channel();
        let soft_space = lab.namespace(SOFT);
        let soft_interfaces = lab.topology().interfaces_of(SOFT);
        let soft_pages = pages_for(CACHED, 16, VALUE_LEN)?;
        let soft_thread = scope.spawn(move || {
            namespace::within(&soft_space, || {
                lab::process::pin_self(SERVER_CPU);
                let objects = [cache::discipline(options.discipline, soft_pages)];
                let done = when_soft_is_done;
                soft::serve(&soft_interfaces, &objects, soft_pages, &soft_ready, done)
            })
        });
        let Ok(held) = when_filled.recv() else {
            return switch_thread
                .join()
                .map_err(|_| anyhow::anyhow!("filling the switch panicked"))?;
        };
        let Ok(soft_switch) = when_soft_is_ready.recv() else {
            return soft_thread
                .join()
                .map_err(|_| anyhow::anyhow!("the soft switch panicked"))?;
        };
        say("asking over links");
        let result = namespace::within(&lab.namespace(CLIENT), || {
            let items = (0..CACHED).map(|number| (key(number), value(number)));
            let tenant = cache::tenant(wire::TENANT_OPEN, Secret::NONE);
            let soft_held =
                soft::fill(&soft_switch, soft_address.into(), tenant, soft_pages, items)?;
            let ways = [
                (
                    SocketAddr::new(store.into(), wire::PORT),
                    our_requests(&held)?,
                    is_hit as fn(&[u8]) -> bool,
                    "hit",
                    0,
                ),
                (
                    SocketAddr::new(mirror.into(), wire::PORT),
                    our_requests(&held)?,
                    is_reflected,
                    "reflector",
                    0,
                ),
                (
                    SocketAddr::new(near.into(), MEMCACHED_PORT),
                    memcached_requests(),
                    is_memcached_value,
                    "memcached",
                    pids[0],
                ),
                (
                    SocketAddr::new(store.into(), wire::PORT),
                    our_requests(&missing())?,
                    is_from_store,
                    "switch and store",
                    pids[2],
                ),
                (
                    SocketAddr::new(far.into(), MEMCACHED_PORT),
                    memcached_requests(),
                    is_memcached_value,
                    "router and memcached",
                    pids[1],
                ),
                (
                    SocketAddr::new(soft_address.into(), wire::PORT),
                    our_requests(&soft_held)?,
                    is_hit,
                    "soft hit",
                    0,
                ),
            ];
            lab::process::pin_self(CLIENT_CPU);
            let mut all = vec![];
            for (to, requests, is_answer, what, pid) in ways {
                let client = Client::connect(to, requests, is_answer)?;
                let pids: Vec<i32> = Some(pid).into_iter().filter(|pid| *pid != 0).collect();
                all.push(Way {
                    what,
                    client,
                    others: Others::of(&pids),
                    outcomes: vec![],
                });
            }
            for _ in 0..options.batches {
                for way in &mut all {
                    way.outcomes.push(way.client.run(BATCH, &way.others)?);
                }
            }
            for way in &all {
                way.check()?;
            }
            let mut through: [Vec<[f64; 2]>; 2] = Default::default();
            for _ in 0..options.batches.div_ceil(6) {
                for (pipeline, costs) in [1, 16].into_iter().zip(&mut through) {
                    if let Some(gateway) = &gateway {
                        costs.push(gateway.batch(pipeline)?);
                    }
                }
            }
            let measured: Vec<(Side, Side)> = all.iter().map(|w| (w.rates(), w.cpu())).collect();
            Ok((measured, through))
        });
        drop(done);
        drop(soft_done);
        soft_thread
            .join()
            .map_err(|_| anyhow::anyhow!("the soft switch panicked"))??;
        switch_thread
            .join()
            .map_err(|_| anyhow::anyhow!("the switch panicked"))??;
        let (ways, through) = result?;
        write_rows(report, &ways);
        for (pipeline, costs) in [1, 16].into_iter().zip(through) {
            if costs.is_empty() {
                continue;
            }
            let side = |i: usize| costs.iter().map(|pair| pair[i]).collect::<Vec<f64>>();
            let sides = [
                Side::new("through the gateway", &side(0)),
                Side::new("Redis itself", &side(1)),
            ];
            report.ratio(
                &format!("gateway_cpu_over_redis_p{pipeline}"),
                Told,
                "us",
                sides,
            );
        }
        Ok(())
    })
}

fn missing() -> Vec<usize> {
    (CACHED..KEYS).collect()
}

fn our_requests(numbers: &[usize]) -> anyhow::Result<Vec<Vec<u8>>> {
    shuffled(numbers.to_vec())
        .into_iter()
        .map(our_request)
        .collect()
}

fn memcached_requests() -> Vec<Vec<u8>> {
    shuffled((0..CACHED).collect())
        .into_iter()
        .map(memcached_request)
        .collect()
}

fn write_rows(report: &mut Report, ways: &[(Side, Side)]) {
    let rate = |i: usize| Side::new(ways[i].0.what, &ways[i].0.values);
    let cpu = |i: usize| Side::new(ways[i].1.what, &ways[i].1.values);
    report.machine(
        "the client against a bare reflector",
        cpu(1).values,
        "us of CPU",
    );
    report.ratio(
        "veth_hit_over_reflector",
        AtLeast(0.85),
        "/s",
        [rate(0), rate(1)],
    );
    report.ratio(
        "veth_hit_cpu_over_memcached_udp",
        AtMost(0.35),
        "us",
        [cpu(0), cpu(2)],
    );
    report.ratio(
        "veth_hit_rate_over_memcached_udp",
        AtLeast(1.8),
        "/s",
        [rate(0), rate(2)],
    );
    report.ratio(
        "miss_path_over_direct",
        AtLeast(0.8),
        "/s",
        [rate(3), rate(4)],
    );
    report.ratio(
        "soft_hit_over_memcached_udp",
        Told,
        "/s",
        [rate(5), rate(2)],
    );
}
