//! What is done to a system while clients ask, as data, and when: in either world. How it is done
//! there the world says, as a [`Ground`].

use std::collections::BTreeMap;

use api::types::{OverRate, Policy, TenantChange};
use serde::{Deserialize, Serialize};

/// The policies, in the order of [`Act::Move`]'s numbers.
const POLICIES: [Policy; 4] =
    [Policy::NearClient, Policy::NearStore, Policy::EvenSplit, Policy::Measured];

/// One thing that is done to the system while clients ask.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Deed {
    /// When, in milliseconds after the clients' start.
    pub at_ms: u64,
    /// For how long, if it is undone then.
    #[serde(default)]
    pub for_ms: u64,
    /// What.
    #[serde(flatten)]
    pub act: Act,
}

/// What is done.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "deed")]
pub enum Act {
    /// A process is killed, and started again later.
    Kill {
        /// Its name, `MACHINE/ROLE`.
        process: String,
    },
    /// A process stands still.
    Stop {
        /// Its name.
        process: String,
    },
    /// A machine is suspended.
    Suspend {
        /// Its name.
        machine: String,
    },
    /// A machine stands still with all of its clocks, as a virtual machine that is paused. No plan
    /// that is drawn has this: a switch that goes on after it may serve old values.
    Halt {
        /// Its name.
        machine: String,
    },
    /// A switch loses all of its tables, and starts again.
    Reboot {
        /// Its name.
        machine: String,
    },
    /// A switch is detached in order, and starts again later with empty tables.
    Leave {
        /// Its name.
        machine: String,
    },
    /// A switch makes room for a machine that has its id and its name, and nothing else of it: no
    /// tables, no files, and the controller has been told to forget it.
    Replace {
        /// Its name.
        machine: String,
    },
    /// A store is killed, and started again with another cluster file: its leases are longer,
    /// or shorter.
    Relend {
        /// Its place among the stores.
        store: usize,
        /// Length of its leases from then on, in milliseconds.
        lease_ms: u32,
    },
    /// What holds a store's data dies, and runs again later with all of it.
    Data {
        /// The store's place.
        store: usize,
    },
    /// The disk of a process fails: what it says is not there may be there all the same. An agent
    /// that has to write ends, until the disk works again.
    FailDisk {
        /// Its name.
        process: String,
    },
    /// A process's files are copied; later it is killed, and begins again with the copy.
    PutBack {
        /// Its name.
        process: String,
    },
    /// A tenant gets another secret. Its clients go on with theirs, which stays good beside the
    /// new one.
    Rotate {
        /// Which tenant.
        tenant: u32,
    },
    /// A link is cut, and mended later.
    Cut {
        /// Its place.
        link: usize,
    },
    /// A tenant's quota and policy change, so that its pages move.
    Move {
        /// Which tenant.
        tenant: u32,
        /// Its pages from then on.
        quota: u32,
        /// Its policy: place in the list of policies.
        policy: u8,
    },
    /// A tenant's terms change, while it has keys: its discipline, and what it may use.
    Terms {
        /// Which tenant.
        tenant: u32,
        /// What switches do for it from then on.
        discipline: String,
        /// Whether it may borrow pages.
        borrow: bool,
        /// Requests a second that a switch looks up for it at most; 0: any number.
        rate: u64,
    },
    /// A tenant's write-back begins, ends, or has another bound.
    WriteBack {
        /// Which tenant.
        tenant: u32,
        /// The bound from then on, in milliseconds; 0: no write-back.
        bound_ms: u32,
    },
    /// A tenant is removed, and made anew later with the same number and the same secret: to its
    /// clients it is the same.
    Remake {
        /// Which tenant.
        tenant: u32,
    },
    /// A slot of the shard behind a store moves to another shard, and back later.
    MoveSlot {
        /// The store's place.
        store: usize,
        /// Which of its slots.
        slot: usize,
        /// How long its keys take to leave, in milliseconds.
        takes_ms: u64,
    },
    /// Somebody reads or writes one of a store's keys that have moved, at the shard that they are
    /// at now.
    AskPast {
        /// The store's place.
        store: usize,
    },
    /// A machine's wall clock is set.
    SetWall {
        /// Its name.
        machine: String,
        /// By so much.
        by_ms: i64,
    },
}

impl Deed {
    /// The tenant that it changes, and how.
    pub fn change(&self) -> Option<(u32, TenantChange)> {
        let usual = TenantChange::default();
        match &self.act {
            Act::Move { tenant, quota, policy } => {
                let policy = POLICIES[usize::from(*policy) % POLICIES.len()];
                let (quota, policy) = (Some(*quota), Some(policy));
                Some((*tenant, TenantChange { quota, policy, ..usual }))
            }
            Act::Terms { tenant, discipline, borrow, rate } => {
                let change = TenantChange {
                    discipline: Some(discipline.clone()),
                    borrow: Some(*borrow),
                    rate: Some(*rate),
                    over_rate: Some(OverRate::Forward),
                    ..usual
                };
                Some((*tenant, change))
            }
            Act::WriteBack { tenant, bound_ms } => {
                Some((*tenant, TenantChange { write_back_ms: Some(*bound_ms), ..usual }))
            }
            _ => None,
        }
    }

    /// The switch whose tables it takes away. What a switch that leaves had at a store that does
    /// not answer goes with them.
    pub(crate) fn loses_tables(&self) -> Option<&str> {
        match &self.act {
            Act::Reboot { machine } | Act::Replace { machine } | Act::Leave { machine } => {
                Some(machine)
            }
            _ => None,
        }
    }

    /// What it is, in a word.
    pub fn name(&self) -> &'static str {
        match &self.act {
            Act::Kill { .. } => "killed",
            Act::Stop { .. } => "stopped",
            Act::Suspend { .. } => "suspended",
            Act::Halt { .. } => "halted",
            Act::Reboot { .. } => "rebooted",
            Act::Leave { .. } => "left_in_order",
            Act::Replace { .. } => "replaced",
            Act::Relend { .. } => "leases_rewritten",
            Act::Data { .. } => "data_restarted",
            Act::FailDisk { .. } => "disks_failed",
            Act::PutBack { .. } => "files_put_back",
            Act::Rotate { .. } => "secrets_rotated",
            Act::Cut { .. } => "cut",
            Act::Move { .. } => "moved",
            Act::Terms { .. } => "terms_changed",
            Act::WriteBack { .. } => "write_back_changed",
            Act::Remake { .. } => "tenants_remade",
            Act::MoveSlot { .. } => "slots_moved",
            Act::AskPast { .. } => "stores_passed_by",
            Act::SetWall { .. } => "wall_clock_set",
        }
    }
}

/// A world that deeds are done to.
pub trait Ground {
    /// Lets time pass, until so many milliseconds after the first deed's clock began.
    ///
    /// # Errors
    /// An interruption, or something that ended by itself.
    fn run_until_ms(&mut self, at_ms: u64) -> anyhow::Result<()>;

    /// Does a deed; false: a controller that was asked for it refuses, or does not run.
    ///
    /// # Errors
    /// There is nothing of this name, or nothing like it in this world.
    fn carry_out(&mut self, deed: &Deed) -> anyhow::Result<bool>;

    /// Undoes a deed, if there is something to undo.
    ///
    /// # Errors
    /// What was killed does not start again.
    fn undo(&mut self, deed: &Deed) -> anyhow::Result<()>;
}

/// Does everything, and undoes it, at its time. Returns how often each thing was done, by
/// [`Deed::name`].
///
/// # Errors
/// As those of a [`Ground`].
pub fn do_deeds(deeds: &[Deed], ground: &mut impl Ground) -> anyhow::Result<BTreeMap<String, u64>> {
    let mut steps: Vec<(u64, usize, bool)> = vec![];
    for (i, deed) in deeds.iter().enumerate() {
        steps.push((deed.at_ms, i, false));
        steps.push((deed.at_ms + deed.for_ms, i, true));
    }
    steps.sort_unstable();
    let mut done = BTreeMap::new();
    for (at_ms, i, is_over) in steps {
        ground.run_until_ms(at_ms)?;
        let deed = &deeds[i];
        if is_over {
            ground.undo(deed)?;
        } else {
            let is_done = ground.carry_out(deed)?;
            *done.entry(deed.name().to_owned()).or_default() += u64::from(is_done);
        }
    }
    Ok(done)
}
