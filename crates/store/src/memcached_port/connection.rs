//! One client of the memcached port, with a connection to memcached of its own. Batch by batch:
//! what it has sent is carried out, under a hold if it may change something, and answered, before
//! more of it is looked at.
//!
//! A hold ends when memcached has answered the no-op behind its batch, for quiet commands have no
//! answer of their own. A memcached that answers late is waited for, and its keys stay held, though
//! the client is told and sent away: nobody can have memcached end a connection and say so. Where
//! the connection is lost, what was sent on it may take place still, and the hold goes on for a
//! lease.
//!
//! What a client can make grow: bytes that it has sent, and answers that it does not read; `input`
//! and `output` have the bounds.

use std::{mem::MaybeUninit, sync::Arc, time::Duration};

use memcached::{Exchange, NO_OP_ANSWER};
use socket2::SockRef;
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite},
    net::TcpStream,
    time::{Instant, sleep, timeout},
};

use super::{
    PortState,
    batch::Batch,
    input::{Input, Next},
    output::Output,
};
use crate::ports::{Hold, LATE, NoHold};
use holder::mutants::{Mutant, mutant};

/// How long a client that is sent away may take for the last answers.
const LINGERS: Duration = Duration::from_secs(5);

/// What has become of a batch.
enum Fate {
    /// It is answered.
    Answered,
    /// The client's connection ends.
    Ends,
    /// Likewise; memcached has not answered, and until it has these keys are held.
    Late(Exchange<TcpStream>, Hold),
}

/// A client and its connection to memcached.
pub(super) struct Connection {
    state: Arc<PortState>,
    input: Input,
    output: Output,
    /// A connection on which nothing goes on.
    link: Option<TcpStream>,
    /// The client sends nothing more, or is not listened to any more.
    is_closing: bool,
}

impl Connection {
    /// One whose client comes by TLS, or not.
    pub fn new(state: Arc<PortState>, is_secure: bool) -> Connection {
        let output = Output::new(is_secure);
        Connection { state, input: Input::default(), output, link: None, is_closing: false }
    }

    /// Serves a client until it has gone.
    pub async fn serve(
        mut self,
        mut reads: impl AsyncRead + Unpin,
        mut writes: impl AsyncWrite + Unpin,
    ) {
        let fate = self.runs(&mut reads, &mut writes).await;
        self.link = None;
        // Whoever waits for the keys does not wait for a client that does not read.
        let answered = async {
            if let Fate::Late(mut exchange, hold) = fate
                && (mutant(Mutant::HoldForgotten) || exchange.ends().await)
            {
                hold.over();
            }
        };
        let _ = tokio::join!(timeout(LINGERS, self.output.ends(&mut writes)), answered);
    }

    /// Carries out what the client sends, until nothing is left to be done for it.
    async fn runs(
        &mut self,
        reads: &mut (impl AsyncRead + Unpin),
        writes: &mut (impl AsyncWrite + Unpin),
    ) -> Fate {
        while !self.output.is_gone() {
            let has_room = self.output.has_room();
            match if has_room { self.input.next() } else { Next::Nothing } {
                Next::Batch(batch) => match self.carry_out(batch, writes).await {
                    Fate::Answered => continue,
                    fate => return fate,
                },
                Next::Answer(answer) => {
                    self.output.give(answer.as_bytes());
                    continue;
                }
                Next::Close(answer) => {
                    self.output.give(answer.as_bytes());
                    return Fate::Ends;
                }
                Next::Nothing if self.is_closing && has_room => return Fate::Ends,
                Next::Nothing => {}
            }
            let may_take = has_room && self.input.has_room();
            if may_take {
                self.input.reserve();
            }
            tokio::select! {
                biased;
                () = self.output.send(writes), if self.output.is_due() => {}
                taken = reads.read_buf(&mut self.input.bytes), if may_take => match taken {
                    // What has come is carried out: `echo ... | nc` closes its half first.
                    Ok(0) => self.is_closing = true,
                    Ok(_) => {}
                    Err(_) => self.output.leaves(),
                },
            }
        }
        Fate::Ends
    }

    /// Has a batch carried out.
    async fn carry_out(
        &mut self,
        mut batch: Batch,
        writes: &mut (impl AsyncWrite + Unpin),
    ) -> Fate {
        // Before the hold: while memcached is away nobody has to give up a copy.
        let link = match self.reaches(writes).await {
            Ok(link) => link,
            Err(why) => return self.refuses(&batch, &why),
        };
        if !batch.needs_hold() {
            return self.exchanges(link, batch, None, writes).await;
        }
        self.link = Some(link);
        let had = self.state.holder.ask_at_home(std::mem::take(&mut batch.wanted));
        let mut hold = match self.output.while_sending(writes, had).await {
            Ok(Ok(hold)) => hold,
            Ok(Err(NoHold::Elsewhere(name))) => return self.refuses(&batch, &anothers(&name)),
            Ok(Err(NoHold::Late)) => return self.refuses(&batch, LATE),
            // The store ends.
            Err(_) => return Fate::Ends,
        };
        let link = match self.reaches(writes).await {
            Ok(link) => link,
            Err(why) => {
                hold.over();
                return self.refuses(&batch, &why);
            }
        };
        self.state.upstream.forget_lives(&batch.touched);
        hold.sent();
        self.exchanges(link, batch, Some(hold), writes).await
    }

    /// Nothing of a batch was sent, for this reason.
    fn refuses(&mut self, batch: &Batch, why: &str) -> Fate {
        self.output.give(batch.refusal(why).as_bytes());
        Fate::Answered
    }

    /// A connection to memcached: the one that there is, if memcached has not closed it meanwhile.
    async fn reaches(
        &mut self,
        writes: &mut (impl AsyncWrite + Unpin),
    ) -> Result<TcpStream, String> {
        if let Some(link) = self.link.take().filter(is_open) {
            return Ok(link);
        }
        let opened = self.output.while_sending(writes, self.state.upstream.open()).await;
        opened.map_err(|error| format!("{error:#}"))
    }

    /// Sends a batch, and passes on what is answered.
    async fn exchanges(
        &mut self,
        link: TcpStream,
        batch: Batch,
        hold: Option<Hold>,
        writes: &mut (impl AsyncWrite + Unpin),
    ) -> Fate {
        let (is_held, within) = (hold.is_some(), self.state.upstream.within());
        let mut exchange = Exchange::new(link, batch.bytes);
        let mut late = std::pin::pin!(sleep(within));
        while !exchange.is_over() {
            let output = &mut self.output;
            if output.is_gone() && (!is_held || mutant(Mutant::HoldForgotten)) {
                return Fate::Ends;
            }
            let may_read = is_held || output.has_room();
            if !may_read {
                late.as_mut().reset(Instant::now() + within);
            }
            tokio::select! {
                biased;
                moved = exchange.moves(may_read) => {
                    let taken = moved.and_then(|()| exchange.take(|answers| output.give(answers)));
                    if let Err(why) = taken {
                        self.tells_failure(&exchange, batch.writes, &why);
                        return Fate::Ends;
                    }
                    late.as_mut().reset(Instant::now() + within);
                }
                () = output.send(writes), if output.is_due() => {}
                () = &mut late, if may_read => {
                    let why = format!("does not answer within {within:?}");
                    self.tells_failure(&exchange, batch.writes, &why);
                    return hold.map_or(Fate::Ends, |hold| Fate::Late(exchange, hold));
                }
            }
            if is_held {
                self.output.sends_deaf_away();
            }
        }
        if batch.has_no_op {
            self.output.give(NO_OP_ANSWER.as_bytes());
        }
        if let Some(hold) = hold {
            hold.over();
        }
        self.link = Some(exchange.into_link());
        Fate::Answered
    }

    /// Tells the client why it gets no more answers.
    fn tells_failure(&mut self, exchange: &Exchange<TcpStream>, may_change: bool, why: &str) {
        let server = self.state.upstream.server();
        let line = match may_change {
            true => format!(
                "SERVER_ERROR outcome unknown: the memcached at {server} {why}; what is not answered may have taken \
                 place, or may yet\r\n"
            ),
            false => format!("SERVER_ERROR no answer: the memcached at {server} {why}\r\n"),
        };
        // In the midst of a value it would be taken for the rest of that.
        if !exchange.is_within_answer() {
            self.output.give(line.as_bytes());
        }
    }
}

/// Why a key of this name is not written here: its copies are of another store's value, whose
/// backend this client's other commands do not reach.
fn anothers(name: &[u8]) -> String {
    format!(
        "the key {} is another store's, by the cluster file; clients have to choose servers by its scheme",
        name.escape_ascii()
    )
}

/// Whether a connection on which nothing goes on is one still.
fn is_open(link: &TcpStream) -> bool {
    let peeked = SockRef::from(link).peek(&mut [MaybeUninit::uninit()]);
    peeked.is_err_and(|error| error.kind() == std::io::ErrorKind::WouldBlock)
}
