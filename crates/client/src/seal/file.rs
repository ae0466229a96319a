//! The file that a seal key is kept in: 64 hex digits, for its owner's eyes, and its group's if the
//! owner says so, as a service manager does that hands it over.

use std::{fs::File, io::Read, os::unix::fs::PermissionsExt, path::Path, str::FromStr};

use zeroize::Zeroizing;

use super::Seal;

/// More than 64 digits and a newline; a file that is longer is another file.
const MAX_FILE_BYTES: u64 = 256;
/// Permission bits that nobody else may have: those of others, and the group's to write.
const OTHERS: u32 = 0o027;

/// Why there is no seal key. Says nothing of what the file holds.
#[derive(Debug, thiserror::Error)]
pub enum SealKeyError {
    /// The file cannot be opened or read.
    #[error("cannot read it: {0}")]
    Read(#[from] std::io::Error),
    /// Others may read the file, or the group may write it.
    #[error(
        "mode {0:04o} lets others at the seal key; expected 0600: chmod 600 it, and make a new key if one of them may have read it"
    )]
    Mode(u32),
    /// Not 64 hex digits, or all zero.
    #[error("expected 64 hex digits, not all zero, as `openssl rand -hex 32` makes them")]
    Syntax,
}

impl Seal {
    /// Reads the key from a file that nobody may read but its owner and its group, and nobody write
    /// but its owner.
    ///
    /// # Errors
    /// [`SealKeyError`]; the caller names the file.
    pub fn read(path: &Path) -> Result<Seal, SealKeyError> {
        let file = File::open(path)?;
        // Of the open file, so that it is the one that is read.
        let mode = file.metadata()?.permissions().mode() & 0o7777;
        if mode & OTHERS != 0 {
            return Err(SealKeyError::Mode(mode));
        }
        // Its full size from the start: growing would leave parts of the key in freed memory.
        let mut text = Zeroizing::new(Vec::with_capacity(2 * MAX_FILE_BYTES as usize));
        file.take(MAX_FILE_BYTES).read_to_end(&mut text)?;
        std::str::from_utf8(&text).map_err(|_| SealKeyError::Syntax)?.parse()
    }
}

impl FromStr for Seal {
    type Err = SealKeyError;

    /// From 64 hex digits; white space around them does not count.
    fn from_str(text: &str) -> Result<Seal, SealKeyError> {
        let mut key = Zeroizing::new([0; Seal::KEY_BYTES]);
        hex::decode_to_slice(text.trim(), &mut *key).map_err(|_| SealKeyError::Syntax)?;
        if *key == [0; Seal::KEY_BYTES] {
            return Err(SealKeyError::Syntax);
        }
        Ok(Seal { key })
    }
}
