//! A controller and a pretended switch over loopback: setup, commands, lost acknowledgements, broken streams,
//! restarts. Nothing here sleeps for a result: every wait is for a message, and bounded.

use std::{collections::BTreeMap, path::Path, sync::Arc, time::Duration};

use api::{
    proto::{
        Ack, Acks, Command, Counters, Digest, Dropped, FromSwitch, Held, Hello, HotKey, HotReports,
        Key, PageTable, PagesApplied, Setup, ToSwitch, command, control_client::ControlClient,
        from_switch, to_switch,
    },
    status,
};
use control::{
    Action, Change, Discipline, Event, ItemKey, Limits, Options, Server, serve::Listen,
    state::Location,
};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Streaming;

const PATIENCE: Duration = Duration::from_secs(10);
const CLUSTER: &str = r#"
partitions = 4
[[store]]
address = "10.0.2.1:7117"
first = 0
last = 3
[[tenant]]
id = 7
secret = "000102030405060708090a0b0c0d0e0f"
"#;

/// Thresholds are those of the last window's number; inserts what is reported, evicts what is reported with a count of 0, inserts again what was lost.
#[derive(Default)]
struct Obedient;

impl Discipline for Obedient {
    fn on(&mut self, _now: Duration, event: Event<'_>, out: &mut Vec<Action>) {
        let change = |switch, change, key: &ItemKey| Action::Change {
            switch,
            change,
            key: key.clone(),
        };
        match event {
            Event::Room { tenant, rooms } => {
                out.extend(rooms.iter().map(|room| Action::Threshold {
                    switch: room.switch,
                    tenant,
                    requests: room.threshold.unwrap_or(5),
                }));
            }
            Event::Attached { switch, lost, .. } => {
                out.extend(lost.iter().map(|key| change(switch, Change::Insert, key)));
            }
            Event::Hot { switch, keys, .. } => {
                for (key, count) in keys {
                    let what = if *count == 0 {
                        Change::Evict
                    } else {
                        Change::Insert
                    };
                    out.push(change(switch, what, key));
                }
            }
            Event::WindowEnd { switch, window, .. } => {
                out.push(Action::Threshold {
                    switch,
                    tenant: 7,
                    requests: window as u32,
                });
            }
            _ => {}
        }
    }
}

fn options(state: &Path) -> Options {
    Options {
        listen: Listen::on("127.0.0.1:0".parse().unwrap()),
        name: "test".into(),
        url: None,
        state: Location::Directory(state.into()),
        cluster: CLUSTER.into(),
        disciplines: vec![("test".into(), Arc::new(|_| Box::new(Obedient)))],
        limits: Limits::default(),
        updates_per_s: 20_000,
        sample_shift: 0,
    }
}

async fn start(state: &Path) -> Server {
    Server::start(options(state)).await.unwrap()
}

struct Switch {
    to: mpsc::Sender<FromSwitch>,
    from: Streaming<ToSwitch>,
    /// The last of each.
    setup: Option<Setup>,
    table: Option<PageTable>,
}

impl Switch {
    async fn connect(server: &Server, hello: Hello) -> Switch {
        let mut client = ControlClient::connect(format!("http://{}", server.address()))
            .await
            .unwrap();
        let (to, receiver) = mpsc::channel(16);
        to.send(FromSwitch {
            body: Some(from_switch::Body::Hello(hello)),
        })
        .await
        .unwrap();
        let from = client
            .attach(ReceiverStream::new(receiver))
            .await
            .unwrap()
            .into_inner();
        Switch {
            to,
            from,
            setup: None,
            table: None,
        }
    }

    async fn attach(server: &Server, held: &[&str]) -> (Switch, Setup) {
        let mut switch = Switch::connect(server, hello(1, "rack")).await;
        switch.holds(held, true).await;
        while switch.setup.is_none() || switch.table.is_none() {
            let message = switch.message().await.unwrap().expect("the stream goes on");
            assert!(
                switch.obey(message.body.as_ref().unwrap()).await,
                "{message:?}"
            );
        }
        let setup = switch.setup.clone().unwrap();
        (switch, setup)
    }

    /// Takes setups and page tables in, as an agent would; false for anything else.
    async fn obey(&mut self, body: &to_switch::Body) -> bool {
        match body {
            to_switch::Body::Setup(setup) => self.setup = Some(setup.clone()),
            to_switch::Body::Pages(table) => {
                let PageTable { term, version, .. } = *table;
                self.table = Some(table.clone());
                self.say(from_switch::Body::Pages(PagesApplied { term, version }))
                    .await;
            }
            _ => return false,
        }
        true
    }

    async fn message(&mut self) -> Result<Option<ToSwitch>, tonic::Status> {
        tokio::time::timeout(PATIENCE, self.from.message())
            .await
            .expect("a message in time")
    }

    /// The next message that is neither a setup nor a page table.
    async fn next(&mut self) -> to_switch::Body {
        loop {
            let message = self.message().await.unwrap().expect("the stream goes on");
            let body = message.body.unwrap();
            if !self.obey(&body).await {
                return body;
            }
        }
    }

    async fn commands(&mut self) -> Vec<Command> {
        match self.next().await {
            to_switch::Body::Commands(commands) => commands.commands,
            other => panic!("expected commands: {other:?}"),
        }
    }

    /// The next commands that are not repeats of `seq` or earlier ones.
    async fn commands_after(&mut self, seq: u64) -> Vec<Command> {
        loop {
            let mut commands = self.commands().await;
            commands.retain(|c| c.seq > seq);
            if !commands.is_empty() {
                return commands;
            }
        }
    }

    async fn say(&self, body: from_switch::Body) {
        self.to.send(FromSwitch { body: Some(body) }).await.unwrap();
    }

    async fn holds(&self, names: &[&str], last: bool) {
        let keys = names.iter().map(|name| key(name)).collect();
        self.say(from_switch::Body::Held(Held { keys, last })).await;
    }

    async fn report(&self, name: &str, count: u64) {
        let keys = vec![HotKey {
            tenant: 7,
            key: name.as_bytes().to_vec().into(),
            count,
        }];
        self.say(from_switch::Body::Hot(HotReports { window: 1, keys }))
            .await;
    }

    async fn ack(&self, command: &Command) {
        let acks = vec![Ack {
            seq: command.seq,
            outcome: 0,
        }];
        self.say(from_switch::Body::Acks(Acks { acks })).await;
    }
}

fn key(name: &str) -> Key {
    Key {
        tenant: 7,
        key: name.as_bytes().to_vec().into(),
    }
}

fn hello(switch_id: u32, name: &str) -> Hello {
    Hello {
        switch_id,
        name: name.into(),
        version: "test".into(),
        pages: 5,
    }
}

fn insert(name: &str) -> Option<command::Body> {
    Some(command::Body::Insert(key(name)))
}

/// Waits until the controller believes that switch 1 holds so many items.
async fn wait_for_items(server: &Server, items: u64) {
    let url = format!("http://{}", server.address());
    let reached = async {
        while status::fetch(&url).await.unwrap().switches[0].items != items {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(PATIENCE, reached)
        .await
        .expect("the acknowledgement was taken in");
}

#[tokio::test]
async fn sets_a_switch_up_and_tells_it_what_to_cache() {
    let directory = tempfile::tempdir().unwrap();
    let server = start(directory.path()).await;
    let (mut switch, setup) = Switch::attach(&server, &[]).await;
    let cluster = wire::Cluster::parse(&setup.cluster).unwrap();
    assert_eq!(cluster, wire::Cluster::parse(CLUSTER).unwrap());
    assert_eq!(setup.window_ms, 1000);
    let thresholds: BTreeMap<_, _> = setup
        .tenants
        .iter()
        .map(|t| (t.tenant, t.hot_threshold))
        .collect();
    assert_eq!(thresholds, [(0, 5), (7, 5)].into());
    // Nobody is guaranteed a page or wants many: each borrows one, to be noticed at all.
    let owners = &switch.table.as_ref().unwrap().owners;
    let pages: Vec<_> = owners.iter().map(|o| (o.tenant, o.pages.len())).collect();
    assert_eq!(pages, [(0, 1), (7, 1)]);

    switch.report("a", 9).await;
    let commands = switch.commands().await;
    assert_eq!(commands[0].body, insert("a"));
    switch.ack(&commands[0]).await;
    wait_for_items(&server, 1).await;

    let counters = Counters {
        window: 40,
        window_ms: 1000,
        ..Counters::default()
    };
    switch.say(from_switch::Body::Counters(counters)).await;
    assert!(
        matches!(switch.next().await, to_switch::Body::Tuning(t) if t.thresholds[0].hot_threshold == 40)
    );

    switch
        .say(from_switch::Body::Dropped(Dropped {
            keys: vec![key("a")],
        }))
        .await;
    wait_for_items(&server, 0).await;
    server.stop().await.unwrap();
}

#[tokio::test]
async fn repeats_a_command_until_it_is_acknowledged() {
    let directory = tempfile::tempdir().unwrap();
    let server = start(directory.path()).await;
    let (mut switch, _) = Switch::attach(&server, &[]).await;
    switch.report("a", 9).await;
    let first = switch.commands().await;
    // The acknowledgement is lost. Meanwhile the key is to be evicted: that must wait.
    switch.report("a", 0).await;
    let again = switch.commands().await;
    assert_eq!(first, again);
    switch.ack(&again[0]).await;
    let evict = switch.commands_after(again[0].seq).await;
    assert_eq!(evict[0].body, Some(command::Body::Evict(key("a"))));
    assert!(evict[0].seq > first[0].seq);
    server.stop().await.unwrap();
}

#[tokio::test]
async fn repeats_a_command_over_a_new_stream() {
    let directory = tempfile::tempdir().unwrap();
    let server = start(directory.path()).await;
    let (mut switch, _) = Switch::attach(&server, &[]).await;
    switch.report("a", 9).await;
    let first = switch.commands().await;
    drop(switch);
    let (mut switch, _) = Switch::attach(&server, &[]).await;
    assert_eq!(switch.commands().await, first);
    switch.ack(&first[0]).await;
    wait_for_items(&server, 1).await;
    server.stop().await.unwrap();
}

#[tokio::test]
async fn goes_on_after_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let server = start(directory.path()).await;
    let (mut switch, _) = Switch::attach(&server, &[]).await;
    let mut last_seq = 0;
    for name in ["a", "b", "c"] {
        switch.report(name, 9).await;
        let commands = switch.commands_after(last_seq).await;
        last_seq = commands[0].seq;
        switch.ack(&commands[0]).await;
    }
    wait_for_items(&server, 3).await;
    let counters = Counters {
        window: 33,
        window_ms: 1000,
        ..Counters::default()
    };
    switch.say(from_switch::Body::Counters(counters)).await;
    assert!(matches!(switch.next().await, to_switch::Body::Tuning(_)));
    server.stop().await.unwrap();
    assert!(
        switch.message().await.is_err(),
        "the stream ends with the controller"
    );

    // It comes back; the switch lost "b" and "c" and holds "d", which the controller does not know.
    let server = start(directory.path()).await;
    wait_for_items(&server, 3).await;
    let (mut switch, setup) = Switch::attach(&server, &["a", "d"]).await;
    let seven = setup.tenants.iter().find(|t| t.tenant == 7).unwrap();
    assert_eq!(seven.hot_threshold, 33);
    let commands = switch.commands().await;
    let bodies: Vec<_> = commands.iter().map(|c| c.body.clone()).collect();
    assert_eq!(bodies, [insert("b"), insert("c")]);
    assert!(commands[0].seq > last_seq);
    for command in &commands {
        switch.ack(command).await;
    }
    wait_for_items(&server, 4).await;
    server.stop().await.unwrap();
}

#[tokio::test]
async fn takes_a_long_list_of_held_keys_in_parts() {
    let directory = tempfile::tempdir().unwrap();
    let server = start(directory.path()).await;
    let switch = Switch::connect(&server, hello(1, "rack")).await;
    switch.holds(&["a"], false).await;
    switch.holds(&["b"], false).await;
    switch.holds(&["c"], true).await;
    wait_for_items(&server, 3).await;
    server.stop().await.unwrap();
}

#[tokio::test]
async fn refuses_what_it_cannot_serve() {
    let directory = tempfile::tempdir().unwrap();
    let server = start(directory.path()).await;

    let mut switch = Switch::connect(&server, hello(0, "zero")).await;
    let error = switch.message().await.unwrap_err();
    assert!(error.message().contains("expected 1 to 65535"), "{error}");

    let (switch, _) = Switch::attach(&server, &[]).await;
    let mut twin = Switch::connect(&server, hello(1, "another")).await;
    let error = twin.message().await.unwrap_err();
    assert_eq!(error.code(), tonic::Code::AlreadyExists, "{error}");
    drop(switch);

    let same_state = Server::start(options(directory.path())).await;
    let error = same_state.err().unwrap();
    assert!(
        error
            .to_string()
            .contains("another controller uses this state file"),
        "{error}"
    );

    let other = tempfile::tempdir().unwrap();
    let taken = Options {
        listen: Listen::on(server.address()),
        ..options(other.path())
    };
    let error = Server::start(taken).await.err().unwrap();
    assert!(
        error.to_string().contains("choose another --listen"),
        "{error}"
    );

    let open = Options {
        listen: Listen::on("0.0.0.0:0".parse().unwrap()),
        ..options(other.path())
    };
    let error = Server::start(open).await.err().unwrap();
    assert!(
        error
            .to_string()
            .contains("can be reached from other machines"),
        "{error}"
    );

    let bad = Options {
        cluster: "partitions = 0\nstore = []".into(),
        ..options(other.path())
    };
    let error = Server::start(bad).await.err().unwrap();
    assert!(
        error.to_string().contains("at least 1 is needed"),
        "{error}"
    );
    server.stop().await.unwrap();
}

#[tokio::test]
async fn malformed_keys_are_counted_and_left_out() {
    let directory = tempfile::tempdir().unwrap();
    let server = start(directory.path()).await;
    let (mut switch, _) = Switch::attach(&server, &[]).await;
    let hot = |tenant, length| HotKey {
        tenant,
        key: vec![b'x'; length].into(),
        count: 9,
    };
    let keys = vec![hot(7, 0), hot(7, 251), hot(99, 5), hot(7, 250)];
    switch
        .say(from_switch::Body::Hot(HotReports { window: 1, keys }))
        .await;
    let commands = switch.commands().await;
    assert_eq!(commands.len(), 1);
    let url = format!("http://{}", server.address());
    let reply = status::fetch(&url).await.unwrap();
    assert_eq!(reply.switches[0].counters["malformed_keys"], 3);
    assert_eq!(
        status::to_json(&reply)["switches"][0]["counters"]["malformed_keys"],
        3
    );
    server.stop().await.unwrap();
}

#[tokio::test]
async fn asks_for_a_list_when_the_switch_holds_something_else() {
    let directory = tempfile::tempdir().unwrap();
    let server = start(directory.path()).await;
    let (mut switch, _) = Switch::attach(&server, &["a", "b"]).await;
    wait_for_items(&server, 2).await;
    // The message that said so was lost: the switch holds nothing any longer.
    let counters = Counters {
        window: 5,
        window_ms: 1000,
        held: Some(Digest::default()),
        ..Counters::default()
    };
    switch.say(from_switch::Body::Counters(counters)).await;
    assert!(matches!(switch.next().await, to_switch::Body::ListHeld(_)));
    let nothing = Held {
        keys: vec![],
        last: true,
    };
    switch.say(from_switch::Body::Held(nothing)).await;
    let commands = switch.commands().await;
    let bodies: Vec<_> = commands.iter().map(|c| c.body.clone()).collect();
    assert_eq!(
        bodies,
        [insert("a"), insert("b")],
        "what was lost is inserted again"
    );
    server.stop().await.unwrap();
}
