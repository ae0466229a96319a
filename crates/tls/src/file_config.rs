//! What was read of files, until they are others.

use std::{
    fmt, fs,
    os::unix::fs::MetadataExt,
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use crate::TlsError;

/// Files are looked at so often at most, however many connections come.
const LOOKED_AT_EVERY: Duration = Duration::from_secs(1);

/// What tells that a file is another: device, inode, length, and the time of its last change in
/// seconds and nanoseconds.
type Mark = Option<(u64, u64, u64, i64, i64)>;

/// Reads the files.
type Reader<C> = Box<dyn Fn() -> Result<C, TlsError> + Send + Sync>;

/// What was read of files.
pub(crate) struct FileConfig<C> {
    paths: Vec<PathBuf>,
    read: Reader<C>,
    state: Mutex<State<C>>,
}

struct State<C> {
    config: Arc<C>,
    marks: Vec<Mark>,
    looked: Instant,
}

impl<C> fmt::Debug for FileConfig<C> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_tuple("FileConfig").field(&self.paths).finish()
    }
}

fn marks(paths: &[PathBuf]) -> Vec<Mark> {
    let mark = |path: &PathBuf| {
        let file = fs::metadata(path).ok()?;
        Some((file.dev(), file.ino(), file.len(), file.ctime(), file.ctime_nsec()))
    };
    paths.iter().map(mark).collect()
}

impl<C> FileConfig<C> {
    pub fn new(paths: Vec<PathBuf>, read: Reader<C>) -> Result<FileConfig<C>, TlsError> {
        // The marks are those from before it is read: what changes meanwhile is read again.
        let marks = marks(&paths);
        let config = Arc::new(read()?);
        let state = Mutex::new(State { config, marks, looked: Instant::now() });
        Ok(FileConfig { paths, read, state })
    }

    /// What the files say, or said when they could be used last.
    pub fn now(&self) -> Arc<C> {
        self.at(Instant::now())
    }

    /// The same at a moment.
    pub fn at(&self, now: Instant) -> Arc<C> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if now < state.looked + LOOKED_AT_EVERY {
            return state.config.clone();
        }
        state.looked = now;
        let found = marks(&self.paths);
        if found == state.marks {
            return state.config.clone();
        }
        match (self.read)() {
            Ok(config) => {
                state.config = Arc::new(config);
                tracing::info!("certificates were read again: {}", self.names());
            }
            // A certificate and its key are two files, which change one after the other.
            Err(error) => tracing::warn!(
                "{error}; what was read before is used until the files of {} can be",
                self.names()
            ),
        }
        state.marks = found;
        state.config.clone()
    }

    fn names(&self) -> String {
        let names: Vec<String> = self.paths.iter().map(|path| path.display().to_string()).collect();
        names.join(", ")
    }
}
