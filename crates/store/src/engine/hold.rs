//! What a hold is called, what it is of, and how it ends.

/// Names a hold; whoever asks for it draws the number, and no other hold has had it.
pub type HoldId = u64;

/// What a command is to have for itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HoldRequest {
    /// These keys, by their names in the backend, in any order, and maybe twice.
    pub names: Vec<Vec<u8>>,
    /// Every key that there is.
    pub everything: bool,
}

/// Why a hold is not needed any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HoldEnd {
    /// Its command was answered, was never sent, or is known to take place no more.
    Over,
    /// Its command was sent, and may take place still; nobody can say until when.
    Unknown,
}
