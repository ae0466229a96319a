//! The control half: gives each tenant its ceiling, and makes the items that stores hear of.

use std::{collections::BTreeMap, net::SocketAddr, time::Duration};

use bytes::Bytes;
use decide::{Action, Change, Configuration, Discipline, Key, Record, Room, Row, SwitchId};

/// No number goes beyond it.
pub const CEILING: u64 = 1 << 40;

/// Knows the switch on which each tenant's items are made: the first on which it got memory.
#[derive(Default)]
pub struct Control {
    home: BTreeMap<u32, SwitchId>,
}

impl Discipline for Control {
    /// Items stay where they are, whatever memory comes later: nobody else has them.
    fn room(&mut self, _now: Duration, tenant: u32, rooms: &[Room], out: &mut Vec<Action>) {
        match rooms {
            [] => {
                self.home.remove(&tenant);
            }
            [first, ..] => {
                let switch = *self.home.entry(tenant).or_insert(first.switch);
                out.push(configure(switch, tenant));
            }
        }
    }

    /// If there is no room the client hears "try again" once more, and the store tells us again.
    fn store_reported(
        &mut self,
        _now: Duration,
        _store: SocketAddr,
        tenant: u32,
        report: &[u8],
        out: &mut Vec<Action>,
    ) {
        out.extend(self.home.get(&tenant).map(|switch| Action::Change {
            switch: *switch,
            tenant,
            key: Key::copy_from_slice(report),
            change: Change::Put(Record::Given(Bytes::from_static(&[0; 8]))),
        }));
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
        configuration: Configuration { rows: vec![ceiling], ..Configuration::default() },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_that_a_store_hears_of_is_made_where_its_tenant_got_memory_first() {
        let mut control = Control::default();
        let room = |switch| Room { switch, pages: 1, lent: 0, parameters: None };
        let store = ([10, 0, 0, 1], 7117).into();
        let mut out = vec![];
        control.store_reported(Duration::ZERO, store, 7, b"lot 4", &mut out);
        assert_eq!(out, [], "no memory, no item");
        for rooms in [&[room(3)][..], &[room(2), room(3)]] {
            control.room(Duration::ZERO, 7, rooms, &mut out);
            assert_eq!(std::mem::take(&mut out), [configure(3, 7)]);
        }
        control.store_reported(Duration::ZERO, store, 7, b"lot 4", &mut out);
        let [Action::Change { switch, key, .. }] = &out[..] else {
            panic!("one change was expected");
        };
        assert_eq!((*switch, &key[..]), (3, &b"lot 4"[..]));
    }
}
