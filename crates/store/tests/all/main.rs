//! A whole store over loopback, with what it is beside: real backends, other stores, a
//! discipline's half.

mod backends;
mod cluster;
mod eviction;
mod halves;
mod memcached_port;
mod names;
mod outside;
mod pace;
mod refusals;
mod replicas;
mod resp_port;
mod restart;
mod secured;
mod sentinel;
mod speed;
mod support;
mod tenants;
mod udp;
