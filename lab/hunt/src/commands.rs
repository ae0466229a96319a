//! Clients that send commands of Redis to the RESP port of one store, over streams: each asks one
//! thing after the other, and records what it is told.

use std::any::Any;

use history::{ClientRecord, CommandRecorder, CommandReplies, CommandsConfig};
use rand::{RngExt, seq::IndexedRandom};
use seed::{SeededRng, rng};
use sim::{
    Birth, Io, Maker, Message, Process, ProcessId, Remains, StreamEvent, StreamId, packet::Datagram,
};

use crate::{Act, Commands, Deed, HuntPlan, plan::one_in};

/// Before a client whose connection was lost tries again.
const AGAIN_NS: u64 = 20_000_000;
/// One plan in so many has such clients: seeds that end in 1. Others are what they were before
/// there were any.
const ONE_PLAN_IN: u64 = 10;

/// What stores count of holds, each of which comes about in enough seeds.
pub const HOLDS: [&str; 3] = ["holds", "holds_of_everything", "holds_unknown"];

/// The name of the process that sends commands to a store, from 1 on.
pub(crate) fn process_name(plan: &HuntPlan, store: u32) -> String {
    let host = (store - 1) % plan.clients.hosts + 1;
    format!("client{host}/commands{store}")
}

impl HuntPlan {
    /// Has clients that send commands in one plan of ten.
    pub(crate) fn draw_commands(&mut self) {
        if self.seed % ONE_PLAN_IN != 1 {
            return;
        }
        let mut rng = rng(self.seed, "commands of Redis");
        self.commands = Some(Commands {
            each: rng.random_range(1..=3),
            pause_us: *[1_000, 5_000, 20_000].choose(&mut rng).expect("some"),
            flushes: *[0.002, 0.01].choose(&mut rng).expect("some"),
            // In one of two; the others are what they were before there was this.
            watches: if self.seed % 40 < 20 { 0.1 } else { 0.0 },
        });
        // Two keys of one store at the least, most of the time.
        self.clients.keys = self.clients.keys.max(3);
        for _ in 0..rng.random_range(0..=2) {
            if one_in(&mut rng, 2) {
                let store = rng.random_range(1..=self.stores.len() as u32);
                let process = process_name(self, store);
                let at_ms = rng.random_range(0..self.lasts_ms);
                let for_ms = rng.random_range(1..=400);
                self.deeds.push(Deed { at_ms, for_ms, act: Act::Kill { process } });
            }
        }
    }

    /// Tenants whose keys may be lent to switches at times.
    pub(crate) fn lent(&self) -> Vec<u32> {
        let begins = self.deeds.iter().filter_map(|deed| match &deed.act {
            Act::WriteBack { tenant, .. } => Some(*tenant),
            _ => None,
        });
        let tenants = self.tenants.iter().filter(|tenant| tenant.write_back_ms > 0);
        tenants.map(|tenant| tenant.id).chain(begins).collect()
    }
}

/// What makes such clients of a store, each time that they start: with the records of their earlier
/// lives.
pub(crate) fn maker(config: CommandsConfig, store: ProcessId, pause_us: u64) -> Maker {
    Box::new(move |birth| Ok(Box::new(CommandClients::new(&config, store, pause_us, birth))))
}

/// Where a client stands.
enum Standing {
    /// It connects at this time of the monotonic clock.
    Away(u64),
    Connecting(StreamId),
    /// It asks at this time.
    Idle(StreamId, u64),
    /// So many replies are to come.
    Asking(StreamId, usize),
}

struct CommandClient {
    recorder: CommandRecorder,
    standing: Standing,
    replies: CommandReplies,
}

/// Clients of a store that run.
pub(crate) struct CommandClients {
    clients: Vec<CommandClient>,
    store: ProcessId,
    pause_us: u64,
    rng: SeededRng,
    is_stopped: bool,
}

/// What is left of killed clients: their records.
struct Recorders(Vec<CommandRecorder>);

impl CommandClients {
    fn new(
        config: &CommandsConfig,
        store: ProcessId,
        pause_us: u64,
        birth: Birth,
    ) -> CommandClients {
        let first = config.clients.first;
        let earlier = birth.remains.and_then(|left| left.downcast::<Recorders>().ok());
        let recorders = match earlier {
            Some(left) => left.0,
            None => (first..first + config.clients.clients)
                .filter_map(|number| CommandRecorder::new(config, number))
                .collect(),
        };
        let now_ns = birth.clock.monotonic_ns;
        let client = |recorder| CommandClient {
            recorder,
            standing: Standing::Away(now_ns),
            replies: CommandReplies::default(),
        };
        CommandClients {
            clients: recorders.into_iter().map(client).collect(),
            store,
            pause_us,
            rng: rng(birth.seed, "pauses"),
            is_stopped: false,
        }
    }

    /// Begins nothing new from now on.
    pub fn stop(&mut self) {
        self.is_stopped = true;
    }

    /// Whether nothing is under way any more.
    pub fn is_over(&self) -> bool {
        let asks = |client: &CommandClient| matches!(client.standing, Standing::Asking(..));
        self.is_stopped && !self.clients.iter().any(asks)
    }

    /// What all of them have recorded. What is under way may take effect at any time.
    pub fn take_recorded(&mut self) -> ClientRecord {
        let mut all = ClientRecord::default();
        for mut client in self.clients.drain(..) {
            client.recorder.told(None, 0);
            all.add(client.recorder.into_recorded());
        }
        all
    }

    fn pause_ns(&mut self) -> u64 {
        self.rng.random_range(0..=self.pause_us) * 1_000
    }

    fn of_stream(&mut self, stream: StreamId) -> Option<&mut CommandClient> {
        self.clients.iter_mut().find(|client| match client.standing {
            Standing::Away(_) => false,
            Standing::Connecting(its) | Standing::Idle(its, _) | Standing::Asking(its, _) => {
                its == stream
            }
        })
    }
}

impl Process for CommandClients {
    fn receive(&mut self, _: &Datagram<'_>, _: &mut Io<'_>) {}

    fn wake(&mut self, io: &mut Io<'_>) {
        let (now_ns, store) = (io.now_ns(), self.store);
        for client in self.clients.iter_mut().filter(|_| !self.is_stopped) {
            match client.standing {
                Standing::Away(at_ns) if at_ns <= now_ns => {
                    client.replies = CommandReplies::default();
                    client.standing = Standing::Connecting(io.open(store));
                }
                Standing::Idle(stream, at_ns) if at_ns <= now_ns => {
                    let asked = client.recorder.next(io.world_ns);
                    client.standing = Standing::Asking(stream, asked.replies);
                    io.say(stream, Message::Resp(asked.bytes.clone()));
                }
                _ => {}
            }
        }
    }

    fn next_wake_ns(&self) -> Option<u64> {
        let due = self.clients.iter().filter_map(|client| match client.standing {
            Standing::Away(at_ns) | Standing::Idle(_, at_ns) => Some(at_ns),
            _ => None,
        });
        due.min().filter(|_| !self.is_stopped)
    }

    fn stream(&mut self, stream: StreamId, event: StreamEvent, io: &mut Io<'_>) {
        let (now_ns, world_ns, pause_ns) = (io.now_ns(), io.world_ns, self.pause_ns());
        let Some(client) = self.of_stream(stream) else { return };
        match event {
            StreamEvent::Opened(_) => client.standing = Standing::Idle(stream, now_ns + pause_ns),
            StreamEvent::Closed => {
                if let Standing::Asking(..) = client.standing {
                    client.recorder.told(None, world_ns);
                }
                client.standing = Standing::Away(now_ns + AGAIN_NS);
            }
            StreamEvent::Message(Message::Resp(bytes)) => {
                let taken = client.replies.take(&bytes);
                let Standing::Asking(_, replies) = client.standing else { return };
                if taken.is_ok()
                    && let Some(replies) = client.replies.whole(replies)
                {
                    client.recorder.told(Some(replies), world_ns);
                    client.standing = Standing::Idle(stream, now_ns + pause_ns);
                } else if let Some(replies) = client.replies.refused() {
                    client.recorder.told(Some(replies), world_ns);
                    client.standing = Standing::Away(now_ns + AGAIN_NS);
                    io.close(stream);
                }
            }
            StreamEvent::Message(_) => {}
        }
    }

    fn ports(&self) -> Vec<u16> {
        vec![]
    }

    fn remains(self: Box<Self>) -> Remains {
        let mut recorders = vec![];
        for mut client in self.clients {
            client.recorder.told(None, 0);
            recorders.push(client.recorder);
        }
        let left: Box<dyn Any + Send> = Box::new(Recorders(recorders));
        Some(left)
    }
}
