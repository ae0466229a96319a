//! What a switch is told next. Each part is told when it is safe, and those that are confirmed
//! again until they are.

use std::time::Duration;

use api::proto::{Commands, ListHeld, to_switch::Body};

use super::{Switch, stream::Stream};

/// Commands in one message.
const COMMANDS_PER_MESSAGE: usize = 512;
/// What was not confirmed is sent again after this time.
pub const SEND_AGAIN: Duration = Duration::from_secs(2);

impl Switch {
    /// A question for what it holds.
    pub fn next_list(&mut self) -> Option<Body> {
        let wanted = self.stream.as_mut()?.take_list_wanted();
        wanted.then_some(Body::ListHeld(ListHeld {}))
    }

    /// Its setup, if it is another than was sent and everything up to `durable` is. Then with the
    /// tenants that are new in it.
    pub fn next_setup(&mut self, durable: u64) -> Option<(Body, Vec<u32>)> {
        let stream = self.stream.as_mut()?;
        let wanted = self.setup.as_ref()?;
        // Secrets in it must be as safe as what is told of them.
        if durable < wanted.safe_after || stream.setup_sent == Some(wanted.version) {
            return None;
        }
        stream.setup_sent = Some(wanted.version);
        let tenants = wanted.setup.tenants.iter();
        let told_of = tenants.map(|t| (t.tenant, t.discipline.clone())).collect();
        let before = std::mem::replace(&mut stream.told_of, told_of);
        let is_new =
            |(tenant, discipline): &(&u32, &String)| before.get(tenant) != Some(discipline);
        let new = stream.told_of.iter().filter(is_new);
        let new = new.map(|(tenant, _)| *tenant).collect();
        Some((Body::Setup(wanted.setup.clone()), new))
    }

    /// Whether a tenant is in the setup that was sent.
    pub fn told_of(&self, tenant: u32) -> bool {
        let stream = self.stream.as_ref();
        stream.is_some_and(|stream| stream.told_of.contains_key(&tenant))
    }

    /// Whether its page table of this version is to be sent now; it is taken to be.
    pub fn next_table(&mut self, now: Duration, durable: u64, version: u64) -> bool {
        let is_safe = durable >= self.table_safe_after;
        let Some(stream) = &mut self.stream else { return false };
        let confirmed = stream.table_applied == Some(version);
        let is_new = |(sent, at)| sent != version || (!confirmed && at + SEND_AGAIN <= now);
        let send = is_safe && stream.table_sent.is_none_or(is_new);
        if send {
            stream.table_sent = Some((version, now));
        }
        send
    }

    /// Its routes, until it said that it has them.
    pub fn next_routes(&mut self, now: Duration) -> Option<Body> {
        let stream = self.stream.as_mut()?;
        let version = self.routes.version;
        let is_late = |(sent, at)| sent != version || at + SEND_AGAIN <= now;
        if version == 0
            || self.routes_applied == Some(version)
            || !stream.routes_sent.is_none_or(is_late)
        {
            return None;
        }
        stream.routes_sent = Some((version, now));
        Some(Body::Routes(self.routes.clone()))
    }

    /// A message for a half in its agent.
    pub fn next_mail(&mut self) -> Option<Body> {
        let stream = self.stream.as_mut()?;
        let next = self.mail.after(stream.mail_sent)?;
        stream.mail_sent = next.seq;
        Some(Body::Message(next.clone()))
    }

    /// Commands come after the table that gives them room.
    pub fn next_commands(
        &mut self,
        now: Duration,
        table: u64,
        next_number: &mut u64,
    ) -> Option<Body> {
        let sent = |stream: &Stream| stream.table_sent.is_some_and(|(sent, _)| sent == table);
        if !self.stream.as_ref().is_some_and(sent) {
            return None;
        }
        let most = self.bucket.available(now).min(COMMANDS_PER_MESSAGE);
        let commands = self.outbox.take(now, most, next_number);
        self.bucket.take(commands.len());
        (!commands.is_empty()).then_some(Body::Commands(Commands { commands }))
    }
}
