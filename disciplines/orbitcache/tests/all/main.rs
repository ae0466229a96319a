//! orbitcache's halves from outside, in one program: packets that go round, and what is learnt
//! of traffic.

mod data_plane;
mod learning;
