//! Gateways without a store's RESP port: the commands on strings, by packets, at real stores.

use std::{
    io::{Read, Write},
    net::{Shutdown, SocketAddr, TcpStream},
};

use wire::Cluster;

use crate::{
    store_thread::StoreThread,
    support::{Config, Gateway, Speaker, config},
};

/// A store with data of its own, and a gateway to it by packets.
struct Rack {
    gateway: Gateway,
    _store: StoreThread,
}

impl Rack {
    fn start(change: impl FnOnce(&mut Config)) -> Rack {
        let listen: SocketAddr = ([127, 0, 0, 1], 0).into();
        let store = StoreThread::start(Cluster::single(listen, 1), None, "embedded");
        let cluster = Cluster::single(store.address, 1);
        let mut config = Config { resp: vec![], cluster, ..config("redis://127.0.0.1:1") };
        change(&mut config);
        Rack { gateway: Gateway::start(config), _store: store }
    }

    fn speak(&self) -> Speaker<TcpStream> {
        self.gateway.speak()
    }

    /// Everything that is answered to these bytes, sent in pieces, until the connection ends.
    fn talk(&self, bytes: &[u8], piece: usize) -> Vec<u8> {
        let mut stream = self.gateway.speak().stream;
        let mut writes = stream.try_clone().unwrap();
        std::thread::scope(|scope| {
            scope.spawn(move || {
                // It may hang up before all is sent.
                let _ = bytes.chunks(piece).try_for_each(|piece| writes.write_all(piece));
                let _ = writes.shutdown(Shutdown::Write);
            });
            let mut out = vec![];
            let _ = stream.read_to_end(&mut out);
            out
        })
    }
}

/// Commands, one per line; what is answered, `~` for the end of each line in it.
#[rustfmt::skip]
const ROWS: &[(&str, &str)] = &[
    // connection
    ("PING", "+PONG~"),
    ("ping hi", "$2~hi~"),
    ("ping a b", "-ERR wrong number of arguments for 'ping' command~"),
    ("echo 'a b'", "$3~a b~"),
    ("echo", "-ERR wrong number of arguments for 'echo' command~"),
    ("select 0\nselect 1\nselect x", "+OK~-ERR DB index is out of range~-ERR value is not an integer or out of range~"),
    ("quit\nping", "+OK~"),
    ("reset", "+RESET~"),
    ("hello 3\nget a\nreset\nget a", "%7~$6~server~$5~redis~$7~version~$5~7.0.0~$5~proto~:3~$2~id~:1~$4~mode~$10~standalone~$4~role~$6~master~$7~modules~*0~_~+RESET~$-1~"),
    ("hello 4", "-NOPROTO unsupported protocol version~"),
    ("hello x", "-ERR Protocol version is not an integer or out of range~"),
    ("hello 3 auth a b", "-WRONGPASS invalid username-password pair or user is disabled: this gateway has no users.~"),
    ("hello 2 setname", "-ERR Syntax error in HELLO option 'setname'~"),
    ("hello 2 setname x\nclient getname", "*14~$6~server~$5~redis~$7~version~$5~7.0.0~$5~proto~:2~$2~id~:1~$4~mode~$10~standalone~$4~role~$6~master~$7~modules~*0~$1~x~"),
    ("auth secret", "-ERR AUTH <password> called without any password configured for the default user. Are you sure your configuration is correct?~"),
    ("client id", ":1~"),
    ("client getname\nclient setname a\nclient getname", "$-1~+OK~$1~a~"),
    ("client setname 'a b'", "-ERR Client names cannot contain spaces, newlines or special characters.~"),
    ("client setname", "-ERR wrong number of arguments for 'client|setname' command~"),
    ("client setinfo lib-name x\nclient setinfo foo x", "+OK~-ERR Unrecognized option 'foo'~"),
    ("client no-evict on\nclient no-evict x", "+OK~-ERR syntax error~"),
    ("client kill x", "-ERR unknown subcommand 'kill'. Try CLIENT HELP.~"),
    ("client", "-ERR wrong number of arguments for 'client' command~"),
    // server
    ("config get save", "*2~$4~save~$0~~"),
    ("config get appendonly MAX*ORY", "*4~$10~appendonly~$2~no~$9~maxmemory~$9~268435456~"),
    ("config get", "-ERR wrong number of arguments for 'config|get' command~"),
    ("config rewrite", "-ERR unknown subcommand 'rewrite'. Try CONFIG HELP.~"),
    ("command count", ":27~"),
    ("command info get nosuch", "*2~*10~$3~get~:2~*2~+readonly~+fast~:1~:1~:1~*0~*0~*0~*0~$-1~"),
    ("command docs nosuch", "*0~"),
    ("foo a b", "-ERR unknown command 'foo': it needs the store's RESP port: start the store with --resp, and the gateway with --resp~"),
    ("\"a\\r\\nb\"", "-ERR unknown command 'a  b': it needs the store's RESP port: start the store with --resp, and the gateway with --resp~"),
    // keys
    ("get a\nset a 1\nget a", "$-1~+OK~$1~1~"),
    ("get\nget a b", "-ERR wrong number of arguments for 'get' command~-ERR wrong number of arguments for 'get' command~"),
    ("set a 1 zz\nset a 1 nx xx\nset a 1 ex\nset a 1 ex 1 px 1\nset a 1 keepttl ex 1", "-ERR syntax error~-ERR syntax error~-ERR syntax error~-ERR syntax error~-ERR syntax error~"),
    ("set a 1 ex x\nset a 1 ex 0\nset a 1 px -5", "-ERR value is not an integer or out of range~-ERR invalid expire time in 'set' command~-ERR invalid expire time in 'set' command~"),
    ("set a 1 ex 9223372036854775807", "-ERR invalid expire time in 'set' command~"),
    ("set a 1 exat 0\nset a 1 exat 1\npttl a", "-ERR invalid expire time in 'set' command~+OK~:-2~"),
    ("set a 1 xx pxat 1\nset a 1\nset a 2 nx pxat 1\nset a 2 xx get pxat 1\nget a", "$-1~+OK~$-1~$1~1~$-1~"),
    ("set a 1 ex 05\nset a 1 ex +5\nset a 1 ex ' 5'\nset a 1 px -0\nselect 00", "-ERR value is not an integer or out of range~-ERR value is not an integer or out of range~-ERR value is not an integer or out of range~-ERR value is not an integer or out of range~-ERR value is not an integer or out of range~"),
    ("set a 1 ex 5 ex 60\nttl a\nset a 2 keepttl keepttl\nttl a\nset a 1 ex 5 px 5\nset a 1 ex 5 keepttl", "+OK~:60~+OK~:60~-ERR syntax error~-ERR syntax error~"),
    ("set a 1 ex 10\nttl a\nset a 2 keepttl\nttl a\nset a 3\nttl a\nttl b", "+OK~:10~+OK~:10~+OK~:-1~:-2~"),
    ("set a 1 xx\nset a 1 nx\nset a 2 nx\nget a", "$-1~+OK~$-1~$1~1~"),
    ("set a 1 get\nset a 2 get\nset a 3 nx get\nget a", "$-1~$1~1~$1~2~$1~2~"),
    ("setex a 10 v\nttl a\nsetex a 0 v\npsetex a 1500000 v\nttl a", "+OK~:10~-ERR invalid expire time in 'setex' command~+OK~:1500~"),
    ("setnx a 1\nsetnx a 2\ngetset a 3\nget a", ":1~:0~$1~1~$1~3~"),
    ("mset a 1 b 2 a 3\nmget a b c", "+OK~*3~$1~3~$1~2~$-1~"),
    ("mset a 1 b", "-ERR wrong number of arguments for 'mset' command~"),
    ("mset a 1\nexists a a b\ndel a b\nunlink a", "+OK~:2~:1~:0~"),
    ("set a abc\nstrlen a\nstrlen b\ntype a\ntype b", "+OK~:3~:0~+string~+none~"),
    ("set a 1\ngetdel a\ngetdel a", "+OK~$1~1~$-1~"),
    // protocol
    ("set a 1\n*1\n", "+OK~-ERR Protocol error: invalid multibulk length~"),
    ("set a 1\nping \"a", "+OK~-ERR Protocol error: unbalanced quotes in request~"),
];

#[test]
fn commands_are_answered_as_redis_does_it() {
    for (commands, expected) in ROWS {
        let bytes = format!("{commands}\n").replace("*1\n", "*x\r\n");
        let expected = expected.replace('~', "\r\n");
        for piece in [7, 4096] {
            let out = Rack::start(|_| ()).talk(bytes.as_bytes(), piece);
            assert_eq!(String::from_utf8_lossy(&out), expected, "{commands}");
        }
    }
}
