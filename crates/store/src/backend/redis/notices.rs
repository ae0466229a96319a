//! What the store's loop is told of outside writes, beside answers: which keys others have changed,
//! and whether Redis tells of that at all.

use redis::{PushInfo, PushKind, Value};

use crate::{
    backend::{Completion, OutsideEvent, remote::Completions},
    coherence::Watch,
};

/// Tells the store's loop.
pub(super) struct Notices {
    to: Completions,
    /// Whether outside writes were tracked, when that was told last.
    watch: Watch,
}

impl Notices {
    /// To there. It is taken to be told already that outside writes are tracked.
    pub fn new(to: Completions) -> Notices {
        Notices { to, watch: Watch::Tracked }
    }

    /// Where they go.
    pub fn to(&self) -> &Completions {
        &self.to
    }

    /// Whatever was granted may have been changed.
    pub fn everything(&self) {
        let _ = self.to.send(Completion::Outside(OutsideEvent::Everything));
    }

    /// Nothing that has failed can still take place.
    pub fn settled(&self) {
        let _ = self.to.send(Completion::Settled);
    }

    /// Tells whether this Redis tells of outside writes, and why not: while it does not, nothing is
    /// granted, and what was granted before is called back.
    pub fn watches(&mut self, untracked: Option<&str>) {
        let watch = if untracked.is_some() { Watch::Impossible } else { Watch::Tracked };
        if watch == self.watch {
            return;
        }
        self.watch = watch;
        // In this order: what is granted before the first is called back by the second.
        let _ = self.to.send(Completion::Outside(OutsideEvent::Watch(watch)));
        match untracked {
            None => tracing::warn!("backend: outside writes are tracked: copies are granted"),
            Some(why) => {
                self.everything();
                tracing::warn!(
                    "outside writes cannot be tracked, so switches are granted no copies: {why}. CLIENT TRACKING needs \
                     Redis 6; if nobody else writes to this Redis, say --outside-writes ignore"
                );
            }
        }
    }
}

/// Passes a message of Redis on. Called in the order of the connection, before any later answer
/// is given.
pub(super) fn tell(message: PushInfo, told: &Completions) -> Result<(), ()> {
    let tell = |event| told.send(Completion::Outside(event)).map_err(drop);
    match message.kind {
        PushKind::Disconnection => tell(OutsideEvent::Everything),
        PushKind::Invalidate => changes(message.data).into_iter().try_for_each(tell),
        _ => Ok(()),
    }
}

/// What an invalidation names: keys, or nothing for everything.
fn changes(data: Vec<Value>) -> Vec<OutsideEvent> {
    let Some(Value::Array(names)) = data.into_iter().next() else {
        return vec![OutsideEvent::Everything];
    };
    let event = |name| match name {
        Value::BulkString(name) => {
            let (tenant, key) = wire::key_of_backend_name(&name);
            OutsideEvent::Changed { tenant, key: key.into() }
        }
        _ => OutsideEvent::Everything,
    };
    names.into_iter().map(event).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_invalidation_names_keys_or_everything() {
        let name = |name: &[u8]| Value::BulkString(name.into());
        let changed = |tenant, key: &[u8]| OutsideEvent::Changed { tenant, key: key.into() };
        // (data, events)
        let rows = [
            (vec![Value::Nil], vec![OutsideEvent::Everything]),
            (vec![], vec![OutsideEvent::Everything]),
            (
                vec![Value::Array(vec![name(b"a"), name(b"shortstop:7:b")])],
                vec![changed(0, b"a"), changed(7, b"b")],
            ),
            (vec![Value::Array(vec![name(b"shortstop:?")])], vec![changed(0, b"shortstop:?")]),
            (vec![Value::Array(vec![Value::Int(1)])], vec![OutsideEvent::Everything]),
        ];
        for (data, events) in rows {
            assert_eq!(changes(data.clone()), events, "{data:?}");
        }
    }
}
