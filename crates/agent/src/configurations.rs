//! What tenants' packets find besides items: parameter words, rows of their discipline's maps,
//! groups of ports.
//!
//! In: configurations, setups. Out: answers for the controller. What is in force lives in the
//! kernel and outlasts the agent; one that starts anew does not know whose work it is, and finds
//! out by the tenant's number that keys begin with. So hash maps of a discipline have the rows that
//! were configured and no others.

use std::collections::{BTreeMap, BTreeSet};

use api::{
    convert,
    proto::{self, TenantVersion},
    text::one_line,
};
use bytes::Bytes;
use dataplane::{Backing, Programs, Rows, TenantEntry};
use decide::{Configuration, Group, PARAMETERS, Registration, Row};
use tracing::{debug, info};

use super::{
    AgentError,
    served::{ServedCluster, ServedTenant},
};

/// The controller's last word.
struct Order {
    /// Term and version.
    version: (u64, u64),
    configuration: Configuration,
    /// Once it is in force: what could not be carried out of it.
    trouble: Option<String>,
    told: bool,
}

/// What is in the kernel, as far as this agent put it there or found it.
struct InForce {
    /// What the names of the maps begin with.
    maps: &'static str,
    /// Values by map and key; a spine's discipline has a row for each store.
    rows: BTreeMap<(String, Bytes), Bytes>,
    groups: Vec<Group>,
}

impl InForce {
    fn has_group(&self, map: &str, index: u32) -> bool {
        let mut groups = self.groups.iter();
        groups.any(|group| group.map == map && group.index == index)
    }
}

pub(super) struct Configurations {
    programs: Programs,
    at: Backing,
    disciplines: &'static [Registration],
    wanted: BTreeMap<u32, Order>,
    in_force: BTreeMap<u32, InForce>,
    /// Whether rows and groups that an earlier agent left were looked for.
    swept_rows: bool,
    swept_groups: bool,
    /// Tenants whose configuration was carried out since this was last asked for.
    carried_out: BTreeSet<u32>,
}

impl Configurations {
    pub fn new(programs: Programs, disciplines: &'static [Registration]) -> Configurations {
        Configurations {
            at: programs.backing(),
            programs,
            disciplines,
            wanted: BTreeMap::new(),
            in_force: BTreeMap::new(),
            swept_rows: false,
            swept_groups: false,
            carried_out: BTreeSet::new(),
        }
    }

    /// Where the tables are.
    pub fn backing(&self) -> &Backing {
        &self.at
    }

    /// What the switch runs.
    pub fn programs(&self) -> &Programs {
        &self.programs
    }

    /// Has the programs of every discipline that a tenant has run here.
    pub fn need(&mut self, served: &ServedCluster) -> Result<(), AgentError> {
        let of_tenants = served.tenants.values().filter_map(|here| here.discipline);
        let numbers = of_tenants.map(|discipline| discipline.number).collect();
        Ok(self.programs.need(&numbers)?)
    }

    /// Takes configurations in. One that is in force is told again, not carried out again: programs
    /// may have changed rows since.
    pub fn take(
        &mut self,
        message: &proto::Configurations,
        served: Option<&ServedCluster>,
    ) -> Result<(), AgentError> {
        for configuration in &message.tenants {
            let version = (message.term, configuration.version);
            let last = self.wanted.get_mut(&configuration.tenant);
            match last {
                Some(last) if version < last.version => debug!("an old configuration was left out"),
                Some(last) if version == last.version => last.told = false,
                _ => {
                    let wanted = Order {
                        version,
                        configuration: convert::configuration(configuration),
                        trouble: None,
                        told: false,
                    };
                    self.wanted.insert(configuration.tenant, wanted);
                }
            }
        }
        served.map_or(Ok(()), |served| self.carry_out(served))
    }

    /// Interfaces were made anew, and groups that name them have them no longer: carries out again
    /// what asks for groups, and tells the controller what came of it.
    pub fn set_groups_again(&mut self, served: &ServedCluster) -> Result<(), AgentError> {
        for wanted in self.wanted.values_mut() {
            if !wanted.configuration.groups.is_empty() {
                (wanted.trouble, wanted.told) = (None, false);
            }
        }
        self.carry_out(served)
    }

    /// Tenants whose configuration was carried out since this was last asked for.
    pub fn take_carried_out(&mut self) -> BTreeSet<u32> {
        std::mem::take(&mut self.carried_out)
    }

    /// A tenant's configuration, once it is in force.
    pub fn of(&self, tenant: u32) -> Option<&Configuration> {
        let wanted = self.wanted.get(&tenant);
        let in_force = wanted.filter(|wanted| wanted.trouble.is_some());
        in_force.map(|wanted| &wanted.configuration)
    }

    /// What is in force and was not told yet.
    pub fn untold(&self) -> Vec<TenantVersion> {
        let untold = |(tenant, wanted): (&u32, &Order)| {
            Some(TenantVersion {
                tenant: *tenant,
                version: wanted.version.1,
                trouble: wanted.trouble.clone().filter(|_| !wanted.told)?,
            })
        };
        self.wanted.iter().filter_map(untold).collect()
    }

    /// These were told.
    pub fn told(&mut self, tenants: &[TenantVersion]) {
        for tenant in tenants {
            if let Some(wanted) = self.wanted.get_mut(&tenant.tenant) {
                wanted.told = true;
            }
        }
    }

    /// The tenants' parameter words as they are in force, but for those of tenants whose discipline
    /// is `changed`: their words meant something else.
    pub fn parameters(
        &self,
        changed: &BTreeSet<u32>,
    ) -> Result<BTreeMap<u32, [u32; PARAMETERS]>, AgentError> {
        let mut parameters = TenantEntry::parameters(self.backing())?;
        parameters.retain(|(tenant, _)| !changed.contains(tenant));
        Ok(parameters.into_iter().collect())
    }

    /// Lets go of what belongs to tenants that are gone or whose discipline is `changed`, and
    /// carries out what waited for this setup.
    pub fn fit(
        &mut self,
        served: &ServedCluster,
        changed: &BTreeSet<u32>,
    ) -> Result<(), AgentError> {
        let is_over =
            |tenant: &u32| !served.tenants.contains_key(tenant) || changed.contains(tenant);
        self.wanted.retain(|tenant, _| !is_over(tenant));
        let tenants: Vec<u32> = self.in_force.keys().copied().filter(is_over).collect();
        for tenant in &tenants {
            if let Some(before) = self.in_force.remove(tenant) {
                self.let_go(&before, None);
            }
        }
        if !self.swept_rows || !tenants.is_empty() {
            self.sweep_rows(served, changed)?;
            self.swept_rows = true;
        }
        self.carry_out(served)
    }

    fn carry_out(&mut self, served: &ServedCluster) -> Result<(), AgentError> {
        let wanted = self.wanted.iter();
        let waits = wanted.filter(|(_, wanted)| wanted.trouble.is_none());
        let waits: Vec<u32> = waits.map(|(tenant, _)| *tenant).collect();
        for tenant in waits {
            if let Some(here) = served.tenants.get(&tenant) {
                self.replace(tenant, here)?;
            }
        }
        if self.swept_rows && !self.swept_groups {
            self.sweep_groups(served);
        }
        Ok(())
    }

    /// Puts what is wanted in the place of what is in force. Rows and groups come before the words
    /// that may lead packets to them, and go after.
    fn replace(&mut self, tenant: u32, here: &ServedTenant) -> Result<(), AgentError> {
        let maps = self.maps_of(here).unwrap_or_default();
        let is_served = match maps {
            "" => Err(format!("no discipline serves tenant {tenant} here")),
            _ => Ok(()),
        };
        let before = match self.in_force.remove(&tenant) {
            Some(before) => before,
            None => self.find(tenant, maps)?,
        };
        let Configuration { parameters, rows, groups } = self.wanted[&tenant].configuration.clone();
        let (mut now, mut troubles) =
            (InForce { maps, rows: BTreeMap::new(), groups: vec![] }, vec![]);
        for row in rows {
            let name = (row.map.clone(), row.key.clone());
            let written = match before.rows.get(&name) == Some(&row.value) {
                true => Ok(()),
                false => is_served.clone().and_then(|()| self.write(tenant, maps, &row)),
            };
            match written {
                Ok(()) => drop(now.rows.insert(name, row.value)),
                Err(trouble) => troubles.push(trouble),
            }
        }
        for group in groups {
            match is_served.clone().and_then(|()| self.set_group(maps, &group)) {
                Ok(()) => now.groups.push(group),
                Err(trouble) => troubles.push(trouble),
            }
        }
        TenantEntry::set_parameters(self.backing(), &[(tenant, parameters)])?;
        self.let_go(&before, Some(&now));
        self.in_force.insert(tenant, now);
        self.carried_out.insert(tenant);
        if let Some(wanted) = self.wanted.get_mut(&tenant) {
            wanted.trouble = Some(match troubles.as_slice() {
                [] => String::new(),
                [one] => one_line(one),
                [first, more @ ..] => one_line(&format!("{first}, and {} more", more.len())),
            });
        }
        Ok(())
    }

    fn write(&self, tenant: u32, maps: &str, row: &Row) -> Result<(), String> {
        if !row.key.starts_with(&tenant.to_ne_bytes()) {
            return Err(format!(
                "map {}: a key that does not begin with the number of tenant {tenant}",
                row.map
            ));
        }
        let rows = Rows::open(self.backing(), maps, &row.map);
        rows.and_then(|rows| rows.write(&row.key, &row.value)).map_err(|e| e.to_string())
    }

    /// Sets a group that is not another tenant's; while it is changed nobody has it.
    fn set_group(&self, maps: &str, group: &Group) -> Result<(), String> {
        let Group { map, index, ports } = group;
        let wrong = |reason: String| format!("map {map}: group {index}: {reason}");
        if !is_map_of(map, maps) {
            return Err(wrong(format!("it is not a map of {maps:?}")));
        }
        let mut others = self.in_force.iter();
        if let Some((other, _)) = others.find(|(_, other)| other.has_group(map, *index)) {
            return Err(wrong(format!("it is tenant {other}'s")));
        }
        let port = |name: &String| {
            let port = self.programs.port(name);
            port.ok_or_else(|| wrong(format!("the switch is not attached to {name}")))
        };
        let ports = ports.iter().map(port).collect::<Result<Vec<_>, _>>()?;
        let set = self.programs.set_group(map, *index, &ports);
        set.map_err(|e| e.to_string())
    }

    /// Removes the rows and groups that are not among the next ones.
    fn let_go(&self, before: &InForce, next: Option<&InForce>) {
        let at = self.backing();
        for name in before.rows.keys() {
            let (map, key) = name;
            if !next.is_some_and(|next| next.rows.contains_key(name))
                && let Err(e) = Rows::open(at, before.maps, map).and_then(|rows| rows.delete(key))
            {
                debug!("an old row stays: {e}");
            }
        }
        for Group { map, index, .. } in &before.groups {
            if !next.is_some_and(|next| next.has_group(map, *index)) {
                self.remove_group(map, *index);
            }
        }
    }

    fn remove_group(&self, map: &str, index: u32) {
        if let Err(e) = self.programs.set_group(map, index, &[]) {
            debug!("an old group of ports stays: {e}");
        }
    }

    /// What an earlier agent left of a tenant's rows.
    fn find(&self, tenant: u32, maps: &'static str) -> Result<InForce, AgentError> {
        let mut rows = BTreeMap::new();
        for map in Rows::hash_maps(self.backing(), maps)? {
            let all = map.list()?.into_iter();
            let its = all.filter(|(key, _)| key.starts_with(&tenant.to_ne_bytes()));
            rows.extend(its.map(|(key, value)| ((map.name().into(), key.into()), value.into())));
        }
        Ok(InForce { maps, rows, groups: vec![] })
    }

    /// Removes rows of tenants that their discipline does not serve here, or did not make.
    fn sweep_rows(
        &self,
        served: &ServedCluster,
        changed: &BTreeSet<u32>,
    ) -> Result<(), AgentError> {
        let all = self.disciplines.iter();
        let owners = all.map(|discipline| discipline.maps_of);
        let mut removed = 0;
        for maps in owners.collect::<BTreeSet<_>>() {
            for map in Rows::hash_maps(self.backing(), maps)? {
                for (key, _) in map.list()? {
                    let tenant = key.first_chunk().copied().map(u32::from_ne_bytes);
                    let tenant = tenant.filter(|tenant| !changed.contains(tenant));
                    let here = tenant.and_then(|tenant| served.tenants.get(&tenant));
                    if here.and_then(|here| self.maps_of(here)) != Some(maps) {
                        map.delete(&key)?;
                        removed += 1;
                    }
                }
            }
        }
        if removed > 0 {
            info!("{removed} rows of tenants that are gone were removed");
        }
        Ok(())
    }

    /// Removes groups that an earlier agent left and nobody asks for, once every tenant that may
    /// have some has said which.
    fn sweep_groups(&mut self, served: &ServedCluster) {
        let groups = self.programs.groups();
        let has_some = |here: &ServedTenant| {
            let maps = self.maps_of(here).unwrap_or_default();
            groups.iter().any(|(map, _)| is_map_of(map, maps))
        };
        let mut tenants = served.tenants.iter().filter(|(_, here)| has_some(here));
        if !tenants.all(|(tenant, _)| self.in_force.contains_key(tenant)) {
            return;
        }
        for (map, entries) in &groups {
            for index in 0..*entries {
                let mut all = self.in_force.values();
                if !all.any(|of| of.has_group(map, index)) {
                    self.remove_group(map, index);
                }
            }
        }
        self.swept_groups = true;
    }

    /// What the names of the maps of a tenant's discipline begin with.
    fn maps_of(&self, here: &ServedTenant) -> Option<&'static str> {
        here.discipline.map(|discipline| discipline.maps_of)
    }
}

/// Maps are named after what owns them.
fn is_map_of(map: &str, discipline: &str) -> bool {
    let rest = map.strip_prefix(discipline);
    !discipline.is_empty() && rest.is_some_and(|rest| rest.starts_with('_'))
}
