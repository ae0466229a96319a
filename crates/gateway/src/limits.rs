//! What a gateway's clients may make grow, and how far: connections, commands, answers that nobody
//! reads.

/// What clients may make grow, and how far. The defaults suit one gateway beside some applications.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Connections at the same time; more are told so and closed.
    pub connections: usize,
    /// Longest inline command (a line that does not begin with `*`) in bytes. Redis's own limit.
    pub inline_bytes: usize,
    /// Longest key or value in bytes. Redis has 512 MiB.
    pub bulk_bytes: usize,
    /// Words in one command. Redis has 1,048,576.
    pub words: usize,
    /// Commands of one connection that are worked on at the same time; those behind them
    /// wait unread.
    pub pipeline: usize,
    /// Bytes of small commands that one connection may have in work.
    pub connection_bytes: usize,
    /// Bytes of answers that wait for one client to read them. No further command of it is
    /// answered then.
    pub output_bytes: usize,
    /// Bytes of everything large (commands beyond [`Limits::connection_bytes`] and large values) of
    /// all connections together.
    pub memory_bytes: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            connections: 10_000,
            inline_bytes: 64 << 10,
            bulk_bytes: 32 << 20,
            words: 64 << 10,
            pipeline: 256,
            connection_bytes: 64 << 10,
            output_bytes: 64 << 10,
            memory_bytes: 256 << 20,
        }
    }
}

impl Limits {
    /// What a command may be.
    pub(crate) fn of_request(&self) -> resp::Limits {
        resp::Limits::default()
    }
}
