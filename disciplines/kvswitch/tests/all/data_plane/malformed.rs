//! Spoiled packets: each comes to one end, and none changes a record or what is known of stores.

use dataplane::Rows;
use harness::noise::{every_way, noise};

use super::world::{Leaves::To, *};

const PACKETS: u32 = 40_000;

#[test]
fn spoiled_packets_come_to_one_end_and_change_nothing() {
    harness::switch::on_roads(|| {
        let mut w = world();
        w.switch.send_round_on_roads();
        hot(&mut w, &[A], &[]);
        let signed = [SIGNED, wire::TENANT_SYSTEM].map(|id| harness::switch::tenant(id, KVSWITCH));
        w.install(&signed);
        let update = Message::from_client(Op::ReplicaUpdate, SIGNED, KEY);
        let kinds = [
            read(),
            Message::read(SIGNED, b"another key"),
            write(),
            Message::delete(SIGNED, KEY),
            confirms(C),
            update.value(b"value"),
            Message::from_store(Op::ReadReply, SIGNED, KEY).value(b"value"),
        ];
        let tables = || {
            let rows = Rows::open(w.switch.backing(), "kvswitch", kvswitch::servers::MAP);
            let mut rows = rows.and_then(|rows| rows.list()).expect("a map");
            rows.sort_unstable();
            (["buckets", "pages"].map(|name| w.switch.snapshot(name)), rows)
        };
        let before = tables();
        noise(&w, &every_way(&kinds), PACKETS, None);
        assert!(before == tables(), "a table has changed");
        run_step(&w, 0, &(|_| read(), &[To(A)], &["redirect", "forward"]));
    });
}
