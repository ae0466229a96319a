//! Topologies that come with the program.

/// Topologies that need no file: name, what it is, text.
pub const TOPOLOGIES: &[(&str, &str, &str)] =
    &[("rack", "two clients, a switch, 128 emulated servers", include_str!("rack.toml"))];
