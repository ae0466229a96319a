//! netcache's halves from outside, in one program: alone, together, and with other tenants.

mod answers;
mod coherence;
mod data_plane;
mod learning;
mod pipeline;
mod tenants;
