//! Standard output, as commands write to it: what cannot be written is an error like others.

use std::{
    fmt::{self, Display},
    io::{self, ErrorKind, Write},
};

/// What was to be printed is not, or not all of it.
#[derive(Debug)]
struct Unprinted;

impl Display for Unprinted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("cannot write to standard output")
    }
}

/// Prints a text, or bytes, as they are.
///
/// # Errors
/// It cannot be written.
pub fn print(text: impl AsRef<[u8]>) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    let printed = out.write_all(text.as_ref()).and_then(|()| out.flush());
    printed.map_err(|e| anyhow::Error::from(e).context(Unprinted))
}

/// Prints one line.
///
/// # Errors
/// It cannot be written.
pub fn print_line(line: impl Display) -> anyhow::Result<()> {
    print(format!("{line}\n"))
}

/// Whether something was not printed because its reader has stopped (`| head`).
pub fn is_unread(error: &anyhow::Error) -> bool {
    let is_pipe = |cause: &io::Error| cause.kind() == ErrorKind::BrokenPipe;
    error.is::<Unprinted>() && error.chain().filter_map(|e| e.downcast_ref()).any(is_pipe)
}
