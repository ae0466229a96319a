//! A tenant of madinc along a line of switches.

use decide::{Discipline, Limits};
use hot::testing::{Line, Zipf};

const TENANT: u32 = 5;

pub fn controller() -> Box<dyn Discipline> {
    madinc::controller(Limits::default())
}

/// Switches with so many pages each, whose ids are in no order along the line; this share of their
/// reports never arrives.
pub fn line_of(pages: &[u32], traffic: Zipf, lost: f64) -> Line {
    let id = |at: usize| 40 - 7 * at as u16;
    let switches: Vec<_> = pages.iter().enumerate().map(|(at, pages)| (id(at), *pages)).collect();
    let mut line = Line::new(controller(), TENANT, &switches, traffic, 11);
    line.lost = Some(lost);
    line
}
