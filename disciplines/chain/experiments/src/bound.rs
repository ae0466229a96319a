//! How many times NetChain's reads NetCRAQ can have at most, beside writes: what packets cost a
//! member says so, before anything is measured.

use chain_wire::ROUTE_MOST;
use plan::Hardware;
use wire::HEADER_LEN;

/// Bytes of a request in its frame over IPv4: a key of 16 bytes, and room for whom to ask.
const FRAME: f64 = (14 + 20 + 8 + HEADER_LEN + 16 + ROUTE_MOST) as f64;

/// What packets cost a member, in nanoseconds.
#[derive(Clone, Copy, Debug)]
pub struct PacketCosts {
    /// One that it answers.
    pub answered: f64,
    /// One that it passes on.
    pub forwarded: f64,
    /// One that carries a write.
    pub written: f64,
}

impl PacketCosts {
    /// Those of a simulated switch.
    pub fn of(hardware: &Hardware) -> PacketCosts {
        let least = 1e9 / hardware.switch_rate + hardware.byte_ns * FRAME;
        PacketCosts {
            answered: least + hardware.program_ns.answered,
            forwarded: least + hardware.program_ns.forwarded,
            written: least + hardware.program_ns.written,
        }
    }

    /// The most that NetCRAQ's reads can be per NetChain's, in a line of so many members that all
    /// are asked alike, each with time of its own, where this part of the operations writes.
    ///
    /// In NetChain the member before the tail passes on every read but the tail's own, there and
    /// back, or else the tail answers all. In NetCRAQ a member answers its own at best. Of a write
    /// each member has a packet that carries it at least, and all but the tail one on the way back
    /// if they are to answer reads: the answer, or word that it is committed.
    pub fn speedup_at_most(&self, members: u16, writes: f64) -> f64 {
        let members = f64::from(members);
        let reads = 1.0 - writes;
        let passed = 2.0 * self.forwarded * (members - 1.0) / members;
        let netchain = passed.max(self.answered);
        let netcraq = self.answered / members;
        let write = self.written + self.forwarded;
        (writes * write + reads * netchain) / (writes * write + reads * netcraq)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_alone_gain_by_the_members_and_beside_as_many_writes_never_twice() {
        let alike = PacketCosts { answered: 1.0, forwarded: 1.0, written: 1.0 };
        assert_eq!(alike.speedup_at_most(4, 0.0), 6.0);
        assert_eq!(alike.speedup_at_most(8, 0.0), 14.0);
        assert_eq!(alike.speedup_at_most(4, 1.0), 1.0);
        for members in 2..=8 {
            for forwarded in [0.5, 1.0, 2.0, 5.0] {
                let costs = PacketCosts { answered: 0.1, forwarded, written: forwarded };
                assert!(costs.speedup_at_most(members, 0.5) < 2.0, "{members}, {forwarded}");
            }
        }
    }

    #[test]
    fn a_packet_costs_what_the_hardware_says() {
        let hardware = Hardware { switch_rate: 1e7, byte_ns: 0.5, ..Hardware::default() };
        assert_eq!(PacketCosts::of(&hardware).answered, 241.0);
    }
}
