//! How packets go from switch to switch.

use std::{collections::VecDeque, net::SocketAddr};

use chain_wire::Route;
use harness::{
    SeenFrame, Verdict,
    message::{address, secret_of},
};
use wire::{Epoch, Flags, Packet, Status};

use super::{Arrival, CLIENT_HOST, Hop, Message, Net, TENANT, host};

/// As in `bpf/recirculate.h`.
const RECIRCULATION_MAC: [u8; 6] = [0x02, 0x73, 0x68, 0x6f, 0x72, 0x74];

impl Net {
    /// From now on packets between switches are lost of which this says so.
    pub fn lose(&self, loses: impl FnMut(&Hop<'_>) -> bool + 'static) {
        *self.loses.borrow_mut() = Some(Box::new(loses));
    }

    pub fn lose_nothing(&self) {
        *self.loses.borrow_mut() = None;
    }

    fn slot_of(&self, to: SocketAddr) -> Option<usize> {
        let mut slots = 0..self.switches.len();
        slots.find(|slot| host(*slot, self.six) == to.ip())
    }

    /// Sends a packet to the switch of its address; what comes of it in all of them, until nothing
    /// moves, and leaves for others.
    pub fn send(&self, message: Message) -> Vec<Arrival> {
        let at = self.slot_of(message.to).expect("a switch's address");
        self.send_by(at, message)
    }

    /// Likewise to another switch than the one that it is for.
    pub fn send_by(&self, at: usize, message: Message) -> Vec<Arrival> {
        self.counted.borrow_mut().clear();
        self.passed.set(0);
        let mut coming = VecDeque::from([(at, message.frame().bytes(), false)]);
        let mut came = vec![];
        let mut steps = 0;
        while let Some((slot, frame, is_round)) = coming.pop_front() {
            steps += 1;
            assert!(steps < 200, "it never ends: {:?}", self.counted.borrow());
            self.had.borrow_mut().push(slot);
            let switch = &self.switches[slot].switch;
            let run = match is_round {
                true => switch.run_round(&frame),
                false => switch.run(&frame, None),
            };
            let moved = |name| run.moved.contains_key(name);
            println!("{slot}: {:?} {:?}", run.verdict, run.moved);
            let mut counted = self.counted.borrow_mut();
            counted.extend(run.moved.iter().map(|(name, by)| (slot, *name, *by)));
            drop(counted);
            if run.verdict == Verdict::Pass {
                // The kernel drops what is for another Ethernet address than came in with it.
                let own = if is_round { &RECIRCULATION_MAC } else { &frame[..6] };
                assert_eq!(&run.frame[..6], own, "at {slot}: {:?}", run.moved);
                self.passed.set(self.passed.get() + 1);
            }
            if run.verdict == Verdict::Drop {
                continue;
            }
            if moved("recirculate") {
                coming.push_back((slot, run.frame, true));
                continue;
            }
            if moved("order_round") {
                coming.push_back((slot, run.frame.clone(), true));
            }
            let seen = SeenFrame::read(&run.frame).expect("right checksums");
            self.route(slot, seen, run.frame, &mut coming, &mut came);
        }
        came
    }

    fn route(
        &self,
        from: usize,
        seen: SeenFrame,
        frame: Vec<u8>,
        coming: &mut VecDeque<(usize, Vec<u8>, bool)>,
        came: &mut Vec<Arrival>,
    ) {
        let packet = Packet::decode(&seen.payload).expect("a packet of ours");
        let is_system = packet.header.op.is_system();
        assert_eq!(seen.trailer, 0);
        // What a switch sends to itself is its agent's.
        let to = self.slot_of(seen.to).filter(|to| *to != from);
        let secret = secret_of(if is_system { wire::TENANT_SYSTEM } else { TENANT });
        let is_signed = packet.tag_is_valid(&secret);
        let going = Hop { to, packet: &packet };
        if let Some(loses) = &mut *self.loses.borrow_mut()
            && loses(&going)
        {
            println!("   lost: {:?}", packet.header);
            return;
        }
        let next = match to {
            _ if !self.in_line => to,
            Some(to) if to > from => Some(from + 1),
            _ => from.checked_sub(1),
        };
        match next {
            Some(to) => coming.push_back((to, frame, false)),
            None => came.push(Arrival {
                from: seen.from,
                to: seen.to,
                header: packet.header,
                value: packet.value.into(),
                is_signed,
            }),
        }
    }

    /// Sends a request to which one answer comes.
    pub fn ask(&self, message: Message) -> Arrival {
        let request = message.header.request;
        let mut came = self.send(message);
        assert_eq!(came.len(), 1, "{came:?} {:?}", self.counted.borrow());
        let came = came.remove(0);
        assert_eq!(came.to, SocketAddr::new(address(self.six, CLIENT_HOST), 40_001));
        assert_eq!((came.header.request, came.is_signed), (request, true));
        assert!(came.header.flags.has(Flags::CACHED));
        assert_eq!(came.header.epoch, Epoch(self.view.number));
        came
    }

    /// How many packets each switch had since this was last asked.
    pub fn packets(&self) -> Vec<usize> {
        let had = self.had.take();
        let of = |slot| had.iter().filter(|by| **by == slot).count();
        (0..self.switches.len()).map(of).collect()
    }

    /// How often a counter moved since the last packet was sent.
    pub fn count(&self, name: &str) -> u64 {
        let counted = self.counted.borrow();
        let its = counted.iter().filter(|(_, counter, _)| *counter == name);
        its.map(|(_, _, by)| by).sum()
    }

    /// A route as the answer says it.
    pub fn route_in(&self, came: &Arrival) -> Route {
        assert_eq!(came.header.status, Status::Moved);
        Route::decode(&came.value).expect("a route")
    }
}
