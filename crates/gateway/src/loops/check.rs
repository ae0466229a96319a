//! Whether the Redis that reads go to directly is the one behind the store, and still its master.
//!
//! Both are asked for their run ids at each connection, and the Redis for its role again while it
//! is read from. Where it is another one, or was made a replica, or did not say so for a while,
//! reads go to the store, which knows.

use std::time::{Duration, Instant};

use super::{
    DIRECT, EventLoop, STORE,
    client::Way,
    speaker::Speaker,
    upstream::{PendingCommand, Waiter},
    words::encode,
};

/// For how long what a Redis said of its role counts.
const HOLDS: Duration = Duration::from_secs(1);

impl EventLoop {
    /// By which way reads go that no switch answers, for a client who speaks so.
    pub(super) fn read_way(&mut self, speaker: Speaker) -> Way {
        if self.targets.len() <= DIRECT {
            return Way::Store;
        }
        let at = self.common(DIRECT, speaker, 0);
        self.revive(at);
        if self.store_id.is_none() {
            let store = self.common(STORE, speaker, 0);
            self.revive(store);
        }
        let known = &self.upstreams[at].known;
        let is_store_s = known.run_id.is_some() && known.run_id == self.store_id;
        let holds_for =
            |how_long| is_store_s && known.master.is_some_and(|said| self.now < said + how_long);
        if holds_for(HOLDS / 2) {
            return Way::Direct;
        }
        let holds = holds_for(HOLDS);
        if known.asked.is_none_or(|asked| self.now >= asked + HOLDS / 2) {
            self.ask_about(at, &[b"INFO", b"replication"]);
        }
        if holds { Way::Direct } else { Way::Store }
    }

    /// What a connection that clients share is asked when it is new.
    pub(super) fn greet(&mut self, at: usize) {
        if self.targets.len() <= DIRECT {
            return;
        }
        self.ask_about(at, &[b"INFO", b"server"]);
        if self.upstreams[at].kind.target == DIRECT {
            self.ask_about(at, &[b"INFO", b"replication"]);
        }
    }

    fn ask_about(&mut self, at: usize, words: &[&[u8]]) {
        let upstream = &mut self.upstreams[at];
        let Some(out) = upstream.out() else { return };
        encode(words, out);
        upstream.known.asked = Some(self.now);
        let waiter = Waiter::Check;
        let pending = PendingCommand { waiter, command: 0, asked: self.now, writes: false };
        upstream.pending.push_back(pending);
        self.touch_upstream(at);
    }

    /// A part of what a server says of itself.
    pub(super) fn hear(&mut self, at: usize, asked: Instant, piece: &[u8], ended: bool) {
        let upstream = &mut self.upstreams[at];
        let known = &mut upstream.known;
        known.heard.extend_from_slice(piece);
        if !ended {
            return;
        }
        let heard = std::mem::take(&mut known.heard);
        let text = String::from_utf8_lossy(&heard);
        let field = |name: &str| {
            let mut lines = text.lines();
            lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(':').map(str::to_string))
        };
        if let Some(run_id) = field("run_id") {
            match upstream.kind.target {
                DIRECT => known.run_id = Some(run_id),
                _ => self.store_id = Some(run_id),
            }
        }
        let upstream = &mut self.upstreams[at];
        if upstream.kind.target != DIRECT {
            return;
        }
        let known = &mut upstream.known;
        let Some(role) = field("role") else { return };
        known.master = (role == "master").then_some(asked);
        let is_another = self.store_id.is_some() && known.run_id != self.store_id;
        let refused = is_another || role != "master";
        if std::mem::replace(&mut self.said_other, refused) != refused && refused {
            let what = if is_another { "not the Redis behind the store" } else { "a replica" };
            let name = &self.targets[DIRECT].name;
            tracing::warn!("{name}: it is {what}: reads go to the store");
        }
    }
}
