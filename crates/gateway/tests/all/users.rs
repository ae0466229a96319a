//! Users of a real Redis, which decides who they are and what they may.

use std::{io::Read, net::TcpStream};

use gateway::NetworkUse;

use crate::{
    network::Store,
    support::{Gateway, Redis, Speaker, command, config, counter, until},
};

/// A Redis with a user who may everything and one who may not.
fn redis() -> Redis {
    let redis = Redis::start(&[]);
    let mut admin = redis.speak();
    assert_eq!(admin.ask("ACL SETUSER ada on >secret ~* &* +@all"), "+OK\r\n");
    assert_eq!(admin.ask("ACL SETUSER bob on >word ~app:* &* +@all"), "+OK\r\n");
    redis
}

/// Connections of this user that Redis has.
fn connections(redis: &Redis, user: &str) -> usize {
    let list = redis.speak().ask("CLIENT LIST");
    list.lines().filter(|line| line.contains(&format!(" user={user} "))).count()
}

fn logged_in(gateway: &Gateway, words: &str) -> Speaker<TcpStream> {
    let mut client = gateway.speak();
    assert_eq!(client.ask(&format!("AUTH {words}")), "+OK\r\n");
    client
}

/// Waits until the other side has ended the connection, without a word.
fn is_ended(mut client: Speaker<TcpStream>) -> bool {
    matches!(client.stream.read(&mut [0; 64]), Ok(0))
}

#[test]
fn clients_of_a_user_share_connections_of_that_user() {
    let redis = redis();
    let gateway = Gateway::start(config(&redis.url()));
    let mut clients: Vec<_> = (0..50).map(|_| logged_in(&gateway, "ada secret")).collect();
    for client in &mut clients {
        assert_eq!(client.ask("ACL WHOAMI"), "$3\r\nada\r\n");
        assert_eq!(client.ask("INCR n").as_bytes()[0], b':');
    }
    assert_eq!(connections(&redis, "ada"), 2, "one for reads, one for writes");
    // By RESP3 too, with the name that it gave itself.
    let mut third = gateway.speak();
    let hello = third.ask("HELLO 3 AUTH ada secret SETNAME third");
    assert!(hello.starts_with("%7\r\n"), "{hello}");
    assert_eq!(third.ask("ACL WHOAMI"), "$3\r\nada\r\n");
    assert_eq!(third.ask("GET none"), "_\r\n");
    assert_eq!(third.ask("CLIENT GETNAME"), "$5\r\nthird\r\n");
    // What is a client's own is that user's as well, and goes with the client.
    let first = &mut clients[0];
    first.say(&[command("MULTI"), command("ACL WHOAMI"), command("EXEC")].concat());
    assert_eq!(first.answer(), "+OK\r\n");
    assert_eq!(first.answer(), "+QUEUED\r\n");
    assert_eq!(first.answer(), "*1\r\n$3\r\nada\r\n");
    drop((clients, third));
    // Nobody is left; the connections are given up.
    until("connections go with their users", || connections(&redis, "ada") == 0);
    assert_eq!(gateway.speak().ask("ACL WHOAMI"), "$7\r\ndefault\r\n");
}

/// As on a connection to Redis: it is asked who somebody is when he says so, and not again.
#[test]
fn who_is_logged_in_stays_so_when_the_password_has_become_another() {
    let redis = redis();
    let gateway = Gateway::start(config(&redis.url()));
    let mut client = logged_in(&gateway, "ada secret");
    assert_eq!(client.ask("GET none"), "$-1\r\n");
    assert_eq!(redis.speak().ask("ACL SETUSER ada resetpass >other"), "+OK\r\n");
    // By a connection for writes, which would have to log in with what was the password.
    for round in 1..=2 {
        assert_eq!(client.ask("INCR n"), format!(":{round}\r\n"));
        assert_eq!(client.ask("ACL WHOAMI"), "$3\r\nada\r\n");
        assert!(gateway.speak().ask("AUTH ada secret").starts_with("-WRONGPASS "));
    }
    let mut other = logged_in(&gateway, "ada other");
    assert_eq!(other.ask("INCR n"), ":3\r\n");
    assert_eq!(redis.speak().ask("CLIENT KILL USER ada"), ":3\r\n");
    assert!(is_ended(client) && is_ended(other));
}

#[test]
fn redis_decides_who_somebody_is_and_what_he_may() {
    let redis = redis();
    let gateway = Gateway::start(config(&redis.url()));
    let mut client = gateway.speak();
    for wrong in ["AUTH ada wrong", "AUTH nobody secret", "HELLO 3 AUTH ada wrong"] {
        assert!(client.ask(wrong).starts_with("-WRONGPASS "), "{wrong}");
        assert_eq!(client.ask("ACL WHOAMI"), "$7\r\ndefault\r\n", "{wrong}");
    }
    assert!(client.ask("AUTH").starts_with("-ERR wrong number of arguments"));
    assert!(client.ask("AUTH secret").starts_with("-ERR AUTH <password> called without"));
    assert_eq!(client.ask("AUTH bob word"), "+OK\r\n");
    assert!(client.ask("GET other").starts_with("-NOPERM "));
    assert!(client.ask("SET other 1").starts_with("-NOPERM "));
    assert_eq!(client.ask("SET app:1 1"), "+OK\r\n");
    // One who fails to become another stays who he is, and so does everybody else.
    assert!(client.ask("AUTH ada wrong").starts_with("-WRONGPASS "));
    assert_eq!(client.ask("ACL WHOAMI"), "$3\r\nbob\r\n");
    assert_eq!(client.ask("AUTH ada secret"), "+OK\r\n");
    assert_eq!(client.ask("GET other"), "$-1\r\n");
    assert_eq!(client.ask("RESET"), "+RESET\r\n");
    assert_eq!(client.ask("ACL WHOAMI"), "$7\r\ndefault\r\n");
    // A pipeline: what stands behind AUTH is that user's, what stands before is not.
    client.say(&[command("ACL WHOAMI"), command("AUTH bob word"), command("ACL WHOAMI")].concat());
    let said = [client.answer(), client.answer(), client.answer()];
    assert_eq!(said, ["$7\r\ndefault\r\n", "+OK\r\n", "$3\r\nbob\r\n"]);
    // Rights that change count at once.
    redis.speak().ask("ACL SETUSER bob resetkeys ~web:*");
    assert!(client.ask("GET app:1").starts_with("-NOPERM "));
}

#[test]
fn words_that_nobody_has_cost_nothing() {
    let redis = redis();
    let gateway = Gateway::start(config(&redis.url()));
    let mut client = gateway.speak();
    for number in 0..500 {
        assert!(client.ask(&format!("AUTH ada {number}")).starts_with("-WRONGPASS "));
    }
    let list = redis.speak().ask("CLIENT LIST");
    assert!(list.lines().count() < 10, "{list}");
    assert_eq!(client.ask("ACL WHOAMI"), "$7\r\ndefault\r\n");
    // Long ones are not remembered, and are right or wrong all the same.
    let long = "p".repeat(1000);
    redis.speak().ask(&format!("ACL SETUSER long on >{long} ~* &* +@all"));
    for login in [format!("AUTH long {long}"), format!("HELLO 3 AUTH long {long}")] {
        let mut owner = gateway.speak();
        assert!(owner.ask(&format!("{login}p")).starts_with("-WRONGPASS "));
        assert!(!owner.ask(&login).starts_with('-'));
        assert_eq!(owner.ask("ACL WHOAMI"), "$4\r\nlong\r\n");
        assert_eq!(client.ask("ACL WHOAMI"), "$7\r\ndefault\r\n", "nobody else is");
    }
}

/// Where a user has no password, each is his, and each login another one.
#[test]
fn one_who_says_another_password_each_time_does_not_take_all_connections() {
    let redis = redis();
    assert_eq!(redis.speak().ask("ACL SETUSER open on nopass ~* &* +@all"), "+OK\r\n");
    let gateway = Gateway::start(config(&redis.url()));
    let mut client = gateway.speak();
    for number in 0..300 {
        assert_eq!(client.ask(&format!("AUTH open {number}")), "+OK\r\n");
    }
    let count = connections(&redis, "open");
    assert!(count <= 80, "{count}");
    assert_eq!(client.ask("ACL WHOAMI"), "$4\r\nopen\r\n");
}

#[test]
fn clients_of_a_user_that_is_deleted_are_sent_away() {
    let redis = redis();
    let gateway = Gateway::start(config(&redis.url()));
    let clients: Vec<_> = (0..5).map(|_| logged_in(&gateway, "ada secret")).collect();
    let mut other = logged_in(&gateway, "bob word");
    assert_eq!(redis.speak().ask("ACL DELUSER ada"), ":1\r\n");
    assert!(clients.into_iter().all(is_ended));
    assert_eq!(other.ask("ACL WHOAMI"), "$3\r\nbob\r\n");
    assert!(gateway.speak().ask("AUTH ada secret").starts_with("-WRONGPASS "));
}

#[test]
fn a_password_that_changes_lets_nobody_in_and_sends_nobody_away() {
    let redis = redis();
    let gateway = Gateway::start(config(&redis.url()));
    let mut before = logged_in(&gateway, "ada secret");
    redis.speak().ask("ACL SETUSER ada resetpass >other");
    let mut late = gateway.speak();
    assert!(late.ask("AUTH ada secret").starts_with("-WRONGPASS "));
    assert_eq!(before.ask("ACL WHOAMI"), "$3\r\nada\r\n");
    assert_eq!(late.ask("AUTH ada other"), "+OK\r\n");
    assert_eq!(late.ask("ACL WHOAMI"), "$3\r\nada\r\n");
}

/// As it would end their own connections.
#[test]
fn when_redis_ends_the_connections_of_a_user_his_clients_end() {
    let redis = redis();
    let gateway = Gateway::start(config(&redis.url()));
    let clients: Vec<_> = (0..5).map(|_| logged_in(&gateway, "ada secret")).collect();
    let mut other = logged_in(&gateway, "bob word");
    let mut admin = redis.speak();
    assert_eq!(admin.ask("CLIENT KILL USER ada"), ":1\r\n");
    assert!(clients.into_iter().all(is_ended));
    // Nobody has come back in his name.
    assert_eq!(connections(&redis, "ada"), 0);
    assert_eq!(other.ask("ACL WHOAMI"), "$3\r\nbob\r\n");
    assert_eq!(logged_in(&gateway, "ada secret").ask("ACL WHOAMI"), "$3\r\nada\r\n");
}

#[test]
fn only_who_may_read_all_keys_reads_by_the_network() {
    let (store, redis) = (Store::start(), redis());
    for number in 0..10 {
        redis.speak().ask(&format!("SET app:{number} redis"));
    }
    let gateway = store.gateway(&redis, NetworkUse::Always);
    let before = gateway.counter("network_reads");
    let mut bob = logged_in(&gateway, "bob word");
    for _ in 0..300 {
        assert_eq!(bob.ask("GET app:1"), "$5\r\nredis\r\n");
        assert!(bob.ask("GET other").starts_with("-NOPERM "));
    }
    assert_eq!(gateway.counter("network_reads"), before);
    let mut ada = logged_in(&gateway, "ada secret");
    until("ada reads by the network", || {
        ada.ask("GET app:1");
        gateway.counter("network_reads") > before
    });
    // A right that is taken away.
    redis.speak().ask("ACL SETUSER ada resetkeys ~app:*");
    until("it counts", || ada.ask("GET other").starts_with("-NOPERM "));
}

#[test]
fn who_has_not_logged_in_where_that_is_needed_reads_nothing() {
    let (store, redis) = (Store::start(), redis());
    let gateway = store.gateway(&redis, NetworkUse::Always);
    let before = gateway.counter("network_reads");
    redis.speak().ask("CONFIG SET requirepass password");
    // Those who are there have not logged in with it.
    let mut stranger = gateway.speak();
    until("strangers read nothing", || {
        let mut admin = redis.speak();
        admin.ask("AUTH password");
        admin.ask("CLIENT KILL TYPE normal SKIPME yes");
        stranger.ask("GET app:1").starts_with("-NOAUTH ")
    });
    let mut known = logged_in(&gateway, "password");
    let read = counter(&mut known, "network_reads");
    for _ in 0..300 {
        assert!(stranger.ask("GET app:1").starts_with("-NOAUTH "));
    }
    assert_eq!(counter(&mut known, "network_reads"), read);
    assert!(read >= before);
    until("who has logged in reads by the network", || {
        known.ask("GET app:1");
        counter(&mut known, "network_reads") > read
    });
    assert!(stranger.ask("GET app:1").starts_with("-NOAUTH "));
}

/// Nobody knows which commands wait, and which make another thing of their connection.
#[test]
fn where_commands_are_not_told_nobody_waits_for_those_of_others() {
    let redis = Redis::start(&[]);
    redis.speak().ask("ACL SETUSER default -command");
    let gateway = Gateway::start(config(&redis.url()));
    for protocol in ["2", "3"] {
        let mut clients = [(); 3].map(|()| gateway.speak());
        for client in &mut clients {
            assert!(!client.ask(&format!("HELLO {protocol}")).starts_with('-'));
        }
        let [mut listener, mut blocked, mut client] = clients;
        assert!(listener.ask("SUBSCRIBE news").contains("subscribe"));
        blocked.say(&command("BLPOP queue 0"));
        until("it waits", || redis.speak().ask("INFO clients").contains("blocked_clients:1"));
        assert_eq!(client.ask("SET a 1"), "+OK\r\n");
        assert_eq!(client.ask("GET a"), "$1\r\n1\r\n");
        assert_eq!(client.ask("PUBLISH news today"), ":1\r\n");
        assert!(listener.answer().contains("today"));
        assert_eq!(client.ask("RPUSH queue job"), ":1\r\n");
        assert!(blocked.answer().contains("job"));
    }
}

/// Redis notes what somebody asked who may not.
#[test]
fn little_is_read_without_a_question_in_the_readers_name() {
    let (store, redis) = (Store::start(), redis());
    let mut admin = redis.speak();
    assert_eq!(admin.ask("ACL SETUSER cat on >paw ~app:* +get +set"), "+OK\r\n");
    let gateway = store.gateway(&redis, NetworkUse::Always);
    assert_eq!(gateway.speak().ask("PING"), "+PONG\r\n");
    let mut cat = logged_in(&gateway, "cat paw");
    assert_eq!(cat.ask("SET app:1 mouse"), "+OK\r\n");
    assert_eq!(cat.ask("GET app:1"), "$5\r\nmouse\r\n");
    assert!(cat.ask("GET other").starts_with("-NOPERM "));
    let noted = admin.ask("ACL LOG");
    assert!(noted.starts_with("*1\r\n"), "{noted}");
    // Who reads much is asked whether he may by the network.
    until("it is asked", || {
        cat.ask("GET app:1");
        !admin.ask("ACL LOG").starts_with("*1\r\n")
    });
}
