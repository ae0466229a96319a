//! The stores' memcached ports, and which of them has a key.

use std::{
    sync::atomic::{AtomicUsize, Ordering::Relaxed},
    time::Duration,
};

use bytes::BytesMut;
use memcached::{CommandSubject, Exchange};
use tokio::time::timeout;

use super::links::{Link, Links};
use crate::loops::{Target, owners::Owners};

/// How long a server may take for the next part of an answer, beside the longest lease, for which
/// it may have to wait: longer than it waits for its memcached, of which it tells.
const ANSWERS_WITHIN: Duration = Duration::from_secs(10);

/// Why there is no answer.
struct NoAnswer {
    why: String,
    /// The connection has ended.
    has_ended: bool,
}

/// All ports.
pub(super) struct Servers {
    all: Vec<Links>,
    owners: Owners,
    /// How long one of them may take for the next part of an answer.
    pub answers_within: Duration,
}

impl Servers {
    /// These ports, of which `owners` has the numbers, each with so many connections at the most,
    /// where leases are so long at the most.
    pub fn new(targets: Vec<Target>, owners: Owners, most: usize, lease: Duration) -> Servers {
        let all = targets.into_iter().map(|target| Links::new(target, most)).collect();
        Servers { all, owners, answers_within: lease + ANSWERS_WITHIN }
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

    /// The one that has all keys that a command names, if it names some.
    pub fn of_all(&self, subject: &CommandSubject<'_>) -> Option<usize> {
        let mut names = subject.names();
        let first = self.of(names.next()?);
        let is_its = self.all.len() == 1 || names.all(|name| self.of(name) == first);
        is_its.then_some(first)
    }

    /// Whether a command names a tenant's key, whose store is found by the tenant's secret.
    pub fn do_not_find(&self, subject: &CommandSubject<'_>) -> bool {
        self.all.len() > 1 && subject.names().any(is_tenants)
    }

    /// The connections to one of them.
    pub fn links(&self, server: usize) -> &Links {
        &self.all[server]
    }

    /// Has commands carried out, and hands on all that is answered; `grows` is told of so many
    /// bytes more, and says whether there is room for them. `again`: they may be carried out twice,
    /// for they change nothing.
    ///
    /// # Errors
    /// There is no answer: why.
    pub async fn asked(
        &self,
        server: usize,
        commands: &[u8],
        grows: impl Fn(usize) -> bool,
        again: bool,
    ) -> Result<Vec<u8>, String> {
        let links = self.links(server);
        let mut taken = links.take().await;
        loop {
            let (link, was_kept) = taken.map_err(|error| format!("{error:#}"))?;
            match self.asked_by(server, link, commands, &grows).await {
                Ok(answer) => return Ok(answer),
                // The port may have been started again since the connection was used last.
                Err(NoAnswer { has_ended: true, .. }) if was_kept && again => {
                    links.forget();
                    taken = links.take().await;
                }
                Err(NoAnswer { why, .. }) => return Err(format!("{} {why}", links.name())),
            }
        }
    }

    /// Likewise, of an answer that may have so many bytes; whoever asks asks again by himself.
    ///
    /// # Errors
    /// As [`Servers::asked`].
    pub async fn asked_once(
        &self,
        server: usize,
        commands: &[u8],
        most: usize,
    ) -> Result<Vec<u8>, String> {
        let has = AtomicUsize::new(0);
        let grows = |more| has.fetch_add(more, Relaxed) + more <= most;
        self.asked(server, commands, grows, false).await
    }

    async fn asked_by(
        &self,
        server: usize,
        link: Link,
        commands: &[u8],
        grows: &impl Fn(usize) -> bool,
    ) -> Result<Vec<u8>, NoAnswer> {
        let fails = |why: String| NoAnswer { why, has_ended: false };
        let mut exchange = Exchange::new(link, BytesMut::from(commands));
        let mut answers = vec![];
        while !exchange.is_over() {
            let moved = timeout(self.answers_within, exchange.moves(true)).await;
            let moved = moved.map_err(|_| fails("does not answer".into()))?;
            // What it has said of that is its answer.
            if moved.is_err() && answers.ends_with(b"\n") && answers.starts_with(b"SERVER_ERROR ") {
                return Ok(answers);
            }
            moved.map_err(|why| NoAnswer { why, has_ended: answers.is_empty() })?;
            let before = answers.len();
            exchange.take(|more| answers.extend_from_slice(more)).map_err(fails)?;
            if !grows(answers.len() - before) {
                return Err(fails("answers more than there is room for".into()));
            }
        }
        self.links(server).keep(exchange.into_link());
        Ok(answers)
    }
}

/// Whether it is the name that a tenant's key has at memcached.
pub(super) fn is_tenants(name: &[u8]) -> bool {
    wire::backend_name(wire::TENANT_OPEN, name).is_none()
}
