//! The controller: its state in real etcd servers, its core, its API over the network, and the
//! whole of it with pretended switches.

mod admin;
mod end_to_end;
mod etcd;
mod state;
