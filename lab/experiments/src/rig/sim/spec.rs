//! From a plan to the world that is simulated.

use anyhow::{Context, bail, ensure};
use decide::Registration;
use emulated::Rate;
use lab::{roles, topology::Topology};
use sim::{AgentSpec, ControlSpec, ForwardSpec, LinkSpec, MachineSpec, Role, Spec, StoreSpec};

use wire::Lengths;

use crate::rig::{Plan, SeatedRole, Site};

/// Pages of a switch unless something else is said: as `shortstop switch` has it.
const PAGES: u32 = 96;

/// The world of a plan. Nothing of it starts by itself.
///
/// # Errors
/// What a simulated machine cannot run.
pub(super) fn of(
    plan: &Plan,
    topology: &Topology,
    disciplines: &'static [Registration],
) -> anyhow::Result<Spec> {
    let sites: Vec<&Site> = plan.hosts.iter().chain(&plan.switches).collect();
    let place = |name: &str| {
        let found = sites.iter().position(|site| site.name == name);
        found.with_context(|| format!("{name}: a link's end that is no machine"))
    };
    let controllers: Vec<usize> =
        plan.nodes_of("control").iter().map(|name| place(name)).collect::<anyhow::Result<_>>()?;
    let mut machines = vec![];
    for (at, site) in sites.iter().enumerate() {
        let roles = site.roles.iter().map(|seated| role(seated, &controllers));
        let roles = roles.collect::<anyhow::Result<Vec<Role>>>();
        let mut machine = MachineSpec::host(&site.name, roles.with_context(|| site.name.clone())?);
        for seat in &mut machine.seats {
            seat.autostart = false;
        }
        machine.forwards = (at >= plan.hosts.len()).then(|| forwards(plan));
        machines.push(machine);
    }
    let mut links = vec![];
    for link in &plan.links {
        let [a, b] = &link.ends;
        let mut spec = LinkSpec {
            fault: link.fault.unwrap_or_default(),
            ..LinkSpec::between(place(a)?, place(b)?)
        };
        if let Some(hardware) = &plan.hardware {
            spec.delay_ns = (hardware.link_us * 1e3) as u64;
            spec.bits_per_s = hardware.link_gbit.unwrap_or(0.0) * 1e9;
        }
        links.push(spec);
    }
    let mut spec = Spec::new(machines, links, plan.partitions, plan.is_open, disciplines)?;
    if plan.tells_racks {
        spec.tell_racks();
    }
    let cluster = plan.cluster(topology)?;
    ensure!(
        cluster.stores == spec.cluster.stores,
        "the simulated stores have other addresses, or stand in other racks, than the plan's"
    );
    spec.cluster = cluster;
    Ok(spec)
}

/// Packets that a chip's memory holds for the port by which they go round: thousands,
/// whichever chip.
const CHIP_QUEUE: u32 = 16_384;

/// How switches forward: as one core does, or as a chip whose ports take so many each.
fn forwards(plan: &Plan) -> ForwardSpec {
    let core = ForwardSpec::default();
    let Some(hardware) = &plan.hardware else {
        return core;
    };
    let chip = ForwardSpec {
        packet_ns: 1e9 / hardware.switch_rate,
        cores: hardware.cores,
        is_shared: hardware.is_shared,
        line_ns: hardware.line_ns,
        transit_ns: (hardware.switch_us * 1e3) as u64,
        ..core
    };
    match hardware.round_gbit {
        None => chip,
        Some(gbit) => ForwardSpec {
            round_ns: 0.0,
            round_byte_ns: 8.0 / gbit,
            round_queue: CHIP_QUEUE,
            ..chip
        },
    }
}

/// What a role is in the simulator.
fn role(seated: &SeatedRole, controllers: &[usize]) -> anyhow::Result<Role> {
    let follows = |control: bool| match control {
        true => controllers.to_vec(),
        false => vec![],
    };
    let name = seated.role.name();
    Ok(match &seated.role {
        roles::Role::Store(store) => {
            ensure!(store.backend.is_none(), "a simulated store has no other server behind it");
            Role::Store(StoreSpec {
                control: follows(store.control.is_some()),
                populate: store.populate.as_ref().map(populate).transpose()?,
                rate: store.rate_limit.map(|requests_per_s| Rate {
                    requests_per_s,
                    queue: store.queue_limit.unwrap_or(Rate::QUEUE),
                }),
                lend_from: store.lend_from,
                ..StoreSpec::default()
            })
        }
        roles::Role::Switch(switch) => {
            no_options(name, &switch.options)?;
            Role::Agent(AgentSpec {
                id: switch.id,
                pages: switch.pages.unwrap_or(PAGES),
                control: follows(true),
                probes: !switch.no_probes,
            })
        }
        roles::Role::Control(control) => {
            no_options(name, &control.options)?;
            let usual = ControlSpec::default();
            Role::Control(ControlSpec {
                discipline: control.discipline.clone(),
                window_ms: control.window_ms.unwrap_or(usual.window_ms),
                max_items: control.max_items.unwrap_or(usual.max_items),
                settings: control.settings.clone(),
                ..usual
            })
        }
        roles::Role::Redis(_) | roles::Role::Memcached(_) | roles::Role::Etcd(_) => {
            bail!("{name} runs in the kernel's world only")
        }
    })
}

fn populate((keys, lengths): &(usize, String)) -> anyhow::Result<(u64, Lengths)> {
    Ok((*keys as u64, lengths.parse().map_err(anyhow::Error::msg)?))
}

fn no_options(role: &str, options: &[String]) -> anyhow::Result<()> {
    let given = options.join(" ");
    ensure!(options.is_empty(), "{role}: a simulated one has no command line ({given})");
    Ok(())
}
