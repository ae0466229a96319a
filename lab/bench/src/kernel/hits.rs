//! Hits on random keys, over the floor and over one another.

use wire::Secret;

use super::{Rig, floor::Floor, pair::Side, salt};
use crate::{
    cache::{self, Cache, pages_for},
    drive::{self, Aim},
    packet,
    report::{
        Report, Side as Told,
        Target::{self, AtMost},
    },
    runs::TX,
};

/// Bytes of a key.
pub const KEY_LEN: usize = 16;
/// Items where nothing else is said.
pub const ITEMS: u32 = 10_000;
/// A tenant with a secret.
const SIGNED: u32 = 7;

/// What a switch is to hold.
pub struct Stock {
    /// Whose items they are; that of [`SIGNED`] has a secret.
    pub tenant: u32,
    /// Keys are numbered `first..first + items`.
    pub first: u32,
    /// See `first`.
    pub items: u32,
    /// Bytes of each value.
    pub value_len: usize,
}

impl Stock {
    /// So many of nobody in particular.
    pub fn open(items: u32, value_len: usize) -> Stock {
        Stock { tenant: wire::TENANT_OPEN, first: 0, items, value_len }
    }

    fn secret(&self) -> Secret {
        match self.tenant {
            SIGNED => Secret([0x5a; 16]),
            _ => Secret::NONE,
        }
    }

    /// A switch of just that size that holds them, with the discipline that is measured and `more`,
    /// and reads that hit them.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn load(&self, rig: &Rig, more: Vec<dataplane::Object>) -> anyhow::Result<(Cache, Aim)> {
        let pages = pages_for(self.items as usize, KEY_LEN, self.value_len)?;
        let mut disciplines = vec![cache::discipline(rig.options.discipline, pages)];
        disciplines.extend(more);
        let tenant = cache::tenant(self.tenant, self.secret());
        let buckets = dataplane::Sizes { pages }.buckets();
        let salt = salt::that_fits(self.first, self.items, buckets)?;
        let store = packet::STORE.into();
        let mut cache = Cache::load("row", &disciplines, tenant, pages, store)?;
        let value = vec![b'v'; self.value_len];
        for number in self.first..self.first + self.items {
            let hash = drive::hash(number, salt);
            let filled = cache.fill(&tenant, hash, &drive::key(number), &value)?;
            anyhow::ensure!(filled, "item {number} finds no room in its bucket");
        }
        Ok((cache, self.reads(salt)))
    }

    fn reads(&self, salt: u64) -> Aim {
        Aim {
            first: self.first,
            keys: self.items,
            salt,
            tenant: self.tenant,
            secret: self.secret(),
            value_len: self.value_len,
            verdict: TX,
            ..Aim::default()
        }
    }
}

/// A hit over the floor: both draw from the same keys, whatever else the floor's `entries` are.
///
/// # Errors
/// The kernel refuses, or not all are hits.
pub fn over_floor(
    rig: &Rig,
    report: &mut Report,
    (key, target): (&str, Target),
    stock: &Stock,
    entries: u32,
) -> anyhow::Result<()> {
    let (cache, aim) = stock.load(rig, vec![])?;
    let floor = Floor::of(&aim, entries)?;
    let sides =
        [Side { program: &cache.entry, aim: aim.clone() }, Side { program: &floor.program, aim }];
    let before = cache.count("hit")?;
    let [ours, theirs] = rig.measure(sides, || Ok(()))?;
    rig.counted("hit", cache.count("hit")? - before, rig.runs())?;
    let sides = [Told::new("hit", &ours.net), Told::new("look up and copy", &theirs.net)];
    report.ratio(key, target, "ns", sides);
    Ok(())
}

/// A hit whose request is checked and whose reply is signed, over one of a tenant without a secret.
///
/// # Errors
/// As [`over_floor`].
pub fn tag(rig: &Rig, report: &mut Report, key: &str) -> anyhow::Result<()> {
    let (open, plain) = Stock::open(ITEMS, 128).load(rig, vec![])?;
    let signed = Stock {
        tenant: SIGNED,
        first: ITEMS, // the driver has one table of what is prepared
        ..Stock::open(ITEMS, 128)
    };
    let (signed, tagged) = signed.load(rig, vec![])?;
    let plain = Aim { prepared: true, ..plain };
    let sides =
        [Side { program: &signed.entry, aim: tagged }, Side { program: &open.entry, aim: plain }];
    let [ours, theirs] = rig.measure(sides, || Ok(()))?;
    rig.counted("hit", signed.count("hit")?, rig.runs())?;
    rig.counted("hit", open.count("hit")?, rig.runs())?;
    let sides = [
        Told::new("hit, request checked and reply signed", &ours.net),
        Told::new("without", &theirs.net),
    ];
    report.ratio(key, AtMost(1.35), "ns", sides);
    Ok(())
}
