//! Values of 64 bytes to 1 MiB: how many a second, and how long one takes, by each way that leads
//! to them.
//!
//! A few clients read and write a few keys, each the next thing when the last is answered. Every
//! value says in each of its words which one it is, so that a mixture of two shows. Then a thousand
//! writes are sent by half: the memory that they take has a bound, and is free again when their
//! clients' time is over.

mod asker;
mod half_sent;
mod redis;
mod values;

use std::{
    cell::RefCell,
    net::{Ipv4Addr, SocketAddr},
    rc::Rc,
    time::{Duration, Instant},
};

use anyhow::{Context, ensure};
use lab::namespace;
use plan::{Line, Plan, client};
use serde::{Deserialize, Serialize};
use serde_json::json;
use sim::World;
use text::table::{Table, percent, thousands};
use wire::Cluster;

use crate::{
    Backend, Measure, Report, Run,
    params::{part, positive},
    plot,
    resp::Server,
    rig::{Rig, TenantSpec},
    servers::{Rack, Servers},
};
use asker::Asker;
use values::{Outcome, Values};

/// Where the gateway listens, in the clients' namespace.
const GATEWAY: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 6380);
/// The tenant that has a secret, and the pages that it has on the switch.
const TENANT: u32 = 1;
const PAGES: u32 = 64;
/// How long a gateway may take to listen.
const READY: Duration = Duration::from_secs(10);
/// How long what is under way may take in the simulator after the clients have stopped, in
/// nanoseconds.
const END_NS: u64 = 3_000_000_000;

/// Parameters of large values.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LargeValues {
    rack: Rack,
    /// Lengths of values in bytes.
    lengths: Vec<usize>,
    /// Length of each step in seconds.
    step_s: f64,
    /// Clients that ask at the same time.
    clients: usize,
    /// Keys of each length.
    keys: usize,
    /// Part of what they ask that are writes.
    writes: f64,
    /// Writes of which half of the parts are never sent.
    half_sent: u32,
}

/// A way that leads to values.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    Store,
    Switch,
    Signed,
    RedisStore,
    Gateway,
    Redis,
}

impl Way {
    fn name(self) -> &'static str {
        match self {
            Way::Store => "store",
            Way::Switch => "switch",
            Way::Signed => "switch, signed",
            Way::RedisStore => "store before Redis",
            Way::Gateway => "gateway",
            Way::Redis => "Redis itself",
        }
    }

    fn key(self) -> &'static str {
        match self {
            Way::Store => "store",
            Way::Switch => "switch",
            Way::Signed => "switch_signed",
            Way::RedisStore => "redis_store",
            Way::Gateway => "gateway",
            Way::Redis => "redis",
        }
    }

    /// Whether the switch has a cache, which is given as much time again to learn what is hot.
    fn is_cached(self) -> bool {
        matches!(self, Way::Switch | Way::Signed)
    }
}

/// One way with values of one length.
struct Point {
    way: Way,
    len: usize,
    per_s: f64,
    seen: Outcome,
}

impl Measure for LargeValues {
    fn check(&self) -> anyhow::Result<()> {
        self.rack.check()?;
        positive!(self, step_s)?;
        part([("writes", self.writes)])?;
        ensure!(
            (1..=64).contains(&self.clients) && (1..=1000).contains(&self.keys),
            "clients: 1 to 64, keys: 1 to 1000"
        );
        let most = wire::MAX_VALUE_DEFAULT as usize;
        let fits = |len: &usize| (8..=most).contains(len);
        ensure!(
            !self.lengths.is_empty() && self.lengths.iter().all(fits),
            "lengths: 8 to {most} bytes each"
        );
        Ok(())
    }

    fn run(&self, run: &Run<'_>, report: &mut Report) -> anyhow::Result<()> {
        let mut points = vec![];
        let mut shares = half_sent::Shares::default();
        {
            let mut servers = Servers::new(run, &self.rack, Backend::Embedded)?;
            self.points(Way::Store, &mut servers, run, &mut points)?;
            run.progress.say("writes sent by half");
            shares.of_store(&servers, self.half_sent)?;
            servers.cache_on()?;
            self.points(Way::Switch, &mut servers, run, &mut points)?;
        }
        self.signed(run, &mut points)?;
        if run.options.world == crate::World::Kernel {
            let mut servers = Servers::new(run, &self.rack, Backend::Redis)?;
            self.points(Way::Redis, &mut servers, run, &mut points)?;
            self.points(Way::RedisStore, &mut servers, run, &mut points)?;
            run.parts.begin("gateway")?;
            let place = servers.client_namespace()?;
            let cluster = servers.rig().cluster(&[])?;
            with_gateway(&place, cluster, || {
                self.points(Way::Gateway, &mut servers, run, &mut points)?;
                run.progress.say("commands sent by half");
                namespace::within(&place, || shares.of_gateway(GATEWAY, self.half_sent))
            })?;
        }
        tell(&points, &shares, self, report);
        Ok(())
    }
}

impl LargeValues {
    fn points(
        &self,
        way: Way,
        servers: &mut Servers<'_>,
        run: &Run<'_>,
        points: &mut Vec<Point>,
    ) -> anyhow::Result<()> {
        for len in &self.lengths {
            run.progress.say(format!("{}: {len} bytes", way.name()));
            let seen = match way {
                Way::Redis => {
                    let server = Server::Unix(servers.data_of("server")?);
                    let values = self.values(way, *len, run);
                    redis::run(&server, values, self.clients, self.length(way))?
                }
                Way::Gateway => {
                    let values = self.values(way, *len, run);
                    namespace::within(&servers.client_namespace()?, || {
                        let server = Server::Tcp(GATEWAY);
                        redis::run(&server, values, self.clients, self.length(way))
                    })?
                }
                _ => self.ask(way, *len, servers.rig(), ("client", wire::TENANT_OPEN), run)?,
            };
            points.push(Point {
                way,
                len: *len,
                per_s: seen.in_time as f64 / self.length(way).as_secs_f64(),
                seen,
            });
        }
        Ok(())
    }

    /// A switch and a tenant with a secret, who may be answered with more than a packet at once.
    fn signed(&self, run: &Run<'_>, points: &mut Vec<Point>) -> anyhow::Result<()> {
        let rack = &self.rack;
        let discipline = rack.discipline.as_deref().unwrap_or(run.discipline);
        let usual = Line::of(1, PAGES, discipline);
        let line = Line {
            window_ms: rack.window_ms.unwrap_or(usual.window_ms),
            settings: rack.settings.clone(),
            control_args: rack.control_args.clone(),
            switch_args: rack.switch_args.clone(),
            ..usual
        };
        let hardware = rack.hardware.as_ref().map(|h| h.slowed(rack.factor));
        let plan = Plan { hardware: hardware.unwrap_or_default(), ..line.plan() };
        let mut rig = Rig::build(plan, run.options.name.clone(), run)?;
        let tenant = TenantSpec::new(TENANT, PAGES, discipline);
        rig.create_tenants(&[tenant], &[client(1)])?;
        for len in &self.lengths {
            let way = Way::Signed;
            run.progress.say(format!("{}: {len} bytes", way.name()));
            let seen = self.ask(way, *len, &rig, (&client(1), TENANT), run)?;
            points.push(Point {
                way,
                len: *len,
                per_s: seen.in_time as f64 / self.length(way).as_secs_f64(),
                seen,
            });
        }
        Ok(())
    }

    fn length(&self, way: Way) -> Duration {
        Duration::from_secs_f64(self.step_s) * if way.is_cached() { 2 } else { 1 }
    }

    fn values(&self, way: Way, len: usize, run: &Run<'_>) -> Values {
        let writes = if way.is_cached() { 0.02 } else { self.writes };
        Values::new(way as usize, self.keys, len, writes, self.length(way), run.options.seed)
    }

    /// Lets clients of shortstop's protocol ask, from that host and as that tenant.
    fn ask(
        &self,
        way: Way,
        len: usize,
        rig: &Rig,
        (host, tenant): (&str, u32),
        run: &Run<'_>,
    ) -> anyhow::Result<Outcome> {
        let seed = run.options.seed ^ len as u64 ^ (way as u64) << 32;
        let values = self.values(way, len, run);
        let cluster = rig.cluster(&[tenant])?;
        let asking = Asker::new(&cluster, tenant, values, self.clients, seed)?;
        let length = self.length(way);
        match rig.world() {
            None => namespace::within(&rig.namespace(host)?, || asking.run(length)),
            Some(world) => ask_simulated(&world, host, asking, length),
        }
    }
}

fn ask_simulated(
    world: &Rc<RefCell<World>>,
    host: &str,
    asking: Asker,
    length: Duration,
) -> anyhow::Result<Outcome> {
    let mut world = world.borrow_mut();
    let machine = world.machine(host).context("a client")?;
    let mut asking = Some(asking);
    let make = Box::new(move |birth: sim::Birth| -> anyhow::Result<Box<dyn sim::Process>> {
        let asking = asking.take().context("clients that were started before")?;
        Ok(Box::new(asking.born(&birth)))
    });
    let process = world.place(machine, "client/large".into(), make);
    world.start(process)?;
    world.with(process, |asking: &mut Asker, io| sim::Process::wake(asking, io));
    let until_ns = world.now_ns() + length.as_nanos() as u64;
    world.run_until(until_ns);
    world.with(process, |asking: &mut Asker, _| asking.stop());
    world.run_while(1_000_000, |world| {
        let is_over = world.get::<Asker>(process).is_none_or(Asker::is_over);
        world.now_ns() < until_ns + END_NS && !is_over
    });
    let seen = world.with(process, |asking: &mut Asker, _| asking.take_seen());
    world.kill(process);
    seen.context("the clients are gone")
}

/// Does something while a gateway serves in a namespace.
fn with_gateway(
    place: &str,
    cluster: Cluster,
    work: impl FnOnce() -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let config = gateway::Config {
        resp: vec![],
        nodes: vec![],
        memcached_listen: None,
        memcached: vec![],
        network: gateway::NetworkUse::Hot,
        cache_bytes: 0,
        threads: 1,
        listen: GATEWAY,
        cluster,
        tenant: wire::TENANT_OPEN,
        backends: vec![],
        backend_password: None,
        backend_tls: Default::default(),
        resolver: gateway::system_resolver,
        tls: None,
        metrics: None,
        seal: None,
        limits: gateway::Limits::default(),
    };
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let file = namespace::open(place)?;
    std::thread::scope(|scope| {
        let serving = scope.spawn(move || {
            namespace::enter(&file)?;
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            let stopped = async {
                let _ = stopped.await;
            };
            runtime.block_on(gateway::run(config, |_| {}, stopped))
        });
        let begun = Instant::now();
        let ready = loop {
            match namespace::within(place, || Ok(std::net::TcpStream::connect(GATEWAY)?)) {
                Ok(_) => break Ok(()),
                Err(error) if begun.elapsed() > READY || serving.is_finished() => break Err(error),
                Err(_) => std::thread::sleep(Duration::from_millis(10)),
            }
        };
        let done = ready.and_then(|()| work());
        let _ = stop.send(());
        let served = serving.join();
        let served = served.map_err(|_| anyhow::anyhow!("the gateway panicked"))?;
        served.context("gateway").and(done)
    })
}

fn tell(points: &[Point], shares: &half_sent::Shares, params: &LargeValues, report: &mut Report) {
    let mut table = Table::new(&["", "bytes", "per second", "MB/s", "p99", "by switch", "failed"]);
    let (mut torn, mut wrong, mut failed) = (0, 0, 0);
    for point in points {
        let Point { way, len, per_s, seen } = point;
        let cached = seen.cached as f64 / seen.reads.max(1) as f64;
        let mb_per_s = per_s * *len as f64 / 1e6;
        table.row([
            way.name().into(),
            len.to_string(),
            thousands(*per_s),
            format!("{mb_per_s:.1}"),
            format!("{:.2} ms", seen.p99_ms()),
            percent(cached),
            seen.failed.to_string(),
        ]);
        report.rows.push(json!({
            "way": way.key(),
            "value_bytes": len,
            "per_s": per_s,
            "mb_per_s": mb_per_s,
            "p99_ms": seen.p99_ms(),
            "cached": cached,
            "failed": seen.failed,
        }));
        torn += seen.torn;
        wrong += seen.wrong;
        failed += seen.failed;
    }
    report.summarize("wrong_values", wrong as f64);
    report.summarize("torn_values", torn as f64);
    report.summarize("failed", failed as f64);
    report.summarize("half_sent_writes", f64::from(params.half_sent));
    for (name, value) in shares.told() {
        report.summarize(name, value);
        if name.ends_with("_share") && value > 1.0 {
            report.fails(format!("{name} = {value}: more than its bound"));
        }
    }
    let of = |way, len| {
        let found = points.iter().find(|point| (point.way, point.len) == (way, len));
        found.map_or(0.0, |point| point.per_s)
    };
    for way in [Way::RedisStore, Way::Gateway] {
        for len in &params.lengths {
            let redis = of(Way::Redis, *len);
            if redis > 0.0 {
                let name = format!("{}_over_redis_{len}", way.key());
                report.summarize(name, of(way, *len) / redis);
            }
        }
    }
    let groups: Vec<String> = params.lengths.iter().map(usize::to_string).collect();
    let mut ways: Vec<Way> = points.iter().map(|point| point.way).collect();
    ways.dedup();
    let rate = |way: &Way| {
        let values = params.lengths.iter().map(|len| of(*way, *len) * *len as f64 / 1e6);
        (way.name(), values.collect::<Vec<f64>>())
    };
    let series: Vec<_> = ways.iter().map(rate).collect();
    let bars = plot::GroupedBars {
        title: "Values of many lengths, read and written",
        y: "MB per second",
        groups: &groups,
        series: &series,
        marks: None,
    };
    let name = format!("{}.svg", report.experiment);
    report.plots.push((name, plot::grouped_bars(&bars)));
    report.text = format!(
        "{}\n{} writes were sent by half: {}\n",
        table.render(),
        params.half_sent,
        shares
            .told()
            .iter()
            .map(|(name, value)| format!("{name} {value:.2}"))
            .collect::<Vec<_>>()
            .join(", ")
    );
}
