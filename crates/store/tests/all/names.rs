//! A store whose Redis has a name, as a managed one does: it goes to where the name leads, also
//! while what is at the address before goes on answering.

use std::{
    io,
    net::SocketAddr,
    sync::{Arc, Condvar, Mutex},
    time::Duration,
};

use store::{Config, Resolver};
use wire::Op;

use super::support::{
    self, PATIENCE, StoreThread,
    others::{Outsider, Switch},
    servers::{Process, asked, redis_with, until},
};

/// What the resolver does when it is asked.
enum Answers {
    At(Vec<u16>),
    Fails,
    Hangs,
}

/// The resolver of a test, which knows one name.
struct Table {
    state: Mutex<(Answers, u64)>,
    changed: Condvar,
}

impl Table {
    fn with(server: &Process) -> Arc<Table> {
        let state = Mutex::new((Answers::At(vec![server.port]), 0));
        Arc::new(Table { state, changed: Condvar::new() })
    }

    fn resolver(self: &Arc<Table>) -> Resolver {
        let table = self.clone();
        Resolver::new(move |name, port| {
            assert_eq!((name, port), ("cache.test", 6379));
            let mut state = table.state.lock().unwrap();
            state.1 += 1;
            loop {
                match &state.0 {
                    Answers::At(ports) => {
                        let at = |port: &u16| SocketAddr::from(([127, 0, 0, 1], *port));
                        return Ok(ports.iter().map(at).collect());
                    }
                    Answers::Fails => return Err(io::Error::other("no answer")),
                    Answers::Hangs => state = table.changed.wait(state).unwrap(),
                }
            }
        })
    }

    fn answers(&self, answers: Answers) {
        self.state.lock().unwrap().0 = answers;
        self.changed.notify_all();
    }

    /// The name means this server from now on.
    fn moves_to(&self, server: &Process) {
        self.answers(Answers::At(vec![server.port]));
    }

    /// Waits until it has been asked so often again.
    fn is_asked(&self, times: u64) {
        let asked = || self.state.lock().unwrap().1;
        let before = asked();
        until("nobody asks the resolver", || asked() >= before + times);
    }
}

/// A master, a replica of it, and a store that knows the master by its name.
struct Managed {
    master: Process,
    replica: Process,
    table: Arc<Table>,
    store: StoreThread,
}

impl Managed {
    fn start() -> Managed {
        Managed::start_with(PATIENCE)
    }

    /// With a store that waits so long for an answer.
    fn start_with(backend_within: Duration) -> Managed {
        // It does not wait for further replicas before it gives the first one its data.
        let master = redis_with(&["--repl-diskless-sync-delay", "0"]);
        let replica = redis_with(&["--replicaof", "127.0.0.1", &master.port.to_string()]);
        until("nobody follows the master", || {
            asked(&replica, "INFO replication").contains("master_link_status:up")
        });
        let table = Table::with(&master);
        let store = StoreThread::start(Config {
            backend: "redis://cache.test:6379".parse().unwrap(),
            resolver: table.resolver(),
            resp: vec!["127.0.0.1:0".parse().unwrap()],
            backend_within,
            ..support::loopback()
        });
        Managed { master, replica, table, store }
    }

    fn client(&self) -> Outsider {
        Outsider::at(self.store.port.expect("a RESP port"))
    }

    /// A switch that has a copy of `k`, as the master has it.
    fn switch_with_copy(&self) -> Switch {
        assert_eq!(asked(&self.master, "SET k before"), "+OK\r\n");
        let mut switch = Switch::to(self.store.address);
        assert_eq!(switch.copy(b"k"), b"before");
        switch
    }

    /// The replica becomes a master by its own, without a word of the one before.
    fn promote(&self) {
        assert_eq!(asked(&self.replica, "REPLICAOF NO ONE"), "+OK\r\n");
        assert_eq!(asked(&self.replica, "SET k after"), "+OK\r\n");
    }
}

/// Whether a copy is called back while the store looks the name up so often.
fn keeps(switch: &Switch, table: &Table, times: u64) -> bool {
    table.is_asked(times);
    std::iter::from_fn(|| switch.hear()).all(|(header, ..)| header.op != Op::Invalidate)
}

#[test]
fn a_name_that_moves_is_followed_while_the_master_of_before_goes_on() {
    let managed = Managed::start();
    let mut client = managed.client();
    let mut switch = managed.switch_with_copy();
    managed.promote();
    managed.table.moves_to(&managed.replica);
    switch.loses(b"k", "the name means another");
    assert_eq!(asked(&managed.master, "ROLE").lines().nth(2), Some("master"));
    until("a client is not taken along", || client.command("GET k") == "$5\r\nafter\r\n");
    assert_eq!(client.command("SET k late"), "+OK\r\n");
    assert_eq!(switch.copy(b"k"), b"late");
    let at = [&managed.master, &managed.replica].map(|server| asked(server, "GET k"));
    assert_eq!(at, ["$6\r\nbefore\r\n", "$4\r\nlate\r\n"]);
    // And back, where what was written meanwhile is not.
    managed.table.moves_to(&managed.master);
    switch.loses(b"k", "the name means the one before");
    until("the name has moved back", || client.command("GET k") == "$6\r\nbefore\r\n");
    assert_eq!(switch.copy(b"k"), b"before");
}

#[test]
fn what_a_name_means_counts_where_the_server_there_is_the_master() {
    let managed = Managed::start();
    let mut switch = managed.switch_with_copy();
    // It is a replica, which names the one that is in use.
    managed.table.moves_to(&managed.replica);
    assert!(keeps(&switch, &managed.table, 4));
    assert_eq!(managed.client().command("SET l same"), "+OK\r\n");
    assert_eq!(asked(&managed.master, "GET l"), "$4\r\nsame\r\n");
    managed.promote();
    switch.loses(b"k", "there is a master where the name leads");
    assert_eq!(switch.copy(b"k"), b"after");
}

#[test]
fn a_resolver_that_fails_or_hangs_changes_nothing() {
    let managed = Managed::start();
    let switch = managed.switch_with_copy();
    managed.table.answers(Answers::Fails);
    assert!(keeps(&switch, &managed.table, 3));
    managed.table.answers(Answers::At(vec![]));
    assert!(keeps(&switch, &managed.table, 3));
    let mut client = managed.client();
    assert_eq!(client.command("SET l hangs"), "+OK\r\n");
    managed.table.answers(Answers::Hangs);
    managed.table.is_asked(1);
    // A connection that is lost meanwhile is made anew.
    asked(&managed.master, "CLIENT KILL TYPE normal");
    until("no connection", || managed.client().command("SET l again") == "+OK\r\n");
    assert_eq!(asked(&managed.master, "GET l"), "$5\r\nagain\r\n");
    let others = [managed.master.port, managed.replica.port];
    managed.table.answers(Answers::At(others.to_vec()));
    managed.table.is_asked(2);
    assert_eq!(managed.client().command("SET l both"), "+OK\r\n");
    assert_eq!(asked(&managed.master, "GET l"), "$4\r\nboth\r\n");
}

#[test]
fn a_master_that_is_silent_or_gone_is_left_for_the_one_that_the_name_means() {
    for is_killed in [false, true] {
        // As by default: what is silent for longer is given up.
        let managed = Managed::start_with(Duration::from_secs(1));
        let mut switch = managed.switch_with_copy();
        managed.promote();
        managed.table.moves_to(&managed.replica);
        let Managed { master, replica, store, .. } = managed;
        let master = match is_killed {
            true => {
                master.stop();
                None
            }
            false => {
                master.freeze();
                Some(master)
            }
        };
        switch.loses(b"k", "its master is gone");
        let mut client = Outsider::at(store.port.expect("a RESP port"));
        until("nothing can be written", || client.command("SET k later") == "+OK\r\n");
        assert_eq!(asked(&replica, "GET k"), "$5\r\nlater\r\n");
        assert_eq!(switch.copy(b"k"), b"later");
        drop(master);
    }
}
