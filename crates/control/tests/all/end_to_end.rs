//! A controller and a pretended switch over loopback: setup, commands, lost acknowledgements,
//! broken streams, restarts. Nothing here sleeps for a result: every wait is for a message,
//! and bounded.

use std::{collections::BTreeMap, net::SocketAddr, path::Path, time::Duration};

use api::{
    convert,
    proto::{
        Ack, Acks, Command, Configured, Counters, Digest, Dropped, FromStore, FromSwitch, HalfAck,
        HalfMessage, HalfReport, Held, Hello, HotReports, Key, KeyCount, PageTable, PagesApplied,
        Put, Setup, StoreHello, TenantCounts, TenantKeys, TenantVersion, ToStore, ToSwitch,
        command, control_client::ControlClient, from_store, from_switch, to_store, to_switch,
    },
    status,
};
use bytes::Bytes;
use control::{Options, Server, serve::Listen, state::Location};
use decide::{
    Action, Change, Configuration, Discipline, HotKeys, Inventory, Limits, Record, Registration,
    Room, SwitchId, WindowEnd,
};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Streaming;

/// Ends a test that hangs; nothing takes that long.
const PATIENCE: Duration = Duration::from_secs(90);
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

/// Parameters are the last window's number; puts what is reported, removes what is reported with a
/// count of 0, puts again what was lost. Tells the store when a configuration is in force, and puts
/// a record when a store reports it.
#[derive(Default)]
struct Obedient;

impl Discipline for Obedient {
    fn room(&mut self, _now: Duration, tenant: u32, rooms: &[Room], out: &mut Vec<Action>) {
        out.extend(rooms.iter().map(|room| {
            let [before, _] = room.parameters.unwrap_or([5, 0]);
            configure(room.switch, tenant, before)
        }));
    }

    fn holds(&mut self, _now: Duration, inventory: Inventory<'_>, out: &mut Vec<Action>) {
        let Inventory { switch, tenant, .. } = inventory;
        let lost = inventory.lost.iter();
        out.extend(lost.map(|key| change(switch, tenant, PUT, key)));
    }

    fn hot(&mut self, _now: Duration, keys: HotKeys<'_>, out: &mut Vec<Action>) {
        for (key, count) in keys.keys {
            let what = if *count == 0 { Change::Remove } else { PUT };
            out.push(change(keys.switch, keys.tenant, what, key));
        }
    }

    fn window_end(&mut self, _now: Duration, end: WindowEnd<'_>, out: &mut Vec<Action>) {
        if end.tenant == 7 {
            out.push(configure(end.switch, 7, end.window as u32));
        }
    }

    fn configured(&mut self, _now: Duration, switch: SwitchId, tenant: u32, out: &mut Vec<Action>) {
        if tenant == 7 {
            out.push(Action::Tell {
                store: STORE.parse().unwrap(),
                tenant,
                message: format!("in force on {switch}").into(),
            });
        }
    }

    fn told(&mut self, _now: Duration, store: SocketAddr, tenant: u32, out: &mut Vec<Action>) {
        let key = Bytes::from(format!("told {store}"));
        out.push(change(RACK, tenant, PUT, &key));
    }

    fn store_reported(
        &mut self,
        _now: Duration,
        _store: SocketAddr,
        tenant: u32,
        report: &[u8],
        out: &mut Vec<Action>,
    ) {
        let record = Record::Given(Bytes::copy_from_slice(report));
        let key = Bytes::from_static(b"reported");
        out.push(change(RACK, tenant, Change::Put(record), &key));
    }
}

fn change(switch: SwitchId, tenant: u32, change: Change, key: &Bytes) -> Action {
    Action::Change { switch, tenant, change, key: key.clone() }
}

fn configure(switch: SwitchId, tenant: u32, parameter: u32) -> Action {
    Action::Configure { switch, tenant, configuration: Configuration::of([parameter, 0]) }
}

const PUT: Change = Change::Put(Record::Fetched);
const STORE: &str = "10.0.2.1:7117";
/// The switch of these tests.
const RACK: SwitchId = 1;

static DISCIPLINES: [Registration; 1] = [Registration {
    name: "test",
    number: 0,
    settings: &[],
    control: |_| Box::new(Obedient),
    ..decide::NONE
}];

fn options(state: &Path) -> Options {
    Options {
        listen: Listen::on("127.0.0.1:0".parse().unwrap()),
        name: "test".into(),
        url: None,
        state: Location::Directory(state.into()),
        cluster: CLUSTER.into(),
        disciplines: &DISCIPLINES,
        default_discipline: "test".into(),
        limits: Limits::default(),
        settings: Default::default(),
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
    /// The last setup and table that were told.
    setup: Option<Setup>,
    table: Option<PageTable>,
    /// The last configuration of each tenant that was told.
    configured: BTreeMap<u32, u32>,
}

impl Switch {
    async fn connect(server: &Server, hello: Hello) -> Switch {
        Switch::try_connect(server, hello).await.unwrap()
    }

    /// An error if the controller does not lead.
    async fn try_connect(server: &Server, hello: Hello) -> Result<Switch, tonic::Status> {
        let mut client =
            ControlClient::connect(format!("http://{}", server.address())).await.unwrap();
        let (to, receiver) = mpsc::channel(16);
        to.send(FromSwitch { body: Some(from_switch::Body::Hello(hello)) }).await.unwrap();
        let from = client.attach(ReceiverStream::new(receiver)).await?.into_inner();
        Ok(Switch { to, from, setup: None, table: None, configured: BTreeMap::new() })
    }

    async fn attach(server: &Server, held: &[&str]) -> (Switch, Setup) {
        let mut switch = Switch::connect(server, hello(1, "rack")).await;
        switch.holds(held, true).await;
        let is_told = |switch: &Switch| {
            let setup = switch.setup.iter().flat_map(|setup| &setup.tenants);
            let mut tenants = setup.map(|t| t.tenant);
            let all = tenants.all(|tenant| switch.configured.contains_key(&tenant));
            switch.setup.is_some() && switch.table.is_some() && all
        };
        while !is_told(&switch) {
            let message = switch.message().await.unwrap().expect("the stream goes on");
            assert!(switch.obey(message.body.as_ref().unwrap()).await, "{message:?}");
        }
        let setup = switch.setup.clone().unwrap();
        (switch, setup)
    }

    /// Takes setups, configurations and page tables in, as an agent would; false for anything else.
    async fn obey(&mut self, body: &to_switch::Body) -> bool {
        match body {
            to_switch::Body::Setup(setup) => self.setup = Some(setup.clone()),
            to_switch::Body::Configurations(configurations) => {
                let tenants = configurations.tenants.iter().map(|told| {
                    self.configured.insert(told.tenant, told.parameters[0]);
                    TenantVersion {
                        tenant: told.tenant,
                        version: told.version,
                        trouble: String::new(),
                    }
                });
                let tenants = tenants.collect();
                self.say(from_switch::Body::Configured(Configured { tenants })).await;
            }
            to_switch::Body::Pages(table) => {
                let PageTable { term, version, .. } = *table;
                self.table = Some(table.clone());
                self.say(from_switch::Body::Pages(PagesApplied { term, version })).await;
            }
            _ => return false,
        }
        true
    }

    async fn message(&mut self) -> Result<Option<ToSwitch>, tonic::Status> {
        tokio::time::timeout(PATIENCE, self.from.message()).await.expect("a message in time")
    }

    /// Obeys until a tenant has this parameter.
    async fn until_configured(&mut self, tenant: u32, parameter: u32) {
        while self.configured.get(&tenant) != Some(&parameter) {
            let message = self.message().await.unwrap().expect("the stream goes on");
            self.obey(message.body.as_ref().unwrap()).await;
        }
    }

    /// The next message that is neither a setup, a configuration nor a page table.
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
        let keys = vec![tenant_keys(names)];
        self.say(from_switch::Body::Held(Held { keys, last })).await;
    }

    async fn report(&self, name: &str, count: u64) {
        let key = Bytes::copy_from_slice(name.as_bytes());
        let keys = vec![TenantCounts { tenant: 7, keys: vec![KeyCount { key, count }] }];
        self.say(from_switch::Body::Hot(HotReports { window: 1, keys })).await;
    }

    async fn ack(&self, command: &Command) {
        let acks = vec![Ack { seq: command.seq, outcome: 0 }];
        self.say(from_switch::Body::Acks(Acks { acks })).await;
    }
}

fn key(name: &str) -> Key {
    Key { tenant: 7, key: name.as_bytes().to_vec().into() }
}

fn tenant_keys(names: &[&str]) -> TenantKeys {
    let key = |name: &&str| Bytes::copy_from_slice(name.as_bytes());
    TenantKeys { tenant: 7, keys: names.iter().map(key).collect() }
}

fn hello(switch_id: u32, name: &str) -> Hello {
    Hello {
        switch_id,
        name: name.into(),
        version: "test".into(),
        pages: 5,
        disciplines: vec!["test".into()],
        ..Hello::default()
    }
}

fn insert(name: &str) -> Option<command::Body> {
    Some(command::Body::Put(Put { key: Some(key(name)), record: None }))
}

/// Waits until the controller believes that switch 1 holds so many items.
async fn wait_for_items(server: &Server, items: u64) {
    let url = format!("http://{}", server.address());
    let reached = async {
        while status::fetch(&url).await.unwrap().switches[0].items != items {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(PATIENCE, reached).await.expect("the acknowledgement was taken in");
}

#[tokio::test]
async fn sets_a_switch_up_and_tells_it_what_to_cache() {
    let directory = tempfile::tempdir().unwrap();
    let server = start(directory.path()).await;
    let (mut switch, setup) = Switch::attach(&server, &[]).await;
    let cluster = convert::cluster(setup.cluster.as_ref().unwrap()).unwrap();
    assert_eq!(cluster, wire::Cluster::parse(CLUSTER).unwrap());
    assert_eq!(setup.window_ms, 1000);
    let tenants: Vec<_> = setup.tenants.iter().map(|t| t.tenant).collect();
    assert_eq!(tenants, [0, 7]);
    assert!(setup.tenants.iter().all(|t| t.discipline == "test"));
    assert_eq!(switch.configured, [(0, 5), (7, 5)].into());
    // Nobody is guaranteed a page or wants many: each borrows one, to be noticed at all.
    let owners = &switch.table.as_ref().unwrap().owners;
    let pages: Vec<_> = owners.iter().map(|o| (o.tenant, o.pages.len())).collect();
    assert_eq!(pages, [(0, 1), (7, 1)]);

    switch.report("a", 9).await;
    let commands = switch.commands().await;
    assert_eq!(commands[0].body, insert("a"));
    switch.ack(&commands[0]).await;
    wait_for_items(&server, 1).await;

    let counters = Counters { window: 40, window_ms: 1000, ..Counters::default() };
    switch.say(from_switch::Body::Counters(counters)).await;
    switch.until_configured(7, 40).await;

    switch
        .say(from_switch::Body::Dropped(Dropped { keys: vec![tenant_keys(&["a"])], unfit: vec![] }))
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
    assert_eq!(evict[0].body, Some(command::Body::Remove(key("a"))));
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
    let counters = Counters { window: 33, window_ms: 1000, ..Counters::default() };
    switch.say(from_switch::Body::Counters(counters)).await;
    switch.until_configured(7, 33).await;
    server.stop().await.unwrap();
    // What was under way comes first: a command may be repeated at any time.
    let ended = loop {
        match switch.message().await {
            Ok(Some(_)) => {}
            ended => break ended,
        }
    };
    assert!(ended.is_err(), "the stream ends with the controller");

    // It comes back; the switch lost "b" and "c" and holds "d", which the controller does not know.
    let server = start(directory.path()).await;
    wait_for_items(&server, 3).await;
    let (mut switch, _) = Switch::attach(&server, &["a", "d"]).await;
    assert_eq!(switch.configured[&7], 33);
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

/// The controller's state was lost, or put back to an earlier one, and the agents live on.
#[tokio::test]
async fn a_new_state_begins_above_the_terms_that_switches_have_heard_of() {
    let directory = tempfile::tempdir().unwrap();
    let server = start(directory.path()).await;
    let (other, setup) = Switch::attach(&server, &[]).await;
    assert_eq!(setup.term, 1);
    let heard = Hello { term: 7, ..hello(2, "heard of another") };
    let error = Switch::connect(&server, heard.clone()).await.message().await.unwrap_err();
    assert_eq!(error.code(), tonic::Code::Unavailable, "{error}");
    assert!(error.message().contains("term 7"), "{error}");
    let setup = async {
        loop {
            // Refused while nobody leads.
            let Ok(mut switch) = Switch::try_connect(&server, heard.clone()).await else {
                continue;
            };
            let held = from_switch::Body::Held(Held { keys: vec![], last: true });
            // It may be refused once more, by the lead that is about to end.
            let _ = switch.to.send(FromSwitch { body: Some(held) }).await;
            if let Ok(Some(ToSwitch { body: Some(to_switch::Body::Setup(setup)) })) =
                switch.message().await
            {
                return setup;
            }
        }
    };
    let setup = tokio::time::timeout(PATIENCE, setup).await.expect("it leads again");
    assert_eq!(setup.term, 8);
    drop(other);
    server.stop().await.unwrap();
    // That is remembered.
    let server = start(directory.path()).await;
    assert_eq!(Switch::attach(&server, &[]).await.1.term, 9);
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
    assert!(error.message().contains("expected 1 to 32767"), "{error}");

    let (switch, _) = Switch::attach(&server, &[]).await;
    let mut twin = Switch::connect(&server, hello(1, "another")).await;
    let error = twin.message().await.unwrap_err();
    assert_eq!(error.code(), tonic::Code::AlreadyExists, "{error}");
    drop(switch);

    let same_state = Server::start(options(directory.path())).await;
    let error = same_state.err().unwrap();
    assert!(error.to_string().contains("another controller uses this state file"), "{error}");

    let other = tempfile::tempdir().unwrap();
    let taken = Options { listen: Listen::on(server.address()), ..options(other.path()) };
    let error = Server::start(taken).await.err().unwrap();
    assert!(error.to_string().contains("choose another --listen"), "{error}");

    let open =
        Options { listen: Listen::on("0.0.0.0:0".parse().unwrap()), ..options(other.path()) };
    let error = Server::start(open).await.err().unwrap();
    assert!(error.to_string().contains("can be reached from other machines"), "{error}");

    let bad = Options { cluster: "partitions = 0\nstore = []".into(), ..options(other.path()) };
    let error = Server::start(bad).await.err().unwrap();
    assert!(error.to_string().contains("at least 1 is needed"), "{error}");
    server.stop().await.unwrap();
}

#[tokio::test]
async fn malformed_keys_are_counted_and_left_out() {
    let directory = tempfile::tempdir().unwrap();
    let server = start(directory.path()).await;
    let (mut switch, _) = Switch::attach(&server, &[]).await;
    let hot = |tenant, length| TenantCounts {
        tenant,
        keys: vec![KeyCount { key: vec![b'x'; length].into(), count: 9 }],
    };
    let keys = vec![hot(7, 0), hot(7, 251), hot(99, 5), hot(7, 250)];
    switch.say(from_switch::Body::Hot(HotReports { window: 1, keys })).await;
    let commands = switch.commands().await;
    assert_eq!(commands.len(), 1);
    let url = format!("http://{}", server.address());
    let reply = status::fetch(&url).await.unwrap();
    assert_eq!(reply.switches[0].counters["malformed_keys"], 3);
    assert_eq!(status::to_json(&reply)["switches"][0]["counters"]["malformed_keys"], 3);
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
    let nothing = Held { keys: vec![], last: true };
    switch.say(from_switch::Body::Held(nothing)).await;
    let commands = switch.commands().await;
    let bodies: Vec<_> = commands.iter().map(|c| c.body.clone()).collect();
    assert_eq!(bodies, [insert("a"), insert("b")], "what was lost is inserted again");
    server.stop().await.unwrap();
}

/// A store that follows the controller.
struct Store {
    to: mpsc::Sender<FromStore>,
    from: Streaming<ToStore>,
}

impl Store {
    async fn follow(server: &Server) -> Store {
        let url = format!("http://{}", server.address());
        let mut client = ControlClient::connect(url).await.unwrap();
        let (to, receiver) = mpsc::channel(16);
        let hello = StoreHello { name: "store".into(), address: STORE.into() };
        let body = Some(from_store::Body::Hello(hello));
        to.send(FromStore { body }).await.unwrap();
        let from = client.serve(ReceiverStream::new(receiver)).await;
        let from = from.unwrap().into_inner();
        Store { to, from }
    }

    async fn next(&mut self) -> to_store::Body {
        let message = tokio::time::timeout(PATIENCE, self.from.message()).await;
        let message = message.expect("a message in time").unwrap();
        message.expect("the stream goes on").body.unwrap()
    }

    async fn told(&mut self) -> HalfMessage {
        loop {
            match self.next().await {
                to_store::Body::Message(message) => return message,
                to_store::Body::Placements(_) => {}
                other => panic!("expected a message: {other:?}"),
            }
        }
    }

    async fn say(&self, body: from_store::Body) {
        self.to.send(FromStore { body: Some(body) }).await.unwrap();
    }
}

#[tokio::test]
async fn a_store_has_the_cluster_and_messages_until_it_takes_them_in() {
    let directory = tempfile::tempdir().unwrap();
    let server = start(directory.path()).await;
    let mut store = Store::follow(&server).await;
    match store.next().await {
        to_store::Body::Cluster(cluster) => {
            assert_eq!(convert::cluster(&cluster).unwrap(), wire::Cluster::parse(CLUSTER).unwrap())
        }
        other => panic!("expected the cluster: {other:?}"),
    }
    let (mut switch, _) = Switch::attach(&server, &[]).await;
    let first = store.told().await;
    let message = (&first.discipline[..], first.tenant, &first.message[..]);
    assert_eq!(message, ("test", 7, &b"in force on 1"[..]));

    // It did not say that it has it: a new stream brings it again, after the cluster.
    drop(store);
    let mut store = Store::follow(&server).await;
    assert!(matches!(store.next().await, to_store::Body::Cluster(_)));
    assert_eq!(store.told().await, first);
    store.say(from_store::Body::Ack(HalfAck { seq: first.seq })).await;
    let told = switch.commands().await;
    assert_eq!(told[0].body, insert(&format!("told {STORE}")));
    switch.ack(&told[0]).await;

    let report = |discipline: &str, report: &'static [u8]| {
        from_store::Body::Report(HalfReport {
            discipline: discipline.into(),
            tenant: 7,
            report: Bytes::from_static(report),
        })
    };
    store.say(report("another", b"not its")).await;
    store.say(report("test", b"load 9")).await;
    let put = switch.commands_after(told[0].seq).await;
    let expected = command::Body::Put(Put {
        key: Some(key("reported")),
        record: Some(Bytes::from_static(b"load 9")),
    });
    assert_eq!(put[0].body, Some(expected));
    server.stop().await.unwrap();
}

#[tokio::test]
async fn a_default_that_is_not_registered_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let unknown = Options { default_discipline: "other".into(), ..options(directory.path()) };
    let error = Server::start(unknown).await.err().unwrap().to_string();
    assert!(error.contains("expected one of test, none"), "{error}");
}
