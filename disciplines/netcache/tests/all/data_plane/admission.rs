//! Who may use the cache.

use harness::{Case, Expectation::*, Message, switch::in_this_process};
use wire::Op;

use super::world::*;

#[test]
fn admitted_or_not() {
    check(&[
        Case::of("an unknown tenant")
            .packet(|_| Message::read(UNKNOWN, KEY))
            .then(Forwarded, &["bypass_unknown_tenant", "pass_local"]),
        Case::of("a tenant without a discipline here")
            .packet(|_| Message::read(PLAIN, KEY))
            .then(Forwarded, &["bypass_no_discipline", "pass_local"]),
        cached("a wrong tag, of a key that is cached")
            .packet(|_| Message::read(SIGNED, KEY).with_a_wrong_tag())
            .then(Forwarded, &["bypass_bad_tag", "pass_local"]),
        Case::of("tenant 0 has no tag to be wrong")
            .given(|w| w.cached(OPEN, KEY, b""))
            .packet(|_| {
                let mut read = Message::read(OPEN, KEY);
                read.spoil = 0;
                read
            })
            .then(Answered(b""), &["hit"]),
        Case::of("a tag under the secret that is accepted as well: answered under the same")
            .given(|w| w.cached(ROTATING, KEY, V128))
            .packet(|_| Message::read(ROTATING, KEY).signed_with(ALSO))
            .then(Answered(V128), &["hit"]),
        Case::of("while the tenant's own goes on to count")
            .given(|w| w.cached(ROTATING, KEY, V128))
            .packet(|_| Message::read(ROTATING, KEY))
            .then(Answered(V128), &["hit"]),
        Case::of("a write under the other secret: stamped under it")
            .given(|w| w.cached(ROTATING, KEY, V128))
            .packet(|_| Message::write(ROTATING, KEY, b"new").signed_with(ALSO))
            .then(Stamped { grant: true }, &["write", "write_invalidated", "pass_local"]),
        Case::of("a grant under the other secret")
            .given(|w| w.lease(TERM))
            .and(|w| w.entry(ROTATING, KEY, 128))
            .packet(|w| {
                Message::grant(Op::ReadReply, ROTATING, KEY, V128, w.epoch(ROTATING, KEY))
                    .signed_with(ALSO)
            })
            .then(Forwarded, &["grant_installed", "pass_local"]),
        Case::of("neither secret")
            .given(|w| w.cached(ROTATING, KEY, V128))
            .packet(|_| Message::read(ROTATING, KEY).signed_with(wire::Secret([9; 16])))
            .then(Forwarded, &["bypass_bad_tag", "pass_local"]),
        cached("another tenant's second secret")
            .packet(|_| Message::read(SIGNED, KEY).signed_with(ALSO))
            .then(Forwarded, &["bypass_bad_tag", "pass_local"]),
        cached("no second secret is not one of zeros")
            .packet(|_| Message::read(SIGNED, KEY).signed_with(wire::Secret::NONE))
            .then(Forwarded, &["bypass_bad_tag", "pass_local"]),
        Case::of("the first request within the rate")
            .packet(|_| Message::read(LIMITED, KEY))
            .then(Forwarded, &["miss", "pass_local"]),
        Case::of("above the rate: past the cache")
            .given(|w| {
                w.cached(LIMITED, KEY, V128);
                w.send_as("hit", Message::read(LIMITED, KEY));
                w.over_rate(LIMITED);
            })
            .packet(|_| Message::read(LIMITED, KEY))
            .then(Forwarded, &["bypass_over_rate", "pass_local"]),
        Case::of("above the rate of a tenant that is set to drop")
            .given(|w| {
                w.cached(STRICT, KEY, V128);
                w.send_as("hit", Message::read(STRICT, KEY));
                w.over_rate(STRICT);
            })
            .packet(|_| Message::read(STRICT, KEY))
            .then(Dropped, &["drop_over_rate"]),
        Case::of("replies do not count against a rate")
            .given(|w| {
                w.lease(TERM);
                w.entry(STRICT, KEY, 128);
                w.send(Message::read(STRICT, KEY));
                w.over_rate(STRICT);
                w.send_as("drop_over_rate", Message::read(STRICT, KEY));
            })
            .packet(|w| w.grant(STRICT, KEY, V128))
            .then(Dropped, &["grant_installed", "fetch_reply"]),
    ]);
}

/// The store must learn of every write with an epoch, or invalidate by itself: over the rate it
/// does the latter.
#[test]
fn a_write_above_the_rate_is_not_stamped() {
    check(&[Case::of("the write goes on as it came; the store will invalidate")
        .given(|w| {
            w.cached(LIMITED, KEY, V128);
            w.send_as("hit", Message::read(LIMITED, KEY));
            w.over_rate(LIMITED);
        })
        .packet(|_| Message::write(LIMITED, KEY, b"new"))
        .then(Forwarded, &["bypass_over_rate", "pass_local"])]);
}

/// Whatever is not admitted leaves every table as it was, whether it reads, writes or claims to
/// grant.
#[test]
fn who_is_not_admitted_touches_no_cache() {
    type Spoil = fn(&World, Message) -> Message;
    // (counter, tenant, what makes its packets inadmissible)
    let rows: [(&str, u32, Spoil); 4] = [
        ("bypass_bad_tag", SIGNED, |_, m| m.with_a_wrong_tag()),
        ("bypass_unknown_tenant", SIGNED, |w, m| {
            let others: Vec<_> = tenants().into_iter().filter(|t| t.id != SIGNED).collect();
            w.install(&others);
            m
        }),
        ("bypass_over_rate", LIMITED, |w, m| {
            w.send(Message::read(LIMITED, KEY));
            w.over_rate(LIMITED);
            m
        }),
        ("drop_over_rate", STRICT, |w, m| {
            w.send(Message::read(STRICT, KEY));
            w.over_rate(STRICT);
            m
        }),
    ];
    for (counter, tenant, spoil) in rows {
        let mut w = world();
        w.cached(tenant, KEY, V128);
        report_from(&w, &[(tenant, 1)]);
        let messages = [
            Message::read(tenant, KEY),
            Message::read(tenant, b"another"),
            Message::write(tenant, KEY, b"new"),
        ]
        .map(|message| spoil(&w, message));
        let tables = || {
            let names = super::malformed::TABLES.into_iter().chain(["hits", "sketches"]);
            names.map(|name| w.switch.snapshot(name)).collect::<Vec<_>>()
        };
        let before = tables();
        for message in messages {
            w.send_as(counter, message);
        }
        assert!(before == tables(), "{counter}");
        assert_eq!(w.switch.events.drain().expect("the ring").count(), 0);
    }
}

/// Two CPUs may look at the same moment: whatever both let through is charged.
#[test]
fn requests_that_meet_on_two_cpus_are_all_charged() {
    const CHARGE_NS: u64 = 1_000_000_000; // at one request per second
    in_this_process(|| {
        let mut together = 0;
        for at in 0.. {
            let w = world();
            let other = w.switch.another_runner();
            let frame = Message::read(LIMITED, KEY).frame().bytes();
            let began_ns = w.switch.leases.now_ns();
            let (mut moments, mut has_met) = (0, false);
            w.switch.runner.run_with(&frame, &mut || {
                if moments == at {
                    other.run(&frame, None, &mut vec![]);
                    has_met = true;
                }
                moments += 1;
            });
            if !has_met {
                break;
            }
            let counts = w.switch.counts();
            let over = counts.iter().find(|(name, _)| *name == "bypass_over_rate");
            let through = 2 - over.expect("a counter").1;
            together += u32::from(through == 2);
            assert!(w.next_ns(LIMITED) >= began_ns + through * CHARGE_NS, "at moment {at}");
        }
        assert!(together > 0, "they never met where the rate is looked at");
    });
}

/// Otherwise every change of a tenant would be a burst for all.
#[test]
fn a_tenant_that_stays_goes_on_with_its_rate() {
    let w = world();
    w.send_as("miss", Message::read(LIMITED, KEY));
    w.over_rate(LIMITED);
    w.send_as("bypass_over_rate", Message::read(LIMITED, KEY));
    let changed = tenants()
        .into_iter()
        .map(|tenant| dataplane::TenantEntry { drop_over_rate: true, ..tenant });
    w.install(&changed.collect::<Vec<_>>());
    w.send_as("drop_over_rate", Message::read(LIMITED, KEY));
    report_from(&w, &[(LIMITED, 5)]);
    w.send_as("drop_over_rate", Message::read(LIMITED, KEY));
    w.install(&[]);
    w.install(&tenants());
    w.send_as("miss", Message::read(LIMITED, KEY));
}

/// Tenants whose numbers are alike in the bits by which a switch notes them.
fn alike() -> Vec<dataplane::TenantEntry> {
    let discipline = tenants()[0].discipline;
    let numbers = (0..6).map(|i| 100 + 2048 * i);
    numbers.map(|id| harness::switch::tenant(id, discipline)).collect()
}

/// Each is asked for under its own secret, however many there are for the places where they are
/// noted.
#[test]
fn tenants_that_are_noted_in_one_place_are_told_apart() {
    let w = world();
    let all = alike();
    w.install(&all);
    for _ in 0..4 {
        for tenant in &all {
            w.send_as("miss", Message::read(tenant.id, KEY));
            let forged = Message::read(tenant.id, KEY).with_a_wrong_tag();
            w.send_as("bypass_bad_tag", forged);
        }
    }
    w.install(&all[1..]);
    w.send_as("bypass_unknown_tenant", Message::read(all[0].id, KEY));
    w.send_as("miss", Message::read(all[1].id, KEY));
}

/// Otherwise each of their packets would look its tenant up.
#[test]
fn two_tenants_of_one_place_are_both_noted() {
    let w = world();
    let all = alike();
    w.install(&all);
    let noted_after = |tenant: &dataplane::TenantEntry| {
        w.send_as("miss", Message::read(tenant.id, KEY));
        w.switch.snapshot("known_tenants")
    };
    // A packet that another processor than before has to do with is noted there.
    let mut rounds = 0..100;
    assert!(rounds.any(|_| noted_after(&all[0]) == noted_after(&all[1])));
}
