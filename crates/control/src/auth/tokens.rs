//! The token file: who may do what. It has only hashes of the tokens.
//!
//! ```toml
//! [[token]]
//! name = "ops"
//! role = "admin"
//! hash = "64 hex digits: BLAKE3 of the token"
//! [[token]]
//! name = "shop"
//! role = "tenant"
//! tenant = 7
//! hash = "..."
//! ```

use std::{
    collections::HashSet,
    fs::{File, Metadata, OpenOptions},
    io::{ErrorKind, Read, Write},
    os::unix::fs::{MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

use api::{
    text::toml_error,
    types::{LIST_MAX, NAME_MAX},
};
use serde::{Deserialize, Serialize};

use super::{Caller, Pass, Role};

/// Longest token file in bytes.
const FILE_MAX: u64 = 1 << 20;
/// Begins each token that we make, so that tools that look for leaked secrets can find it.
const PREFIX: &str = "shortstop_";

/// Why a token file cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("token file {}: {reason}", .path.display())]
pub struct TokenError {
    path: PathBuf,
    reason: String,
    /// What is in it is not known: the system did not let it be read, which may pass.
    pub(super) unread: bool,
}

#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct FileText {
    #[serde(rename = "token", default)]
    tokens: Vec<Entry>,
}

#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    name: String,
    role: RoleName,
    #[serde(skip_serializing_if = "Option::is_none")]
    tenant: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    switch: Option<u16>,
    hash: String,
}

#[derive(Clone, Copy, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
enum RoleName {
    Admin,
    Viewer,
    Tenant,
    Switch,
    Store,
}

/// The tokens of a file.
#[derive(Debug, Default)]
pub struct Tokens {
    known: Vec<([u8; 32], Caller)>,
}

impl Tokens {
    /// Reads a token file.
    ///
    /// # Errors
    /// [`TokenError`] names the file and the entry, and what was expected. A file that others than
    /// its owner and group may touch is refused.
    pub fn load(path: &Path) -> Result<Tokens, TokenError> {
        Tokens::read(path).map(|(tokens, _)| tokens)
    }

    /// As [`Tokens::load`], with what the system says of the file that was read.
    pub(super) fn read(path: &Path) -> Result<(Tokens, Metadata), TokenError> {
        let error = |reason: String| TokenError { path: path.into(), reason, unread: false };
        let unreadable = |e: std::io::Error| {
            // What is no text was read.
            let unread = e.kind() != ErrorKind::InvalidData;
            TokenError { unread, ..error(format!("cannot be read: {e}")) }
        };
        let file = File::open(path).map_err(unreadable)?;
        let metadata = file.metadata().map_err(unreadable)?;
        let mode = metadata.mode() & 0o777;
        if mode & 0o027 != 0 {
            return Err(error(format!(
                "its mode is {mode:04o}, so others may read it or its group may write it; do `chmod 600 {}`",
                path.display()
            )));
        }
        let mut text = String::new();
        file.take(FILE_MAX + 1).read_to_string(&mut text).map_err(unreadable)?;
        if text.len() as u64 > FILE_MAX {
            return Err(error(format!("it is longer than {FILE_MAX} bytes")));
        }
        Ok((Tokens::parse(&text).map_err(error)?, metadata))
    }

    /// Reads a token file's text.
    ///
    /// # Errors
    /// One line: the entry, and what was expected.
    pub fn parse(text: &str) -> Result<Tokens, String> {
        let file: FileText = toml::from_str(text).map_err(|e| toml_error(text, &e))?;
        if file.tokens.is_empty() {
            return Err("it has no [[token]]; `shortstop token` makes one".into());
        }
        if file.tokens.len() > LIST_MAX {
            return Err(format!("more than {LIST_MAX} tokens"));
        }
        let mut names = HashSet::new();
        let mut known = Vec::new();
        for entry in file.tokens {
            if !names.insert(entry.name.clone()) {
                return Err(format!("token {:?} is listed twice", entry.name));
            }
            known.push(entry.check()?);
        }
        Ok(Tokens { known })
    }

    /// Whose token this is. Looks at all of them, whichever fits, and compares hashes in
    /// constant time.
    pub fn find(&self, token: &str) -> Option<Pass> {
        let hash = *blake3::hash(token.as_bytes()).as_bytes();
        let mut found = None;
        for (known, caller) in &self.known {
            if constant_time_eq::constant_time_eq_32(known, &hash) {
                found = Some(caller);
            }
        }
        found.map(|caller| Pass { caller: caller.clone(), hash })
    }

    /// Whether this one's token is among them, and allows the same.
    pub(super) fn admit(&self, pass: &Pass) -> bool {
        self.known.iter().any(|(hash, caller)| *hash == pass.hash && *caller == pass.caller)
    }
}

impl Entry {
    fn check(self) -> Result<([u8; 32], Caller), String> {
        let which = format!("token {:?}", self.name);
        if self.name.is_empty()
            || self.name.len() > NAME_MAX
            || self.name.chars().any(char::is_control)
        {
            return Err(format!(
                "{which}: expected a name of 1 to {NAME_MAX} bytes without control characters"
            ));
        }
        let role = match (self.role, self.tenant, self.switch) {
            (RoleName::Admin, None, None) => Role::Admin,
            (RoleName::Viewer, None, None) => Role::Viewer,
            (RoleName::Store, None, None) => Role::Store,
            (RoleName::Tenant, Some(id), None) => Role::Tenant(id),
            (RoleName::Tenant, None, None) => {
                return Err(format!("{which}: role \"tenant\" needs `tenant = NUMBER`"));
            }
            (RoleName::Switch, None, switch) => Role::Switch(switch),
            (_, Some(_), _) => {
                return Err(format!("{which}: only role \"tenant\" has a `tenant`"));
            }
            (_, _, Some(_)) => {
                return Err(format!("{which}: only role \"switch\" has a `switch`"));
            }
        };
        let mut hash = [0; 32];
        hex::decode_to_slice(&self.hash, &mut hash).map_err(|_| {
            format!("{which}: hash: expected 64 hex digits, as `shortstop token` prints them")
        })?;
        Ok((hash, Caller::new(self.name, role)))
    }
}

/// A token that was just made.
pub struct NewToken {
    /// What its user keeps, and sends with each request. Shown once: nothing else can be made of
    /// the file.
    pub token: String,
    /// The lines for the token file.
    pub entry: String,
}

/// Makes a token: 256 random bits.
///
/// # Errors
/// One line if the name cannot be used.
pub fn make(name: &str, role: Role) -> Result<NewToken, String> {
    let token = format!("{PREFIX}{}", hex::encode(rand::random::<[u8; 32]>()));
    let (role, tenant, switch) = match role {
        Role::Admin => (RoleName::Admin, None, None),
        Role::Viewer => (RoleName::Viewer, None, None),
        Role::Tenant(id) => (RoleName::Tenant, Some(id), None),
        Role::Switch(id) => (RoleName::Switch, None, id),
        Role::Store => (RoleName::Store, None, None),
    };
    let file = FileText {
        tokens: vec![Entry {
            name: name.into(),
            role,
            tenant,
            switch,
            hash: blake3::hash(token.as_bytes()).to_hex().to_string(),
        }],
    };
    let entry = toml::to_string(&file).map_err(|e| e.to_string())?;
    Tokens::parse(&entry)?;
    Ok(NewToken { token, entry })
}

/// Makes a token, adds its lines to a token file, which is made if it is not there, for its owner
/// alone, and hands the token out. The file is as it was if that fails: nobody has the token then.
/// Others may add to the file while the token is handed out, which may take as long as it likes.
///
/// # Errors
/// [`TokenError`] if the file cannot be used, or would not be usable with that name in it; nothing
/// was written then. Also if the token could not be handed out, and others had been added behind
/// it meanwhile: then its lines are still there. In its place, why the token could not be handed
/// out.
pub fn add<E>(
    path: &Path,
    name: &str,
    role: Role,
    hand_out: impl FnOnce(&NewToken) -> Result<(), E>,
) -> Result<Result<(), E>, TokenError> {
    let error = |reason: String| TokenError { path: path.into(), reason, unread: false };
    let made = make(name, role).map_err(error)?;
    let is_new = !path.exists();
    let file = locked(path).map_err(|e| error(format!("cannot be written: {e}")))?;
    let text = match Tokens::load(path) {
        Ok(_) => {
            std::fs::read_to_string(path).map_err(|e| error(format!("cannot be read: {e}")))?
        }
        Err(_) if is_empty(path) => String::new(),
        Err(other) => return Err(other),
    };
    let gap = if text.is_empty() || text.ends_with('\n') { "" } else { "\n" };
    let entry = format!("{gap}{}", made.entry);
    Tokens::parse(&(text + &entry)).map_err(error)?;
    let before = append(&file, entry.as_bytes()).and_then(|before| {
        file.unlock()?;
        Ok(before)
    });
    let before = before.map_err(|e| error(format!("cannot be written: {e}")))?;
    let handed_out = hand_out(&made);
    if handed_out.is_err() {
        let undo = || {
            file.lock()?;
            if file.metadata()?.len() != before + entry.len() as u64 {
                return Err(std::io::Error::other(
                    "others were added behind it; take its lines out",
                ));
            }
            match is_new && before == 0 {
                true => std::fs::remove_file(path),
                false => file.set_len(before),
            }
        };
        undo().map_err(|e| {
            error(format!("has the entry of a token that nobody has, named {name:?}: {e}"))
        })?;
    }
    Ok(handed_out)
}

/// Opens a token file, or makes it, to add to it. Others who do wait until the file is closed or
/// unlocked.
fn locked(path: &Path) -> std::io::Result<File> {
    loop {
        let file = OpenOptions::new().append(true).create(true).mode(0o600).open(path)?;
        file.lock()?;
        let (ours, there) = (file.metadata()?, std::fs::metadata(path));
        // Whoever had the lock may have removed the file.
        if there.is_ok_and(|there| (there.dev(), there.ino()) == (ours.dev(), ours.ino())) {
            return Ok(file);
        }
    }
}

/// Adds to a file, which is as it was if that fails: with half an entry in it nothing of it could
/// be used any more. How long it was.
fn append(mut file: &File, entry: &[u8]) -> std::io::Result<u64> {
    let before = file.metadata()?.len();
    let written = file.write_all(entry).and_then(|()| file.sync_all()).inspect_err(|_| {
        let _ = file.set_len(before);
    });
    written.map(|()| before)
}

/// Whether there is no such file, or nothing in it.
fn is_empty(path: &Path) -> bool {
    match std::fs::metadata(path) {
        Ok(metadata) => metadata.len() == 0,
        Err(e) => e.kind() == ErrorKind::NotFound,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_made_token_is_found_in_its_file_with_its_role() {
        let roles = [
            Role::Admin,
            Role::Viewer,
            Role::Tenant(7),
            Role::Switch(None),
            Role::Switch(Some(3)),
            Role::Store,
        ];
        for role in roles {
            let made = make("it", role).unwrap();
            let tokens = Tokens::parse(&made.entry).unwrap();
            assert_eq!(tokens.find(&made.token).unwrap().caller.role(), role);
            assert!(tokens.find(&made.token[1..]).is_none());
            assert!(!made.entry.contains(&made.token));
        }
    }

    #[test]
    fn a_wrong_file_is_refused_in_one_line_that_names_the_entry() {
        let hash = "0".repeat(64);
        // (text, what the error says)
        let rows = [
            (String::new(), "it has no [[token]]"),
            ("[[token".into(), "line 1, column"),
            ("[[token]]\nname=\"a\"\nrole=\"king\"\nhash=\"\"".into(), "unknown variant `king`"),
            (
                "[[token]]\nname=\"a\"\nrole=\"admin\"\nsecret=\"x\"".into(),
                "unknown field `secret`",
            ),
            (
                format!("[[token]]\nname=\"a\"\nrole=\"tenant\"\nhash=\"{hash}\""),
                "needs `tenant = NUMBER`",
            ),
            (
                format!("[[token]]\nname=\"a\"\nrole=\"admin\"\ntenant=7\nhash=\"{hash}\""),
                "only role \"tenant\"",
            ),
            (
                format!("[[token]]\nname=\"a\"\nrole=\"store\"\nswitch=7\nhash=\"{hash}\""),
                "only role \"switch\"",
            ),
            ("[[token]]\nname=\"a\"\nrole=\"admin\"\nhash=\"12\"".into(), "expected 64 hex digits"),
            (
                format!("[[token]]\nname=\"\"\nrole=\"admin\"\nhash=\"{hash}\""),
                "expected a name of 1 to 64",
            ),
            (
                format!(
                    "[[token]]\nname=\"a\"\nrole=\"admin\"\nhash=\"{hash}\"\n[[token]]\nname=\"a\"\nrole=\"viewer\"\nhash=\"{hash}\""
                ),
                "\"a\" is listed twice",
            ),
        ];
        for (text, says) in rows {
            let error = Tokens::parse(&text).unwrap_err();
            assert!(error.contains(says), "{error:?} should say {says:?}");
            assert!(!error.contains('\n'), "{error:?}");
        }
    }

    #[test]
    fn a_file_that_others_may_read_is_refused() {
        use std::os::unix::fs::PermissionsExt;
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("tokens.toml");
        std::fs::write(&path, make("ops", Role::Admin).unwrap().entry).unwrap();
        // (mode, is taken)
        for (mode, taken) in
            [(0o600, true), (0o640, true), (0o644, false), (0o660, false), (0o601, false)]
        {
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
            let loaded = Tokens::load(&path);
            assert_eq!(loaded.is_ok(), taken, "{mode:o}: {loaded:?}");
            if let Err(error) = loaded {
                assert!(error.to_string().contains("chmod 600"), "{error}");
            }
        }
        let error = Tokens::load(Path::new("/nonexistent/tokens")).unwrap_err();
        assert!(error.to_string().contains("cannot be read"), "{error}");
    }

    #[test]
    fn what_cannot_be_added_leaves_the_file_as_it_was() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("tokens.toml");
        let added = |name: &str, role| {
            let mut token = String::new();
            let hand_out = |made: &NewToken| {
                token.clone_from(&made.token);
                Ok::<_, ()>(())
            };
            add(&path, name, role, hand_out).map(|_| token)
        };
        // Nobody has it: there is no such file then.
        assert_eq!(add(&path, "ops", Role::Admin, |_| Err("full")).unwrap(), Err("full"));
        assert!(!path.exists());
        let first = added("ops", Role::Admin).unwrap();
        let second = added("shop", Role::Tenant(7)).unwrap();
        let tokens = Tokens::load(&path).unwrap();
        assert_eq!(tokens.find(&first).unwrap().caller.role(), Role::Admin);
        assert_eq!(tokens.find(&second).unwrap().caller.role(), Role::Tenant(7));
        let before = std::fs::read_to_string(&path).unwrap();
        for (name, says) in [("ops", "is listed twice"), ("", "expected a name")] {
            let error = added(name, Role::Viewer).err().unwrap().to_string();
            assert!(error.contains(says) && error.contains("tokens.toml"), "{error}");
        }
        assert_eq!(add(&path, "other", Role::Viewer, |_| Err("full")).unwrap(), Err("full"));
        assert_eq!(std::fs::read_to_string(&path).unwrap(), before);
        // What was added behind it meanwhile, by somebody who has that token, stays.
        let mut quick = None;
        let slow = add(&path, "slow", Role::Viewer, |_| {
            quick = Some(added("quick", Role::Viewer).unwrap());
            Err("full")
        });
        let error = slow.err().unwrap().to_string();
        assert!(error.contains("that nobody has, named \"slow\": others were added"), "{error}");
        assert!(Tokens::load(&path).unwrap().find(&quick.unwrap()).is_some());
        // An error message that went into it as text is said, not added to.
        let wrong = before + "error: role tenant: expected --tenant ID\n";
        std::fs::write(&path, &wrong).unwrap();
        let error = added("rack", Role::Switch(None)).err().unwrap().to_string();
        assert!(error.contains("line "), "{error}");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), wrong);
    }
}
