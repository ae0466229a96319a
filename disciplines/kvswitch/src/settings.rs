//! What operators may set, in the order of [`ALL`].

use decide::Setting;

/// What the window before the last counts in a key's expected load (the paper's alpha), in percent.
pub const ALPHA_PERCENT: usize = 0;
/// By how much a server's load may exceed the average.
pub const BOUND_PERMILLE: usize = 1;
/// What is left of the threshold when it falls (the paper's gamma).
pub const GAMMA_PERCENT: usize = 2;
/// The threshold at first, in parts of an average server's load.
pub const FIRST_MILLIONTHS: usize = 3;
/// Changes of a tenant's keys at a switch after one window.
pub const CHANGES: usize = 4;
/// Whether writes of hot keys are sent to their replicas by the switch.
pub const FAN_OUT: usize = 5;
/// Most servers that have a key.
pub const REPLICAS: usize = 6;
/// 1: the threshold stays where it began.
pub const FIXED: usize = 7;
/// Whether the switch has copies of hot keys' values itself where that is cheaper than replicas.
pub const COPIES: usize = 8;

/// All settings.
pub const ALL: &[Setting] = &[
    Setting::new(
        "alpha_percent",
        "what the window before the last counts in a key's expected load",
        50,
        0,
        99,
    ),
    Setting::new(
        "bound_permille",
        "by how much a server's load may exceed the average before keys get more replicas",
        20,
        1,
        10_000,
    ),
    Setting::new(
        "gamma_percent",
        "what is left of the threshold of replication when it falls",
        70,
        10,
        95,
    ),
    Setting::new(
        "first_millionths",
        "the threshold of replication at first, in millionths of an average server's load",
        32_000,
        1,
        1_000_000,
    ),
    Setting::new(
        "changes",
        "changes of a tenant's keys at a switch after one window",
        2000,
        1,
        100_000,
    ),
    Setting::new(
        "fan_out",
        "whether switches send writes of hot keys to their replicas: 1 or 0",
        1,
        0,
        1,
    ),
    Setting::new("replicas", "most servers that have a key", 64, 2, 64),
    Setting::new("fixed", "whether the threshold stays where it began: 1 or 0", 0, 0, 1),
    Setting::new(
        "copies",
        "whether switches keep the values of hot keys themselves where that is cheaper than replicas: 1 or 0, as in the paper",
        0,
        0,
        1,
    ),
];
