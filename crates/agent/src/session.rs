//! The stream to the controller: kept up, spoken first on, and passed on in both directions.

use std::{
    net::IpAddr,
    ops::ControlFlow::{self, Break, Continue},
    sync::mpsc::SyncSender,
};

use api::{
    Link,
    proto::{
        self, FromSwitch, Hello, ToSwitch, control_client::ControlClient, from_switch::Body,
        to_switch,
    },
    said,
};
use dataplane::Refusal;
use decide::Registration;
use tokio::sync::mpsc::Receiver;
use tokio_stream::wrappers::ReceiverStream;
use tracing::info;

use super::{Options, network::Network, registry};

/// What the session tells the table thread.
pub(super) enum ToTables {
    /// A stream begins: say what is held.
    Attached,
    /// From the controller.
    Message(ToSwitch),
    /// Nothing from the controller: the switch is to leave. The thread ends once it may.
    Leave,
}

/// Runs for as long as the table thread does.
pub(super) async fn run(
    options: &Options,
    of: &Introduction<'_>,
    to_tables: SyncSender<ToTables>,
    mut from_tables: Receiver<FromSwitch>,
) {
    let mut of = *of;
    let mut network = Network::start(options.interfaces.clone(), options.probes);
    let stream = async |link, url: &str| {
        attach(&mut of, link, url, &to_tables, &mut from_tables, &mut network).await
    };
    options.control.keep("the cache goes on as it is", stream).await;
}

/// The table thread is there no longer.
struct TableThreadEnd;

/// One stream to its end; an error if it did not begin. Its setups' terms are in the hello of
/// the next.
async fn attach(
    of: &mut Introduction<'_>,
    link: Link,
    url: &str,
    to_tables: &SyncSender<ToTables>,
    from_tables: &mut Receiver<FromSwitch>,
    network: &mut Network,
) -> Result<ControlFlow<TableThreadEnd, String>, String> {
    let ended = |reason: &str| Ok(Continue(reason.to_owned()));
    let (up, upstream) = tokio::sync::mpsc::channel(64);
    if up.send(hello(of)).await.is_err() {
        return ended("stream closed");
    }
    let mut client = ControlClient::new(link).max_decoding_message_size(64 << 20);
    let response = client.attach(ReceiverStream::new(upstream)).await.map_err(|e| said(&e))?;
    let mut down = response.into_inner();
    info!("attached to controller {url}");
    // What the table thread reported in the meantime is worthless to this stream.
    while from_tables.try_recv().is_ok() {}
    if pass_on(to_tables, ToTables::Attached).await.is_err() {
        return Ok(Break(TableThreadEnd));
    }
    network.repeat();
    let mut greeting = Greeting::default();
    loop {
        tokio::select! {
            message = down.message() => match message {
                Ok(Some(ToSwitch { body: Some(to_switch::Body::Routes(routes)) })) => network.apply(routes),
                Ok(Some(message)) => {
                    if let Some(to_switch::Body::Setup(setup)) = &message.body {
                        of.term = of.term.max(setup.term);
                        network.set_up(setup);
                    }
                    if pass_on(to_tables, ToTables::Message(message)).await.is_err() {
                        return Ok(Break(TableThreadEnd));
                    }
                }
                Ok(None) => return ended("it closed the stream"),
                Err(status) => return ended(&said(&status)),
            },
            message = from_tables.recv() => match message {
                Some(message) => {
                    if greeting.lets_pass(&message) && up.send(message).await.is_err() {
                        return ended("stream closed");
                    }
                }
                None => return Ok(Break(TableThreadEnd)),
            },
            // The greeting comes first here too; the network keeps what it has to say until then.
            body = network.next(), if greeting.is_over() => if up.send(FromSwitch { body: Some(body) }).await.is_err() {
                return ended("stream closed");
            },
        }
    }
}

/// The table thread may be busy for some milliseconds; the queue is bounded, so this waits
/// for room.
pub(super) async fn pass_on(to_tables: &SyncSender<ToTables>, message: ToTables) -> Result<(), ()> {
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

/// Who a switch is.
#[derive(Clone, Copy, Debug)]
pub struct Introduction<'a> {
    /// Its id.
    pub id: u16,
    /// Its name.
    pub name: &'a str,
    /// Pages of its memory.
    pub pages: u32,
    /// The disciplines that it has programs of.
    pub disciplines: &'static [Registration],
    /// Of those and of write-back what its kernel refuses.
    pub refused: &'a [(&'static str, Refusal)],
    /// The number of its tables ([`dataplane::Table::life`]).
    pub life: u64,
    /// Where packets for itself go.
    pub address: Option<IpAddr>,
    /// The highest term that it has heard of ([`Tables::term`](crate::Tables::term)).
    pub term: u64,
}

/// What a switch says first on a stream; what it holds comes next.
pub fn hello(of: &Introduction<'_>) -> FromSwitch {
    let hello = Hello {
        switch_id: of.id.into(),
        name: of.name.into(),
        version: env!("CARGO_PKG_VERSION").into(),
        pages: of.pages,
        disciplines: registry::names(of.disciplines),
        refused: of
            .refused
            .iter()
            .map(|(name, refusal)| proto::Refused {
                name: (*name).into(),
                reason: refusal.to_string(),
            })
            .collect(),
        life: of.life,
        address: of.address.map(|at| at.to_string()).unwrap_or_default(),
        term: of.term,
    };
    FromSwitch { body: Some(Body::Hello(hello)) }
}

/// How far a stream's greeting is: a hello, and then the whole list of what is held. What the
/// tables said before they knew of the stream is none of its business, be it a part of a list.
#[derive(Clone, Copy, Debug, Default)]
pub struct Greeting {
    begun: bool,
    over: bool,
}

impl Greeting {
    /// Whether a message of the tables is for this stream.
    pub fn lets_pass(&mut self, message: &FromSwitch) -> bool {
        match &message.body {
            None => {
                self.begun = true;
                false
            }
            Some(Body::Held(part)) if self.begun => {
                self.over |= part.last;
                true
            }
            Some(_) => self.over,
        }
    }

    /// Whether others may speak too.
    pub fn is_over(&self) -> bool {
        self.over
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::sync_channel;

    use super::*;
    use crate::{tell::beginning, testing::Controller};
    use api::proto::{Counters, Held, to_switch};

    fn message(body: Body) -> FromSwitch {
        FromSwitch { body: Some(body) }
    }

    fn introduction() -> Introduction<'static> {
        Introduction {
            id: 1,
            name: "tor",
            pages: 1,
            disciplines: &[],
            refused: &[],
            life: 1,
            address: None,
            term: 0,
        }
    }

    /// A controller whose state was put back is to know that this switch would not listen to it.
    #[tokio::test]
    async fn the_next_hello_has_the_term_of_the_last_setup() {
        let controller = Controller::start().await;
        let mut of = introduction();
        let (to_tables, heard) = sync_channel(16);
        let (say, mut from_tables) = tokio::sync::mpsc::channel(16);
        let (link, _) = controller.endpoint().connect(0).await.unwrap();
        let mut network = Network::start(vec![], false);
        let tables = tokio::task::spawn_blocking(move || {
            assert!(matches!(heard.recv(), Ok(ToTables::Attached)));
            say.blocking_send(beginning()).unwrap();
            say.blocking_send(message(Body::Held(Held { keys: vec![], last: true }))).unwrap();
            let setup = heard.recv();
            // Then the thread ends, and the session with it.
            drop((heard, say));
            setup
        });
        let _ = attach(&mut of, link, "", &to_tables, &mut from_tables, &mut network).await;
        let Ok(Ok(ToTables::Message(ToSwitch { body: Some(to_switch::Body::Setup(setup)) }))) =
            tables.await
        else {
            panic!("no setup");
        };
        let Some(Body::Hello(next)) = hello(&of).body else { panic!("no hello") };
        assert_eq!((next.term, setup.term), (3, 3));
    }

    /// The table thread learns of a stream a little after it began, and may have more to say on the
    /// last one. A list has parts, and the network has something to say all the time.
    #[test]
    fn a_greeting_begins_where_it_is_said_and_ends_with_the_last_part() {
        let part = |last| message(Body::Held(Held { keys: vec![], last }));
        let counters = message(Body::Counters(Counters::default()));
        let mut greeting = Greeting::default();
        assert!(!greeting.lets_pass(&part(true)), "of the last stream");
        assert!(!greeting.lets_pass(&beginning()) && !greeting.is_over());
        assert!(greeting.lets_pass(&part(false)) && !greeting.is_over());
        assert!(!greeting.lets_pass(&counters));
        assert!(greeting.lets_pass(&part(true)) && greeting.is_over());
        assert!(greeting.lets_pass(&counters));
    }

    #[tokio::test]
    async fn nothing_is_said_between_a_hello_and_the_whole_list() {
        let controller = Controller::start().await;
        let mut of = introduction();
        let (to_tables, heard) = sync_channel(16);
        let (say, mut from_tables) = tokio::sync::mpsc::channel(16);
        let tables = tokio::task::spawn_blocking(move || {
            assert!(matches!(heard.recv(), Ok(ToTables::Attached)));
            say.blocking_send(message(Body::Counters(Counters::default()))).unwrap();
            // The end of a list that was for the last stream.
            say.blocking_send(message(Body::Held(Held { keys: vec![], last: true }))).unwrap();
            say.blocking_send(beginning()).unwrap();
            say.blocking_send(message(Body::Held(Held { keys: vec![], last: false }))).unwrap();
            // Others have the time to speak between the parts.
            std::thread::sleep(std::time::Duration::from_millis(50));
            say.blocking_send(message(Body::Counters(Counters::default()))).unwrap();
            say.blocking_send(message(Body::Held(Held { keys: vec![], last: true }))).unwrap();
            // The queues live on, or the session would end with them.
            (heard.recv(), heard, say)
        });
        let (link, _) = controller.endpoint().connect(0).await.unwrap();
        // There is news of the network from the first moment on.
        let mut network = Network::start(vec!["lo".into()], true);
        let Body::Interfaces(_) = network.next().await else {
            panic!("no interfaces");
        };
        tokio::select! {
            _ = attach(&mut of, link, "", &to_tables, &mut from_tables, &mut network) => panic!("the stream ended"),
            answer = tables => {
                let Ok((Ok(ToTables::Message(message)), ..)) = answer else { panic!("no answer") };
                assert!(matches!(message.body, Some(to_switch::Body::Setup(_))));
            }
        }
    }
}
