//! The two words that the programs have of each tenant.

/// Writes of hot keys are sent to their replicas as well.
pub const FAN_OUT: u32 = 1;
/// The switch is at the top of a rack: writes go to its replicas also if a switch before it sent
/// them to others.
pub const ON_TOP: u32 = 2;
/// Of two turns that follow on each other the one whose server was sent less is taken.
pub const TWO_CHOICES: u32 = 4;
/// The control half's own, for one that comes after it: the threshold of replication, in millionths
/// of an average server's load.
const PART_SHIFT: u32 = 8;
const PART_MOST: u32 = u32::MAX >> PART_SHIFT;

/// What the parameter words say.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Words {
    /// The requests of a window from which a cold key is reported.
    pub reported_from: u32,
    /// Whether writes of hot keys are sent to their replicas by the switch.
    pub fan_out: bool,
    /// Whether the switch is at the top of a rack.
    pub on_top: bool,
    /// Whether a read takes the better of two turns.
    pub two_choices: bool,
    /// The threshold of replication, in parts of an average server's load; 0: none was said.
    pub part: f64,
}

impl Words {
    /// Encodes it as [`decide::Configuration::parameters`] has it.
    pub fn words(&self) -> [u32; decide::PARAMETERS] {
        let part = ((self.part * 1e6) as u32).min(PART_MOST) << PART_SHIFT;
        let flags =
            [(self.fan_out, FAN_OUT), (self.on_top, ON_TOP), (self.two_choices, TWO_CHOICES)];
        let set = flags.iter().filter(|(is_set, _)| *is_set);
        let flags = set.fold(0, |flags, (_, flag)| flags | flag);
        [self.reported_from, part | flags]
    }
}

/// What the words of an earlier configuration say.
pub fn read([reported_from, flags]: [u32; decide::PARAMETERS]) -> Words {
    Words {
        reported_from,
        fan_out: flags & FAN_OUT != 0,
        on_top: flags & ON_TOP != 0,
        two_choices: flags & TWO_CHOICES != 0,
        part: f64::from(flags >> PART_SHIFT) / 1e6,
    }
}

/// The words without a threshold of replication: what the programs alone need.
pub fn words(threshold: u32, fan_out: bool) -> [u32; decide::PARAMETERS] {
    let words =
        Words { reported_from: threshold, fan_out, on_top: false, two_choices: false, part: 0.0 };
    words.words()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_controller_finds_what_the_one_before_said() {
        let said = Words {
            reported_from: 12,
            fan_out: true,
            on_top: false,
            two_choices: true,
            part: 0.0625,
        };
        assert_eq!(read(said.words()), said);
        assert_eq!(words(7, true), [7, FAN_OUT]);
        assert_eq!(words(7, false), [7, 0]);
        assert_eq!(read([7, u32::MAX]).words()[1] >> PART_SHIFT, PART_MOST);
    }
}
