//! What a client has said of itself, who it is and the protocol that it speaks: it is said again on
//! every connection that is made for it.

use bytes::Bytes;

/// HELLO and AUTH, as far as Redis has taken them.
#[derive(Clone, Debug, Default)]
pub struct Greeting {
    /// Each as it was said last, in their order.
    said: Vec<(&'static str, Bytes)>,
    changes: u64,
}

impl Greeting {
    /// Redis has taken a command of this name. What was said before of the same counts no more.
    pub fn hears(&mut self, name: &'static str, command: &Bytes) {
        self.said.retain(|(said, _)| *said != name);
        self.said.push((name, command.clone()));
        self.changes += 1;
    }

    /// Nothing of it counts any more.
    pub fn is_reset(&mut self) {
        self.said.clear();
        self.changes += 1;
    }

    /// How often it has become another: a connection that was made before speaks for who the client
    /// was then.
    pub fn changes(&self) -> u64 {
        self.changes
    }

    /// How many commands it is.
    pub fn len(&self) -> usize {
        self.said.len()
    }

    /// Whether it names a user of Redis's: by AUTH, or by HELLO with AUTH among its words. A name
    /// of the client's own that has this word in it is taken for one, too.
    pub fn names_user(&self) -> bool {
        let has_auth = |command: &Bytes| {
            command.windows(4).any(|letters| letters.eq_ignore_ascii_case(b"auth"))
        };
        self.said.iter().any(|(_, command)| has_auth(command))
    }

    /// The commands, as they were sent.
    pub fn bytes(&self) -> Vec<u8> {
        self.said.iter().flat_map(|(_, command)| command.iter().copied()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_said_last_counts_in_its_order() {
        let mut greeting = Greeting::default();
        let bytes = Bytes::from_static;
        greeting.hears("auth", &bytes(b"AUTH a\r\n"));
        greeting.hears("hello", &bytes(b"HELLO 3\r\n"));
        greeting.hears("auth", &bytes(b"AUTH b\r\n"));
        assert_eq!(greeting.bytes(), b"HELLO 3\r\nAUTH b\r\n");
        assert_eq!((greeting.len(), greeting.changes()), (2, 3));
        assert!(greeting.names_user());
        greeting.is_reset();
        assert_eq!((greeting.len(), greeting.changes()), (0, 4));
        greeting.hears("hello", &bytes(b"HELLO 3\r\n"));
        assert!(!greeting.names_user());
        greeting.hears("hello", &bytes(b"hello 3 auth a b\r\n"));
        assert!(greeting.names_user());
    }
}
