//! One connection in Redis's protocol, with several commands on their way: what is asked is sent
//! at once, and answers come in its order.

use std::{
    collections::VecDeque,
    io::{BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpStream},
    time::Duration,
};

use anyhow::{Context, bail};

use crate::resp::write_command;

/// How long an answer may take.
const TIMEOUT: Duration = Duration::from_secs(10);

/// What came for a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answer<'a> {
    /// A value.
    Value(&'a [u8]),
    /// None, or a line that is no error.
    Nothing,
    /// An error.
    Failed,
}

/// A connection; `T` is what is remembered of each command.
pub(super) struct Lane<T> {
    stream: BufReader<TcpStream>,
    out: Vec<u8>,
    value: Vec<u8>,
    line: Vec<u8>,
    under_way: VecDeque<T>,
}

impl<T> Lane<T> {
    pub fn to(address: SocketAddr) -> anyhow::Result<Lane<T>> {
        let stream = TcpStream::connect(address).with_context(|| format!("to {address}"))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(TIMEOUT))?;
        Ok(Lane {
            stream: BufReader::with_capacity(1 << 16, stream),
            out: vec![],
            value: vec![],
            line: vec![],
            under_way: VecDeque::new(),
        })
    }

    /// Adds a command to what is sent next.
    pub fn ask(&mut self, words: &[&[u8]], what: T) -> anyhow::Result<()> {
        write_command(&mut self.out, words)?;
        self.under_way.push_back(what);
        Ok(())
    }

    pub fn flush(&mut self) -> anyhow::Result<()> {
        if !self.out.is_empty() {
            self.stream.get_mut().write_all(&self.out)?;
            self.out.clear();
        }
        Ok(())
    }

    /// Waits for the next answer, with what is remembered of its command; none: nothing is under
    /// way.
    pub fn next(&mut self) -> anyhow::Result<Option<(T, Answer<'_>)>> {
        let Some(what) = self.under_way.pop_front() else { return Ok(None) };
        self.read_line()?;
        let Some((kind, rest)) = self.line.split_first() else { bail!("an empty answer") };
        let answer = match kind {
            b'$' if rest.starts_with(b"-") => Answer::Nothing,
            b'$' => {
                let len: usize = std::str::from_utf8(rest)?.parse()?;
                self.value.resize(len + 2, 0);
                self.stream.read_exact(&mut self.value)?;
                Answer::Value(&self.value[..len])
            }
            b'-' => Answer::Failed,
            b'+' | b':' | b'_' => Answer::Nothing,
            _ => bail!("{}: no answer to what was asked", String::from_utf8_lossy(&self.line)),
        };
        Ok(Some((what, answer)))
    }

    fn read_line(&mut self) -> anyhow::Result<()> {
        self.line.clear();
        self.stream.read_until(b'\n', &mut self.line)?;
        if self.line.pop() != Some(b'\n') {
            bail!("the connection has ended");
        }
        self.line.pop();
        Ok(())
    }
}
