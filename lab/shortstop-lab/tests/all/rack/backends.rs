//! Real servers behind the store: Redis and memcached.

use std::{
    io::{BufRead, BufReader, Write},
    net::TcpStream,
};

use lab::namespace::within;

use super::support::{Kind, PATIENCE, Rack, needs_root};

lab::on_both!(redis_holds_the_values, memcached_holds_the_values);

const STORE: &str = "name = \"server\"\n";
const POPULATE: &str = "\"--populate\", \"1000:128\"";
/// Real data are served by the program of users.
const REAL: (&str, &str) = ("\"shortstop-lab\", \"store\"", "\"shortstop\", \"store\"");

/// Set by shortstop, served by the store, by the switch, and deleted.
fn use_it(rack: &Rack, stored: impl Fn() -> Option<String>) {
    assert_eq!(rack.get("client1", "fruit").value, None);
    rack.set("client1", "fruit", "apple");
    assert_eq!(stored().as_deref(), Some("apple"));
    assert_eq!(rack.get("client2", "fruit").value.as_deref(), Some("apple"));
    assert_eq!(rack.until_cached("client2", "fruit").value.as_deref(), Some("apple"));
    rack.set("client2", "fruit", "pear");
    assert_eq!(rack.get("client1", "fruit").value.as_deref(), Some("pear"));
    assert_eq!(stored().as_deref(), Some("pear"));
    rack.until_cached("client1", "fruit");
    assert!(rack.delete("client1", "fruit"));
    assert_eq!(rack.get("client2", "fruit").value, None);
    assert_eq!(stored(), None);
}

fn redis_holds_the_values(kind: Kind) {
    needs_root();
    let redis = format!(
        "{STORE}[[host.process]]\nname = \"redis\"\ncommand = [\"redis-server\", \"--port\", \"6379\", \
         \"--bind\", \"127.0.0.1\", \"--unixsocket\", \"{{dir}}/redis.sock\", \"--save\", \"\", \
         \"--dir\", \"{{dir}}\"]\nready = \"{{dir}}/redis.sock\"\n"
    );
    let backend = "\"--backend\", \"redis://127.0.0.1:6379\"";
    let rack = Rack::with(kind, &[(STORE, &redis), (POPULATE, backend), REAL]);
    let cli = |words: &[&str]| {
        let said = rack.done("server", &[&["redis-cli", "-p", "6379"], words].concat());
        Some(said.trim_end().to_string()).filter(|said| !said.is_empty())
    };
    use_it(&rack, || cli(&["get", "fruit"]));
}

fn memcached_holds_the_values(kind: Kind) {
    needs_root();
    let memcached = format!(
        "{STORE}[[host.process]]\nname = \"memcached\"\ncommand = [\"memcached\", \"-u\", \"root\", \
         \"-l\", \"127.0.0.1\", \"-p\", \"11211\", \"-U\", \"0\", \"-P\", \"{{dir}}/memcached.pid\"]\n\
         ready = \"{{dir}}/memcached.pid\"\n"
    );
    let backend = "\"--backend\", \"memcached://127.0.0.1:11211\"";
    let rack = Rack::with(kind, &[(STORE, &memcached), (POPULATE, backend), REAL]);
    let stored = || {
        let connect = || Ok(TcpStream::connect("127.0.0.1:11211")?);
        let mut stream = within(&rack.lab.namespace("server"), connect).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.write_all(b"get fruit\r\n").unwrap();
        let mut lines = BufReader::new(stream).lines().map(Result::unwrap);
        match lines.next().unwrap().as_str() {
            "END" => None,
            line => {
                assert!(line.starts_with("VALUE fruit "), "{line}");
                lines.next()
            }
        }
    };
    use_it(&rack, stored);
}
