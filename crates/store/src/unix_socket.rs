//! Unix sockets that the store listens on.

use std::{
    fs::DirBuilder,
    os::unix::fs::{DirBuilderExt, FileTypeExt},
    path::Path,
};

use anyhow::Context;
use tokio::net::UnixListener;

/// Binds one, in place of a socket that a store which was killed left behind. Its folder is made
/// for this user alone, if there is none: below /run there is nothing after a boot. `what` it is
/// for errors.
///
/// # Errors
/// Something else is there, or the system refused.
pub(crate) fn bind(path: &Path, what: &str) -> anyhow::Result<UnixListener> {
    if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        let made = DirBuilder::new().recursive(true).mode(0o700).create(folder);
        made.with_context(|| format!("cannot make {}, for the {what}", folder.display()))?;
    }
    if let Ok(found) = std::fs::symlink_metadata(path) {
        if !found.file_type().is_socket() {
            anyhow::bail!(
                "{what} {}: there is something that is no socket; name another path",
                path.display()
            );
        }
        if std::os::unix::net::UnixStream::connect(path).is_ok() {
            anyhow::bail!("{what} {}: another process answers there", path.display());
        }
        let _ = std::fs::remove_file(path);
    }
    let listener = UnixListener::bind(path)
        .with_context(|| format!("cannot listen on {what} {}", path.display()))?;
    Ok(listener)
}
