//! Counts what stores have lent to a switch, for its status. The records are written by programs
//! only (`bpf/lent`).

use std::sync::atomic::Ordering::Relaxed;

use serde::{Deserialize, Serialize};

use super::{backing::Backing, mapped::SharedArray};
use crate::{
    Error,
    layout::{KEPT_ACTIVE, KEPT_SEALED, LentKey},
};

/// What stores lent to a switch, as its records are now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoanCounts {
    /// Keys that it answers for.
    pub owns: usize,
    /// Keys whose writes it keeps for another switch.
    pub keeps: usize,
    /// Loans that have ended and whose records are still there for the store to ask.
    pub sealed: usize,
}

impl LoanCounts {
    /// Counts the records of a switch.
    ///
    /// # Errors
    /// If they cannot be mapped.
    pub fn of(at: impl Into<Backing>) -> Result<LoanCounts, Error> {
        let records: SharedArray<LentKey> = at.into().mapped("kept")?;
        let mut lent = LoanCounts::default();
        for index in 0..records.len() {
            let record = records.at(index);
            let is_owner = record.is_owner.load(Relaxed) != 0;
            match record.state.load(Relaxed) {
                KEPT_ACTIVE if is_owner => lent.owns += 1,
                KEPT_ACTIVE => lent.keeps += 1,
                KEPT_SEALED => lent.sealed += 1,
                _ => {}
            }
        }
        Ok(lent)
    }
}
