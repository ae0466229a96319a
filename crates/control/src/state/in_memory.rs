//! The state of a controller that is simulated: it outlives the controller, not the process.

use super::{Batch, LoadedState, StateError};

/// What a file of this machine would hold. A controller that leads begins a term, loads, and writes
/// in that term.
#[derive(Clone, Debug, Default)]
pub struct InMemory {
    term: u64,
    written: LoadedState,
}

impl InMemory {
    /// Begins a term: above all before it.
    pub fn next_term(&mut self) -> u64 {
        self.term += 1;
        self.term
    }

    /// Everything that is remembered.
    pub fn load(&self) -> LoadedState {
        self.written.clone()
    }

    /// Writes a batch of the leader of `term`, whole or not at all.
    ///
    /// # Errors
    /// [`StateError::Deposed`] if a later term has begun, or a row cannot be stored.
    pub fn write(&mut self, term: u64, batch: &Batch) -> Result<(), StateError> {
        batch.check()?;
        if term != self.term {
            return Err(StateError::Deposed);
        }
        self.written.apply(batch);
        Ok(())
    }
}
