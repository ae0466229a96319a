//! Whether neighbouring switches are still heard: probes to them, and what their answers say.
//! No I/O.
//!
//! A link can lose everything and keep its carrier. So each neighbour that the setup names is asked
//! [`PER_SECOND`] times a second across the link, and its programs answer without a process being
//! scheduled: a busy agent there is no dead link. Either way lost is an answer lost. One that left
//! [`MISSES`] probes in a row unanswered is *silent*, until most of its answers come again.
//!
//! What counts are probes that were sent: an agent that stood still sent none, and takes what came
//! meanwhile before it judges. A neighbour is judged from its first answer on, and no more once its
//! kernel refuses a probe: then it has no programs, and the link carries packets. A link that comes
//! and goes counts as gone for longer each time, up to [`HOLD_MAX`].
//!
//! What is known of a neighbour that a setup does not name is kept for [`KEEP`]: a controller that
//! has just begun may know of no links yet. A link that is dead when it is named again would else
//! never be judged.
//!
//! Cost per neighbour: [`PER_SECOND`] packets of a header each way, answered in the place of a
//! lease offer's.

use std::{
    collections::BTreeMap,
    net::{IpAddr, SocketAddr},
    time::{Duration, Instant},
};

use api::proto::Setup;
use tracing::{info, warn};
use wire::{Epoch, Header, Op, PORT, Packet, Secret, TENANT_SYSTEM};

/// Probes of each neighbour in a second.
const PER_SECOND: u32 = 33;
const EVERY: Duration = Duration::from_millis(1000 / PER_SECOND as u64);
/// So many in a row unanswered: silent. By chance, on a link that loses every tenth packet each
/// way, that happens twice in a year.
const MISSES: u64 = 12;
/// Of the last [`WINDOW`] probes, so many answered: no longer silent.
const ANSWERS: u32 = 24;
const WINDOW: u64 = 32;
/// Silence counts for at least so long, and for twice as long each time that it comes again soon.
const HOLD_MIN: Duration = Duration::from_secs(1);
/// See [`HOLD_MIN`]; a link that was heard for so long starts anew.
const HOLD_MAX: Duration = Duration::from_secs(64);
/// A neighbour that no setup names is forgotten after this time.
const KEEP: Duration = HOLD_MAX.saturating_mul(2);
/// Neighbours that are probed.
const MOST: usize = 1024;

/// By interface, the switches across it that are silent, in order.
pub type Silent = BTreeMap<String, Vec<u16>>;

/// A neighbour.
struct Watch {
    switch: u16,
    interface: String,
    /// Number of the last probe; they count from 1.
    sent: u64,
    /// Number of the newest that was answered; none: it is not judged.
    heard: Option<u64>,
    /// Which of the last ones were answered, the last in the lowest bit.
    answered: u64,
    /// Until when silence counts in any case.
    silent_until: Option<Instant>,
    heard_since: Option<Instant>,
    hold: Duration,
}

impl Watch {
    fn new(switch: u16, interface: String) -> Watch {
        Watch {
            switch,
            interface,
            sent: 0,
            heard: None,
            answered: 0,
            silent_until: None,
            heard_since: None,
            hold: HOLD_MIN / 2,
        }
    }

    /// Looks at the probes sent so far, all of which had their time.
    fn judge(&mut self, now: Instant) {
        let Some(heard) = self.heard else { return };
        let (switch, interface) = (self.switch, &self.interface);
        match self.silent_until {
            None if self.sent - heard >= MISSES => {
                let heard_for = self.heard_since.map(|since| now - since);
                let is_first = heard_for.is_none_or(|heard_for| heard_for > HOLD_MAX);
                self.hold =
                    if is_first { HOLD_MIN } else { (self.hold * 2).clamp(HOLD_MIN, HOLD_MAX) };
                self.silent_until = Some(now + self.hold);
                warn!("switch {switch} by {interface}: silent");
            }
            Some(until)
                if now >= until && (self.answered & WINDOW_MASK).count_ones() >= ANSWERS =>
            {
                self.silent_until = None;
                self.heard_since = Some(now);
                info!("switch {switch} by {interface}: heard again");
            }
            _ => {}
        }
    }
}

const WINDOW_MASK: u64 = (1 << WINDOW) - 1;

/// A switch's probes.
#[derive(Default)]
pub struct Probes {
    term: u64,
    secret: Option<Secret>,
    watches: BTreeMap<SocketAddr, Watch>,
    /// Neighbours that the last setup does not name, neither probed nor told; and until when they
    /// are kept, once it was looked at the time.
    unnamed: BTreeMap<SocketAddr, (Watch, Option<Instant>)>,
    next: Option<Instant>,
    buffer: Vec<u8>,
}

impl Probes {
    /// Takes over whom to probe, and under which secret. A setup of an earlier term than the last
    /// is left out.
    pub fn set_up(&mut self, setup: &Setup) {
        if setup.term < self.term {
            return;
        }
        self.term = setup.term;
        let secret = setup.cluster.as_ref().map(|cluster| &cluster.system_secret[..]);
        let secret = secret.and_then(|bytes| bytes.try_into().ok());
        self.secret = Some(secret.map_or(Secret::NONE, Secret));
        let mut before = std::mem::take(&mut self.unnamed);
        let named = std::mem::take(&mut self.watches);
        before.extend(named.into_iter().map(|(to, watch)| (to, (watch, None))));
        for neighbour in setup.neighbours.iter().take(MOST) {
            let address = neighbour.address.parse::<IpAddr>();
            let (Ok(address), Ok(switch)) = (address, u16::try_from(neighbour.switch_id)) else {
                continue;
            };
            let to = SocketAddr::new(address, PORT);
            let interface = &neighbour.interface;
            let known = before.remove(&to).map(|(watch, _)| watch);
            let known = known.filter(|w| w.switch == switch && w.interface == *interface);
            let watch = known.unwrap_or_else(|| Watch::new(switch, interface.clone()));
            self.watches.insert(to, watch);
        }
        self.unnamed = before.into_iter().take(MOST).collect();
    }

    /// When [`Probes::due`] has something to do; none: nobody is to be probed, or forgotten.
    pub fn next(&self) -> Option<Instant> {
        match self.watches.is_empty() {
            false => self.next,
            true => self.unnamed.values().filter_map(|(_, until)| *until).min(),
        }
    }

    /// Whom it probes.
    pub fn neighbours(&self) -> impl Iterator<Item = SocketAddr> {
        self.watches.keys().copied()
    }

    /// Judges, and sends the next probes if it is time. What arrived must have been taken before;
    /// `send` says whether it was sent.
    pub fn due(&mut self, now: Instant, mut send: impl FnMut(SocketAddr, &[u8]) -> bool) {
        self.unnamed.retain(|_, (_, until)| now < *until.get_or_insert(now + KEEP));
        let Some(secret) = self.secret.filter(|_| self.next.is_none_or(|next| next <= now)) else {
            return;
        };
        // From now on: one that comes late must not be followed by another at once.
        self.next = Some(now + EVERY);
        for (to, watch) in &mut self.watches {
            watch.judge(now);
            let header = Header {
                tenant: TENANT_SYSTEM,
                epoch: Epoch::new(watch.switch, 0),
                version: watch.sent + 1,
                ..Header::new(Op::ProbeRequest)
            };
            self.buffer.clear();
            let encoded = Packet::new(header, &[], &[]).encode(&secret, &mut self.buffer);
            if encoded.is_ok() && send(*to, &self.buffer) {
                watch.sent += 1;
                watch.answered <<= 1;
            }
        }
    }

    /// Takes what came back from a neighbour.
    pub fn take(&mut self, from: SocketAddr, datagram: &[u8]) {
        let (Some(secret), Some(watch)) = (self.secret, self.watches.get_mut(&from)) else {
            return;
        };
        let Ok(packet) = Packet::decode(datagram) else { return };
        let header = &packet.header;
        let age = watch.sent.checked_sub(header.version);
        let is_answer = header.op == Op::ProbeReply
            && header.tenant == TENANT_SYSTEM
            && header.epoch.switch() == watch.switch
            && packet.tag_is_valid(&secret);
        if let Some(age) = age.filter(|age| is_answer && *age < WINDOW) {
            watch.answered |= 1 << age;
            watch.heard = watch.heard.max(Some(header.version));
        }
    }

    /// A neighbour's kernel said that nobody listens there.
    pub fn refused(&mut self, by: SocketAddr) {
        if let Some(watch) = self.watches.get_mut(&by) {
            *watch = Watch {
                sent: watch.sent,
                ..Watch::new(watch.switch, std::mem::take(&mut watch.interface))
            };
        }
    }

    /// Who is silent.
    pub fn silent(&self) -> Silent {
        let mut silent = Silent::new();
        for watch in self.watches.values().filter(|w| w.silent_until.is_some()) {
            let on = silent.entry(watch.interface.clone()).or_default();
            on.push(watch.switch);
            on.sort_unstable();
        }
        silent
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::testing::{self, SECRET, answer},
        *,
    };

    /// One neighbour, and a link to it.
    struct Link {
        probes: Probes,
        now: Instant,
        to: SocketAddr,
        seed: u64,
    }

    impl Link {
        fn new() -> Link {
            let mut probes = Probes::default();
            probes.set_up(&setup(1, true));
            Link { probes, now: Instant::now(), to: "10.0.2.253:7117".parse().unwrap(), seed: 1 }
        }

        /// Every frame is lost with this chance, each way.
        fn goes_on(&mut self, time: Duration, loss: f64) {
            let until = self.now + time;
            while self.now < until {
                let mut sent = vec![];
                self.probes.due(self.now, |_, bytes| {
                    sent.push(bytes.to_vec());
                    true
                });
                for request in sent {
                    if !(self.is_lost(loss) || self.is_lost(loss)) {
                        self.probes.take(self.to, &answer(&request, &SECRET));
                    }
                }
                self.now += EVERY;
            }
        }

        fn is_lost(&mut self, loss: f64) -> bool {
            self.seed =
                self.seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (self.seed >> 11) as f64 / (1u64 << 53) as f64 % 1.0 < loss
        }

        fn is_silent(&self) -> bool {
            !self.probes.silent().is_empty()
        }

        /// How long it takes to be silent, or not to be.
        fn until(&mut self, silent: bool, loss: f64) -> Duration {
            let begun = self.now;
            while self.is_silent() != silent {
                self.goes_on(EVERY, loss);
                assert!(self.now - begun < Duration::from_secs(300));
            }
            self.now - begun
        }
    }

    /// Of this term, with the neighbour or without.
    fn setup(term: u64, named: bool) -> Setup {
        testing::setup(term, named.then_some(("10.0.2.253", "eth1")))
    }

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_link_that_loses_everything_is_silent_within_half_a_second_and_heard_again_later() {
        let mut link = Link::new();
        link.goes_on(SECOND, 0.0);
        assert!(!link.is_silent());
        assert!(link.until(true, 1.0) < SECOND / 2);
        assert_eq!(link.probes.silent(), Silent::from([("eth1".into(), vec![2])]));
        link.goes_on(10 * SECOND, 1.0);
        assert!(link.until(false, 0.0) < 2 * SECOND);
    }

    #[test]
    fn a_link_that_loses_every_tenth_packet_is_not_silent() {
        let mut link = Link::new();
        for _ in 0..3600 {
            link.goes_on(SECOND, 0.1);
            assert!(!link.is_silent());
        }
        link.until(true, 1.0);
        assert!(link.until(false, 0.1) < 10 * SECOND, "and can be heard again");
    }

    #[test]
    fn an_agent_that_stood_still_judges_nobody_by_it() {
        let mut link = Link::new();
        link.goes_on(SECOND, 0.0);
        link.now += 3600 * SECOND;
        link.goes_on(2 * EVERY, 1.0);
        assert!(!link.is_silent(), "nothing was asked meanwhile");
    }

    #[test]
    fn who_never_answered_or_has_no_programs_is_not_judged() {
        let mut link = Link::new();
        link.goes_on(10 * SECOND, 1.0);
        assert!(!link.is_silent());
        link.goes_on(SECOND, 0.0);
        link.until(true, 1.0);
        link.probes.refused(link.to);
        assert!(!link.is_silent());
        link.goes_on(10 * SECOND, 1.0);
        assert!(!link.is_silent());
    }

    #[test]
    fn a_link_that_comes_and_goes_is_gone_for_longer_each_time() {
        let mut link = Link::new();
        link.goes_on(SECOND, 0.0);
        let mut gone = vec![];
        for _ in 0..5 {
            link.until(true, 1.0);
            gone.push(link.until(false, 0.0));
        }
        assert!(gone[0] < 2 * SECOND && gone[4] > 10 * SECOND, "{gone:?}");
        assert!(gone.is_sorted());
        link.goes_on(2 * HOLD_MAX, 0.0);
        link.until(true, 1.0);
        assert!(link.until(false, 0.0) < 2 * SECOND);
    }

    #[test]
    fn a_neighbour_that_a_setup_leaves_out_is_known_when_the_next_one_names_it() {
        let mut link = Link::new();
        link.goes_on(SECOND, 0.0);
        link.until(true, 1.0);
        link.probes.set_up(&setup(2, false));
        link.goes_on(SECOND, 1.0);
        assert!(!link.is_silent(), "it is nobody's neighbour");
        link.probes.set_up(&setup(2, true));
        assert!(link.is_silent());
        link.until(false, 0.0);
        // A link that dies meanwhile is judged by what was heard before.
        link.probes.set_up(&setup(3, false));
        link.goes_on(SECOND, 1.0);
        link.probes.set_up(&setup(3, true));
        assert!(link.until(true, 1.0) < SECOND / 2);
        link.probes.set_up(&setup(4, false));
        link.goes_on(EVERY, 1.0);
        assert_eq!(link.probes.next(), Some(link.now - EVERY + KEEP));
        link.goes_on(KEEP, 1.0);
        assert_eq!(link.probes.next(), None);
        link.probes.set_up(&setup(4, true));
        link.goes_on(SECOND, 1.0);
        assert!(!link.is_silent(), "it was forgotten");
    }

    #[test]
    fn what_is_no_answer_of_this_neighbour_does_not_count() {
        let mut link = Link::new();
        let mut sent = vec![];
        link.probes.due(link.now, |_, bytes| {
            sent.push(bytes.to_vec());
            true
        });
        link.probes.take(link.to, &sent[0]);
        link.probes.take(link.to, &answer(&sent[0], &Secret([8; 16])));
        link.probes.take("10.0.2.9:7117".parse().unwrap(), &answer(&sent[0], &SECRET));
        link.goes_on(SECOND, 1.0);
        assert!(!link.is_silent(), "nobody was heard");
        // A probe that could not be sent was not left unanswered.
        link.goes_on(SECOND, 0.0);
        for _ in 0..100 {
            link.probes.due(link.now, |_, _| false);
            link.now += EVERY;
        }
        assert!(!link.is_silent());
    }
}
