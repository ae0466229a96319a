//! The control half: gives each tenant its ceiling, and makes the items that stores hear of.

use std::{collections::BTreeMap, time::Duration};

use bytes::Bytes;
use decide::{Action, Change, Configuration, Discipline, Event, Key, Record, Row, SwitchId};

/// No number goes beyond it.
pub const CEILING: u64 = 1 << 40;

/// Knows the switch on which each tenant's items are made: the first on which it got memory.
#[derive(Default)]
pub struct Control {
    home: BTreeMap<u32, SwitchId>,
}

impl Discipline for Control {
    fn on(&mut self, _now: Duration, event: Event<'_>, out: &mut Vec<Action>) {
        match event {
            Event::Room { tenant, rooms: [] } => {
                self.home.remove(&tenant);
            }
            // Items stay where they are, whatever memory comes later: nobody else has them.
            Event::Room { tenant, rooms } => {
                let switch = *self.home.entry(tenant).or_insert(rooms[0].switch);
                out.push(configure(switch, tenant));
            }
            // If there is no room the client hears "try again" once more, and the store tells us again.
            Event::Reported { tenant, report, .. } => {
                out.extend(self.home.get(&tenant).map(|switch| Action::Change {
                    switch: *switch,
                    tenant,
                    key: Key::copy_from_slice(report),
                    change: Change::Put(Record::Given(Bytes::from_static(&[0; 8]))),
                }));
            }
            _ => {}
        }
    }
}

/// The tenant's row of `highest_ceilings`.
fn configure(switch: SwitchId, tenant: u32) -> Action {
    let ceiling = Row {
        map: "highest_ceilings".into(),
        key: Bytes::copy_from_slice(&tenant.to_ne_bytes()),
        value: Bytes::copy_from_slice(&CEILING.to_ne_bytes()),
    };
    Action::Configure {
        switch,
        tenant,
        configuration: Configuration {
            rows: vec![ceiling],
            ..Configuration::default()
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use decide::Room;

    fn on(control: &mut Control, event: Event<'_>) -> Vec<Action> {
        let mut out = vec![];
        control.on(Duration::ZERO, event, &mut out);
        out
    }

    #[test]
    fn a_key_that_a_store_hears_of_is_made_where_its_tenant_got_memory_first() {
        let mut control = Control::default();
        let room = |switch| Room {
            switch,
            pages: 1,
            lent: 0,
            parameters: None,
        };
        let reported = Event::Reported {
            store: ([10, 0, 0, 1], 7117).into(),
            tenant: 7,
            report: b"lot 4",
        };
        assert_eq!(on(&mut control, reported), [], "no memory, no item");
        for rooms in [&[room(3)][..], &[room(2), room(3)]] {
            let told = on(&mut control, Event::Room { tenant: 7, rooms });
            assert_eq!(told, [configure(3, 7)]);
        }
        let [Action::Change { switch, key, .. }] = &on(&mut control, reported)[..] else {
            panic!("one change was expected");
        };
        assert_eq!((*switch, &key[..]), (3, &b"lot 4"[..]));
    }
}
