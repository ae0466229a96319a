//! What happens to members of a chain, and for how long nobody was answered.

use std::time::Duration;

use experiments::gaps::longest_gap_ms;
use history::{Effect, Operation};
use plan::switch;
use serde::{Deserialize, Serialize};

use crate::bench::Bench;

/// Longest that a chain may take to be whole again.
const WHOLE: Duration = Duration::from_secs(20);

/// What happens to a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// It dies with all it has, and another one takes its place. Heartbeats tell. Later a machine
    /// that has nothing of it comes under its id, once an operator has had it forgotten.
    Killed,
    /// Its link loses everything and keeps its carrier, and another one takes its place.
    /// Heartbeats tell.
    Silent,
    /// Its agent stands still; its programs go on.
    Stopped,
    /// Its agent dies and is started again; its programs go on.
    Restarted,
    /// Its agent dies and its programs go on; an operator has it forgotten, and another one takes
    /// its place and its number among the members.
    Forgotten,
}

impl Kind {
    /// Its name in the summary.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Killed => "killed",
            Kind::Silent => "silent",
            Kind::Stopped => "stopped",
            Kind::Restarted => "restarted",
            Kind::Forgotten => "forgotten",
        }
    }

    /// Whether heartbeats tell, and not an operator.
    pub fn is_noticed(self) -> bool {
        matches!(self, Kind::Killed | Kind::Silent)
    }

    /// Whether the member is replaced.
    fn is_replaced(self) -> bool {
        self.is_noticed() || self == Kind::Forgotten
    }
}

/// Checks that a chain is as long as members can be taken from, and has a switch beside it to
/// replace one.
///
/// # Errors
/// What it has to be.
pub fn one_beside(length: u16, switches: u16) -> anyhow::Result<()> {
    anyhow::ensure!(
        length >= 2 && length < switches && switches <= 8,
        "length = {length}, switches = {switches}: a chain of at least two, and one beside it, of eight at most"
    );
    Ok(())
}

/// What happened.
#[derive(Clone, Debug)]
pub struct Trouble {
    pub kind: Kind,
    /// Where the member stood: 0 is the head.
    pub place: usize,
    /// Its switch, and the one that had its place in the end; none: it was not replaced.
    pub id: u16,
    pub by: Option<u16>,
    /// When, and until when it may be felt, by the clock of who records.
    pub from_ns: u64,
    pub until_ns: u64,
    /// How long until another one had its place, in milliseconds; none: it was not replaced.
    pub replaced_ms: Option<f64>,
}

/// Gives the member at this place of the chain trouble of this kind for so long, and waits until
/// all is well again.
///
/// # Errors
/// The chain is not whole again.
pub fn make(
    bench: &mut Bench,
    kind: Kind,
    place: usize,
    time: Duration,
) -> anyhow::Result<Trouble> {
    let members = bench.members()?;
    let Some(id) = members.get(place).copied() else {
        anyhow::bail!("no member at {place} of {members:?}");
    };
    let (node, link) = (switch(id.into()), bench.layout.link_of(id));
    let (from_ns, begun) = (bench.rig.clock_ns(), bench.rig.now());
    match kind {
        Kind::Killed => {
            bench.rig.stop(&node, "agent", libc::SIGKILL)?;
            bench.rig.forget_tables(&node);
        }
        Kind::Silent => bench.rig.silence(link, [true; 2])?,
        Kind::Stopped => bench.rig.signal(&node, "agent", libc::SIGSTOP),
        Kind::Restarted => bench.rig.restart(&node, "agent")?,
        Kind::Forgotten => {
            bench.rig.stop(&node, "agent", libc::SIGKILL)?;
            bench.rig.forget_switch(id)?;
        }
    }
    let (mut replaced_ms, mut by) = (None, None);
    if kind.is_replaced() {
        // Who asks hears of it from those that are left.
        loop {
            let now = bench.members()?;
            if now.len() == members.len() && !now.contains(&id) {
                by = now.into_iter().find(|other| !members.contains(other));
                break;
            }
            let waited = bench.rig.now() - begun;
            anyhow::ensure!(waited < WHOLE, "{} is not replaced: {now:?}", switch(id.into()));
        }
        replaced_ms = Some((bench.rig.now() - begun).as_secs_f64() * 1e3);
    }
    let left = time.saturating_sub(bench.rig.now() - begun);
    bench.rig.wait(left)?;
    match kind {
        Kind::Killed => {
            bench.rig.forget(&format!("{{dir}}/{node}"));
            bench.rig.forget_switch(id)?;
            bench.rig.start(&node, "agent")?;
        }
        Kind::Forgotten => bench.rig.start(&node, "agent")?,
        Kind::Silent => bench.rig.silence(link, [false; 2])?,
        Kind::Stopped => bench.rig.signal(&node, "agent", libc::SIGCONT),
        Kind::Restarted => {}
    }
    bench.rig.wait(time)?;
    Ok(Trouble { kind, place, id, by, from_ns, until_ns: bench.rig.clock_ns(), replaced_ms })
}

/// For how long nobody's write, or nobody's read, was answered while this was felt: the longer of
/// both, in milliseconds. Who asks does so all the time: one who is not answered before it is over
/// has waited until then.
pub fn unavailable_ms(trouble: &Trouble, operations: &[Operation]) -> f64 {
    let longest = |is_write: bool| {
        let of = |o: &&Operation| (o.effect != Effect::Keep) == is_write;
        let returned = operations.iter().filter(of).filter_map(|o| o.return_ns);
        let mut at: Vec<u64> = returned.collect();
        at.sort_unstable();
        longest_gap_ms(&at, [trouble.from_ns, trouble.until_ns])
    };
    longest(true).max(longest(false))
}

#[cfg(test)]
mod tests {
    use history::Need;

    use super::*;

    #[test]
    fn the_longer_wait_of_reads_and_writes_counts_where_trouble_is_felt() {
        let at = |return_ms: u64, effect| Operation {
            client: 0,
            key: 0,
            call_ns: 0,
            return_ns: Some(return_ms * 1_000_000),
            need: Need::Any,
            effect,
            lapse: None,
        };
        let trouble = Trouble {
            kind: Kind::Killed,
            place: 0,
            id: 1,
            by: None,
            from_ns: 1_000_000_000,
            until_ns: 2_000_000_000,
            replaced_ms: None,
        };
        let reads = [10, 900, 990, 1010, 1900, 2100, 9000].map(|ms| at(ms, Effect::Keep));
        let writes = [980, 1290, 2300].map(|ms| at(ms, Effect::Write(1)));
        let all = [&reads[..], &writes[..]].concat();
        assert_eq!(unavailable_ms(&trouble, &all), 1010.0);
        assert_eq!(unavailable_ms(&trouble, &reads), f64::INFINITY);
        let never_again = [&reads[..], &writes[..1]].concat();
        assert_eq!(unavailable_ms(&trouble, &never_again), 1020.0);
    }
}
