//! Every state of small chains whose switches run the programs, and whose network loses, doubles
//! and reorders whatever it likes.
//!
//! A transition is a packet through the C, on the tables that the switch has in that state; what
//! came of it is remembered. Only what stands around it is the model's own: clients, the network,
//! when a switch gets its row, time. What is in flight may arrive at any time, never, and again.
//! Leases are confirmed by real packets, one exchange at once: what is late there only ends leases
//! earlier. What clients are told must be linearizable, versions and all, and no write may be in a
//! ring twice.

mod bounds;
mod exhaust;
mod key;
mod mutants;
mod packets;
mod real;
mod steps;
mod switches;
mod world;
