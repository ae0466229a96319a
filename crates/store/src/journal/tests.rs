//! The journal in a folder: what it finds again, and what a disk that refuses does to it.

use std::os::unix::fs::MetadataExt;

use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use super::*;

fn entry(key: &[u8]) -> Entry {
    let switch = |number| Switch {
        number,
        slot: 3,
        address: "10.0.0.1:7117".parse().unwrap(),
        local: Some("10.0.2.1".parse().unwrap()),
    };
    Entry {
        tenant: 7,
        key_hash: wire::Secret([1; 16]).key_hash(7, key),
        key: key.into(),
        life: 4711,
        base: 1 << 40,
        bound_ms: 100,
        owner: switch(1),
        keeper: switch(2),
    }
}

struct OpenJournal {
    journal: FileJournal,
    done: UnboundedReceiver<Completion>,
}

impl OpenJournal {
    fn at(directory: &Path) -> OpenJournal {
        let (sender, done) = unbounded_channel();
        let journal = FileJournal::open(directory, sender).unwrap();
        OpenJournal { journal, done }
    }

    fn begin(&mut self, entry: &Entry) -> bool {
        assert_eq!(self.journal.begin(entry.clone(), 5), Answer::Later);
        self.answer()
    }

    fn end(&mut self, entry: &Entry) -> bool {
        self.journal.end(entry.tenant, entry.key_hash, 5);
        self.answer()
    }

    /// Its thread ends, and lets go of the file.
    fn close(self) {
        let OpenJournal { journal, mut done } = self;
        drop(journal);
        assert!(done.blocking_recv().is_none());
    }

    fn answer(&mut self) -> bool {
        match self.done.blocking_recv() {
            Some(Completion::Journal(5, done)) => done,
            other => panic!("{other:?}"),
        }
    }
}

/// Opens it as the next life of the store: the former one's thread has let go of it.
fn found(opened: OpenJournal, directory: &Path) -> Vec<Entry> {
    opened.close();
    let mut next = OpenJournal::at(directory);
    let found = next.journal.found();
    next.close();
    found
}

#[test]
fn what_was_begun_and_not_ended_is_found() {
    let home = tempfile::tempdir().unwrap();
    let directory = home.path().join("new/state");
    let mut opened = OpenJournal::at(&directory);
    let (a, b, c) = (entry(b"a"), entry(&[0xff; 250]), entry(b"c"));
    assert!(opened.begin(&a) && opened.begin(&b) && opened.end(&a) && opened.begin(&c));
    assert!(opened.end(&a), "twice is as good");
    assert_eq!(found(opened, &directory), [c, b]);
    let size = std::fs::metadata(directory.join(FILE)).unwrap().len();
    assert_eq!(size, 2 * SLOT as u64, "the slot of a was used again");
}

#[test]
fn a_line_that_is_torn_anywhere_is_none_and_the_others_are_there() {
    let home = tempfile::tempdir().unwrap();
    let mut opened = OpenJournal::at(home.path());
    assert!(opened.begin(&entry(b"a")) && opened.begin(&entry(b"b")));
    drop(found(opened, home.path()));
    let file = home.path().join(FILE);
    let whole = std::fs::read(&file).unwrap();
    for cut in [SLOT, SLOT + 1, SLOT + 17, SLOT + 300, 2 * SLOT - 1] {
        std::fs::write(&file, &whole[..cut]).unwrap();
        let opened = OpenJournal::at(home.path());
        assert_eq!(found(opened, home.path()), [entry(b"a")], "{cut}");
        let mut mixed = whole.clone();
        mixed[cut..].fill(0);
        std::fs::write(&file, &mixed).unwrap();
        let opened = OpenJournal::at(home.path());
        assert_eq!(found(opened, home.path()), [entry(b"a")], "{cut}");
    }
}

#[test]
fn errors_name_the_file() {
    let home = tempfile::tempdir().unwrap();
    let taken = OpenJournal::at(home.path());
    let error = |directory: &Path| {
        let result = FileJournal::open(directory, unbounded_channel().0);
        format!("{:#}", result.err().expect("an error"))
    };
    let text = error(home.path());
    assert!(text.contains("loans") && text.contains("another store"), "{text}");
    drop(taken);
    let file = home.path().join("file");
    std::fs::write(&file, "").unwrap();
    let text = error(&file.join("below"));
    assert!(text.contains("state directory") && text.contains("below"), "{text}");
}

#[test]
fn on_a_full_disk_nothing_is_begun_and_everything_can_end() {
    let home = tempfile::tempdir().unwrap();
    let mut slots = Slots::open(home.path()).unwrap();
    slots.begin(&entry(b"a")).unwrap();
    let file =
        std::mem::replace(&mut slots.file, File::options().write(true).open("/dev/full").unwrap());
    assert!(slots.begin(&entry(b"b")).is_err());
    slots.file = file;
    slots.end((7, entry(b"a").key_hash)).unwrap();
    slots.file.sync_all().unwrap();
    drop(slots);
    assert_eq!(Slots::open(home.path()).unwrap().entries, []);
}

/// Carries one order out on a disk that loses what is written and says so once, at the fsync.
fn on_a_disk_that_fails(slots: &mut Slots, order: Order) {
    let broken = File::options().write(true).open("/dev/null").unwrap();
    let file = std::mem::replace(&mut slots.file, broken);
    let results = slots.carry_out(vec![order]);
    assert!(results.iter().all(|(_, result)| result.is_err()));
    slots.file = file;
}

#[test]
fn nobody_else_reads_the_keys_that_are_lent() {
    let home = tempfile::tempdir().unwrap();
    let slots = Slots::open(home.path()).unwrap();
    assert_eq!(slots.file.metadata().unwrap().mode() & 0o777, 0o600);
}

#[test]
fn an_end_whose_sync_failed_is_written_again() {
    let home = tempfile::tempdir().unwrap();
    let mut slots = Slots::open(home.path()).unwrap();
    let (a, b) = (entry(b"a"), entry(b"b"));
    slots.begin(&a).unwrap();
    let end = || Order::End((7, a.key_hash), 5);
    on_a_disk_that_fails(&mut slots, end());
    assert!(slots.carry_out(vec![end()])[0].1.is_ok());
    assert!(slots.carry_out(vec![end()])[0].1.is_ok(), "twice is as good");
    drop(slots);
    let mut slots = Slots::open(home.path()).unwrap();
    assert_eq!(slots.entries, []);
    // Until it is on the disk its place is nobody else's.
    slots.begin(&a).unwrap();
    on_a_disk_that_fails(&mut slots, end());
    slots.begin(&b).unwrap();
    assert_eq!(slots.slots, 2);
    assert!(slots.carry_out(vec![end()])[0].1.is_ok());
    drop(slots);
    let mut slots = Slots::open(home.path()).unwrap();
    assert_eq!(slots.entries, [b]);
    slots.begin(&a).unwrap();
    assert_eq!(slots.slots, 2, "and then it is free");
}

#[test]
fn a_begin_whose_sync_failed_is_taken_back_as_soon_as_the_disk_writes() {
    let home = tempfile::tempdir().unwrap();
    let mut slots = Slots::open(home.path()).unwrap();
    let (a, b) = (entry(b"a"), entry(b"b"));
    slots.begin(&a).unwrap();
    // On the disk, though nobody knows.
    slots.file.sync_all().unwrap();
    on_a_disk_that_fails(&mut slots, Order::Begin(Box::new(a), 5));
    // Whatever it is to write next.
    assert!(slots.carry_out(vec![Order::End((7, b.key_hash), 6)])[0].1.is_ok());
    drop(slots);
    assert_eq!(Slots::open(home.path()).unwrap().entries, []);
}

#[test]
fn on_a_disk_that_always_fails_what_is_to_be_written_again_has_a_bound() {
    let home = tempfile::tempdir().unwrap();
    let mut slots = Slots::open(home.path()).unwrap();
    slots.file = File::options().write(true).open("/dev/null").unwrap();
    let keys = (0..2 * SLOTS_MOST).map(|number| entry(&number.to_be_bytes()));
    let orders = keys.map(|entry| Order::Begin(Box::new(entry), 5)).collect();
    assert!(slots.carry_out(orders).iter().all(|(_, result)| result.is_err()));
    assert_eq!((slots.taken.len(), slots.ending.len()), (SLOTS_MOST, SLOTS_MOST));
}
