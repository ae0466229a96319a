//! The switch programs in the kernel, in this process, and as an ordinary program under sanitizers.

mod addresses;
mod contract;
mod forwarding;
mod host_c;
mod lent;
mod modes;
mod needed;
mod occupied;
mod offloads;
mod refusals;
mod upgrade;
mod vectors;
