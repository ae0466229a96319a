//! Follows a master that Sentinels name.
//!
//! One Sentinel is not believed alone: more than half of those that are listed have to name the
//! same master, with the same config epoch, which each failover raises. A higher one that fewer
//! know may be that of a failover of which the others are about to hear; or that of another master
//! with this name, whose Sentinel has the address of one of these by now. Of an answer with a lower
//! one than the last decides [`LatestEpoch`]. What the master tells counts for a while after they
//! have named it, no longer ([`Proof`]).

use std::time::Duration;

use anyhow::{Context, anyhow, bail, ensure};
use futures_util::future::join_all;
use redis::{ConnectionAddr, ConnectionInfo, Value};
use tokio::{task::JoinHandle, time::timeout};

use super::{address::address, dial::Dial, latest_epoch::LatestEpoch, proof::Proof};
use crate::{clock::boot_ns, slot_map::NodeAddress};

/// From one question to the Sentinels to the next, while the store is asked anything.
const ASK_AGAIN: Duration = Duration::from_secs(1);

/// What a Sentinel says: where the master is, and the number of the failover that made it one.
#[derive(Clone, Debug, PartialEq, Eq)]
struct NamedMaster {
    at: NodeAddress,
    epoch: u64,
}

/// Sentinels that tell each other of a failover have done so within this time.
const OUTVOTED_FOR: Duration = Duration::from_secs(10);

/// What Sentinels say.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Answer {
    /// What more than half of those that are listed say.
    named: NamedMaster,
    /// What another says that knows a later failover.
    later: Option<NamedMaster>,
}

/// The Sentinels of one master.
pub(super) struct Sentinels {
    sentinels: Vec<ConnectionInfo>,
    /// How the master is connected to, wherever it is.
    master: ConnectionInfo,
    /// Its name.
    name: String,
    dial: Dial,
    latest: LatestEpoch,
    asking: Option<JoinHandle<anyhow::Result<Answer>>>,
    /// When they were asked last.
    asked_ns: u64,
    proof: Proof,
    /// Since when one has been known to say what most do not; and whether that was said.
    outvoted: Option<(u64, bool)>,
}

/// Whether an address names Sentinels: what follows the scheme, and whether they and the master are
/// reached by TLS.
pub(super) fn address_of_sentinels(url: &str) -> Option<(&str, bool)> {
    let plain = url.strip_prefix("redis+sentinel://").map(|rest| (rest, false));
    plain.or_else(|| url.strip_prefix("rediss+sentinel://").map(|rest| (rest, true)))
}

impl Sentinels {
    /// Of `[USER:PASSWORD@]HOST:PORT[,HOST:PORT]/NAME[/DB]`; user and password are the master's.
    ///
    /// # Errors
    /// What it is not.
    pub fn new(rest: &str, password: Option<&str>, dial: Dial) -> anyhow::Result<Sentinels> {
        let wrong = || {
            anyhow!(
                "the address of the Sentinels: expected redis+sentinel://[USER:PASSWORD@]HOST:PORT[,HOST:PORT]/NAME[/DB]"
            )
        };
        let (hosts, name) = rest.split_once('/').ok_or_else(wrong)?;
        let (login, hosts) = hosts.rsplit_once('@').unwrap_or(("", hosts));
        let (name, database) = name.split_once('/').unwrap_or((name, ""));
        ensure!(!name.is_empty() && !hosts.is_empty(), wrong());
        let login = if login.is_empty() { String::new() } else { format!("{login}@") };
        let named = |host: &str| {
            ensure!(NodeAddress::parse(host, "").is_some_and(|at| !at.host.is_empty()), wrong());
            address("--backend", &format!("redis://{host}"), None)
        };
        let sentinels: Vec<ConnectionInfo> =
            hosts.split(',').map(named).collect::<Result<_, _>>()?;
        let url = format!("redis://{login}127.0.0.1:6379/{database}");
        let master = address("--backend", &url, password);
        Ok(Sentinels {
            sentinels,
            master: master.map_err(|_| wrong())?,
            name: name.into(),
            dial,
            latest: LatestEpoch::new("Sentinels", "failover"),
            asking: None,
            asked_ns: 0,
            proof: Proof::new("the master that Sentinels name"),
            outvoted: None,
        })
    }

    /// Where nobody has been asked yet.
    pub fn anywhere(&self) -> ConnectionInfo {
        self.master.clone()
    }

    /// Where the master is, as most Sentinels have it now.
    ///
    /// # Errors
    /// They cannot be asked, do not know it, or know less than they did before.
    pub async fn master(&mut self) -> anyhow::Result<ConnectionInfo> {
        self.asking = None;
        self.asked_ns = boot_ns();
        let asked = ask_all(self.sentinels.clone(), self.name.clone(), self.dial.clone());
        let answer = asked.await;
        self.believe(answer, boot_ns())
    }

    /// Has the Sentinels asked again, unless that was done just now; it does not wait.
    pub fn doubts(&mut self) {
        let now_ns = boot_ns();
        if self.asking.is_none() && now_ns >= self.asked_ns + ASK_AGAIN.as_nanos() as u64 {
            self.asked_ns = now_ns;
            let asked = ask_all(self.sentinels.clone(), self.name.clone(), self.dial.clone());
            self.asking = Some(tokio::spawn(asked));
        }
    }

    /// Why the master is not the one that is connected, if Sentinels have said so meanwhile.
    pub async fn moved_from(&mut self, at: &ConnectionInfo) -> Option<String> {
        let asking = self.asking.take_if(|asking| asking.is_finished())?;
        let (answer, now_ns) = (asking.await.ok()?, boot_ns());
        match self.believe(answer, now_ns) {
            Ok(master) if master.addr() == at.addr() => None,
            Ok(master) => Some(format!("the Sentinels have {} at {}", self.name, master.addr())),
            Err(error) => {
                self.proof.fails(&error, now_ns);
                None
            }
        }
    }

    fn believe(
        &mut self,
        answer: anyhow::Result<Answer>,
        now_ns: u64,
    ) -> anyhow::Result<ConnectionInfo> {
        let Answer { named, later } = answer.inspect_err(|_| self.latest.hears_nothing())?;
        self.mind(later.as_ref(), &named, now_ns);
        let agreed = later.is_none().then(|| named.at.clone());
        self.latest.hears(named.epoch, agreed, now_ns)?;
        self.proof.is_given(self.asked_ns);
        let at = ConnectionAddr::Tcp(named.at.host, named.at.port);
        Ok(self.master.clone().set_addr(at))
    }

    /// Says so, once, if one goes on to say what most do not.
    fn mind(&mut self, later: Option<&NamedMaster>, named: &NamedMaster, now_ns: u64) {
        let Some(later) = later else { return self.outvoted = None };
        let (since_ns, is_said) = self.outvoted.get_or_insert((now_ns, false));
        let is_long = now_ns >= *since_ns + OUTVOTED_FOR.as_nanos() as u64;
        if is_long && !std::mem::replace(is_said, true) {
            tracing::warn!(
                "backend: a Sentinel has {} at {} by failover {}, and most have it at {} by failover {}: most are believed; \
                 it may be another deployment's by now, and stand in --backend still",
                self.name,
                later.at,
                later.epoch,
                named.at,
                named.epoch
            );
        }
    }

    /// See [`Proof::until`].
    pub fn proven_until(&self) -> u64 {
        self.proof.until()
    }
}

async fn ask_all(
    sentinels: Vec<ConnectionInfo>,
    name: String,
    dial: Dial,
) -> anyhow::Result<Answer> {
    let all = sentinels.len();
    let answers = join_all(sentinels.into_iter().map(|at| ask(at, &name, &dial))).await;
    let (mut named, mut failed) = (vec![], vec![]);
    for answer in answers {
        match answer {
            Ok(master) => named.push(master),
            Err(error) => failed.push(format!("{error:#}")),
        }
    }
    counted(named, all).map_err(|why| match failed.is_empty() {
        true => anyhow!(why),
        false => anyhow!("{why}; {}", failed.join("; ")),
    })
}

/// What counts of what some of so many Sentinels say.
fn counted(named: Vec<NamedMaster>, all: usize) -> Result<Answer, String> {
    let heard = named.len();
    if heard * 2 <= all {
        return Err(format!(
            "{heard} of {all} Sentinels have answered: expected more than half of them, for the others may know better"
        ));
    }
    let votes = |one: &NamedMaster| named.iter().filter(|other| *other == one).count();
    let Some(most) = named.iter().find(|one| votes(one) * 2 > all).cloned() else {
        let said: Vec<String> =
            named.iter().map(|one| format!("{} by failover {}", one.at, one.epoch)).collect();
        return Err(format!(
            "no more than half of {all} Sentinels name the same master: {}",
            said.join(", ")
        ));
    };
    let latest = named.into_iter().max_by_key(|one| one.epoch);
    let later = latest.filter(|latest| latest.epoch > most.epoch);
    Ok(Answer { named: most, later })
}

async fn ask(at: ConnectionInfo, name: &str, dial: &Dial) -> anyhow::Result<NamedMaster> {
    let place = at.addr().clone();
    let ask = async {
        let (mut connection, _carries) = dial.connection(at).await?;
        let mut asked = redis::pipe();
        asked.cmd("SENTINEL").arg("MASTER").arg(name);
        asked.cmd("SENTINEL").arg("GET-MASTER-ADDR-BY-NAME").arg(name);
        let (told, at): (Value, Option<(String, u16)>) = asked.query_async(&mut connection).await?;
        let (host, port) = at.context("it does not know the master")?;
        named_in(&told, NodeAddress { host, port })
    };
    let named = timeout(dial.within, ask).await.map_err(anyhow::Error::from).flatten();
    named.with_context(|| format!("SENTINEL MASTER {name} of {place}"))
}

/// What the answer to SENTINEL MASTER says of the master there: fields and their values, in turn.
/// Of these the address is not taken: the Sentinel that leads a failover has the new number beside
/// the old address until all replicas follow.
fn named_in(answer: &Value, at: NodeAddress) -> anyhow::Result<NamedMaster> {
    let fields: Vec<(String, String)> = redis::from_redis_value(answer.clone())?;
    let field = |name: &str| {
        let found = fields.iter().find(|(field, _)| field == name).map(|(_, value)| value);
        found.with_context(|| format!("it does not tell {name}"))
    };
    if at.host.is_empty() || at.port == 0 {
        bail!("it does not know where that is");
    }
    Ok(NamedMaster { at, epoch: field("config-epoch")?.parse()? })
}

#[cfg(test)]
mod tests {
    use super::{super::proof::LASTS, *};

    fn sentinels(rest: &str) -> anyhow::Result<Sentinels> {
        let dial = Dial::new(None, Duration::from_secs(1));
        Sentinels::new(rest, None, dial)
    }

    #[test]
    fn an_address_names_sentinels_a_master_and_how_to_log_in_there() {
        assert_eq!(address_of_sentinels("redis+sentinel://a:1/m"), Some(("a:1/m", false)));
        assert_eq!(address_of_sentinels("rediss+sentinel://a:1/m"), Some(("a:1/m", true)));
        assert_eq!(address_of_sentinels("redis://a:1/m"), None);
        let made = sentinels("u:p@10.0.0.1:26379,10.0.0.2:26379/main/3").unwrap();
        assert_eq!((made.sentinels.len(), &made.name[..]), (2, "main"));
        let settings = made.master.redis_settings();
        assert_eq!(
            (settings.username(), settings.password(), settings.db()),
            (Some("u"), Some("p"), 3)
        );
        assert_eq!(made.sentinels[0].redis_settings().password(), None);
        for wrong in ["", "10.0.0.1:26379", "10.0.0.1:26379/", "/main", "10.0.0.1/main", "a:1/m/x"]
        {
            assert!(sentinels(wrong).is_err(), "{wrong}");
        }
    }

    fn named(port: u16, epoch: u64) -> NamedMaster {
        NamedMaster { at: NodeAddress { host: "h".into(), port }, epoch }
    }

    #[test]
    fn most_of_the_sentinels_have_to_name_the_same_master() {
        // (what they say, the port that counts, that of who knows a later failover)
        let rows: [(&[NamedMaster], _); 8] = [
            (&[named(1, 1), named(1, 1)], Ok((1, None))),
            (&[named(2, 5), named(2, 5), named(1, 4)], Ok((2, None))),
            (&[named(1, 4), named(2, 5), named(2, 5)], Ok((2, None))),
            // It is the first to know; or another deployment's, with as many failovers.
            (&[named(2, 2), named(1, 1), named(1, 1)], Ok((1, Some(2)))),
            (&[named(9, 700), named(2, 5), named(2, 5)], Ok((2, Some(9)))),
            (&[named(2, 5), named(1, 5), named(1, 5)], Ok((1, None))),
            (&[named(2, 2), named(1, 1)], Err("no more than half of 3 Sentinels name")),
            (&[named(1, 1)], Err("1 of 3 Sentinels have answered")),
        ];
        for (said, expected) in rows {
            let found = counted(said.to_vec(), 3);
            let found = found.map(|of| (of.named.at.port, of.later.map(|later| later.at.port)));
            match (&found, expected) {
                (Err(why), Err(begins)) => assert!(why.starts_with(begins), "{why}"),
                (_, expected) => assert_eq!(found, expected.map_err(String::from), "{said:?}"),
            }
        }
    }

    #[test]
    fn sentinels_that_know_less_than_before_are_not_believed() {
        let mut follower = sentinels("h:1/m").unwrap();
        let mut hears = |port, epoch| {
            let answer = Answer { named: named(port, epoch), later: None };
            follower.believe(Ok(answer), 1_000_000_000).is_ok()
        };
        assert!(hears(2, 2) && hears(3, 2));
        assert!(!hears(1, 1));
    }

    /// As after SENTINEL REMOVE and MONITOR at each of them.
    #[test]
    fn sentinels_whose_numbers_have_begun_again_are_believed_after_a_while() {
        let mut follower = sentinels("h:1/m").unwrap();
        let mut hears = |epoch, later: Option<u64>, at_s: u64| {
            let answer =
                Answer { named: named(1, epoch), later: later.map(|later| named(2, later)) };
            follower.believe(Ok(answer), at_s * 1_000_000_000).is_ok()
        };
        assert!(hears(7, None, 0));
        let again = [1, 5, 10, 11].map(|at_s| hears(0, None, at_s));
        assert_eq!(again, [false, false, false, true]);
        assert!(hears(3, Some(4), 12));
        assert_eq!(
            [13, 20, 30].map(|at_s| hears(0, Some(3), at_s)),
            [false; 3],
            "one knows better"
        );
    }

    #[test]
    fn what_the_master_tells_counts_for_a_while_after_sentinels_have_named_it() {
        let mut follower = sentinels("h:1/m").unwrap();
        let mut hears = |asked_ns, answer| {
            follower.asked_ns = asked_ns;
            let _ = follower.believe(answer, asked_ns + 70);
            follower.proven_until() - LASTS.as_nanos() as u64
        };
        let answer = |epoch| Ok(Answer { named: named(1, epoch), later: None });
        assert_eq!(hears(100, answer(2)), 100);
        assert_eq!(hears(200, Err(anyhow!("1 of 3"))), 100);
        assert_eq!(hears(300, answer(1)), 100);
        assert_eq!(hears(400, answer(2)), 400);
    }

    #[test]
    fn an_answer_tells_where_the_master_is() {
        let text = |word: &str| Value::BulkString(word.into());
        let words = ["name", "m", "ip", "10.0.0.6", "port", "6379", "config-epoch", "4"];
        let answer = |words: &[&str]| Value::Array(words.iter().map(|word| text(word)).collect());
        // In the midst of a failover it leads the Sentinel has another address there.
        let at = NodeAddress { host: "10.0.0.7".into(), port: 6379 };
        assert_eq!(
            named_in(&answer(&words), at.clone()).unwrap(),
            NamedMaster { at: at.clone(), epoch: 4 }
        );
        assert!(named_in(&answer(&words[..4]), at).is_err());
    }
}
