//! Time as a story has it: it passes where a step says so, however long the machine takes in
//! between. Before each packet what the programs noted of the kernel's clock is moved, as if only
//! that had passed since.

use std::collections::HashMap;

use harness::Switch;

const ORBITS: &str = "orbitcache_orbits";
/// In `struct orbit`: `generation`, 0 where nothing ever went round; `seen_ns`, `busy_ns`;
/// `waiting`, how many of `queue` wait from `first` on, and in each of these `since_ns`.
const GENERATION: usize = 4;
const SEEN_NS: usize = 24;
const BUSY_NS: usize = 32;
const MANY: usize = 48;
const FIRST: usize = 52;
const QUEUE: usize = 64;
const QUEUE_LEN: usize = 8;
const WAITING: usize = 120;
const SINCE_NS: usize = 48;
/// How far ahead a note of this very moment is put: no machine stands still for so long.
const AHEAD_NS: u64 = 600_000_000_000;

/// The story's clock.
#[derive(Default)]
pub struct Time {
    now_ns: u64,
    /// By place in the table and byte: the note as it was last found or moved, and when that was in
    /// the story.
    noted: HashMap<(u32, usize), (u64, u64)>,
}

impl Time {
    /// Before a packet comes in.
    pub fn stands_still(&mut self, switch: &Switch) {
        let clock_ns = switch.leases.now_ns();
        let now_ns = self.now_ns;
        for (place, mut orbit) in self.look(switch) {
            let mut moved = false;
            for at in notes(&orbit) {
                let (note, when_ns) = self.noted.get_mut(&(place, at)).expect("just found");
                *note = match now_ns - *when_ns {
                    0 if *note > clock_ns + AHEAD_NS / 2 => continue,
                    0 => clock_ns + AHEAD_NS,
                    age_ns => clock_ns - age_ns,
                };
                orbit[at..at + 8].copy_from_slice(&note.to_ne_bytes());
                moved = true;
            }
            if moved {
                let written = switch.backing().set_element(ORBITS, place, &orbit);
                written.expect("writable");
            }
        }
    }

    /// That much of it.
    pub fn passes(&mut self, switch: &Switch, ms: u64) {
        self.look(switch);
        self.now_ns += ms * 1_000_000;
    }

    /// All that goes round or did; what the programs have noted since the last look is of now.
    fn look(&mut self, switch: &Switch) -> Vec<(u32, Vec<u8>)> {
        let orbits = (0..).zip(switch.elements(ORBITS));
        let used = |(_, orbit): &(u32, Vec<u8>)| orbit[GENERATION..GENERATION + 4] != [0; 4];
        let used: Vec<_> = orbits.filter(used).collect();
        for (place, orbit) in &used {
            for byte in notes(orbit) {
                let note = u64::from_ne_bytes(orbit[byte..byte + 8].try_into().expect("8 bytes"));
                let noted = self.noted.entry((*place, byte)).or_default();
                if noted.0 != note {
                    *noted = (note, self.now_ns);
                }
            }
        }
        used
    }
}

/// Where an orbit has its notes of the clock.
fn notes(orbit: &[u8]) -> impl Iterator<Item = usize> + use<> {
    // Their low bytes: both are small.
    let (many, first) = (usize::from(orbit[MANY]), usize::from(orbit[FIRST]));
    let queue = (first..first + many).map(|n| QUEUE + n % QUEUE_LEN * WAITING);
    let of_queue = queue.map(|waiting| waiting + SINCE_NS);
    [SEEN_NS, BUSY_NS].into_iter().chain(of_queue)
}
