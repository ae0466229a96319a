//! The whole way of a loan, through both of its switches.

use dataplane::LoanCounts;
use harness::{Message, Verdict, World};
use wire::{Flags, Op, Status};

use super::world::*;

fn lent(w: &World) -> LoanCounts {
    LoanCounts::of(w.switch.backing()).expect("records")
}

#[test]
fn a_key_is_lent_written_read_and_given_back() {
    in_both(|| {
        let (x, y) = (switch(X), switch(Y));
        let prepared_y = prepared(&y, &prepare(&y, SIGNED, Y, false, L));
        let prepared_x = prepared(&x, &prepare(&x, SIGNED, X, true, L));
        send(&y, &begin(&y, SIGNED, prepared_y, false, L), &["lend"]);
        send(&x, &begin(&x, SIGNED, prepared_x, true, L), &["lend"]);

        assert_eq!((lent(&x).owns, lent(&x).keeps), (1, 0));
        assert_eq!((lent(&y).owns, lent(&y).keeps), (0, 1));

        let read = Message::read(SIGNED, KEY).padded(200);
        let (header, value) = send(&x, &read, &["lent_read"]).packet(read.secret);
        assert_eq!((header.op, header.flags), (Op::ReadReply, Flags::CACHED));
        assert_eq!((header.version, &value[..]), (VERSION, V));

        let wrote = write(SIGNED, 1, b"new");
        let asks = send(&x, &wrote, &["lent_write", "pass_local"]);
        assert_eq!(asks.run.verdict, Verdict::Pass);
        let (header, value) = asks.system();
        assert_eq!((header.op, header.epoch), (Op::KeepRequest, prepared_x));
        assert_eq!((header.node, header.life), (Y, L));
        assert_eq!((header.version, header.expiry_ms), (BASE + 1, 1));
        assert_eq!((asks.seen().from, asks.seen().to), (wrote.from, wrote.to));
        assert_eq!(value, b"new");
        // Nobody sees it before it is kept.
        let (header, _) = send(&x, &read, &["lent_read"]).packet(read.secret);
        assert_eq!(header.version, VERSION);

        let kept = send_frame(&y, &asks.run.frame, &["keep"]);
        went_back(&kept, &wrote);
        let (header, value) = kept.system();
        assert_eq!((header.op, header.epoch), (Op::KeepReply, prepared_x));
        assert_eq!((header.version, header.expiry_ms), (BASE + 1, 1));
        assert_eq!(value, b"new");

        let answer = send_frame(&x, &kept.run.frame, &["lent_answer", "pass_local"]);
        assert_eq!(answer.run.verdict, Verdict::Pass);
        let (header, value) = answer.packet(wrote.secret);
        assert_eq!((header.op, header.status), (Op::WriteReply, Status::Ok));
        assert_eq!((header.version, header.flags), (BASE + 1, Flags::CACHED));
        assert_eq!((header.request, header.life), (1, L));
        assert!(value.is_empty());
        let (header, value) = send(&x, &read, &["lent_read"]).packet(read.secret);
        assert_eq!((header.version, &value[..]), (BASE + 1, &b"new"[..]));

        for (switch, id) in [(&y, Y), (&x, X)] {
            let ask = take(SIGNED, id, L, true, VERSION);
            let taken = send(switch, &ask, &["take"]);
            went_back(&taken, &ask);
            let (header, value) = taken.system();
            assert_eq!((header.op, header.status), (Op::TakeReply, Status::Ok));
            assert_eq!((header.flags, header.version), (Flags::GRANT, BASE + 1));
            assert_eq!(value, b"new");
        }
        let sealed = LoanCounts { sealed: 1, ..LoanCounts::default() };
        assert_eq!(lent(&x), sealed);
        assert_eq!(lent(&y), sealed);
        let passed = ["bypass_no_discipline", "pass_local"];
        send(&x, &read, &passed);
        send(&x, &write(SIGNED, 2, b"newer"), &passed);
        send_frame(&y, &asks.run.frame, &["keep_pass", "pass_local"]);
        send_frame(&x, &kept.run.frame, &["drop_lent_over"]);
    });
}
