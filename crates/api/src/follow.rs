//! For stores: follows the cluster as the controllers have it, and carries what disciplines' halves
//! say to one another.

use std::{collections::VecDeque, convert::Infallible, ops::ControlFlow};

use bytes::Bytes;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tracing::{info, warn};
use wire::Cluster;

use crate::{
    ControlEndpoint,
    connect::said,
    proto::{
        FromStore, HalfAck, HalfMessage, HalfReport, StoreHello, ToStore,
        control_client::ControlClient, from_store::Body, to_store,
    },
};

/// Longest message from a controller in bytes.
const MESSAGE_MAX: usize = 64 << 20;
/// Messages on their way to the connection.
const SENDING: usize = 4;

/// What a store is told.
#[derive(Clone, Debug, PartialEq)]
pub enum StoreNews {
    /// A stream began: what was reported on the one before may be lost.
    Began,
    /// The cluster as it is from now on.
    Cluster(Cluster),
    /// Pairs of a tenant and a switch: where tenants are placed from now on, and nowhere else.
    Placements(Vec<(u32, u16)>),
    /// Something for the half of a discipline. May come twice.
    Message {
        /// The discipline's name.
        discipline: String,
        /// About which tenant.
        tenant: u32,
        /// What its control half says, at most 64 KiB.
        message: Bytes,
    },
}

/// Follows the controller that leads, for as long as this is polled; while no controller answers,
/// the last cluster stays.
///
/// `take` is given each cluster, the one in force first, and each message; a message is
/// acknowledged once `take` returns, whatever became of it. `reports` waits until there is
/// something to report; what it returned is lost with a stream that ends, so [`StoreNews::Began`]
/// should make it return the newest again. Nothing may be lost if it is given up while it waits.
pub async fn follow(
    endpoint: &ControlEndpoint,
    hello: &StoreHello,
    mut take: impl AsyncFnMut(StoreNews),
    mut reports: impl AsyncFnMut() -> Vec<HalfReport>,
) {
    let stream = async |link, url: &str| {
        let (mut up, upstream) = Uplink::new(hello);
        let mut client = ControlClient::new(link).max_decoding_message_size(MESSAGE_MAX);
        let down = client.serve(upstream).await;
        let mut down = down.map_err(|e| said(&e))?.into_inner();
        info!("follows the controller at {url}");
        take(StoreNews::Began).await;
        let reason = loop {
            tokio::select! {
                message = down.message() => match message {
                    Ok(Some(message)) => up.take_in(message, &mut take).await,
                    Ok(None) => break "it closed the stream".into(),
                    Err(status) => break said(&status),
                },
                // Before there is room, newer reports may still replace these where they wait.
                more = reports(), if up.waiting.is_empty() => up.waiting.extend(more.into_iter().map(Body::Report)),
                () = up.send(), if !up.waiting.is_empty() => {}
            }
        };
        Ok(ControlFlow::<Infallible, _>::Continue(reason))
    };
    match endpoint.keep("tenants stay as they are", stream).await {}
}

/// What goes up one stream. It never holds up what comes down.
struct Uplink {
    waiting: VecDeque<Body>,
    sender: mpsc::Sender<FromStore>,
}

impl Uplink {
    fn new(hello: &StoreHello) -> (Uplink, ReceiverStream<FromStore>) {
        let (sender, receiver) = mpsc::channel(SENDING);
        let hello = Body::Hello(hello.clone());
        let _ = sender.try_send(FromStore { body: Some(hello) });
        let waiting = VecDeque::new();
        (Uplink { waiting, sender }, ReceiverStream::new(receiver))
    }

    async fn take_in(&mut self, message: ToStore, take: &mut impl AsyncFnMut(StoreNews)) {
        match message.body {
            Some(to_store::Body::Cluster(message)) => match crate::convert::cluster(&message) {
                Ok(cluster) => take(StoreNews::Cluster(cluster)).await,
                Err(e) => warn!("the controller sent a cluster that cannot be used: {e}"),
            },
            Some(to_store::Body::Placements(message)) => {
                take(StoreNews::Placements(crate::convert::placements(&message))).await;
            }
            Some(to_store::Body::Message(HalfMessage { seq, discipline, tenant, message })) => {
                let told = StoreNews::Message { discipline, tenant, message };
                take(told).await;
                // It says all that an earlier one said.
                self.waiting.retain(|body| !matches!(body, Body::Ack(_)));
                self.waiting.push_back(Body::Ack(HalfAck { seq }));
            }
            None => {}
        }
    }

    /// Sends the first that waits once there is room for it; pending for ever when the stream has
    /// ended, which is noticed at its other end.
    async fn send(&mut self) {
        let Ok(room) = self.sender.reserve().await else { return std::future::pending().await };
        room.send(FromStore { body: self.waiting.pop_front() });
    }
}
