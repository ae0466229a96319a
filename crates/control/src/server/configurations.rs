//! What the packets of each tenant find on each switch besides its items: the last that its
//! discipline asked for.
//!
//! Each has a version above all before it, is durable before it is sent, and is sent until the
//! switch says that it is in force; then again to every new stream, since the agent may be a
//! new one.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::RangeInclusive,
    str::FromStr,
    time::Duration,
};

use api::{convert, proto};
use decide::{Configuration, Group, PARAMETERS, Row, SwitchId};
use serde::{Deserialize, Serialize};

use super::journal::Journal;
use crate::state::ROW_MAX;

/// Bytes of configurations in one message, but for the last one.
const MESSAGE_BYTES: usize = 1 << 20;
/// What is not confirmed is sent again after this time.
const SEND_AGAIN: Duration = Duration::from_secs(2);

/// Whose configuration, and where.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    pub switch: SwitchId,
    pub tenant: u32,
}

impl FromStr for Place {
    type Err = String;

    fn from_str(text: &str) -> Result<Place, String> {
        let (switch, tenant) = text.split_once('/').ok_or("expected SWITCH/TENANT")?;
        let wrong = |e: std::num::ParseIntError| e.to_string();
        Ok(Place { switch: switch.parse().map_err(wrong)?, tenant: tenant.parse().map_err(wrong)? })
    }
}

/// A configuration as it is remembered; bytes as hex digits.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ConfigurationRow {
    version: u64,
    parameters: [u32; PARAMETERS],
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    rows: Vec<MapRow>,
    /// Map, index and ports of each group.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    groups: Vec<(String, u32, Vec<String>)>,
}

/// Map, key and value.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct MapRow(String, #[serde(with = "hex")] Vec<u8>, #[serde(with = "hex")] Vec<u8>);

impl ConfigurationRow {
    fn new(version: u64, of: &Configuration) -> ConfigurationRow {
        let row = |r: &Row| MapRow(r.map.clone(), r.key.to_vec(), r.value.to_vec());
        let group = |g: &Group| (g.map.clone(), g.index, g.ports.clone());
        ConfigurationRow {
            version,
            parameters: of.parameters,
            rows: of.rows.iter().map(row).collect(),
            groups: of.groups.iter().map(group).collect(),
        }
    }

    fn into_configuration(self) -> Configuration {
        let row = |MapRow(map, key, value)| Row { map, key: key.into(), value: value.into() };
        let group = |(map, index, ports)| Group { map, index, ports };
        Configuration {
            parameters: self.parameters,
            rows: self.rows.into_iter().map(row).collect(),
            groups: self.groups.into_iter().map(group).collect(),
        }
    }
}

#[derive(Debug)]
struct LatestConfiguration {
    version: u64,
    configuration: Configuration,
    /// The journal's position after which it is safe to send.
    safe_after: u64,
    /// When it was sent last on this stream.
    sent: Option<Duration>,
}

/// The last configuration of each tenant on each switch.
#[derive(Debug, Default)]
pub struct Configurations {
    by_place: BTreeMap<Place, LatestConfiguration>,
    /// Those that are not in force, as far as is known.
    waiting: BTreeSet<Place>,
}

fn row(Place { switch, tenant }: Place) -> String {
    format!("configuration/{switch}/{tenant}")
}

impl Configurations {
    /// As remembered.
    pub fn new(rows: Vec<(Place, ConfigurationRow)>) -> Configurations {
        let latest = |remembered: ConfigurationRow| LatestConfiguration {
            version: remembered.version,
            configuration: remembered.into_configuration(),
            safe_after: 0,
            sent: None,
        };
        let rows = rows.into_iter().map(|(place, remembered)| (place, latest(remembered)));
        let by_place = BTreeMap::from_iter(rows);
        let waiting = by_place.keys().copied().collect();
        Configurations { by_place, waiting }
    }

    /// The highest version there is.
    pub fn highest_version(&self) -> u64 {
        let versions = self.by_place.values().map(|latest| latest.version);
        versions.max().unwrap_or(0)
    }

    /// A discipline asks for a configuration. One that is the latest already keeps its version, and
    /// is sent once more if it is in force.
    ///
    /// # Errors
    /// It is too long to be remembered.
    pub fn ask(
        &mut self,
        place: Place,
        configuration: Configuration,
        next_number: &mut u64,
        journal: &mut Journal,
    ) -> Result<(), String> {
        if let Some(latest) = self.by_place.get_mut(&place)
            && latest.configuration == configuration
        {
            if self.waiting.insert(place) {
                latest.sent = None;
            }
            return Ok(());
        }
        let remembered = ConfigurationRow::new(*next_number, &configuration);
        let length = serde_json::to_vec(&remembered).map_or(usize::MAX, |json| json.len());
        if length > ROW_MAX {
            return Err(format!(
                "a configuration of {length} bytes as it is remembered, at most {ROW_MAX} are taken"
            ));
        }
        journal.put(row(place), &remembered);
        let latest = LatestConfiguration {
            version: *next_number,
            configuration,
            safe_after: journal.position(),
            sent: None,
        };
        *next_number += 1;
        self.by_place.insert(place, latest);
        self.waiting.insert(place);
        Ok(())
    }

    /// The parameter words that were last asked for.
    pub fn parameters(&self, place: Place) -> Option<[u32; PARAMETERS]> {
        let latest = self.by_place.get(&place);
        latest.map(|latest| latest.configuration.parameters)
    }

    /// A tenant is gone, or has another discipline: nothing of it counts any longer.
    pub fn forget(&mut self, tenant: u32, journal: &mut Journal) {
        self.forget_where(|place| place.tenant == tenant, journal);
    }

    /// A switch is gone for good.
    pub fn forget_switch(&mut self, switch: SwitchId, journal: &mut Journal) {
        self.forget_where(|place| place.switch == switch, journal);
    }

    fn forget_where(&mut self, goes: impl Fn(&Place) -> bool, journal: &mut Journal) {
        self.by_place.retain(|place, _| {
            let stays = !goes(place);
            if !stays {
                journal.delete(row(*place));
            }
            stays
        });
        self.waiting.retain(|place| !goes(place));
    }

    /// The switch may have lost all of them: its stream is new.
    pub fn attached(&mut self, switch: SwitchId) {
        let of = self.by_place.range(all_on(switch));
        let places: Vec<Place> = of.map(|(place, _)| *place).collect();
        places.into_iter().for_each(|place| self.came(place));
    }

    /// The switch may have lost that of a tenant: it was not in its setup before.
    pub fn came(&mut self, place: Place) {
        if let Some(latest) = self.by_place.get_mut(&place) {
            latest.sent = None;
            self.waiting.insert(place);
        }
    }

    /// What to send to a switch now, of tenants that it was told of.
    pub fn next(
        &mut self,
        now: Duration,
        switch: SwitchId,
        durable: u64,
        is_told_of: impl Fn(u32) -> bool,
    ) -> Vec<proto::Configuration> {
        let mut out = vec![];
        let mut bytes = 0;
        for place in self.waiting.range(all_on(switch)) {
            let Some(latest) = self.by_place.get_mut(place) else { continue };
            let is_late = latest.sent.is_none_or(|at| at + SEND_AGAIN <= now);
            if !is_late || durable < latest.safe_after || !is_told_of(place.tenant) {
                continue;
            }
            if bytes >= MESSAGE_BYTES {
                break;
            }
            latest.sent = Some(now);
            bytes += size(&latest.configuration);
            let (version, configuration) = (latest.version, &latest.configuration);
            let message = convert::configuration_to(place.tenant, version, configuration);
            out.push(message);
        }
        out
    }

    /// A switch says that a version is in force; true if it is the latest, and was not before.
    pub fn confirmed(&mut self, place: Place, version: u64) -> bool {
        let latest = self.by_place.get(&place);
        latest.is_some_and(|latest| latest.version == version) && self.waiting.remove(&place)
    }
}

fn all_on(switch: SwitchId) -> RangeInclusive<Place> {
    let place = |tenant| Place { switch, tenant };
    place(0)..=place(u32::MAX)
}

fn size(configuration: &Configuration) -> usize {
    let rows = configuration.rows.iter();
    let rows = rows.map(|row| row.map.len() + row.key.len() + row.value.len() + 16);
    let groups = configuration.groups.iter().flat_map(|group| &group.ports);
    rows.sum::<usize>() + groups.map(|port| port.len() + 16).sum::<usize>() + 32
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    const AT: Place = Place { switch: 3, tenant: 7 };

    fn some(parameter: u32) -> Configuration {
        Configuration {
            parameters: [parameter, 0],
            rows: vec![Row {
                map: "m".into(),
                key: Bytes::from_static(&[7, 0, 0, 0]),
                value: Bytes::from_static(&[255]),
            }],
            groups: vec![Group { map: "g".into(), index: 1, ports: vec!["eth0".into()] }],
        }
    }

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn the_latest_is_sent_until_it_is_in_force_and_again_to_a_new_stream() {
        let (mut all, mut journal, mut next) = (Configurations::default(), Journal::default(), 5);
        all.ask(AT, some(1), &mut next, &mut journal).unwrap();
        let sent = |all: &mut Configurations, at, durable| -> Vec<u64> {
            let messages = all.next(ms(at), 3, durable, |tenant| tenant == 7);
            messages.iter().map(|m| m.version).collect()
        };
        assert_eq!(sent(&mut all, 0, 0), [0; 0], "a crash would forget it");
        assert_eq!(sent(&mut all, 0, 1), [5]);
        assert_eq!(sent(&mut all, 1999, 1), [0; 0]);
        assert_eq!(sent(&mut all, 2000, 1), [5]);
        all.ask(AT, some(2), &mut next, &mut journal).unwrap();
        assert!(!all.confirmed(AT, 5), "not the latest any longer");
        assert_eq!(sent(&mut all, 2000, 2), [6]);
        assert!(all.confirmed(AT, 6) && !all.confirmed(AT, 6));
        assert_eq!(sent(&mut all, 9000, 2), [0; 0]);
        // Asked for once more, it is confirmed once more.
        all.ask(AT, some(2), &mut next, &mut journal).unwrap();
        assert_eq!(sent(&mut all, 9000, 2), [6]);
        assert!(all.confirmed(AT, 6));
        all.attached(3);
        assert_eq!(sent(&mut all, 9000, 2), [6]);
        assert!(all.next(ms(99_000), 3, 2, |_| false).is_empty());
    }

    #[test]
    fn it_is_remembered_until_its_tenant_is_forgotten() {
        let (mut all, mut journal, mut next) = (Configurations::default(), Journal::default(), 5);
        all.ask(AT, some(1), &mut next, &mut journal).unwrap();
        let (batch, _) = journal.take();
        let (key, json) = &batch.rows()[0];
        assert_eq!(key, "configuration/3/7");
        let remembered = serde_json::from_slice(json.as_ref().unwrap()).unwrap();
        let mut again = Configurations::new(vec![("3/7".parse().unwrap(), remembered)]);
        assert_eq!(again.by_place[&AT].configuration, some(1));
        assert_eq!((again.parameters(AT), again.highest_version()), (Some([1, 0]), 5));
        again.forget(7, &mut journal);
        assert_eq!(again.parameters(AT), None);
        assert_eq!(journal.take().0.rows(), [("configuration/3/7".into(), None)]);
        let long = Configuration {
            rows: vec![Row { value: vec![0; ROW_MAX].into(), ..some(1).rows[0].clone() }],
            ..some(1)
        };
        let refused = again.ask(AT, long, &mut next, &mut journal).unwrap_err();
        assert!(refused.contains("at most"), "{refused}");
        assert!("3".parse::<Place>().is_err());
    }
}
