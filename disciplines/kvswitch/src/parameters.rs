//! The two words that the programs have of each tenant.

/// Writes of hot keys are sent to their replicas as well.
pub const FAN_OUT: u32 = 1;
/// The control half's own, for one that comes after it: the threshold of replication, in millionths of an average server's load.
const PART_SHIFT: u32 = 8;
const PART_MOST: u32 = u32::MAX >> PART_SHIFT;

/// What they say.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Words {
    /// The requests of a window from which a cold key is reported.
    pub reported_from: u32,
    /// Whether writes of hot keys are sent to their replicas by the switch.
    pub fan_out: bool,
    /// The threshold of replication, in parts of an average server's load; 0: none was said.
    pub part: f64,
}

impl Words {
    /// As [`decide::Configuration::parameters`] has them.
    pub fn words(&self) -> [u32; decide::PARAMETERS] {
        let part = ((self.part * 1e6) as u32).min(PART_MOST) << PART_SHIFT;
        let fan_out = if self.fan_out { FAN_OUT } else { 0 };
        [self.reported_from, part | fan_out]
    }
}

/// What the words of an earlier configuration say.
pub fn read([reported_from, flags]: [u32; decide::PARAMETERS]) -> Words {
    Words {
        reported_from,
        fan_out: flags & FAN_OUT != 0,
        part: f64::from(flags >> PART_SHIFT) / 1e6,
    }
}

/// The words without a threshold of replication: what the programs alone need.
pub fn words(threshold: u32, fan_out: bool) -> [u32; decide::PARAMETERS] {
    let words = Words {
        reported_from: threshold,
        fan_out,
        part: 0.0,
    };
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
            part: 0.0625,
        };
        assert_eq!(read(said.words()), said);
        assert_eq!(words(7, true), [7, FAN_OUT]);
        assert_eq!(words(7, false), [7, 0]);
        assert_eq!(read([7, u32::MAX]).words()[1] >> PART_SHIFT, PART_MOST);
    }
}
