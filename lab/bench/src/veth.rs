//! Rows over real links: one socket client against the switch, a bare reflector, a store and
//! memcached, each in a network namespace of its own.

mod rack;
mod requests;
mod rows;

use std::{
    net::{IpAddr, SocketAddr},
    sync::{Arc, mpsc},
    time::Duration,
};

use anyhow::{Context, anyhow, ensure};
use dataplane::native::Switch;
use lab::{
    namespace,
    rack::{Lab, unique_name},
};
use wire::Secret;

use crate::{
    Options,
    cache::{self, Cache, pages_for},
    client::{Client, Outcome},
    cpu::CountedTasks,
    gateway::{self, Costs, Gateway},
    hostile,
    report::{
        Report, Side,
        Target::{AtLeast, AtMost},
    },
    soft,
};
use rack::{CACHED, FAR, MEMCACHED_PORT, MIRROR, NEAR, SOFT, STORE, SWITCH, VALUE_LEN};
use requests::{is_from_store, is_hit, is_memcached_value, is_reflected};

/// How long one side of a ratio is asked in one batch.
const BATCH: Duration = Duration::from_millis(200);

/// One server as the client sees it, with what each batch came to.
struct Way {
    what: &'static str,
    client: Client,
    others: CountedTasks,
    outcomes: Vec<Outcome>,
}

impl Way {
    /// From the caller's namespace; `pid` is the server's process, 0 where there is none.
    fn new(
        what: &'static str,
        to: (IpAddr, u16),
        requests: Vec<Vec<u8>>,
        is_answer: fn(&[u8]) -> bool,
        pid: i32,
    ) -> anyhow::Result<Way> {
        let pids: Vec<i32> = Some(pid).into_iter().filter(|pid| *pid != 0).collect();
        Ok(Way {
            what,
            client: Client::connect(SocketAddr::from(to), requests, is_answer)?,
            others: CountedTasks::of(&pids),
            outcomes: vec![],
        })
    }

    fn batch(&mut self) -> anyhow::Result<()> {
        self.outcomes.push(self.client.run(BATCH, &self.others)?);
        Ok(())
    }

    fn done(self) -> anyhow::Result<rows::Way> {
        let sum = |of: fn(&Outcome) -> u64| self.outcomes.iter().map(of).sum::<u64>();
        let (right, wrong, lost) = (sum(|o| o.answered), sum(|o| o.wrong), sum(|o| o.lost));
        ensure!(
            wrong * 1000 <= right && lost * 100 <= right,
            "{}: {right} right answers, {wrong} wrong, {lost} lost: expected nearly all right",
            self.what
        );
        let side = |of: fn(&Outcome) -> f64| {
            let values: Vec<f64> = self.outcomes.iter().map(of).collect();
            Side::new(self.what, &values)
        };
        Ok(rows::Way { rates: side(|o| o.rate), cpu: side(|o| o.cpu_us) })
    }
}

/// Addresses of those who answer, and processes whose time counts.
struct Servers {
    near: (IpAddr, i32),
    far: (IpAddr, i32),
    store: (IpAddr, i32),
    mirror: IpAddr,
    soft: IpAddr,
}

impl Servers {
    fn of(lab: &Lab) -> anyhow::Result<Servers> {
        let address = |node: &str| {
            let address = lab.topology().address_of(node);
            address.map(IpAddr::from).context("an address")
        };
        let served = |node: &str, process: &str| -> anyhow::Result<(IpAddr, i32)> {
            let process = lab.process(&format!("{node}-{process}"));
            Ok((address(node)?, process.context("a server")?.pid))
        };
        Ok(Servers {
            near: served(NEAR, "memcached")?,
            far: served(FAR, "memcached")?,
            store: served(STORE, "store")?,
            mirror: address(MIRROR)?,
            soft: address(SOFT)?,
        })
    }

    /// All ways in turn; `held` by the switch, and by the soft switch.
    fn ask(&self, batches: usize, held: [&[usize]; 2]) -> anyhow::Result<rows::Ways> {
        lab::process::pin_self(rack::CLIENT_CPU);
        let ours = requests::our_requests;
        let theirs = requests::memcached_requests;
        let (store, store_pid) = self.store;
        let kv = |address| (address, wire::PORT);
        let cache = |address| (address, MEMCACHED_PORT);
        let mut ways = [
            Way::new("hit", kv(store), ours(held[0])?, is_hit, 0)?,
            Way::new("reflector", kv(self.mirror), ours(held[0])?, is_reflected, 0)?,
            Way::new("memcached", cache(self.near.0), theirs(), is_memcached_value, self.near.1)?,
            Way::new(
                "switch and store",
                kv(store),
                ours(&requests::missing())?,
                is_from_store,
                store_pid,
            )?,
            Way::new(
                "router and memcached",
                cache(self.far.0),
                theirs(),
                is_memcached_value,
                self.far.1,
            )?,
            Way::new("soft hit", kv(self.soft), ours(held[1])?, is_hit, 0)?,
        ];
        for _ in 0..batches {
            ways.iter_mut().try_for_each(Way::batch)?;
        }
        let [hit, reflector, memcached, store, routed, soft] = ways.map(Way::done);
        Ok(rows::Ways {
            hit: hit?,
            reflector: reflector?,
            memcached: memcached?,
            store: store?,
            routed: routed?,
            soft: soft?,
        })
    }
}

/// Keys with their values.
type Items = Vec<(Vec<u8>, Vec<u8>)>;

/// Runs a switch of just the size for these items in its namespace, for as long as `work` takes,
/// which hears which of them it holds.
fn beside_switch<T: Send>(
    options: &Options,
    lab: &Lab,
    store: IpAddr,
    items: &Items,
    work: impl FnOnce(&[usize]) -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    let (filled, when_filled) = mpsc::channel();
    let (done, when_done) = mpsc::channel::<()>();
    std::thread::scope(|scope| {
        let switch = scope.spawn(move || {
            let interfaces = lab.topology().interfaces_of(SWITCH);
            namespace::within(&lab.namespace(SWITCH), move || {
                let pages = pages_for(items.len(), 16, VALUE_LEN)?;
                let discipline = cache::discipline(options.discipline, pages);
                let tenant = cache::tenant(wire::TENANT_OPEN, Secret::NONE);
                let mut cache = Cache::load("veth", &[discipline], tenant, pages, store)?;
                filled.send(rack::fill_switch(&mut cache, items, &interfaces)?)?;
                let _ = when_done.recv(); // an error means that the client has gone: done as well
                Ok(())
            })
        });
        let worked = when_filled.recv().ok().map(|held| work(&held));
        drop(done);
        let ended = switch.join();
        ended.map_err(|_| anyhow!("the switch's thread panicked"))??;
        worked.context("the switch ended before it was asked")?
    })
}

/// Likewise a soft switch for so many items, which `work` fills.
fn beside_soft_switch<T: Send>(
    options: &Options,
    lab: &Lab,
    pages: u32,
    work: impl FnOnce(&Arc<Switch>) -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    let (ready, when_ready) = mpsc::channel();
    let (done, when_done) = tokio::sync::oneshot::channel();
    std::thread::scope(|scope| {
        let soft = scope.spawn(move || {
            namespace::within(&lab.namespace(SOFT), || {
                lab::process::pin_self(rack::SERVER_CPU);
                let objects = [cache::discipline(options.discipline, pages)];
                let interfaces = lab.topology().interfaces_of(SOFT);
                soft::serve(&interfaces, &objects, pages, &ready, when_done)
            })
        });
        let worked = when_ready.recv().ok().map(|soft| work(&soft));
        drop(done);
        let ended = soft.join();
        ended.map_err(|_| anyhow!("the soft switch's thread panicked"))??;
        worked.context("the soft switch ended before it was asked")?
    })
}

/// Asks all who answer reads, and writes what comes of it.
fn measure_ways(
    options: &Options,
    report: &mut Report,
    lab: &Lab,
    servers: &Servers,
) -> anyhow::Result<()> {
    let item = |number| (rack::key(number), rack::value(number));
    let items: Items = (0..CACHED).map(item).collect();
    let pages = pages_for(CACHED, 16, VALUE_LEN)?;
    let tenant = cache::tenant(wire::TENANT_OPEN, Secret::NONE);
    let ways = beside_switch(options, lab, servers.store.0, &items, |held| {
        beside_soft_switch(options, lab, pages, |soft| {
            namespace::within(&lab.namespace(rack::CLIENT), || {
                let items = items.iter().cloned();
                let soft_held = soft::fill(soft, servers.soft, tenant, pages, items)?;
                servers.ask(options.batches, [held, &soft_held])
            })
        })
    })?;
    rows::write(report, &ways);
    Ok(())
}

/// Asks Redis, and a gateway whose switch holds every key, and writes what comes of it. Left out
/// where there is no Redis.
fn measure_gateway(
    options: &Options,
    report: &mut Report,
    lab: &mut Lab,
    store: IpAddr,
    say: &impl Fn(&str),
) -> anyhow::Result<()> {
    if !gateway::has_redis() {
        say(&format!("{} left out: there is no redis-server", rows::GATEWAY));
        return Ok(());
    }
    let gateway = Gateway::start(lab, rack::CLIENT, NEAR, store, VALUE_LEN)?;
    let item = |number| (gateway::key(number), rack::value(number));
    let items: Items = (0..gateway::KEYS).map(item).collect();
    let costs = beside_switch(options, lab, store, &items, |_| {
        namespace::within(&lab.namespace(rack::CLIENT), || {
            through(&gateway, options.batches.div_ceil(6))
        })
    })?;
    write_through(report, costs);
    say("asking beside hostile clients");
    namespace::within(&lab.namespace(rack::CLIENT), || {
        let bound_mib = f64::from(gateway::VICTIMS_MIB);
        hostile::measure(report, gateway.victim, bound_mib, options.batches.div_ceil(6))
    })?;
    Ok(())
}

/// What requests cost, batch by batch, with so many under way on each connection; and the rates of
/// one key.
type GatewayCosts = ([(usize, Vec<Costs>); 2], Vec<[f64; 3]>);

fn through(gateway: &Gateway, batches: usize) -> anyhow::Result<GatewayCosts> {
    let mut all = [(1, vec![]), (16, vec![])];
    let mut one_key = vec![];
    for _ in 0..batches {
        for (pipeline, costs) in &mut all {
            costs.push(gateway.batch(*pipeline)?);
        }
        one_key.push(gateway.one_key()?);
    }
    Ok((all, one_key))
}

fn write_through(report: &mut Report, (all, one_key): GatewayCosts) {
    for (at, (pipeline, costs)) in all.iter().enumerate() {
        let side = |what, of: fn(&Costs) -> Option<f64>| {
            Side::new(what, &costs.iter().filter_map(of).collect::<Vec<f64>>())
        };
        let redis = || side("Redis itself", |costs| Some(costs.redis));
        let upstream = || side("the gateway and Redis", |costs| Some(costs.upstream));
        let sides = [
            [side("through the gateway", |costs| Some(costs.network)), redis()],
            [upstream(), redis()],
            [
                side("the gateway, the store and Redis", |costs| Some(costs.set_holding)),
                side("Redis itself", |costs| Some(costs.set_redis)),
            ],
            [upstream(), side("twemproxy and Redis", |costs| costs.twemproxy)],
            [side("from the gateway's copies", |costs| Some(costs.local)), redis()],
        ];
        for ((key, most), sides) in rows::OF_GATEWAY.into_iter().zip(sides) {
            if !sides[1].values.is_empty() {
                report.ratio(&format!("{key}_p{pipeline}"), AtMost(most[at]), "us", sides);
            }
        }
    }
    let side = |i: usize| one_key.iter().map(|rates| rates[i]).collect::<Vec<f64>>();
    let ways = ["from the gateway's copy", "by the network"];
    for (at, (key, least)) in rows::ONE_KEY.into_iter().enumerate() {
        let sides = [Side::new(ways[at], &side(at)), Side::new("Redis itself", &side(2))];
        report.ratio(key, AtLeast(least), "/s", sides);
    }
}

/// Measures the rows and adds them to the report.
///
/// # Errors
/// No privilege, no memcached, or a process that does not start.
pub fn measure(options: &Options, report: &mut Report, say: &impl Fn(&str)) -> anyhow::Result<()> {
    let of_gateway = rows::OF_GATEWAY.iter();
    let of_gateway: Vec<String> =
        of_gateway.flat_map(|(key, _)| [1, 16].map(|depth| format!("{key}_p{depth}"))).collect();
    let mut of_gateway: Vec<&str> = of_gateway.iter().map(String::as_str).collect();
    of_gateway.extend(rows::ONE_KEY.map(|(key, _)| key));
    of_gateway.extend([hostile::P99, hostile::MEMORY]);
    let (wants_ways, wants_gateway) = (options.wants(&rows::KEYS), options.wants(&of_gateway));
    if !wants_ways && !wants_gateway {
        return Ok(());
    }
    say("building links and servers");
    let mut lab = Lab::create(&unique_name(), rack::topology(), false)?;
    lab.start_all(false)?;
    let servers = Servers::of(&lab)?;
    if wants_ways {
        rack::fill_memcached(&lab.namespace(NEAR), servers.near.0)?;
        rack::fill_memcached(&lab.namespace(FAR), servers.far.0)?;
        rack::reflect_at(&lab.namespace(MIRROR), "eth0")?;
        say("asking over links");
        measure_ways(options, report, &lab, &servers)?;
    }
    if wants_gateway {
        say("asking through the gateway");
        measure_gateway(options, report, &mut lab, servers.store.0, say)?;
    }
    Ok(())
}
