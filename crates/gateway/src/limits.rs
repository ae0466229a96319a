//! What a gateway's clients may make grow, and how far: connections, commands, answers that nobody
//! reads.

/// What clients may make grow, and how far. The defaults suit one gateway beside some applications.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Connections at the same time; more are told so and closed.
    pub connections: usize,
    /// Longest key or value in bytes, where commands on strings are all that there is. Elsewhere it
    /// is Redis's own, 512 MiB.
    pub word_bytes: usize,
    /// Words in one command, likewise. Elsewhere it is Redis's own.
    pub words: usize,
    /// Commands of one connection that are worked on at the same time; those behind them
    /// wait unread.
    pub pipeline: usize,
    /// Bytes that all connections together may hold, of commands whose rest does not come and of
    /// answers that nobody reads. By packets they may hold half of it: the other half is for large
    /// commands and values.
    pub memory_bytes: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            connections: 10_000,
            word_bytes: 32 << 20,
            words: 64 << 10,
            pipeline: 256,
            memory_bytes: 256 << 20,
        }
    }
}
