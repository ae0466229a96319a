//! The control half: which keys are replicated, how often, and where (paper, 4.1).

mod estimate;
mod place;
mod table;
mod threshold;

#[cfg(test)]
mod balance;
