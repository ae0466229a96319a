//! How many sockets and files this process may have open.

use nix::sys::resource::{Resource, getrlimit, setrlimit};

/// Descriptors that a process needs beside its connections: sockets to stores, a log, its own.
const BESIDE: usize = 64;

/// Lets this process have as many open as the system allows it at all: shells and service managers
/// often begin with 1,024, of up to half a million. Returns how many.
pub fn raise() -> usize {
    let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE) else { return usize::MAX };
    let raised = setrlimit(Resource::RLIMIT_NOFILE, hard, hard).is_ok();
    usize::try_from(if raised { hard } else { soft }).unwrap_or(usize::MAX)
}

/// Lets it have as many connections as `option` asks for, or else as many as are possible, which
/// are said and returned; `beside`: so many descriptors are for something else.
pub fn connections(option: &str, wanted: usize, beside: usize) -> usize {
    let files = raise();
    let possible = files.saturating_sub(BESIDE + beside).max(1);
    if possible < wanted {
        tracing::warn!(
            "{option} {wanted}: the system lets this process have {files} files and sockets open, so {possible} \
             connections are accepted: raise its limit (ulimit -n, or LimitNOFILE= of its service)"
        );
    }
    wanted.min(possible)
}
