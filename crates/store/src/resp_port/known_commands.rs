//! What commands the Redis behind a port has: asked once for all who want to know.
//!
//! The question takes Redis milliseconds, in which it answers nobody else, and one that stands
//! still does not answer it at all.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use resp::CommandTable;

/// For so long the commands that Redis has are taken to be what they were, if one is unknown.
const ASK_AGAIN: Duration = Duration::from_secs(1);
/// Names of which it is remembered whether Redis knows them.
const NAMES: usize = 256;

/// The commands, and when they were asked for.
#[derive(Default)]
pub(super) struct KnownCommands {
    told: Mutex<ToldCommands>,
    /// Whoever asks for them; others wait.
    asking: tokio::sync::Mutex<()>,
    /// Names that are none of theirs: when Redis was asked for each, and whether it knows it.
    others: Mutex<HashMap<Vec<u8>, (Instant, bool)>>,
}

#[derive(Default)]
struct ToldCommands {
    table: Arc<CommandTable>,
    asked: Option<Instant>,
    /// When a question was over that nobody has answered.
    failed: Option<Instant>,
}

impl KnownCommands {
    fn told(&self) -> MutexGuard<'_, ToldCommands> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The commands; none, if Redis has not told them.
    pub fn table(&self) -> Arc<CommandTable> {
        self.told().table.clone()
    }

    /// Has them asked for by `ask`, unless they are known. Of all who come before a question is
    /// over one asks, and whatever comes of it is the answer of all.
    ///
    /// # Errors
    /// Redis did not answer, or does not say.
    pub async fn known(
        &self,
        ask: impl Future<Output = anyhow::Result<CommandTable>>,
    ) -> anyhow::Result<()> {
        let is_known = || !self.told().table.is_empty();
        if is_known() {
            return Ok(());
        }
        let came = Instant::now();
        let _asks = self.asking.lock().await;
        if is_known() {
            return Ok(());
        }
        let has_failed = self.told().failed.is_some_and(|failed| failed >= came);
        anyhow::ensure!(!has_failed, "Redis has not told what commands it has");
        let told = self.ask(ask).await;
        self.told().failed = told.is_err().then(Instant::now);
        told
    }

    /// Whether they may be others by now.
    pub fn may_be_others(&self) -> bool {
        self.told().asked.is_none_or(|asked| asked.elapsed() > ASK_AGAIN)
    }

    /// Whether Redis may carry out a command of a name that is none of theirs, as one that its
    /// operator has renamed: COMMAND lists that under the name that it had. It is asked by `ask`,
    /// unless it was just now; and what it does not answer it may know.
    pub async fn may_be_renamed(
        &self,
        name: &[u8],
        ask: impl Future<Output = anyhow::Result<bool>>,
    ) -> bool {
        let others = || self.others.lock().unwrap_or_else(PoisonError::into_inner);
        let told = others().get(name).copied();
        if let Some((_, known)) = told.filter(|(asked, _)| asked.elapsed() <= ASK_AGAIN) {
            return known;
        }
        let asked = Instant::now();
        let Ok(known) = ask.await else { return true };
        let mut others = others();
        if others.len() >= NAMES {
            others.clear();
        }
        others.insert(name.into(), (asked, known));
        known
    }

    /// Has them asked for by `ask`.
    ///
    /// # Errors
    /// As for [`KnownCommands::known`].
    pub async fn ask(
        &self,
        ask: impl Future<Output = anyhow::Result<CommandTable>>,
    ) -> anyhow::Result<()> {
        self.told().asked = Some(Instant::now());
        let table = ask.await?;
        anyhow::ensure!(!table.is_empty(), "it has no commands");
        self.told().table = Arc::new(table);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    /// Is asked, and does not answer; others come meanwhile.
    async fn mute(asked: &Cell<u32>) -> anyhow::Result<CommandTable> {
        asked.set(asked.get() + 1);
        tokio::task::yield_now().await;
        anyhow::bail!("no answer")
    }

    #[tokio::test]
    async fn a_question_without_an_answer_is_asked_once_for_all_who_come_before_it_is_over() {
        let (commands, asked) = (KnownCommands::default(), Cell::new(0));
        let asks = || commands.known(mute(&asked));
        let (first, second, third) = tokio::join!(asks(), asks(), asks());
        assert!(first.is_err() && second.is_err() && third.is_err());
        assert_eq!(asked.get(), 1);
        assert!(asks().await.is_err());
        assert_eq!(asked.get(), 2, "who comes later asks again");
    }
}
