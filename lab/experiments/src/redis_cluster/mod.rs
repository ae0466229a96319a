//! A real Redis Cluster on loopback, and stores in front of it as its cluster file says.

mod nodes;
mod stores;

pub(crate) use nodes::{Failure, Nodes, connect, number_in};
pub(crate) use stores::Stores;
