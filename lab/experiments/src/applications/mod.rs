//! Applications on hosts of their own, as experiments before Redis servers have them: connections
//! that ask several commands at a time and record what they were answered, what such hosts keep
//! near today, and values that say which write they are from.

mod lane;
mod rivals;
mod values;
mod worker;

pub(crate) use rivals::{Invalidations, NearCache};
pub(crate) use values::{key_name, number_for, number_of, percentile_ms, stale_in, value_of};
pub(crate) use worker::{ApplicationCache, Mix, Observations, Pace, Servers, Worker};
