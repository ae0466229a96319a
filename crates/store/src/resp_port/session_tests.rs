//! Commands and answers in; what is sent, held and passed on comes out.

use redis::Value;
use resp::{CommandTable, Limits, ReplyScanner, RequestParser};

use super::*;

/// A command of one key, or of none, as `COMMAND` says it.
fn row(name: &str, flags: &[&str], first_key: i64) -> Value {
    let flags = flags.iter().map(|flag| Value::SimpleString((*flag).into())).collect();
    Value::Array(vec![
        Value::BulkString(name.into()),
        Value::Int(-1),
        Value::Array(flags),
        Value::Int(first_key),
        Value::Int(first_key),
        Value::Int(first_key),
    ])
}

fn table() -> CommandTable {
    let none = [
        "multi",
        "exec",
        "discard",
        "reset",
        "hello",
        "subscribe",
        "unsubscribe",
        "psubscribe",
        "punsubscribe",
        "ssubscribe",
        "monitor",
        "client",
        "replconf",
        "psync",
        "ping",
        "auth",
        "select",
        "wait",
        "waitaof",
    ];
    let mut rows: Vec<Value> = none.iter().map(|name| row(name, &[], 0)).collect();
    rows.push(row("get", &["readonly"], 1));
    rows.push(row("set", &["write"], 1));
    rows.push(row("flushall", &["write"], 0));
    rows.push(row("eval", &[], 0));
    rows.push(row("blpop", &["write", "blocking"], 1));
    rows.push(row("eval", &["noscript", "movablekeys"], 0));
    CommandTable::of(&Value::Array(rows)).unwrap()
}

struct World {
    table: CommandTable,
    session: Session,
}

impl World {
    fn new() -> World {
        World { table: table(), session: Session::default() }
    }

    fn asks(&mut self, line: &str) -> Step {
        let line = format!("{line}\n");
        let (mut parser, mut skipped) = (RequestParser::default(), 0);
        let words = parser.next(line.as_bytes(), &Limits::default(), &mut skipped);
        let words = words.unwrap().unwrap().words;
        let step = self.session.asked(self.table.find_of(words), words);
        if let Step::Hold(_) = step {
            self.session.sent_held(line.starts_with("EXEC"));
            self.session.ends_hold(self.session.unanswered() - 1);
        }
        step
    }

    /// Likewise, of a command that is remembered in case that it has to be sent once more.
    fn asks_kept(&mut self, line: &str) -> Step {
        let step = self.asks(line);
        self.session.keeps(line.starts_with("SET"), Some(format!("{line}\r\n").as_bytes()));
        step
    }

    /// The port asks Redis who asks, and this is the answer.
    fn hears_who(&mut self, answer: &str) {
        self.session.asks_own();
        assert_eq!(self.hears(answer), (false, false));
    }

    /// What Redis sends: whether the client gets it, and whether a hold ends with it.
    fn hears(&mut self, bytes: &str) -> (bool, bool) {
        let mut scanner = ReplyScanner::default();
        let reply = scanner.scan(bytes.as_bytes()).unwrap().expect("a whole reply");
        assert_eq!(reply.len, bytes.len());
        let read = if self.session.reads_replies() { bytes.as_bytes() } else { &[] };
        let outcome = self.session.replied(reply, read);
        (outcome.is_wanted, outcome.ends_hold)
    }
}

fn holds(names: &[&str]) -> Step {
    let names = names.iter().map(|name| name.as_bytes().to_vec()).collect();
    Step::Hold(HoldRequest { names, everything: false })
}

const PASSED: (bool, bool) = (true, false);
const ENDS_HOLD: (bool, bool) = (true, true);

#[test]
fn a_write_is_held_until_its_own_answer() {
    let mut world = World::new();
    assert_eq!(world.asks("GET k"), Step::Send);
    assert_eq!(world.asks("SET k v"), holds(&["k"]));
    assert_eq!(world.asks("GET k"), Step::Send);
    assert_eq!(world.hears("$-1\r\n"), PASSED);
    assert_eq!(world.hears(">2\r\n+invalidate\r\n*1\r\n+k\r\n"), PASSED);
    assert_eq!(world.hears("+OK\r\n"), ENDS_HOLD);
    assert_eq!(world.hears("$1\r\nv\r\n"), PASSED);
    assert_eq!(world.session.unanswered(), 0);
}

/// Where nobody tells the store what a script has changed under keys that it did not declare.
#[test]
fn a_script_may_change_anything_on_each_connection_to_redis() {
    let mut world = World { table: table(), session: Session::new(false) };
    let everything = || Step::Hold(HoldRequest { names: vec![], everything: true });
    assert_eq!(world.asks("EVAL return(1) 0"), everything());
    assert_eq!(world.hears(":1\r\n"), ENDS_HOLD);
    assert!(world.session.can_go_on());
    world.session.begins_anew(0, "it has gone");
    assert_eq!(world.asks("EVAL return(1) 0"), everything());
}

#[test]
fn commands_whose_hold_is_refused_are_told_so_in_their_turn() {
    let refused = b"-TRYAGAIN nothing was done: late\r\n";
    let mut world = World::new();
    assert_eq!(world.asks("GET a"), Step::Send);
    assert_eq!(world.asks("SET k v"), holds(&["k"]));
    assert!(matches!(world.asks("FLUSHALL"), Step::Hold(_)));
    assert!(!world.session.refuses_last(2, "late"));
    assert_eq!(world.session.take_local(), None, "another's answer is to come first");
    assert_eq!(world.hears("$1\r\nv\r\n"), PASSED);
    for _ in 0..2 {
        assert_eq!(world.session.take_local().unwrap(), refused);
    }
    assert_eq!(world.asks("SET k v"), holds(&["k"]));
    assert_eq!(world.hears("+OK\r\n"), ENDS_HOLD);
    for (line, answer) in [("MULTI", "+OK\r\n"), ("SET k v", "+QUEUED\r\n")] {
        assert_eq!(world.asks(line), Step::Send);
        world.hears(answer);
    }
    assert_eq!(world.asks("EXEC"), holds(&["k"]));
    assert!(world.session.refuses_last(1, "late"), "Redis has what was queued");
    assert_eq!(world.session.take_local().unwrap(), refused);
    assert_eq!(world.session.unanswered(), 0);
}

#[test]
fn a_transaction_is_held_as_a_whole() {
    let mut world = World::new();
    assert_eq!(world.asks("MULTI"), Step::Send);
    assert_eq!(world.asks("SET a 1"), Step::Wait, "whether there is one is not known");
    world.hears("+OK\r\n");
    for line in ["SET a 1", "GET b", "SET c 1"] {
        assert_eq!(world.asks(line), Step::Send);
        world.hears("+QUEUED\r\n");
    }
    assert_eq!(world.asks("EXEC"), holds(&["a", "c"]));
    assert_eq!(world.asks("SET d 1"), Step::Wait);
    assert_eq!(world.hears("*3\r\n+OK\r\n$-1\r\n+OK\r\n"), ENDS_HOLD);
    assert_eq!(world.asks("SET d 1"), holds(&["d"]));
}

#[test]
fn after_a_multi_that_was_refused_each_write_is_held_by_itself() {
    let mut world = World::new();
    world.asks("MULTI");
    world.hears("-NOPERM no\r\n");
    assert_eq!(world.asks("SET a 1"), holds(&["a"]));
}

#[test]
fn what_was_discarded_is_not_held() {
    let mut world = World::new();
    for end in ["DISCARD", "RESET"] {
        world.asks("MULTI");
        world.hears("+OK\r\n");
        world.asks("SET a 1");
        world.hears("+QUEUED\r\n");
        assert_eq!(world.asks(end), Step::Send);
        world.hears("+OK\r\n");
        world.hears_who(":7\r\n");
        assert_eq!(world.asks("SET b 1"), holds(&["b"]));
        world.hears("+OK\r\n");
    }
    // One that Redis does not let go stays.
    world.asks("MULTI");
    world.hears("+OK\r\n");
    world.asks("SET a 1");
    world.hears("+QUEUED\r\n");
    world.asks("DISCARD");
    world.hears("-NOPERM no\r\n");
    assert_eq!(world.asks("EXEC"), holds(&["a"]));
    world.hears("-EXECABORT no\r\n");
    assert_eq!(world.asks("EXEC"), Step::Send);
}

#[test]
fn everything_is_held_for_what_may_change_everything() {
    let mut world = World::new();
    let everything = Step::Hold(HoldRequest { names: vec![], everything: true });
    assert_eq!(world.asks("FLUSHALL"), everything);
    world.hears("+OK\r\n");
    world.asks("MULTI");
    world.hears("+OK\r\n");
    world.asks("FLUSHALL");
    world.hears("+QUEUED\r\n");
    assert_eq!(world.asks("EXEC"), everything);
}

#[test]
fn everything_is_held_for_a_command_that_was_renamed() {
    let everything = || Step::Hold(HoldRequest { names: vec![], everything: true });
    let mut world = World::new();
    assert_eq!(world.session.asked_renamed(), everything());
    assert_eq!(world.asks("MULTI"), Step::Send);
    assert_eq!(world.session.asked_renamed(), Step::Wait, "MULTI is not answered yet");
    assert_eq!(world.hears("+OK\r\n"), PASSED);
    assert_eq!(world.session.asked_renamed(), Step::Send);
    assert_eq!(world.hears("+QUEUED\r\n"), PASSED);
    assert_eq!(world.asks("EXEC"), everything());
}

#[test]
fn nothing_is_held_behind_a_command_that_waits_for_others() {
    let mut world = World::new();
    assert_eq!(world.asks("BLPOP l 0"), Step::Send);
    assert!(world.session.is_blocked());
    assert_eq!(world.asks("SET k v"), Step::Wait);
    assert_eq!(world.hears("*-1\r\n"), PASSED);
    assert_eq!(world.asks("SET k v"), holds(&["k"]));
    // In a transaction it does not wait.
    let mut world = World::new();
    world.asks("MULTI");
    world.hears("+OK\r\n");
    world.asks("BLPOP l 0");
    assert!(!world.session.is_blocked());
}

#[test]
fn messages_of_resp2_are_told_from_answers() {
    let mut world = World::new();
    assert_eq!(world.asks("SUBSCRIBE a b"), Step::Send);
    assert_eq!(world.asks("PING"), Step::Wait);
    world.hears("*3\r\n$9\r\nsubscribe\r\n$1\r\na\r\n:1\r\n");
    world.hears("*3\r\n$7\r\nmessage\r\n$1\r\na\r\n$1\r\nx\r\n");
    assert_eq!(world.asks("PING"), Step::Wait);
    world.hears("*3\r\n$9\r\nsubscribe\r\n$1\r\nb\r\n:2\r\n");
    assert_eq!(world.asks("PSUBSCRIBE p"), Step::Send);
    world.hears("*3\r\n$10\r\npsubscribe\r\n$1\r\np\r\n:3\r\n");
    assert_eq!(world.asks("PING"), Step::Send);
    world.hears("*4\r\n$8\r\npmessage\r\n$1\r\np\r\n$1\r\na\r\n$1\r\nx\r\n");
    assert_eq!(world.session.unanswered(), 1);
    world.hears("*2\r\n$4\r\npong\r\n$0\r\n\r\n");
    assert_eq!(world.session.unanswered(), 0);
    // Of all channels, two; patterns are others.
    assert_eq!(world.asks("UNSUBSCRIBE"), Step::Send);
    world.hears("*3\r\n$11\r\nunsubscribe\r\n$1\r\na\r\n:2\r\n");
    assert_eq!(world.session.unanswered(), 1);
    world.hears("*3\r\n$11\r\nunsubscribe\r\n$1\r\nb\r\n:1\r\n");
    assert_eq!(world.session.unanswered(), 0);
    world.asks("PUNSUBSCRIBE");
    world.hears("*3\r\n$12\r\npunsubscribe\r\n$1\r\np\r\n:0\r\n");
    // Subscribed to nothing, an array is an answer whatever stands in it.
    assert_eq!(world.asks("SET k v"), holds(&["k"]));
    assert_eq!(world.hears("*1\r\n$7\r\nmessage\r\n"), ENDS_HOLD);
}

#[test]
fn a_subscription_that_is_refused_or_queued_has_one_answer() {
    let mut world = World::new();
    world.asks("SUBSCRIBE a b");
    world.hears("-NOPERM no\r\n");
    world.asks("SUBSCRIBE");
    world.hears("-ERR wrong number of arguments\r\n");
    world.asks("MULTI");
    world.hears("+OK\r\n");
    world.asks("SUBSCRIBE a b");
    world.hears("+QUEUED\r\n");
    assert_eq!(world.session.unanswered(), 0);
}

#[test]
fn with_resp3_every_push_is_told_by_its_first_byte_and_confirmations_are_answers() {
    let mut world = World::new();
    world.asks("HELLO 3");
    world.hears("%0\r\n");
    world.asks("SUBSCRIBE a");
    world.hears(">3\r\n$9\r\nsubscribe\r\n$1\r\na\r\n:1\r\n");
    assert_eq!(world.session.unanswered(), 0);
    assert_eq!(world.asks("SET k v"), holds(&["k"]));
    assert_eq!(world.hears(">3\r\n$7\r\nmessage\r\n$1\r\na\r\n$1\r\nx\r\n"), PASSED);
    assert_eq!(world.hears("*1\r\n$7\r\nmessage\r\n"), ENDS_HOLD);
}

#[test]
fn what_a_monitor_is_told_answers_nothing() {
    let mut world = World::new();
    world.asks("MONITOR");
    world.hears("+OK\r\n");
    assert_eq!(world.asks("PING"), Step::Send);
    world.hears("+1700000000.123456 [0 127.0.0.1:1] \"SET\" \"k\"\r\n");
    assert_eq!(world.session.unanswered(), 1);
    world.hears("+PONG\r\n");
    assert_eq!(world.session.unanswered(), 0);
}

#[test]
fn answers_that_a_client_does_not_want_are_awaited_all_the_same() {
    let mut world = World::new();
    assert_eq!(world.asks("CLIENT REPLY OFF"), Step::Answered);
    assert_eq!(world.asks("SET k v"), holds(&["k"]));
    assert_eq!(world.hears("+OK\r\n"), (false, true));
    assert_eq!(world.asks("CLIENT REPLY ON"), Step::Answered);
    assert_eq!(world.session.take_local().as_deref(), Some(&b"+OK\r\n"[..]));
    assert_eq!(world.asks("CLIENT REPLY SKIP"), Step::Answered);
    world.asks("GET a");
    world.asks("GET b");
    assert_eq!(world.hears("$-1\r\n"), (false, false));
    assert_eq!(world.hears("$-1\r\n"), PASSED);
    assert_eq!(world.asks("CLIENT REPLY nonsense"), Step::Send, "Redis says what is wrong");
}

#[test]
fn what_confirms_a_subscription_reaches_a_client_that_wants_no_answers() {
    let mut world = World::new();
    world.asks("CLIENT REPLY OFF");
    world.asks("PSUBSCRIBE a* b*");
    assert_eq!(world.hears("*3\r\n$10\r\npsubscribe\r\n$2\r\na*\r\n:1\r\n"), PASSED);
    assert_eq!(world.hears("*3\r\n$10\r\npsubscribe\r\n$2\r\nb*\r\n:2\r\n"), PASSED);
    world.asks("PING");
    assert_eq!(world.hears("*2\r\n$4\r\npong\r\n$0\r\n\r\n"), (false, false));
    world.asks("PSUBSCRIBE c*");
    assert_eq!(world.hears("-NOPERM no\r\n"), (false, false));
}

#[test]
fn an_answer_of_the_ports_own_comes_in_its_turn() {
    let mut world = World::new();
    world.asks("GET a");
    world.asks("CLIENT REPLY ON");
    assert_eq!(world.session.take_local(), None);
    world.hears("$-1\r\n");
    assert!(world.session.take_local().is_some());
    // To these Redis answers nothing.
    for line in ["REPLCONF ACK 1", "replconf getack *", "REPLCONF capa eof ACK 0"] {
        assert_eq!(world.asks(line), Step::Answered, "{line}");
        assert_eq!(world.session.unanswered(), 0, "{line}");
    }
    assert_eq!(world.asks("REPLCONF capa ack"), Step::Send);
}

#[test]
fn what_a_client_keeps_is_read_at_the_node_that_tells_of_its_changes() {
    let mut world = World::new();
    let movable = |world: &mut World| {
        world.asks_kept("GET a");
        let movable = !matches!(world.session.movable(), Movable::No);
        world.hears("-MOVED 1 127.0.0.1:1\r\n");
        movable
    };
    assert!(movable(&mut world));
    world.asks("CLIENT SETNAME a");
    world.hears("+OK\r\n");
    assert!(movable(&mut world));
    world.asks("CLIENT TRACKING ON");
    world.hears("+OK\r\n");
    assert!(!movable(&mut world));
}

/// What the connection is sent at another node is what it was sent at this one, and no more.
#[test]
fn a_transaction_that_moves_takes_along_what_was_sent_and_not_what_waits_for_its_hold() {
    let mut world = World::new();
    world.asks_kept("MULTI");
    world.hears("+OK\r\n");
    world.asks_kept("SET k v");
    assert_eq!(world.asks_kept("EXEC"), holds(&["k"]));
    assert_eq!(world.session.movable(), Movable::Whole(vec!["MULTI\r\n".into()]));
    assert_eq!(world.session.kept(1).collect::<Vec<_>>(), ["SET k v\r\n"]);
    assert_eq!(world.session.kept(0).collect::<Vec<_>>(), ["SET k v\r\n", "EXEC\r\n"]);
}

#[test]
fn a_connection_with_subscriptions_stays_and_one_without_goes_to_its_channel() {
    let mut world = World::new();
    world.asks("HELLO 3");
    world.hears("%0\r\n");
    world.asks_kept("SSUBSCRIBE a");
    assert_eq!(world.session.movable(), Movable::Whole(vec![]));
    world.hears(">3\r\n$10\r\nssubscribe\r\n$1\r\na\r\n:1\r\n");
    world.asks_kept("SSUBSCRIBE b");
    assert_eq!(world.session.movable(), Movable::No);
    world.hears("-MOVED 1 127.0.0.1:1\r\n");
    world.asks_kept("MULTI");
    world.hears("+OK\r\n");
    world.asks_kept("SET k v");
    assert_eq!(world.session.movable(), Movable::No);
    world.hears("-MOVED 1 127.0.0.1:1\r\n");
    world.asks("DISCARD");
    world.hears("+OK\r\n");
    world.asks_kept("GET k");
    assert!(matches!(world.session.movable(), Movable::Alone(_)));
}

#[test]
fn a_script_holds_everything_where_nobody_tells_what_it_changes_by_the_next_connection_too() {
    let mut world = World { table: table(), session: Session::new(false) };
    let everything = || Step::Hold(HoldRequest { names: vec![], everything: true });
    assert_eq!(world.asks("EVAL script 0"), everything());
    assert_eq!(world.hears("$-1\r\n"), ENDS_HOLD);
    assert!(world.session.can_go_on());
    world.session.begins_anew(0, "it has gone");
    assert_eq!(world.asks("EVAL script 0"), everything());
}

/// A Redis that has just got a client's connection would say that all replicas have what it wrote:
/// by this connection, that is nothing.
#[test]
fn no_replica_is_known_to_have_what_another_connection_wrote() {
    let mut world = World::new();
    assert_eq!(world.asks("WAIT 1 0"), Step::Send);
    world.hears(":1\r\n");
    world.asks_kept("SET k v");
    world.hears("+OK\r\n");
    world.session.begins_anew(0, "it has gone");
    world.session.begins_anew(0, "once more");
    // What says that it did nothing, or nothing yet, is not behind that.
    let mut said = vec![vec![]];
    said.extend([("SET k v NX", "$-1\r\n"), ("SET k v", "-OOM\r\n")].map(|said| vec![said]));
    said.push(vec![("EVAL script 0", "+OK\r\n")]);
    // What a server tells no replica of, whatever it answers.
    said.push(vec![("LTRIM k 0 -1", "+OK\r\n")]);
    said.push(vec![("MULTI", "+OK\r\n"), ("SET k v NX", "+QUEUED\r\n"), ("EXEC", "*1\r\n$-1\r\n")]);
    said.push(vec![("MULTI", "+OK\r\n"), ("SET k v", "+QUEUED\r\n"), ("DISCARD", "+OK\r\n")]);
    said.push(vec![("MULTI", "+OK\r\n"), ("SET k v", "+QUEUED\r\n"), ("EXEC", "*-1\r\n")]);
    said.push(vec![("MULTI", "+OK\r\n"), ("GET k", "+QUEUED\r\n"), ("EXEC", "*1\r\n$-1\r\n")]);
    for said in said {
        for (line, answer) in &said {
            world.asks_kept(line);
            world.hears(answer);
        }
        for (line, answer) in [("WAIT 1 0", ":0\r\n"), ("WAITAOF 1 1 0", "*2\r\n:0\r\n:0\r\n")] {
            assert_eq!(world.asks(line), Step::Answered, "after {said:?}");
            assert_eq!(world.session.take_local().unwrap(), answer.as_bytes());
        }
    }
    // What is written since then may be waited for, and that behind it.
    let exec = [("MULTI", "+OK\r\n"), ("SET k v", "+QUEUED\r\n"), ("EXEC", "*1\r\n+OK\r\n")];
    for said in [&[("SET k v", "+OK\r\n")][..], &exec] {
        world.session.begins_anew(0, "it has gone");
        for (line, answer) in said {
            world.asks_kept(line);
            world.hears(answer);
        }
        assert_eq!(world.asks("WAIT 1 0"), Step::Send, "after {said:?}");
        world.hears(":0\r\n");
    }
    // Nor is it known before its answer.
    world.session.begins_anew(0, "it has gone");
    world.asks_kept("SET k v");
    assert_eq!(world.asks("WAIT 1 0"), Step::Wait);
    // Of another node's replicas this one never knows.
    world.session.writes_at_other_node();
    world.hears("+OK\r\n");
    for _ in 0..2 {
        assert_eq!(world.asks("WAIT 1 0"), Step::Answered);
        assert_eq!(world.session.take_local().unwrap(), b":0\r\n");
        world.asks_kept("SET k v");
        world.hears("+OK\r\n");
    }
}

#[test]
fn a_connection_that_never_wrote_has_nothing_that_another_one_wrote() {
    let mut world = World::new();
    world.asks_kept("GET k");
    world.hears("$-1\r\n");
    world.session.begins_anew(0, "it has gone");
    assert_eq!(world.asks("WAIT 1 0"), Step::Send);
}

/// EXEC's answer would be followed by others, or be of another user's commands.
#[test]
fn a_transaction_does_not_change_what_the_connection_is() {
    let mut world = World::new();
    world.asks("MULTI");
    world.hears("+OK\r\n");
    for line in
        ["SUBSCRIBE a b", "UNSUBSCRIBE", "HELLO 3", "AUTH user x", "MONITOR", "REPLCONF GETACK *"]
    {
        assert_eq!(world.asks(line), Step::Answered, "{line}");
        let said = String::from_utf8(world.session.take_local().unwrap()).unwrap();
        let name = line.split(' ').next().unwrap();
        assert_eq!(said, format!("-ERR {name} is not possible in a transaction here\r\n"));
    }
    assert_eq!(world.asks("EXEC"), Step::Send);
    assert_eq!(world.hears("*0\r\n"), PASSED);
    assert_eq!(world.asks("SUBSCRIBE a"), Step::Send);
}

#[test]
fn what_a_client_said_of_itself_and_is_refused_is_noticed_and_not_passed_on() {
    let mut world = World::new();
    world.asks_kept("AUTH user x");
    world.hears("+OK\r\n");
    for (answer, is_stranger) in [("+OK\r\n", false), ("-WRONGPASS no\r\n", true)] {
        world.session.begins_anew(0, "it has gone");
        world.session.greets();
        assert!(world.session.reads_replies());
        let reply = ReplyScanner::default().scan(answer.as_bytes()).unwrap().unwrap();
        let outcome = world.session.replied(reply, answer.as_bytes());
        assert_eq!((outcome.is_stranger, outcome.is_wanted), (is_stranger, false), "{answer}");
    }
}

/// Another node would carry it out in its first database.
#[test]
fn who_has_chosen_a_database_goes_to_no_other_node() {
    let mut world = World::new();
    world.asks_kept("SELECT 1");
    world.hears("+OK\r\n");
    world.asks_kept("GET k");
    assert_eq!(world.session.movable(), Movable::No);
}

#[test]
fn a_database_is_chosen_when_redis_says_so() {
    let mut world = World::new();
    world.asks_kept("SELECT 1");
    world.hears("-NOAUTH Authentication required.\r\n");
    world.asks_kept("GET k");
    assert!(matches!(world.session.movable(), Movable::Alone(_)));
    world.hears("$-1\r\n");
    world.asks_kept("AUTH pw");
    let reply = ReplyScanner::default().scan(b"+OK\r\n").unwrap().unwrap();
    assert!(world.session.replied(reply, b"+OK\r\n").is_undirected, "it has chosen none");
}

#[test]
fn an_answer_of_the_ports_own_is_not_given_to_who_wants_none() {
    let mut world = World::new();
    world.asks("CLIENT REPLY OFF");
    assert_eq!(world.asks("MULTI"), Step::Send);
    world.hears("+OK\r\n");
    assert_eq!(world.asks("AUTH user x"), Step::Answered);
    world.session.answers_last(b"-ERR Protocol error\r\n".to_vec());
    assert_eq!(world.session.take_local(), None);
    assert_eq!(world.session.unanswered(), 0);
    // Nor where Redis is lost.
    let mut world = World::new();
    world.asks("CLIENT REPLY SKIP");
    world.asks("GET a");
    world.asks("GET b");
    assert!(world.session.can_go_on());
    assert_eq!(
        world.session.begins_anew(0, "it has gone"),
        b"-TRYAGAIN no answer: it has gone\r\n"
    );
}

#[test]
fn nothing_is_held_for_who_has_not_logged_in() {
    const REFUSED: &str = "-NOAUTH Authentication required.\r\n";
    let everything = || Step::Hold(HoldRequest { names: vec![], everything: true });
    let mut world = World::new();
    let is_refused = |world: &mut World, line: &str| {
        world.hears_who(REFUSED);
        assert_eq!(world.asks(line), Step::Answered, "{line}");
        assert_eq!(world.session.take_local().as_deref(), Some(REFUSED.as_bytes()), "{line}");
    };
    is_refused(&mut world, "FLUSHALL");
    is_refused(&mut world, "SET k v");
    // It may be another Redis's mind by now.
    assert_eq!(world.asks("FLUSHALL"), Step::AskWho);
    world.hears_who(":7\r\n");
    assert_eq!(world.asks("FLUSHALL"), everything());
    world.hears("+OK\r\n");

    for line in ["AUTH pw", "HELLO 3 AUTH user pw"] {
        let mut world = World::new();
        is_refused(&mut world, "FLUSHALL");
        world.asks(line);
        world.hears("-WRONGPASS no\r\n");
        assert_eq!(world.asks("FLUSHALL"), Step::AskWho);
        world.asks(line);
        world.hears("+OK\r\n");
        assert_eq!(world.asks("FLUSHALL"), everything(), "{line}");
        world.hears("+OK\r\n");
        world.asks("RESET");
        world.hears("+RESET\r\n");
        assert_eq!(world.asks("FLUSHALL"), Step::AskWho);
        // Whoever may not ask that has logged in.
        world.hears_who("-NOPERM no\r\n");
        assert_eq!(world.asks("FLUSHALL"), everything());
    }
}
