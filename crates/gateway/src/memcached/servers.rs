//! The stores' memcached ports, and which of them has a key.

use std::time::Duration;

use bytes::BytesMut;
use memcached::{AskedValues, Exchange};
use tokio::time::timeout;

use super::links::{Link, Links};
use crate::loops::{Target, owners::Owners};

/// How long a server may take for the next part of an answer: longer than a store waits for its
/// memcached, which it tells of.
pub(super) const ANSWERS_WITHIN: Duration = Duration::from_secs(10);

/// All ports.
pub(super) struct Servers {
    all: Vec<Links>,
    owners: Owners,
}

impl Servers {
    /// These ports, of which `owners` has the numbers.
    pub fn new(targets: Vec<Target>, owners: Owners) -> Servers {
        Servers { all: targets.into_iter().map(Links::new).collect(), owners }
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.all.len()
    }

    /// The number of the one that has a key.
    pub fn of(&self, name: &[u8]) -> usize {
        // Where there is one, nothing has to be computed.
        if self.all.len() == 1 { 0 } else { self.owners.port_of(name) }
    }

    /// Whether one of them has all keys of a command.
    pub fn have_all(&self, asked: &AskedValues<'_>) -> bool {
        self.all.len() == 1 || {
            let first = self.of(asked.names[0]);
            asked.names.iter().all(|name| self.of(name) == first)
        }
    }

    /// The connections to one of them.
    pub fn links(&self, server: usize) -> &Links {
        &self.all[server]
    }

    /// Has commands carried out, and hands on all that is answered, which may have so many bytes.
    /// `again`: they may be carried out twice, for they change nothing.
    ///
    /// # Errors
    /// There is no answer: why.
    pub async fn asked(
        &self,
        server: usize,
        commands: &[u8],
        most: usize,
        again: bool,
    ) -> Result<Vec<u8>, String> {
        let links = self.links(server);
        let kept = links.kept();
        let was_kept = kept.is_some();
        let answered = self.asked_by(server, kept, commands, most).await;
        match answered {
            // The port may have been started again since the connection was used last.
            Err(_) if was_kept && again => {
                links.forget();
                self.asked_by(server, None, commands, most).await
            }
            answered => answered,
        }
    }

    async fn asked_by(
        &self,
        server: usize,
        link: Option<Link>,
        commands: &[u8],
        most: usize,
    ) -> Result<Vec<u8>, String> {
        let links = self.links(server);
        let link = match link {
            Some(link) => link,
            None => links.open().await.map_err(|error| format!("{error:#}"))?,
        };
        let says = |why: &str| format!("{} {why}", links.name());
        let mut exchange = Exchange::new(link, BytesMut::from(commands));
        let mut answers = vec![];
        while !exchange.is_over() {
            let moved = timeout(ANSWERS_WITHIN, exchange.moves(true)).await;
            moved.map_err(|_| says("does not answer"))?.map_err(|why| says(&why))?;
            let taken = exchange.take(|more| answers.extend_from_slice(more));
            taken.map_err(|why| says(&why))?;
            if answers.len() > most {
                return Err(says("answers more than there is room for"));
            }
        }
        links.keep(exchange.into_link());
        Ok(answers)
    }
}
