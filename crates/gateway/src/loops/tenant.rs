//! Commands of tenants other than 0, whose keys bear other names in the stores' Redis servers: each
//! key's name is put in the place of the key, where the server says that keys stand. A command that
//! could reach the keys of others, or whose answer would name keys, is refused.

use resp::{KeyWord, Words};
use wire::TENANT_OPEN;

use super::commands::Commands;

/// Without keys, and about nothing but the client and what it says.
const KEYLESS: &[&str] = &[
    "auth", "command", "discard", "echo", "exec", "hello", "info", "multi", "ping", "quit",
    "reset", "select", "time", "unwatch", "wait", "waitaof",
];
/// Of CLIENT, likewise.
const OF_CLIENT: &[&str] = &["getname", "id", "info", "setinfo", "setname"];
/// Their answers name keys.
const ANSWERED_WITH_KEYS: &[&str] = &[
    "blmpop",
    "blpop",
    "brpop",
    "bzmpop",
    "bzpopmax",
    "bzpopmin",
    "lmpop",
    "xread",
    "xreadgroup",
    "zmpop",
];
/// What they run may name any key.
const SCRIPTS: &[&str] = &["eval", "eval_ro", "evalsha", "evalsha_ro", "fcall", "fcall_ro"];

/// A tenant whose keys have names of their own.
#[derive(Clone, Debug)]
pub(crate) struct TenantNames {
    tenant: u32,
}

impl TenantNames {
    /// `None`: the tenant is 0, whose keys are what they are called.
    pub fn new(tenant: u32) -> Option<TenantNames> {
        (tenant != TENANT_OPEN).then_some(TenantNames { tenant })
    }

    /// What a key is called at the server.
    pub fn name(&self, key: &[u8]) -> Vec<u8> {
        wire::backend_name(self.tenant, key).unwrap_or_default()
    }

    /// Why a command is not carried out, as an answer. `keys`: its words that are keys.
    pub(super) fn refusal(
        &self,
        commands: &Commands,
        words: Words<'_>,
        keys: &[KeyWord],
    ) -> Option<String> {
        let has = |at: usize, list: &[&str]| {
            let word = words.get(at).unwrap_or_default();
            list.iter().any(|name| word.eq_ignore_ascii_case(name.as_bytes()))
        };
        let why = if has(0, SCRIPTS) {
            "what it runs may name keys of others"
        } else if has(0, ANSWERED_WITH_KEYS) {
            "its answer names keys"
        } else if has(0, KEYLESS) || has(0, &["client"]) && has(1, OF_CLIENT) {
            return None;
        } else if has(0, &["client"]) || keys.is_empty() {
            "it names no keys that could be kept to the tenant's"
        } else if !commands.says_all_keys(words) || super::spread::reaches_further(words) {
            "it may reach keys that it does not name"
        } else {
            return None;
        };
        let name = String::from_utf8_lossy(words.get(0).unwrap_or_default()).to_uppercase();
        let name: String = name.chars().filter(|c| c.is_ascii_graphic()).take(32).collect();
        Some(format!("-ERR {name} is not possible for tenant {}: {why}\r\n", self.tenant))
    }

    /// The words of a command with names in the places of keys.
    pub fn translate(&self, words: Words<'_>, keys: &[KeyWord]) -> Vec<Vec<u8>> {
        let mut words: Vec<Vec<u8>> = words.iter().map(<[u8]>::to_vec).collect();
        let mut places: Vec<usize> = keys.iter().map(|key| key.index).collect();
        places.sort_unstable();
        places.dedup();
        for place in places {
            if let Some(word) = words.get_mut(place) {
                *word = self.name(word);
            }
        }
        words
    }
}
