//! Keys that are read elsewhere, and that Redis would take for idle: TOUCH says that they are not.
//!
//! What that takes is for Redis's policy to say (`maxmemory-policy`, in INFO, which is asked for
//! every [`LOOKED_NS`]):
//!
//! - `allkeys-lru`, `volatile-lru`: a key is as old as its last use. One TOUCH will do.
//! - `allkeys-lfu`, `volatile-lfu`: a key has a counter, which a use raises the more rarely the
//!   higher it stands (`lfu-log-factor`), and which falls by one a minute (`lfu-decay-time`). One
//!   use a second would hold it at 11, below keys that are read here ten times as often. So a key
//!   is named as often as it was read, [`USES`] times at most, which hold it at 100: whoever stands
//!   higher is read more than that often a second.
//! - By life (`volatile-ttl`), by chance, `noeviction`, or without `maxmemory`: no use counts, and
//!   nothing is said.

use anyhow::anyhow;
use redis::aio::MultiplexedConnection;

use crate::{
    backend::remote::{Command, Verb},
    clock::boot_ns,
};

/// Keys in one command: with [`USES`] of each it has a thousand words, which Redis looks up in some
/// tenths of a millisecond.
pub(super) const MARKS: usize = 64;
/// How often one key is named in one command, at most.
const USES: u32 = 16;
/// The policy is looked at again after so long.
const LOOKED_NS: u64 = 10_000_000_000;

/// What counts for a key that may be evicted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum CountedUse {
    /// When it was used last. Also where Redis does not say.
    #[default]
    Last,
    /// How often it is used.
    Each,
    /// Nothing of that.
    None,
}

impl CountedUse {
    /// As INFO has it, in its section on memory.
    fn of(info: &str) -> CountedUse {
        let field = |name: &str| {
            let mut lines = info.lines();
            lines.find_map(|line| line.trim().strip_prefix(name)?.strip_prefix(':'))
        };
        match (field("maxmemory"), field("maxmemory_policy")) {
            (Some("0"), _) => CountedUse::None,
            (_, Some(policy)) if policy.ends_with("-lru") => CountedUse::Last,
            (_, Some(policy)) if policy.ends_with("-lfu") => CountedUse::Each,
            (_, Some(_)) => CountedUse::None,
            (_, None) => CountedUse::Last,
        }
    }

    /// How often a key is named that was read so often.
    fn uses(self, reads: u32) -> usize {
        match self {
            CountedUse::Last => 1,
            CountedUse::Each => reads.clamp(1, USES) as usize,
            CountedUse::None => 0,
        }
    }
}

/// What Redis evicts, as far as is known.
#[derive(Default)]
pub(super) struct Eviction {
    counts: CountedUse,
    looked_ns: Option<u64>,
    /// Why it is told nothing, if it refuses that.
    refused: Option<String>,
}

impl Eviction {
    /// Has keys touched that these commands mark, if that is of use.
    pub async fn mark(
        &mut self,
        connection: &mut MultiplexedConnection,
        commands: &[Command],
    ) -> anyhow::Result<()> {
        let verbs = commands.iter().map(|command| &command.verb);
        let marked: Vec<_> = verbs
            .filter_map(|verb| match verb {
                Verb::Mark(keys) => Some(keys),
                _ => None,
            })
            .collect();
        if marked.is_empty() {
            return Ok(());
        }
        self.look(connection).await?;
        let mut pipeline = redis::Pipeline::new();
        pipeline.ignore_errors();
        for keys in marked {
            let uses =
                |(name, reads): &(Vec<u8>, u32)| vec![name.clone(); self.counts.uses(*reads)];
            let names: Vec<Vec<u8>> = keys.iter().flat_map(uses).collect();
            if !names.is_empty() {
                pipeline.cmd("TOUCH").arg(names);
            }
        }
        if pipeline.cmd_iter().next().is_none() {
            return Ok(());
        }
        let touched: Vec<redis::RedisResult<u64>> =
            pipeline.query_async(connection).await.map_err(|error| anyhow!("Redis: {error}"))?;
        let refused = touched.into_iter().find_map(Result::err).map(|error| error.to_string());
        if let Some(why) = refused.as_ref().filter(|_| self.refused != refused) {
            tracing::warn!(
                "Redis: TOUCH: {why}. It may evict what is read most, for switches answer that; let this user run TOUCH \
                 and INFO"
            );
        }
        self.refused = refused;
        Ok(())
    }

    /// Asks for the policy, if that was long ago.
    async fn look(&mut self, connection: &mut MultiplexedConnection) -> anyhow::Result<()> {
        let now_ns = boot_ns();
        if self.looked_ns.is_some_and(|looked_ns| now_ns < looked_ns + LOOKED_NS) {
            return Ok(());
        }
        self.looked_ns = Some(now_ns);
        let info = redis::cmd("INFO").arg("memory").query_async::<String>(connection).await;
        match info {
            Ok(info) => self.counts = CountedUse::of(&info),
            // Redis refuses it; what it evicts may be anything.
            Err(error) if error.code().is_some() => self.counts = CountedUse::Last,
            Err(error) => return Err(anyhow!("Redis: INFO: {error}")),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_named_as_often_as_counts_where_a_use_counts() {
        let info = |most: &str, policy: &str| {
            format!(
                "# Memory\r\nused_memory:5\r\nmaxmemory:{most}\r\nmaxmemory_policy:{policy}\r\n"
            )
        };
        // (maxmemory, policy, how often a key is named that was read 0, 1, 5 and a million times)
        let rows = [
            ("100", "allkeys-lru", [1, 1, 1, 1]),
            ("100", "volatile-lru", [1, 1, 1, 1]),
            ("100", "allkeys-lfu", [1, 1, 5, 16]),
            ("100", "volatile-lfu", [1, 1, 5, 16]),
            ("100", "volatile-ttl", [0; 4]),
            ("100", "allkeys-random", [0; 4]),
            ("100", "volatile-random", [0; 4]),
            ("100", "noeviction", [0; 4]),
            ("0", "allkeys-lru", [0; 4]),
        ];
        for (most, policy, expected) in rows {
            let counts = CountedUse::of(&info(most, policy));
            let uses = [0, 1, 5, 1_000_000].map(|reads| counts.uses(reads));
            assert_eq!(uses, expected, "{most} {policy}");
        }
        assert_eq!(CountedUse::of("nothing of that"), CountedUse::Last);
    }
}
