//! Which reads leave by the network.

/// Which reads go by the network, where switches may answer them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NetworkUse {
    /// Of every key.
    Always,
    /// Of keys that are read often.
    #[default]
    Hot,
    /// None.
    Never,
}

impl std::str::FromStr for NetworkUse {
    type Err = String;

    fn from_str(text: &str) -> Result<NetworkUse, String> {
        match text {
            "always" => Ok(NetworkUse::Always),
            "hot" => Ok(NetworkUse::Hot),
            "never" => Ok(NetworkUse::Never),
            _ => Err(format!("{text:?}: expected always, hot or never")),
        }
    }
}
