//! For tests of whole racks: the programs that cargo has built, switches of both kinds, and
//! patience.

use std::{
    path::PathBuf,
    time::{Duration, Instant},
};

use crate::process::{product, set_binary};

/// How long anything may take to come about, on a machine that is busy with something else.
pub const PATIENCE: Duration = Duration::from_secs(300);

/// What a rack's switch is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// XDP programs.
    Kernel,
    /// Packet sockets (`shortstop switch --soft`).
    Soft,
}

/// Tests of a module, which take a [`Kind`], with both kinds.
#[macro_export]
macro_rules! on_both {
    ($($test:ident),+ $(,)?) => {
        mod kernel {
            $(#[test] fn $test() { super::$test($crate::testing::Kind::Kernel) })+
        }
        mod soft {
            $(#[test] fn $test() { super::$test($crate::testing::Kind::Soft) })+
        }
    };
}

/// Makes labs use the programs of this build, which lie in the folder above that of the test's own.
///
/// # Panics
/// Where namespaces cannot be made or the programs are not built, rather than that a test passes
/// without having tested anything.
pub fn needs_root() {
    // SAFETY: geteuid cannot fail.
    assert!(unsafe { libc::geteuid() } == 0, "network namespaces need root");
    let test = std::env::current_exe().expect("the path of this test");
    let built = test.ancestors().nth(2).map_or(PathBuf::new(), PathBuf::from);
    set_binary(built.join("shortstop-lab"));
    product().unwrap_or_else(|error| panic!("{error:#}"));
}

/// Asks again and again until there is an answer, and rests between two questions for as long as
/// one takes, so that what is waited for has the processor too.
///
/// # Panics
/// There is none within [`PATIENCE`].
pub fn until<T>(what: &str, mut ask: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        let asked = Instant::now();
        if let Some(answer) = ask() {
            return answer;
        }
        assert!(start.elapsed() < PATIENCE, "{what}: not within {PATIENCE:?}");
        std::thread::sleep(asked.elapsed().max(Duration::from_millis(10)));
    }
}
