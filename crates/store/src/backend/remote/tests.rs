//! A backend that fails, that is never reached, and that has large values.

use super::*;
use crate::backend::ReadOutcome;

fn key(n: u8) -> Key<'static> {
    Key { tenant: 0, hash: KeyHash([n; 16]), bytes: b"k" }
}

/// Ends a test that hangs; nothing takes that long.
const PATIENCE: Duration = Duration::from_secs(90);

/// A task that ends before its time: a bug, or something that it could not foresee.
struct PanickingProtocol;

impl Protocol for PanickingProtocol {
    async fn connect(&mut self) -> anyhow::Result<()> {
        Ok(())
    }

    async fn execute(&mut self, _: &[Command]) -> anyhow::Result<Vec<Outcome>> {
        panic!("the test's own panic");
    }

    fn name(&self) -> String {
        "the test".into()
    }

    fn disconnect(&mut self) {}
}

#[tokio::test]
async fn a_backend_that_is_gone_is_a_failure_and_not_an_absence() {
    let (completions, mut done) = mpsc::unbounded_channel();
    let mut remote =
        Remote::start(PanickingProtocol, Health::new(), Watch::Unneeded, 1, completions, PATIENCE);
    // The first is under way when the task ends, others wait behind it, and one comes when it
    // has ended.
    for ticket in 0..2 {
        assert_eq!(remote.get(key(1), 0, ticket), Answer::Later);
    }
    assert_eq!(done.recv().await, Some(Completion::Get(0, ReadOutcome::Failed)));
    assert_eq!(done.recv().await, Some(Completion::Get(1, ReadOutcome::Failed)));
    assert_eq!(remote.get(key(1), 0, 2), Answer::Later);
    assert_eq!(done.recv().await, Some(Completion::Get(2, ReadOutcome::Failed)));
    let deleted = remote.put(key(1), Put::removal(2), 0, 3);
    assert_eq!(deleted, Answer::Later);
    let failed = Completion::Change(3, Change::Failed);
    assert_eq!(done.recv().await, Some(failed));
}

/// A server that is reached, or not, and never answers.
struct MuteProtocol {
    is_reached: bool,
}

impl Protocol for MuteProtocol {
    async fn connect(&mut self) -> anyhow::Result<()> {
        anyhow::ensure!(self.is_reached, "the test's own error");
        Ok(())
    }

    async fn execute(&mut self, _: &[Command]) -> anyhow::Result<Vec<Outcome>> {
        anyhow::bail!("the test's own error")
    }

    fn name(&self) -> String {
        "the test".into()
    }

    fn disconnect(&mut self) {}
}

fn put_under(version: u64, condition: Condition) -> Put<'static> {
    static VALUE: Bytes = Bytes::from_static(b"v");
    Put { condition, ..Put::of(&VALUE, version) }
}

#[tokio::test]
async fn only_a_write_of_which_the_backend_was_told_is_in_doubt() {
    let why = Refusal::new("TRYAGAIN the test's own error");
    let rows = [
        (true, Change::Failed, ReadOutcome::Failed),
        (false, Change::Refused(why.clone()), ReadOutcome::Refused(why)),
    ];
    for (is_reached, change, outcome) in rows {
        let (completions, mut done) = mpsc::unbounded_channel();
        let protocol = MuteProtocol { is_reached };
        let mut remote =
            Remote::start(protocol, Health::new(), Watch::Unneeded, 1, completions, PATIENCE);
        remote.put(key(1), put_under(2, Condition::Always), 0, 7);
        assert_eq!(done.recv().await, Some(Completion::Change(7, change)));
        remote.get(key(1), 0, 8);
        assert_eq!(done.recv().await, Some(Completion::Get(8, outcome)));
    }
}

#[tokio::test]
async fn a_write_to_another_tenants_name_is_told_so() {
    let (completions, _done) = mpsc::unbounded_channel();
    let protocol = MuteProtocol { is_reached: true };
    let mut remote =
        Remote::start(protocol, Health::new(), Watch::Unneeded, 1, completions, PATIENCE);
    let theirs = Key { bytes: b"shortstop:7:x", ..key(1) };
    let Answer::Now(Change::Refused(refusal)) =
        remote.put(theirs, put_under(2, Condition::Always), 0, 7)
    else {
        panic!("it was taken, or no reason was given");
    };
    assert!(refusal.words().contains("shortstop:NUMBER:"), "{}", refusal.words());
    assert_eq!(remote.put(theirs, Put::removal(2), 0, 8), Answer::Now(Change::NotFound));
}

#[tokio::test]
async fn what_was_read_while_a_write_was_in_doubt_is_not_what_is_there_after_it() {
    let (completions, mut done) = mpsc::unbounded_channel();
    let protocol = MuteProtocol { is_reached: true };
    let mut remote =
        Remote::start(protocol, Health::new(), Watch::Unneeded, 1, completions, PATIENCE);
    remote.put(key(1), put_under(2, Condition::Always), 0, 7);
    assert_eq!(done.recv().await, Some(Completion::Change(7, Change::Failed)));
    remote.settle(0, key(1).hash, 3);
    for version in [1, 2] {
        let put = remote.put(key(1), put_under(4, Condition::Version(version)), 0, 8);
        assert_eq!(put, Answer::Now(Change::Mismatch(3)), "{version}");
    }
    let put = remote.put(key(1), put_under(4, Condition::Version(3)), 0, 9);
    assert_eq!(put, Answer::Later);
}

/// A server that is over once, after its first batch: another is there then.
struct Replaced {
    batches: usize,
}

impl Protocol for Replaced {
    async fn connect(&mut self) -> anyhow::Result<()> {
        Ok(())
    }

    async fn execute(&mut self, commands: &[Command]) -> anyhow::Result<Vec<Outcome>> {
        self.batches += usize::from(!commands.is_empty());
        Ok(vec![Outcome::Done; commands.len()])
    }

    fn over(&mut self) -> Option<String> {
        (self.batches == 1).then(|| "the test's other server".into())
    }

    fn name(&self) -> String {
        "the test".into()
    }

    fn disconnect(&mut self) {
        self.batches += 1;
    }
}

#[tokio::test]
async fn what_was_compared_at_one_server_is_not_carried_out_at_another() {
    let (completions, mut done) = mpsc::unbounded_channel();
    let protocol = Replaced { batches: 0 };
    let mut remote =
        Remote::start(protocol, Health::new(), Watch::Unneeded, 1, completions, PATIENCE);
    remote.put(key(1), put_under(2, Condition::Always), 0, 7);
    let everything = Completion::Outside(crate::backend::OutsideEvent::Everything);
    assert_eq!(done.recv().await, Some(everything));
    assert_eq!(done.recv().await, Some(Completion::Change(7, Change::Done(2))));
    // The store has not looked at that yet, and compares with what the one before had.
    remote.put(key(1), put_under(3, Condition::Version(2)), 0, 8);
    let why = Refusal::new("TRYAGAIN another server may be there now");
    assert_eq!(done.recv().await, Some(Completion::Change(8, Change::Refused(why))));
    remote.forget_versions(9);
    remote.put(key(1), put_under(10, Condition::Version(9)), 0, 9);
    assert_eq!(done.recv().await, Some(Completion::Change(9, Change::Done(10))));
}

const MIB: usize = 1 << 20;

/// Of keys whose first byte is `l` it says that their values have a MiB, until they are asked
/// for as such.
struct Long {
    /// Large bytes of each batch, and the tenants of its large reads.
    batches: mpsc::UnboundedSender<(usize, Vec<u32>)>,
}

impl Protocol for Long {
    async fn connect(&mut self) -> anyhow::Result<()> {
        Ok(())
    }

    async fn execute(&mut self, commands: &[Command]) -> anyhow::Result<Vec<Outcome>> {
        let bytes = commands.iter().map(Command::large_bytes).sum();
        let large = commands.iter().filter(|command| command.large_bytes() > 0);
        let _ = self.batches.send((bytes, large.map(|command| command.tenant).collect()));
        tokio::task::yield_now().await;
        let outcome = |command: &Command| match &command.verb {
            Verb::Get { large: None, .. } if command.name.ends_with(b"l") => Outcome::Large(MIB),
            Verb::Get { large, .. } => {
                Outcome::Value { value: vec![0; large.unwrap_or(1)], expiry_ms: 0 }
            }
            _ => Outcome::Done,
        };
        Ok(commands.iter().map(outcome).collect())
    }

    fn name(&self) -> String {
        "the test".into()
    }

    fn disconnect(&mut self) {}
}

fn named(tenant: u32, bytes: &[u8]) -> Key<'_> {
    let hash = KeyHash::default();
    Key { tenant, hash, bytes }
}

#[tokio::test]
async fn large_values_are_read_in_turns_and_small_ones_do_not_wait_for_them() {
    let (completions, mut done) = mpsc::unbounded_channel();
    let (batches, mut seen) = mpsc::unbounded_channel();
    let mut remote =
        Remote::start(Long { batches }, Health::new(), Watch::Unneeded, 1, completions, PATIENCE);
    for ticket in 0..30 {
        remote.get(named(7, b"l"), 0, ticket);
    }
    for ticket in 30..32 {
        remote.get(named(8, b"l"), 0, ticket);
    }
    remote.get(named(7, b"s"), 0, 32);
    let mut order = vec![];
    while order.len() < 33 {
        let Some(Completion::Get(ticket, ReadOutcome::Item(item))) = done.recv().await else {
            panic!("all are answered");
        };
        assert_eq!(item.value.len(), if ticket == 32 { 1 } else { MIB });
        order.push(ticket);
    }
    assert_eq!(order[0], 32, "{order:?}");
    assert_eq!(order[1..6], [0, 30, 1, 31, 2], "{order:?}");
    let (mut first, mut most) = (None, 0);
    while let Ok((bytes, tenants)) = seen.try_recv() {
        most = most.max(bytes);
        first = first.or(Some(tenants).filter(|tenants| !tenants.is_empty()));
    }
    assert_eq!(most, BATCH_BYTES);
    assert_eq!(first.unwrap().len(), BATCH_BYTES / MIB);
}

#[tokio::test]
async fn large_writes_keep_their_order_and_share_no_batch_beyond_its_bytes() {
    let (completions, mut done) = mpsc::unbounded_channel();
    let (batches, mut seen) = mpsc::unbounded_channel();
    let mut remote =
        Remote::start(Long { batches }, Health::new(), Watch::Unneeded, 1, completions, PATIENCE);
    let value = Bytes::from(vec![1; 3 * MIB]);
    for ticket in 0..10 {
        remote.put(named(7, b"l"), Put::of(&value, 9), 0, ticket);
    }
    for ticket in 0..10 {
        assert_eq!(done.recv().await, Some(Completion::Change(ticket, Change::Done(9))));
    }
    while let Ok((bytes, _)) = seen.try_recv() {
        assert_eq!(bytes, 3 * MIB);
    }
}

#[tokio::test]
async fn a_large_write_and_what_stands_behind_it_do_not_wait_for_all_large_reads() {
    let (completions, mut done) = mpsc::unbounded_channel();
    let (batches, _seen) = mpsc::unbounded_channel();
    let mut remote =
        Remote::start(Long { batches }, Health::new(), Watch::Unneeded, 1, completions, PATIENCE);
    for ticket in 0..200 {
        remote.get(named(7, b"l"), 0, ticket);
    }
    let first = done.recv().await.unwrap();
    assert!(matches!(first, Completion::Get(0, ReadOutcome::Item(_))));
    remote.put(named(8, b"w"), Put::of(&vec![1; 2000].into(), 9), 0, 200);
    remote.get(named(8, b"s"), 0, 201);
    let mut before = 0;
    loop {
        match done.recv().await.unwrap() {
            Completion::Get(201, _) => break,
            _ => before += 1,
        }
    }
    // A batch that is answered, one that is under way, one that has no room, and the write.
    assert!(before <= 3 * BATCH_BYTES / MIB + 1, "{before} answers before it");
    for _ in before + 2..202 {
        assert!(done.recv().await.is_some(), "all are answered");
    }
}

#[tokio::test]
async fn longer_than_is_of_use_is_not_read() {
    let (completions, mut done) = mpsc::unbounded_channel();
    let (batches, _seen) = mpsc::unbounded_channel();
    let mut remote =
        Remote::start(Long { batches }, Health::new(), Watch::Unneeded, 5, completions, PATIENCE);
    remote.longest(MIB - 1);
    remote.get(named(7, b"l"), 0, 1);
    assert_eq!(done.recv().await, Some(Completion::Get(1, ReadOutcome::TooLarge(5))));
}
