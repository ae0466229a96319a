//! What operators may set, in the order of [`ALL`].

use decide::Setting;

/// Items that a switch has at least of each tenant, and at most of all, whatever the requests say;
/// the same twice fixes them.
pub const ITEMS_MIN: usize = 0;
/// See [`ITEMS_MIN`].
pub const ITEMS_MAX: usize = 1;
/// Overflows in a thousand reads from which there are fewer items.
pub const OVERFLOW_PERMILLE: usize = 2;
/// Keys of each tenant that a store reports.
pub const TOP_K: usize = 3;
/// How long a value goes round for nobody. Short by default: to wake costs what a hit costs, and a
/// core that goes round does nothing else (README).
pub const PARK_US: usize = 4;
/// Reads that may wait for one value.
pub const QUEUE: usize = 5;

/// The most keys that fit a report.
pub const TOP_K_MOST: u32 = 128;
/// The longest pause that the programs can be told.
const PARK_US_MOST: u32 = 0xff_fffe;

/// All settings.
pub const ALL: &[Setting] = &[
    Setting::new(
        "items_min",
        "items of a tenant that a switch has at least, if so many are worth it and there is room",
        16,
        1,
        4096,
    ),
    Setting::new("items_max", "items of all tenants that a switch has at most", 512, 1, 4096),
    Setting::new(
        "overflow_permille",
        "reads in a thousand that may find no place to wait before there are fewer items",
        10,
        0,
        1000,
    ),
    Setting::new(
        "top_k",
        "keys of each tenant that a store reports in a window",
        64,
        1,
        TOP_K_MOST,
    ),
    Setting::new(
        "park_us",
        "microseconds that a value goes round for nobody; 0: for ever",
        20,
        0,
        PARK_US_MOST,
    ),
    Setting::new("queue", "reads that may wait for one value", 8, 1, 8),
];
