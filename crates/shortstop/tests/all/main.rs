//! The program from outside: its command line, and its gateway between real clients and a
//! real Redis.

mod command_line;
mod gateway;
