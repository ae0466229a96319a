//! A store whose master is named by real Sentinels: it follows planned failovers and deaths.

use std::process::Command;

use lab::port;
use store::Config;

use super::support::{
    self, StoreThread,
    others::{Outsider, Switch},
    servers::{Process, asked, redis, redis_with, start_at, until},
};

/// A Sentinel, for which a master is not dead that stands still for some seconds.
fn sentinel(master: u16) -> Process {
    start_at(port::held(), |port, directory| {
        let file = directory.join("sentinel.conf");
        let text = format!(
            "port {port}\nbind 127.0.0.1\nsentinel monitor main 127.0.0.1 {master} 2\n\
             sentinel down-after-milliseconds main 5000\nsentinel failover-timeout main 2000\n"
        );
        std::fs::write(&file, text).unwrap();
        let mut command = Command::new("redis-server");
        command.current_dir(directory).arg(file).arg("--sentinel");
        command
    })
}

#[test]
fn a_master_that_sentinels_name_is_followed_and_copies_of_the_one_before_are_called_back() {
    let master = redis();
    let replica_of = format!("127.0.0.1 {}", master.port);
    let replica = redis_with(&["--replicaof", "127.0.0.1", &master.port.to_string()]);
    until(&format!("nobody follows {replica_of}"), || {
        asked(&replica, "INFO replication").contains("master_link_status:up")
    });
    let sentinels = [(); 3].map(|()| sentinel(master.port));
    let knows_all = |sentinel: &Process| {
        let told = asked(sentinel, "INFO sentinel");
        told.contains("slaves=1,sentinels=3")
    };
    until("the Sentinels do not know each other", || sentinels.iter().all(knows_all));
    let listed = sentinels.each_ref().map(|one| format!("127.0.0.1:{}", one.port)).join(",");
    let store = StoreThread::start(Config {
        backend: format!("redis+sentinel://{listed}/main").parse().unwrap(),
        resp: vec!["127.0.0.1:0".parse().unwrap()],
        ..support::loopback()
    });
    let mut client = Outsider::at(store.port.expect("a RESP port"));
    assert_eq!(client.command("SET k before"), "+OK\r\n");
    assert_eq!(asked(&master, "GET k"), "$6\r\nbefore\r\n");
    let mut switch = Switch::to(store.address);
    assert_eq!(switch.copy(b"k"), b"before");

    // Planned.
    let failed_over = |to: &Process| {
        until("there is no failover", || {
            asked(&sentinels[0], "SENTINEL FAILOVER main");
            asked(to, "ROLE").contains("master")
        });
    };
    failed_over(&replica);
    switch.loses(b"k", "another master");
    until("nothing can be written", || client.command("SET k planned") == "+OK\r\n");
    assert_eq!(asked(&replica, "GET k"), "$7\r\nplanned\r\n");

    // By a death. The one before is a replica by then.
    until("the master of before is none", || {
        asked(&master, "INFO replication").contains("master_link_status:up")
    });
    drop(replica);
    until("nothing can be written", || client.command("SET k alive") == "+OK\r\n");
    assert_eq!(asked(&master, "GET k"), "$5\r\nalive\r\n");
}
