//! The program from outside: its command line, what its roles say, and its gateway between real
//! clients and a real Redis.

mod bad_input;
mod command_line;
mod gateway;
mod redis_cluster;
mod roles;
mod support;
