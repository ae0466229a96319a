//! A switch that leaves: what it serves until when, and what it tells stores.

use harness::message::store;
use wire::{Header, Op, Packet, Secret};

use super::{probation::Rig, *};
use crate::SwitchDeparture;

const MS: Duration = Duration::from_millis(1);

/// What goes to stores and comes from them.
#[derive(Clone, Default)]
struct Post {
    sent: Rc<RefCell<Vec<Header>>>,
    came: Rc<RefCell<Vec<Datagram>>>,
}

impl Courier for Post {
    fn send(&mut self, to: SocketAddr, datagram: &[u8]) {
        assert_eq!(to, store(false));
        self.sent.borrow_mut().push(Packet::decode(datagram).unwrap().header);
    }

    fn receive(&mut self, take: &mut dyn FnMut(SocketAddr, &[u8])) {
        self.came.take().iter().for_each(|(from, datagram)| take(*from, datagram));
    }
}

impl Post {
    /// What was said since the last time: how long the switch serves still, and which term it is.
    fn said(&self) -> Vec<(u32, u64)> {
        let said = self.sent.take().into_iter();
        said.map(|header| {
            assert_eq!((header.op, header.epoch.switch()), (Op::LeaseReturn, 1));
            (header.expiry_ms, header.client)
        })
        .collect()
    }

    /// The store answers what it was last told; so many keys are lent still.
    fn answer(&self, asked: Header, lent: u32) {
        let reply = Header { op: Op::LeaseReturned, expiry_ms: lent, ..asked };
        let datagram = Packet::new(reply, &[], &[]).to_bytes(&Secret::NONE).unwrap();
        self.came.borrow_mut().push((store(false), datagram));
    }

    fn last(&self) -> Header {
        *self.sent.borrow().last().expect("something was said")
    }
}

fn with_a_copy() -> Rig {
    let mut rig = Rig::start();
    rig.fill(COPIES, b"hot", b"value");
    assert!(rig.hits(COPIES, b"hot"));
    rig
}

#[test]
fn it_serves_until_nothing_is_lent_to_it_and_then_no_more() {
    let mut rig = with_a_copy();
    let (post, start) = (Post::default(), Instant::now());
    let mut leaving = SwitchDeparture::begin(rig.backing(), Box::new(post.clone()), start).unwrap();
    assert!(!leaving.tick(start).unwrap());
    post.answer(post.last(), 2);
    let said = post.said();
    assert!(matches!(said[..], [(1.., 1)]), "{said:?}");
    // Two keys are lent to it.
    assert!(!leaving.tick(start + MS).unwrap());
    assert!(rig.hits(COPIES, b"hot"));
    assert_eq!(post.said(), []);
    assert!(!leaving.tick(start + 20 * MS).unwrap());
    post.answer(post.last(), 0);
    assert_eq!(post.said().len(), 1, "it asks again");
    // Now there are none.
    assert!(!leaving.tick(start + 21 * MS).unwrap());
    assert_eq!(post.said(), [(0, 1)]);
    assert!(!rig.hits(COPIES, b"hot"));
    // Until the store has heard of that. What answers the first question does not count.
    assert!(!leaving.tick(start + 30 * MS).unwrap());
    assert_eq!(post.said(), []);
    assert!(!leaving.tick(start + 41 * MS).unwrap());
    post.answer(Header { version: 0, ..post.last() }, 0);
    assert!(!leaving.tick(start + 42 * MS).unwrap());
    post.answer(post.last(), 0);
    assert!(leaving.tick(start + 43 * MS).unwrap());
    assert_eq!((leaving.stores(), leaving.mute().count()), (1, 0));
    // Nothing brings the lease back that was on its way.
    (0..1_024).for_each(|slot| rig.renew(slot));
    assert!(!rig.hits(COPIES, b"hot"));
}

/// Programs go on asking for leases until nothing is lent any more.
#[test]
fn it_speaks_of_the_lease_that_it_has_by_now() {
    let mut rig = with_a_copy();
    let (post, start) = (Post::default(), Instant::now());
    let mut leaving = SwitchDeparture::begin(rig.backing(), Box::new(post.clone()), start).unwrap();
    leaving.tick(start).unwrap();
    assert!(matches!(post.said()[..], [(1.., 1)]));
    (0..1_024).for_each(|slot| rig.renew_in(slot, 2));
    leaving.tick(start + 20 * MS).unwrap();
    post.answer(post.last(), 0);
    assert!(matches!(post.said()[..], [(1.., 2)]));
    leaving.tick(start + 21 * MS).unwrap();
    assert_eq!(post.said(), [(0, 2)], "it was heard");
}

#[test]
fn a_store_that_does_not_answer_is_waited_for_half_a_second() {
    let mut rig = with_a_copy();
    let (post, start) = (Post::default(), Instant::now());
    let mut leaving = SwitchDeparture::begin(rig.backing(), Box::new(post.clone()), start).unwrap();
    for ms in 0..500 {
        assert!(!leaving.tick(start + ms * MS).unwrap());
    }
    assert!(rig.hits(COPIES, b"hot"));
    post.said();
    assert!(!leaving.tick(start + 501 * MS).unwrap());
    assert_eq!(post.said(), [(0, 1)], "it is told all the same");
    assert!(!rig.hits(COPIES, b"hot"));
    assert!(leaving.tick(start + 502 * MS).unwrap());
    assert!(leaving.mute().eq([store(false).ip()]));
}
