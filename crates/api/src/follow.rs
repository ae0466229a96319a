//! For stores: follows the cluster as the controllers have it.

use std::time::Duration;

use tracing::{info, warn};
use wire::Cluster;

use crate::{
    ControlEndpoint,
    proto::{FromStore, StoreHello, control_client::ControlClient, from_store, to_store},
};

const RETRY_FIRST: Duration = Duration::from_millis(100);
const RETRY_MOST: Duration = Duration::from_secs(1);

/// Watches the controller that leads, and hands over each cluster that it sends: the one in force first. Goes on for as long
/// as it is polled; while no controller answers, the last cluster stays.
pub async fn follow(endpoint: &ControlEndpoint, name: &str, mut take: impl AsyncFnMut(Cluster)) {
    let (mut pause, mut turn, mut complained) = (RETRY_FIRST, 0, false);
    loop {
        let ended = watch(endpoint, turn, name, &mut take).await;
        turn = turn.wrapping_add(1);
        match ended {
            Ok(reason) => {
                warn!("controller: {reason}; tenants stay as they are");
                (pause, complained) = (RETRY_FIRST, true);
            }
            Err(reason) if !complained => {
                warn!("controller: {reason}; trying again, tenants stay as they are");
                complained = true;
            }
            Err(_) => {}
        }
        // All of them are asked in turn before any of them is asked again.
        if turn % endpoint.urls.len().max(1) == 0 {
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(RETRY_MOST);
        }
    }
}

/// One stream, to its end; an error if it did not even begin.
async fn watch(
    endpoint: &ControlEndpoint,
    turn: usize,
    name: &str,
    take: &mut impl AsyncFnMut(Cluster),
) -> Result<String, String> {
    let (link, which) = endpoint.connect(turn).await?;
    let hello = StoreHello {
        name: name.into(),
        address: name.into(),
    };
    let body = Some(from_store::Body::Hello(hello));
    let request = tokio_stream::once(FromStore { body });
    let mut client = ControlClient::new(link).max_decoding_message_size(64 << 20);
    let stream = client.serve(request).await;
    let mut stream = stream.map_err(|e| e.message().to_owned())?.into_inner();
    info!("follows the controller at {}", endpoint.urls[which]);
    loop {
        match stream.message().await {
            Ok(Some(message)) => match message.body {
                Some(to_store::Body::Cluster(message)) => match crate::convert::cluster(&message) {
                    Ok(cluster) => take(cluster).await,
                    Err(e) => warn!("the controller sent a cluster that cannot be used: {e}"),
                },
                Some(to_store::Body::Message(_)) | None => {}
            },
            Ok(None) => return Ok("it closed the stream".into()),
            Err(status) => return Ok(status.message().to_owned()),
        }
    }
}
