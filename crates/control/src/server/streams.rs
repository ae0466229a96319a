//! Streams of switches and stores, from their hellos to their ends.

use std::{sync::Arc, time::Duration};

use api::proto::{FromStore, FromSwitch, from_store, from_switch};
use tokio_stream::StreamExt;
use tonic::{Status, Streaming};

use super::{
    shared::{Outgoing, SharedCore},
    switch::CloseReason,
};
use crate::auth::Caller;

/// How long a peer may take until its hello.
const HELLO_WITHIN: Duration = Duration::from_secs(10);

/// Why a controller that stands by serves no stream.
pub fn standing_by(shared: &SharedCore) -> Status {
    Status::unavailable(shared.not_leader().message)
}

async fn first<T>(incoming: &mut Streaming<T>) -> Option<T> {
    let first = tokio::time::timeout(HELLO_WITHIN, incoming.next()).await;
    first.ok()??.ok()
}

/// How a stream ended.
enum StreamEnd {
    /// This controller closes it, and says this.
    Closed(Status),
    /// The peer closed it, or cannot be heard any more.
    Gone(String),
}

impl StreamEnd {
    /// For the log.
    fn why(&self) -> String {
        match self {
            StreamEnd::Closed(status) => api::said(status),
            StreamEnd::Gone(why) => why.clone(),
        }
    }

    /// Says it to the peer, if it is this controller that ends it. Not waited for: a peer that
    /// takes nothing must not hold the end of its stream up.
    fn say<M>(self, sender: &Outgoing<M>) {
        if let StreamEnd::Closed(status) = self {
            let _ = sender.try_send(Err(status));
        }
    }
}

/// Takes messages in until the stream or the lead ends.
async fn take_in<T, M>(
    shared: &SharedCore,
    term: u64,
    incoming: &mut Streaming<T>,
    sender: &Outgoing<M>,
    mut take: impl FnMut(T) -> Result<(), Status>,
) -> StreamEnd {
    let mut leading = shared.term.subscribe();
    loop {
        let message = tokio::select! {
            message = incoming.next() => message,
            () = sender.closed() => return StreamEnd::Gone("its connection has ended".into()),
            _ = leading.wait_for(|now| *now != term) => {
                return StreamEnd::Closed(standing_by(shared));
            }
        };
        let message = match message {
            Some(Ok(message)) => message,
            Some(Err(status)) => return StreamEnd::Gone(api::said(&status)),
            None => return StreamEnd::Gone("it closed the stream".into()),
        };
        if let Err(status) = take(message) {
            return StreamEnd::Closed(status);
        }
    }
}

/// One switch's stream.
pub async fn serve_switch(
    shared: Arc<SharedCore>,
    term: u64,
    caller: Option<Caller>,
    mut incoming: Streaming<FromSwitch>,
    sender: Outgoing<api::proto::ToSwitch>,
) {
    let hello = first(&mut incoming).await.and_then(|message| message.body);
    let Some(from_switch::Body::Hello(hello)) = hello else {
        let status = Status::invalid_argument("the first message must be a hello");
        let _ = sender.send(Err(status)).await;
        return;
    };
    let id = u16::try_from(hello.switch_id).unwrap_or(0);
    if let Some(Err(refusal)) = caller.map(|caller| caller.is_switch(id)) {
        let status = Status::permission_denied(refusal.message);
        let _ = sender.send(Err(status)).await;
        return;
    }
    let attached = shared.leading(|core| core.attach(shared.now(), &hello));
    let stream = match attached {
        Ok(Ok(stream)) => stream,
        Ok(Err(closed)) => {
            let (switch, name) = (hello.switch_id, &hello.name);
            tracing::warn!(switch, name, "refused: {closed}");
            if let CloseReason::Outrun { heard, .. } = closed {
                shared.outrun.send_replace(heard);
            }
            let _ = sender.send(Err(status_of(&closed))).await;
            return;
        }
        Err(refusal) => {
            let _ = sender.send(Err(Status::unavailable(refusal.message))).await;
            return;
        }
    };
    let (switch, name) = (stream.switch, &hello.name);
    tracing::info!(switch, name, "switch attached");
    shared.change(|inner| inner.switch_came(stream, sender.clone()));
    let take = |message| match shared.hears(stream, message) {
        Ok(taken) => taken.map_err(|closed| status_of(&closed)),
        Err(refusal) => Err(Status::unavailable(refusal.message)),
    };
    let end = take_in(&shared, term, &mut incoming, &sender, take).await;
    shared.change(|inner| inner.switch_went(shared.now(), stream));
    tracing::info!(switch, name, "switch detached: {}", end.why());
    end.say(&sender);
}

/// One store's stream.
pub async fn serve_store(
    shared: Arc<SharedCore>,
    term: u64,
    mut incoming: Streaming<FromStore>,
    sender: Outgoing<api::proto::ToStore>,
) {
    let hello = first(&mut incoming).await.and_then(|message| message.body);
    let Some(from_store::Body::Hello(hello)) = hello else {
        let status = Status::invalid_argument("the first message must be a hello");
        let _ = sender.send(Err(status)).await;
        return;
    };
    let (name, address) = (&hello.name, &hello.address);
    tracing::info!(name, address, "a store follows");
    let stream = match shared.leading(|core| core.store_came(&hello)) {
        Ok(stream) => stream,
        Err(refusal) => {
            let _ = sender.send(Err(Status::unavailable(refusal.message))).await;
            return;
        }
    };
    shared.change(|inner| inner.stores.insert(stream, sender.clone()));
    let take = |message| {
        let taken = shared.leading(|core| core.store_said(shared.now(), stream, message));
        taken.map_err(|refusal| Status::unavailable(refusal.message))
    };
    let end = take_in(&shared, term, &mut incoming, &sender, take).await;
    shared.change(|inner| inner.store_went(stream));
    tracing::info!(name, address, "a store follows no longer: {}", end.why());
    end.say(&sender);
}

fn status_of(closed: &CloseReason) -> Status {
    let text = closed.to_string();
    match closed {
        CloseReason::Protocol(_) | CloseReason::Invalid(_) => Status::invalid_argument(text),
        CloseReason::Taken { .. } => Status::already_exists(text),
        CloseReason::Outrun { .. } => Status::unavailable(text),
        CloseReason::Replaced => Status::aborted(text),
    }
}
