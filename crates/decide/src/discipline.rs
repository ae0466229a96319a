//! The control half of a discipline: one method for each event.

use std::{collections::BTreeMap, net::SocketAddr, time::Duration};

use bytes::Bytes;

use crate::{
    Action, Answer, Eviction, HotKeys, Inventory, Key, Life, Room, Settings, Stores, SwitchId,
    WindowEnd,
};

/// How long a controller that is to stop waits for those who answer [`Action::NotYet`].
pub const ENDING_WITHIN: Duration = Duration::from_secs(2);

/// Decides what switches and stores do for the tenants that chose it. One instance serves all of
/// them, on all switches of a controller, because they share what is scarce (a switch's reports, a
/// store's load).
///
/// Each method but the last three is an event: it takes in what happened at time `now` (since any
/// fixed start, never going back) and appends what is to be done to `out`. An event is about one
/// tenant, and then comes to that tenant's discipline only, or about a switch, a store or the
/// controller as such, and then comes to every discipline. A method that a discipline does not
/// write does nothing. One that has another decide for it passes on each event that the other takes
/// in, one by one.
///
/// Implementations open no socket, read no clock and draw random numbers from
/// [`crate::Limits::seed`] only, so that a run can be repeated and simulated.
pub trait Discipline: Send {
    /// A switch says of itself which life it lives. Comes before each [`Discipline::attached`].
    fn life(&mut self, _now: Duration, _life: Life, _out: &mut Vec<Action>) {}

    /// A switch attached, for the first time or again. One [`Discipline::holds`] follows for each
    /// tenant that may use it.
    fn attached(&mut self, _now: Duration, _switch: SwitchId, _out: &mut Vec<Action>) {}

    /// A switch's stream ended: it is gone, or cut off, or its agent restarts. Nothing can be asked
    /// of it until it attaches again. Its programs may go on serving.
    fn detached(&mut self, _now: Duration, _switch: SwitchId, _out: &mut Vec<Action>) {}

    /// The link between two switches (`ends`, the lower number first) came (`up`) or went, as
    /// either end tells.
    fn link(
        &mut self,
        _now: Duration,
        _ends: (SwitchId, SwitchId),
        _up: bool,
        _out: &mut Vec<Action>,
    ) {
    }

    /// What a switch that attached has of a tenant.
    fn holds(&mut self, _now: Duration, _inventory: Inventory<'_>, _out: &mut Vec<Action>) {}

    /// A tenant's memory changed: all its switches, in the order in which its placement policy
    /// fills them. A switch that is not listed any longer holds nothing of it. Comes before a
    /// switch's [`Discipline::attached`] and again whenever it changes; without any room while no
    /// switch has memory of it, as when all of them were forgotten and others are to come.
    fn room(&mut self, _now: Duration, _tenant: u32, _rooms: &[Room], _out: &mut Vec<Action>) {}

    /// A tenant is gone, or has another discipline from now on: of its keys nothing is to be kept.
    /// Comes after a [`Discipline::room`] without any room, if it had some, and perhaps twice. A
    /// tenant of the same number that comes later has its options and stores told anew.
    fn gone(&mut self, _now: Duration, _tenant: u32, _out: &mut Vec<Action>) {}

    /// A switch reports keys that many ask for.
    fn hot(&mut self, _now: Duration, _keys: HotKeys<'_>, _out: &mut Vec<Action>) {}

    /// A window ended on a switch. Comes for each tenant that may use the switch.
    fn window_end(&mut self, _now: Duration, _end: WindowEnd<'_>, _out: &mut Vec<Action>) {}

    /// A switch answered a change.
    fn answered(&mut self, _now: Duration, _answer: Answer<'_>, _out: &mut Vec<Action>) {}

    /// A switch gave items up by itself.
    fn dropped(&mut self, _now: Duration, _eviction: Eviction<'_>, _out: &mut Vec<Action>) {}

    /// The configuration of a tenant that was last asked for is in force on a switch: no program
    /// goes by an earlier one any longer.
    fn configured(
        &mut self,
        _now: Duration,
        _switch: SwitchId,
        _tenant: u32,
        _out: &mut Vec<Action>,
    ) {
    }

    /// The stores of the cluster, and how a tenant's keys lie on them. Comes before the tenant's
    /// first [`Discipline::room`] and again whenever it changes; a tenant without rooms may be
    /// forgotten, for this comes again before rooms do.
    fn stores(&mut self, _now: Duration, _tenant: u32, _stores: &Stores, _out: &mut Vec<Action>) {}

    /// A store, named by its address in the cluster file, can be told something: its stream began.
    /// What it was told in an earlier life it may have forgotten.
    fn store_attached(&mut self, _now: Duration, _store: SocketAddr, _out: &mut Vec<Action>) {}

    /// A store's stream ended: it is gone, or cut off, or restarts. What it is told waits until it
    /// attaches again. It may go on serving.
    fn store_detached(&mut self, _now: Duration, _store: SocketAddr, _out: &mut Vec<Action>) {}

    /// A store has every message about a tenant that it was sent. Comes when the last of them was
    /// acknowledged.
    fn told(&mut self, _now: Duration, _store: SocketAddr, _tenant: u32, _out: &mut Vec<Action>) {}

    /// A message to a store about a tenant found too many waiting, and neither it nor any later one
    /// was taken in: all of it is to be told anew. Comes once, when there is room again.
    fn not_told(
        &mut self,
        _now: Duration,
        _store: SocketAddr,
        _tenant: u32,
        _out: &mut Vec<Action>,
    ) {
    }

    /// The discipline's half in a store reports about a tenant ([`crate::StoreAction::Report`]):
    /// its load, hot keys, what was done.
    fn store_reported(
        &mut self,
        _now: Duration,
        _store: SocketAddr,
        _tenant: u32,
        _report: &[u8],
        _out: &mut Vec<Action>,
    ) {
    }

    /// The discipline's half in a switch's agent reports about a tenant
    /// ([`crate::AgentAction::Report`]).
    fn switch_reported(
        &mut self,
        _now: Duration,
        _switch: SwitchId,
        _tenant: u32,
        _report: &[u8],
        _out: &mut Vec<Action>,
    ) {
    }

    /// What was remembered last of a tenant ([`Action::Remember`]), by this discipline or one that
    /// shares its programs; no bytes if nothing was. Comes before the tenant's first
    /// [`Discipline::room`] under this discipline.
    fn remembered(&mut self, _now: Duration, _tenant: u32, _bytes: &[u8], _out: &mut Vec<Action>) {}

    /// What was kept of a tenant's keys ([`Action::Keep`]), in their order: each key with its
    /// bytes. Comes right after [`Discipline::remembered`], if there is anything.
    fn kept(
        &mut self,
        _now: Duration,
        _tenant: u32,
        _kept: &[(Key, Bytes)],
        _out: &mut Vec<Action>,
    ) {
    }

    /// What was asked to be kept of a key ([`Action::Keep`]) is not: something is kept of as many
    /// of the tenant's keys as may be, or it is too long. Comes right after it was asked for, and
    /// nothing can be asked for in answer. There is room again once nothing is to be kept of
    /// another of the tenant's keys.
    fn not_kept(&mut self, _now: Duration, _tenant: u32, _key: &Key) {}

    /// All options of a tenant, in the order in which the discipline registers them; the usual ones
    /// where nothing is said. Comes before the tenant's first [`Discipline::room`] and again
    /// whenever one changes.
    fn options(
        &mut self,
        _now: Duration,
        _tenant: u32,
        _options: Settings,
        _out: &mut Vec<Action>,
    ) {
    }

    /// Time passed; comes some ten times a second.
    fn tick(&mut self, _now: Duration, _out: &mut Vec<Action>) {}

    /// The controller is asked to stop. Comes again and again, for [`ENDING_WITHIN`] at most, as
    /// long as somebody answers [`Action::NotYet`]: what is to be had of switches or stores can be
    /// asked for a last time. What is to be kept is written before the controller ends.
    fn ending(&mut self, _now: Duration, _out: &mut Vec<Action>) {}

    /// How many items of a tenant it would have on a switch if there were room: those that are
    /// there and those that are worth it. Decides who is lent idle pages, and when their owner
    /// needs them back.
    fn wanted(&self, _switch: SwitchId, _tenant: u32) -> usize {
        0
    }

    /// How many items it would have if memory cost nobody anything, which it does while a page is
    /// idle: all keys that were asked for lately, whether they are worth their room or not. At
    /// least what is [`Discipline::wanted`].
    fn could_use(&self, switch: SwitchId, tenant: u32) -> usize {
        self.wanted(switch, tenant)
    }

    /// Named counters of one switch since the start, for `status`.
    fn counters(&self, _switch: SwitchId) -> BTreeMap<&'static str, u64> {
        BTreeMap::new()
    }
}
