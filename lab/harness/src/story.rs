//! Rows that are stories: several packets, each with what must come of it. What a row is made of is
//! its test's affair.

#[cfg(debug_assertions)]
use std::panic::catch_unwind;

#[cfg(debug_assertions)]
use dataplane::native::{Mutant, choose};

use crate::switch::in_this_process;

/// A row.
pub trait Story: std::panic::RefUnwindSafe {
    fn name(&self) -> &str;

    /// Tells it in a world of its own; panics if something else comes of it.
    fn run(&self);
}

/// Tells every story in the kernel and in this process.
pub fn check(stories: &[impl Story]) {
    for story in stories {
        println!("{}, in the kernel", story.name());
        story.run();
        println!("{}, in this process", story.name());
        in_this_process(|| story.run());
    }
}

/// Whether every story comes out although a rule is broken so; in this process.
#[cfg(debug_assertions)]
pub fn holds_with(mutant: Option<&Mutant>, stories: &[impl Story]) -> bool {
    choose(mutant);
    let run = |story| catch_unwind(|| in_this_process(|| Story::run(story))).is_ok();
    let holds = stories.iter().all(run);
    choose(None);
    holds
}
