//! The names of what is in a world: whoever sends, opens or kills something says with them what
//! is meant.

/// Names a process, for as long as the world lasts: one that is restarted keeps its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ProcessId(pub u32);

/// Names a machine, by its place in [`plan::Plan::sites`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MachineId(pub u32);

/// Names a stream between two processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StreamId(pub u32);
