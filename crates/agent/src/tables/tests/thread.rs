//! The thread that drives the tables, in an agent whose session goes on.

use std::{future::pending, sync::atomic::AtomicBool};

use dataplane::{Loops, Mode, SourceCheck};
use decide::{AgentAction, AgentHalf};

use super::*;
use crate::{Agent, Options, Plane, ProgramPlace, epoch::Lock, testing::Controller};

/// Whether [`Panics`] does it with the next round.
static PANICS: AtomicBool = AtomicBool::new(false);

struct Panics;

impl AgentHalf for Panics {
    fn tick(&mut self, _: u64, _: &mut Vec<AgentAction>) {
        assert!(!PANICS.load(Relaxed), "as the test has it");
    }
}

static PANICKING: [Registration; 1] = [Registration { agent: Some(|| Box::new(Panics)), ..TRIAL }];

/// How a table thread ends.
#[derive(Clone, Copy, Debug)]
enum End {
    /// Nothing can be written to the file of epochs, and more of them are used.
    NoEpochs,
    Panic,
}

/// What an agent says whose table thread ends so while it is attached to a controller.
async fn said_after(end: End) -> Result<(), AgentError> {
    let controller = Controller::start().await;
    let state = tempfile::tempdir().unwrap();
    let name = format!("agent-{}-{}", std::process::id(), NUMBER.fetch_add(1, Relaxed));
    let home = Home::new(&name).unwrap();
    let options = Options {
        name: name.clone(),
        id: 1,
        interfaces: vec![],
        at: ProgramPlace::Kernel(Mode::Auto),
        source_check: SourceCheck::Loose,
        pages: SIZES.pages,
        control: controller.endpoint(),
        state_dir: state.path().into(),
        disciplines: &PANICKING,
        probes: false,
        loops: Loops::default(),
        address: None,
    };
    let fails = Arc::<AtomicBool>::default();
    let agent = Agent {
        options,
        plane: Plane::Kernel(
            Dataplane::load_used(home.clone(), &[], SIZES).unwrap(),
            vec![],
            vec![],
        ),
        life: 1,
        refused: vec![],
        lock: Lock::take(state.path(), &name).unwrap(),
        epochs: Reservation::in_memory(Arc::default(), fails.clone(), Duration::ZERO),
    };
    PANICS.store(false, Relaxed);
    let ends = async {
        controller.has_answered().await;
        match end {
            End::NoEpochs => {
                fails.store(true, Relaxed);
                Table::open(&home).unwrap().set_identity(2, 1 << 32);
            }
            End::Panic => PANICS.store(true, Relaxed),
        }
    };
    let (said, ()) = tokio::join!(agent.run(pending()), ends);
    let _ = dataplane::detach(&home);
    said
}

/// Or whoever is to start an agent anew that failed would leave it down. The session sees that the
/// thread has gone a little before the agent does, or after.
#[tokio::test]
async fn an_agent_whose_table_thread_ends_by_itself_has_failed() {
    for (end, why) in [(End::NoEpochs, "it is written to fails"), (End::Panic, "it panicked")] {
        for round in 0..8 {
            let said = said_after(end).await;
            let error = said.expect_err(&format!("{end:?}, round {round}")).to_string();
            assert!(error.contains(why), "{error}");
        }
    }
}
