//! How a row is run and judged.

use wire::{Epoch, Flags, Header, Op, Packet};

use crate::{
    Message, SeenFrame, Switch, Verdict, World,
    frame::{MAC_HERE, MAC_THERE},
    switch::in_this_process,
};

/// One packet and what becomes of it.
pub struct Case {
    name: &'static str,
    given: fn(&mut World),
    and: fn(&mut World),
    packet: fn(&World) -> Message,
    then: Expectation,
    counts: &'static [&'static str],
}

/// Where the packet goes and how it looks. "Forwarded" is PASS: the test run has no route.
pub enum Expectation {
    /// Forwarded, byte for byte.
    Forwarded,
    /// Forwarded; the frame has grown, but not the datagram, which asks for the same.
    ForwardedInMeaning,
    /// Forwarded with (this switch, a new epoch), signed again, with GRANT or without.
    Stamped { grant: bool },
    /// Forwarded without a stamp that only claimed to be this switch's, signed again.
    Disowned,
    /// Sent back as the reply with this value, which does not expire.
    Answered(&'static [u8]),
    /// Likewise, and expires within so many milliseconds.
    AnsweredFor(&'static [u8], u32),
    /// Sent back as an acknowledgement with a new epoch.
    Acknowledged,
    /// Sent back as a lease request with the switch's clock.
    AsksForLease,
    /// Sent back as the answer to a probe.
    Heard,
    /// Gone.
    Dropped,
}

type CheckResult = Result<(), String>;

fn expect<T: PartialEq + std::fmt::Debug>(what: &str, found: T, wanted: T) -> CheckResult {
    if found == wanted { Ok(()) } else { Err(format!("{what}: {found:?}, expected {wanted:?}")) }
}

/// The header that `packet` has once it is encoded.
fn header_of(message: &Message) -> Header {
    Packet::decode(&message.payload()).expect("well-formed").header
}

/// The header of a payload that must be signed as what was asked, and as long as it says.
fn signed<'a>(payload: &'a [u8], asked: &Message, padding: usize) -> Result<Packet<'a>, String> {
    let packet = Packet::decode(payload).map_err(|error| error.to_string())?;
    if !packet.tag_is_valid(&asked.secret) {
        return Err("the tag is wrong".into());
    }
    let used = wire::HEADER_LEN + packet.key.len() + packet.value.len();
    expect("padding", payload.len() - used, padding)?;
    Ok(packet)
}

fn went_back(seen: &SeenFrame, asked: &Message) -> CheckResult {
    expect("to MAC", seen.to_mac, MAC_HERE)?;
    expect("from MAC", seen.from_mac, MAC_THERE)?;
    expect("VLAN", seen.vlan, asked.vlan)?;
    expect("from", seen.from, asked.to)?;
    expect("to", seen.to, asked.from)?;
    expect("hop limit", seen.hop_limit, 64)?;
    expect("it has a checksum", seen.checksum != 0, true)?;
    expect("bytes behind the datagram", seen.trailer, 0)
}

fn rose(epoch: Epoch, before: u64) -> CheckResult {
    expect("switch", epoch.switch(), Switch::ID)?;
    if epoch.number() > before {
        Ok(())
    } else {
        Err(format!("epoch {epoch:?} is not above {before}"))
    }
}

impl Expectation {
    fn verdict(&self) -> Verdict {
        match self {
            Expectation::Forwarded
            | Expectation::ForwardedInMeaning
            | Expectation::Stamped { .. }
            | Expectation::Disowned => Verdict::Pass,
            Expectation::Dropped => Verdict::Drop,
            _ => Verdict::Tx,
        }
    }

    fn check(&self, world: &World, asked: &Message, out: &[u8], epoch_before: u64) -> CheckResult {
        if let Expectation::Forwarded = self {
            return expect("frame", out, &asked.frame().bytes());
        }
        if let Expectation::Dropped = self {
            return Ok(());
        }
        let seen = SeenFrame::read(out)?;
        match self {
            Expectation::Answered(value) => Expectation::check_answer(&seen, asked, value, 0),
            Expectation::AnsweredFor(value, ms) => {
                Expectation::check_answer(&seen, asked, value, *ms)
            }
            Expectation::Stamped { grant } => {
                Expectation::check_stamp(&seen, asked, *grant, epoch_before)
            }
            Expectation::ForwardedInMeaning => {
                expect("from", seen.from, asked.from)?;
                let packet = Packet::decode(&seen.payload).map_err(|error| error.to_string())?;
                expect("header", packet.header, header_of(asked))?;
                expect("key", packet.key, &asked.key)
            }
            Expectation::Disowned => {
                let packet = signed(&seen.payload, asked, 0)?;
                let was = header_of(asked);
                let wanted = Header {
                    epoch: Epoch::NONE,
                    flags: was.flags.without(Flags::GRANT),
                    tag: packet.header.tag,
                    ..was
                };
                expect("header", packet.header, wanted)
            }
            Expectation::Acknowledged => {
                went_back(&seen, asked)?;
                let packet = signed(&seen.payload, asked, 0)?;
                let (was, is) = (header_of(asked), packet.header);
                rose(is.epoch, epoch_before)?;
                let wanted = Header {
                    op: Op::InvalidateAck,
                    epoch: is.epoch,
                    version: was.epoch.number(), // echoed
                    tag: is.tag,
                    ..was
                };
                expect("header", is, wanted)?;
                expect("key", packet.key, &asked.key)
            }
            Expectation::AsksForLease => {
                went_back(&seen, asked)?;
                let is = signed(&seen.payload, asked, 0)?.header;
                let age_ns = world.switch.leases.now_ns().checked_sub(is.version);
                let is_now = age_ns.is_some_and(|age| age < 60_000_000_000);
                expect("version is the switch's clock", is_now, true)?;
                let was = header_of(asked);
                let wanted =
                    Header { op: Op::LeaseRequest, version: is.version, tag: is.tag, ..was };
                expect("header", is, wanted)
            }
            Expectation::Heard => {
                went_back(&seen, asked)?;
                let is = signed(&seen.payload, asked, 0)?.header;
                let wanted = Header { op: Op::ProbeReply, tag: is.tag, ..header_of(asked) };
                expect("header", is, wanted)
            }
            Expectation::Forwarded | Expectation::Dropped => unreachable!(),
        }
    }

    fn check_answer(
        seen: &SeenFrame,
        asked: &Message,
        value: &[u8],
        at_most_ms: u32,
    ) -> CheckResult {
        went_back(seen, asked)?;
        let packet = signed(&seen.payload, asked, 0)?;
        let (was, is) = (header_of(asked), packet.header);
        let wanted = Header {
            op: Op::ReadReply,
            flags: Flags::CACHED,
            epoch: Epoch::new(Switch::ID, 0),
            value_len: value.len() as u16,
            version: 77,
            expiry_ms: is.expiry_ms,
            tag: is.tag,
            ..was
        };
        expect("header", is, wanted)?;
        let lives = if at_most_ms == 0 { 0..=0 } else { 1..=at_most_ms };
        expect("expiry within bounds", lives.contains(&is.expiry_ms), true)?;
        expect("key", packet.key, &asked.key)?;
        expect("value", packet.value, value)
    }

    fn check_stamp(seen: &SeenFrame, asked: &Message, grant: bool, before: u64) -> CheckResult {
        let packet = signed(&seen.payload, asked, asked.padding)?;
        let (was, is) = (header_of(asked), packet.header);
        rose(is.epoch, before)?;
        let flags = was.flags.without(Flags::GRANT);
        let flags = if grant { flags.with(Flags::GRANT) } else { flags };
        expect("header", is, Header { flags, epoch: is.epoch, tag: is.tag, ..was })?;
        expect("key", packet.key, &asked.key)?;
        expect("value", packet.value, &asked.value)?;
        expect("it has a checksum", seen.checksum != 0, asked.checksum)?;
        expect("from", (seen.from, seen.to), (asked.from, asked.to))?;
        expect("hop limit", seen.hop_limit, asked.hop_limit)
    }
}

impl Case {
    /// A row of this name, on a switch that nothing has come to.
    pub const fn of(name: &'static str) -> Case {
        Case {
            name,
            given: |_| {},
            and: |_| {},
            packet: |_| panic!("a row says its packet"),
            then: Expectation::Dropped,
            counts: &[],
        }
    }

    /// What brings the switch into a state.
    pub const fn given(mut self, given: fn(&mut World)) -> Case {
        self.given = given;
        self
    }

    /// What happens after that.
    pub const fn and(mut self, and: fn(&mut World)) -> Case {
        self.and = and;
        self
    }

    /// The packet.
    pub const fn packet(mut self, packet: fn(&World) -> Message) -> Case {
        self.packet = packet;
        self
    }

    /// What becomes of it, and every counter that moves, each by one, in any order.
    pub const fn then(mut self, then: Expectation, counts: &'static [&'static str]) -> Case {
        (self.then, self.counts) = (then, counts);
        self
    }

    fn run(&self, world: fn() -> World) -> CheckResult {
        let mut world = world();
        (self.given)(&mut world);
        (self.and)(&mut world);
        let asked = (self.packet)(&world);
        let epoch_before = world.switch.table.epoch();
        let run = world.switch.run(&asked.frame().bytes(), None);
        let mut wanted = self.counts.to_vec();
        wanted.sort_unstable();
        let moved: Vec<_> = run.moved.iter().map(|(name, by)| (*name, *by)).collect();
        let wanted: Vec<_> = wanted.into_iter().map(|name| (name, 1)).collect();
        expect("counters", moved, wanted)?;
        expect("verdict", run.verdict, self.then.verdict())?;
        self.then.check(&world, &asked, &run.frame, epoch_before)
    }
}

/// Runs every row in a world of its own, in the kernel and in this process, and fails with all that
/// are wrong.
pub fn check(world: fn() -> World, cases: &[Case]) {
    let kernel = |case: &Case| (case.run(world), "in the kernel");
    let native = |case: &Case| in_this_process(|| (case.run(world), "in this process"));
    let wrong: Vec<String> = cases
        .iter()
        .flat_map(|case| [kernel(case), native(case)].map(|run| (case, run)))
        .filter_map(|(case, (run, place))| {
            Some(format!("{}, {place}\n    {}", case.name, run.err()?))
        })
        .collect();
    assert!(wrong.is_empty(), "{} of {} rows:\n{}", wrong.len(), cases.len(), wrong.join("\n"));
}
