//! One key as its clients see it.

use stateright::semantics::SequentialSpec;

/// Its value, and how many writes it has seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Key {
    value: Option<u8>,
    version: u64,
}

/// An operation. Every write of a world writes another value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Call {
    Read,
    /// Of whatever is newest where it is asked, committed or not.
    Relaxed,
    Put(u8),
    /// If the key is absent.
    Create(u8),
    /// If it has this version.
    Swap(u64, u8),
    Delete,
}

impl Call {
    /// Whether it writes nothing.
    pub fn is_read(self) -> bool {
        matches!(self, Call::Read | Call::Relaxed)
    }
}

/// What the client is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Return {
    /// Value and version.
    Value(Option<u8>, u64),
    /// Written, as this version.
    Done(u64),
    /// Not written, because of this version; 0: the key was absent.
    Refused(u64),
}

impl Return {
    /// The version that it tells of.
    pub fn version(self) -> u64 {
        match self {
            Return::Value(_, version) | Return::Done(version) | Return::Refused(version) => version,
        }
    }
}

impl Key {
    fn write(&mut self, may: bool, value: Option<u8>) -> Return {
        if !may {
            return Return::Refused(self.value.map_or(0, |_| self.version));
        }
        (self.value, self.version) = (value, self.version + 1);
        Return::Done(self.version)
    }
}

impl SequentialSpec for Key {
    type Op = Call;
    type Ret = Return;

    fn invoke(&mut self, call: &Call) -> Return {
        let is_there = self.value.is_some();
        match *call {
            Call::Read | Call::Relaxed => Return::Value(self.value, self.version),
            Call::Put(value) => self.write(true, Some(value)),
            Call::Create(value) => self.write(!is_there, Some(value)),
            Call::Swap(version, value) => {
                self.write(is_there && version == self.version, Some(value))
            }
            Call::Delete => self.write(is_there, None),
        }
    }
}
