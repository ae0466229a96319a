//! What goes wrong in namespaces, turn by turn: the tenants' pages move, and one thing more is
//! done, each kind in its turn. The simulated hunt draws at random instead.

use ::hunt::{Act, Deed};

use super::{
    TENANTS,
    layout::{CLIENT_HOSTS, CUT, FIRST, SECOND, SERVERS},
};

/// What is done in turn.
const KINDS: u32 = 7;
/// Quotas that page moves go through. With none of its own a tenant leaves every switch.
pub(super) const PLACES: [u32; 5] = [2, 3, 0, 1, 2];
/// The policies that go with them, by their numbers in [`Act::Move`].
const POLICIES: [u8; 5] = [0, 1, 2, 2, 3];
/// Lengths of leases in milliseconds that the cluster file has, from one store's start to the next.
const LEASES: [u32; 3] = [1500, 2000, 1000];
/// How long what stands still does so, in milliseconds: longer than the longest lease.
const STAND_STILL_MS: u64 = 2300;

/// What is done in the turn of this number, so long after its beginning.
pub(super) fn turn(number: u32, at_ms: u64) -> Vec<Deed> {
    let time = (number / KINDS) as usize;
    let store = time % SERVERS.len();
    // Every other time around, the other one of two.
    let [one, other] = if time.is_multiple_of(2) { [FIRST, SECOND] } else { [SECOND, FIRST] };
    let once = |act| Deed { at_ms, for_ms: 0, act };
    let kill = |process: String| once(Act::Kill { process });
    let stop = |process| Deed { at_ms, for_ms: STAND_STILL_MS, act: Act::Stop { process } };
    let moves = (0..).zip(named()).map(|(i, tenant)| {
        let place = (number as usize + i) % PLACES.len();
        once(Act::Move { tenant, quota: PLACES[place], policy: POLICIES[place] })
    });
    let mut deeds: Vec<Deed> = moves.collect();
    match number % KINDS {
        0 => deeds.push(once(Act::Relend { store, lease_ms: LEASES[time % LEASES.len()] })),
        1 => {
            // A second change of secrets is refused until the first is over.
            let all = named().filter(|_| time == 0);
            deeds.extend(all.map(|tenant| once(Act::Rotate { tenant })));
            deeds.push(kill(format!("{one}/agent")));
        }
        2 => deeds.push(kill("control/control".into())),
        3 => deeds.push(once(Act::Reboot { machine: other.into() })),
        4 => deeds.push(once(Act::Data { store })),
        5 => deeds.push(once(Act::Cut { link: CUT })),
        _ => {
            let clients = CLIENT_HOSTS[time % CLIENT_HOSTS.len()];
            let both = [format!("{}/store", SERVERS[store]), format!("{clients}/clients0")];
            deeds.extend(both.map(stop));
        }
    }
    deeds
}

/// The tenants with secrets.
fn named() -> impl Iterator<Item = u32> {
    TENANTS.into_iter().filter(|id| *id != wire::TENANT_OPEN)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn each_kind_comes_in_its_turn() {
        let all: Vec<Deed> = (0..KINDS).flat_map(|number| turn(number, 800)).collect();
        let names: BTreeSet<&str> = all.iter().map(Deed::name).collect();
        let expected = [
            "cut",
            "data_restarted",
            "killed",
            "leases_rewritten",
            "moved",
            "rebooted",
            "secrets_rotated",
            "stopped",
        ];
        assert!(names.iter().eq(&expected), "{names:?}");
        assert!(all.iter().all(|deed| deed.at_ms == 800));
        let rotated = |number| turn(number, 0).iter().any(|d| matches!(d.act, Act::Rotate { .. }));
        assert!(rotated(1) && !rotated(1 + KINDS));
        // (which switch loses its tables the first time, and the second)
        let rebooted = |number| {
            let deeds = turn(number, 0);
            deeds.into_iter().find_map(|deed| match deed.act {
                Act::Reboot { machine } => Some(machine),
                _ => None,
            })
        };
        assert_eq!(rebooted(3).as_deref(), Some(SECOND));
        assert_eq!(rebooted(3 + KINDS).as_deref(), Some(FIRST));
    }
}
