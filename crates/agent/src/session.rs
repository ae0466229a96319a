//! The stream to the controller: kept up, spoken first on, and passed on in both directions.

use std::{sync::mpsc::SyncSender, time::Duration};

use api::proto::{
    FromSwitch, Hello, ToSwitch, control_client::ControlClient, from_switch::Body, to_switch,
};
use tokio::sync::mpsc::Receiver;
use tokio_stream::wrappers::ReceiverStream;
use tracing::{info, warn};

use super::{Options, network::Network, registry};

/// What the session tells the table thread.
pub(super) enum ToTables {
    /// A stream begins: answer with a Hello and, after it, what is held.
    Attached,
    /// From the controller.
    Message(ToSwitch),
}

const RETRY_FIRST: Duration = Duration::from_millis(100);
const RETRY_MOST: Duration = Duration::from_secs(1);

/// Runs for as long as the table thread does.
pub(super) async fn run(
    options: &Options,
    to_tables: SyncSender<ToTables>,
    mut from_tables: Receiver<FromSwitch>,
) {
    let mut pause = RETRY_FIRST;
    let mut complained = false;
    let mut network = Network::start(options.interfaces.clone());
    // Controllers are tried in turn: the next one may lead.
    let mut turn = 0;
    loop {
        let stream = attach(
            options,
            turn,
            &to_tables,
            &mut from_tables,
            &mut network,
            &mut pause,
        );
        let attached = stream.await;
        turn = turn.wrapping_add(1);
        match attached {
            Ok(End::TablesGone) => return,
            Ok(End::Stream(reason)) => {
                warn!("controller: {reason}; the cache goes on as it is");
                complained = true;
            }
            Err(reason) if !complained => {
                complained = true;
                warn!("controller: {reason}; trying again, the cache goes on as it is");
            }
            Err(_) => {}
        }
        // Reports of the meantime are worthless to the next stream.
        while from_tables.try_recv().is_ok() {}
        if turn % options.control.urls.len().max(1) == 0 {
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(RETRY_MOST);
        }
    }
}

enum End {
    /// The stream ended, for this reason.
    Stream(String),
    TablesGone,
}

async fn attach(
    options: &Options,
    turn: usize,
    to_tables: &SyncSender<ToTables>,
    from_tables: &mut Receiver<FromSwitch>,
    network: &mut Network,
    pause: &mut Duration,
) -> Result<End, String> {
    let (channel, which) = options.control.connect(turn).await?;
    let (up, upstream) = tokio::sync::mpsc::channel(64);
    if up.send(hello(options)).await.is_err() {
        return Ok(End::Stream("stream closed".into()));
    }
    let mut client = ControlClient::new(channel).max_decoding_message_size(64 << 20);
    let response = client
        .attach(ReceiverStream::new(upstream))
        .await
        .map_err(|e| e.message().to_owned())?;
    let mut down = response.into_inner();
    info!("attached to controller {}", options.control.urls[which]);
    *pause = RETRY_FIRST;
    while from_tables.try_recv().is_ok() {}
    if pass_on(to_tables, ToTables::Attached).await.is_err() {
        return Ok(End::TablesGone);
    }
    network.repeat();
    let mut greeted = false;
    loop {
        tokio::select! {
            message = down.message() => match message {
                Ok(Some(ToSwitch { body: Some(to_switch::Body::Routes(routes)) })) => network.apply(routes),
                Ok(Some(message)) => if pass_on(to_tables, ToTables::Message(message)).await.is_err() {
                    return Ok(End::TablesGone);
                },
                Ok(None) => return Ok(End::Stream("it closed the stream".into())),
                Err(status) => return Ok(End::Stream(status.message().to_owned())),
            },
            message = from_tables.recv() => match message {
                Some(message) => {
                    // What was said before the table thread knew of this stream is none of its business.
                    greeted |= matches!(message.body, Some(Body::Held(_)));
                    if greeted && up.send(message).await.is_err() {
                        return Ok(End::Stream("stream closed".into()));
                    }
                }
                None => return Ok(End::TablesGone),
            },
            // The greeting comes first here too; the network keeps what it has to say until then.
            body = network.next(), if greeted => if up.send(FromSwitch { body: Some(body) }).await.is_err() {
                return Ok(End::Stream("stream closed".into()));
            },
        }
    }
}

/// The table thread may be busy for some milliseconds; the queue is bounded, so this waits for room.
async fn pass_on(to_tables: &SyncSender<ToTables>, message: ToTables) -> Result<(), ()> {
    use std::sync::mpsc::TrySendError;
    let mut message = message;
    loop {
        match to_tables.try_send(message) {
            Ok(()) => return Ok(()),
            Err(TrySendError::Disconnected(_)) => return Err(()),
            Err(TrySendError::Full(back)) => message = back,
        }
        tokio::time::sleep(super::TICK).await;
    }
}

/// What is held follows from the table thread, which alone knows.
fn hello(options: &Options) -> FromSwitch {
    let hello = Hello {
        switch_id: u32::from(options.id),
        name: options.name.clone(),
        version: env!("CARGO_PKG_VERSION").into(),
        pages: options.pages,
        disciplines: registry::names(options.disciplines),
    };
    FromSwitch {
        body: Some(Body::Hello(hello)),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::sync_channel;

    use super::*;
    use crate::testing::Controller;
    use api::proto::{Counters, Held, to_switch};

    fn said(body: Body) -> FromSwitch {
        FromSwitch { body: Some(body) }
    }

    /// The table thread learns of a stream a little after it began, and may have more to say on the last one.
    #[tokio::test]
    async fn what_was_said_before_the_greeting_does_not_end_the_stream() {
        let state = tempfile::tempdir().unwrap();
        let controller = Controller::start().await;
        let options = Options {
            name: "tor".into(),
            id: 1,
            interfaces: vec![],
            mode: dataplane::Mode::Auto,
            pages: 1,
            control: controller.endpoint(),
            state_dir: state.path().into(),
            disciplines: &[],
        };
        let (to_tables, heard) = sync_channel(16);
        let (say, mut from_tables) = tokio::sync::mpsc::channel(16);
        let tables = tokio::task::spawn_blocking(move || {
            assert!(matches!(heard.recv(), Ok(ToTables::Attached)));
            say.blocking_send(said(Body::Counters(Counters::default())))
                .unwrap();
            say.blocking_send(said(Body::Held(Held {
                keys: vec![],
                last: true,
            })))
            .unwrap();
            // The queues live on, or the session would end with them.
            (heard.recv(), heard, say)
        });
        let mut pause = RETRY_FIRST;
        // There is news of the network from the first moment on.
        let mut network = Network::start(vec!["lo".into()]);
        let Body::Interfaces(_) = network.next().await else {
            panic!("no interfaces");
        };
        tokio::select! {
            _ = attach(&options, 0, &to_tables, &mut from_tables, &mut network, &mut pause) => panic!("the stream ended"),
            answer = tables => {
                let Ok((Ok(ToTables::Message(message)), ..)) = answer else { panic!("no answer") };
                assert!(matches!(message.body, Some(to_switch::Body::Setup(_))));
            }
        }
    }
}
