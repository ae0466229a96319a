//! A plan as the parts of its world read it.

use anyhow::ensure;
use decide::Registration;
use plan::{Plan, roles::Role};
use wire::Cluster;

use crate::ids::ProcessId;

/// A plan, and what follows from it.
pub struct Rack {
    /// The plan.
    pub plan: Plan,
    /// Its cluster file.
    pub cluster: Cluster,
    /// What tenants may choose, and stores and switches know.
    pub disciplines: &'static [Registration],
    /// The processes that are controllers.
    controllers: Vec<ProcessId>,
}

impl Rack {
    /// Processes are numbered in the order in which the plan has them.
    ///
    /// # Errors
    /// What is wrong with the plan.
    pub fn new(plan: &Plan, disciplines: &'static [Registration]) -> anyhow::Result<Rack> {
        let cluster = plan.cluster()?;
        cluster.check()?;
        let seats = (0..).zip(plan.seats());
        let controllers = seats.filter_map(|(process, (_, seated))| match seated.role {
            Role::Control(_) => Some(ProcessId(process)),
            _ => None,
        });
        let controllers = controllers.collect();
        Ok(Rack { plan: plan.clone(), cluster, disciplines, controllers })
    }

    /// The controllers that a role follows, if it knows of any.
    pub fn controllers(&self, knows: bool) -> Vec<ProcessId> {
        if knows { self.controllers.clone() } else { vec![] }
    }
}

/// Refuses options of a command line.
///
/// # Errors
/// There are some.
pub fn no_options(role: &str, options: &[String]) -> anyhow::Result<()> {
    let given = options.join(" ");
    ensure!(options.is_empty(), "{role}: a simulated one has no command line ({given})");
    Ok(())
}
