//! The two words that the programs have of each tenant.

/// Writes of hot keys are sent to their replicas as well.
pub const FAN_OUT: u32 = 1;

/// As [`decide::Configuration::parameters`] has them: the requests of a window from which a cold key is reported, and flags.
pub fn words(threshold: u32, fan_out: bool) -> [u32; decide::PARAMETERS] {
    [threshold, if fan_out { FAN_OUT } else { 0 }]
}
