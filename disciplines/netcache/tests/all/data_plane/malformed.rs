//! Packets by the hundred thousand that were right once: each comes to one end, and none that is
//! signed wrong changes a table.

use wire::{Epoch, Op};

use harness::{
    Message, Switch,
    noise::{Seed, every_way, noise},
};

use super::world::*;

/// What well-formed packets end as.
const OF_WELL_FORMED: [&str; 16] = [
    "drop_over_rate",
    "drop_rounds",
    "drop_refused",
    "drop_source",
    "drop_spoiled", // the system has a secret
    // Nothing is lent here.
    "drop_keep_old",
    "drop_lent_busy",
    "drop_lent_over",
    // Switches keep no keys in order here.
    "drop_order_number",
    "drop_order_stranger",
    "drop_order_held",
    "drop_order_again",
    "drop_order_early",
    "drop_order_missing",
    "drop_order_unfilled",
    "drop_order_busy",
];
const PACKETS: u32 = 110_000;

/// One packet of every kind that the programs know, for a key that is cached, over IPv4, IPv6 and a
/// VLAN.
fn seeds(w: &World, tenant: u32) -> Vec<Seed> {
    let here = Epoch::new(Switch::ID, w.switch.table.epoch());
    let kinds = [
        Message::read(tenant, KEY).padded(128),
        Message::read(tenant, KEY),
        Message::read(tenant, b"another key"),
        Message::read(tenant, &[b'k'; 250]),
        Message::write(tenant, KEY, V128),
        Message::delete(tenant, KEY),
        Message::from_client(Op::CorrectionRequest, tenant, KEY),
        Message::from_store(Op::Invalidate, tenant, KEY).epoch(here),
        Message::from_client(Op::InvalidateAck, tenant, KEY).epoch(here),
        Message::grant(Op::ReadReply, tenant, KEY, V128, here),
        Message::grant(Op::WriteReply, tenant, KEY, V128, here),
        Message::grant(Op::FetchReply, tenant, KEY, V128, here),
        Message::lease(Op::LeaseOffer, Switch::ID, w.slot(false)),
        w.lease_reply(TERM, 600_000, 0),
    ];
    every_way(&kinds)
}

/// What some packets have done is undone now and then, so that there are hits.
fn fill_again(w: &World, tenant: u32) {
    w.lease(TERM);
    w.send(Message::write(tenant, KEY, b""));
    w.send_as("grant_installed", w.grant(tenant, KEY, V128));
}

pub const TABLES: [&str; 5] = ["config", "buckets", "pages", "leases", "probation"];

fn run(w: &World, tenant: u32, may_act: bool) {
    let refill = || fill_again(w, tenant);
    let refill: Option<&dyn Fn()> = if may_act { Some(&refill) } else { None };
    let endings = noise(w, &seeds(w, tenant), PACKETS, refill);
    let counters = w.switch.counts().into_iter().map(|(name, _)| name);
    let missing: Vec<_> = counters
        .filter(|name| name.starts_with("drop_") && !OF_WELL_FORMED.contains(name))
        .filter(|name| !endings.contains_key(name))
        .collect();
    assert!(missing.is_empty(), "nothing ended as {missing:?}");
}

#[test]
fn with_a_secret_they_change_no_table() {
    let mut w = world();
    w.cached(SIGNED, KEY, V128);
    // Its own rows say what tenant 0 and others may do; here all that is left is signed.
    let signed = [SIGNED, wire::TENANT_SYSTEM].map(|id| harness::switch::tenant(id, 3));
    w.install(&signed);
    let tables = || TABLES.map(|name| w.switch.snapshot(name));
    let before = tables();
    run(&w, SIGNED, false);
    for ((name, before), after) in TABLES.iter().zip(before).zip(tables()) {
        assert!(before == after, "{name} has changed");
    }
    let events: Vec<_> = w.switch.events.drain().expect("the ring").collect();
    assert_eq!(events, []);
    w.send_as("hit", Message::read(SIGNED, KEY));
}

#[test]
fn without_a_secret_each_comes_to_one_end() {
    let mut w = world();
    w.cached(OPEN, KEY, V128);
    run(&w, OPEN, true);
}
