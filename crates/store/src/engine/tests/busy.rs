//! A server that has little time.

use super::Engine;

/// From now on the engine's server has time for so many requests per second, of all partitions one
/// after the other, and `queue` may wait.
pub fn make_busy(engine: &mut Engine, per_s: u64, queue: u64) {
    let (cost_ns, mut free_ns) = (1_000_000_000 / per_s, 0_u64);
    engine.admit_by(Box::new(move |_, now_ns| {
        if free_ns.saturating_sub(now_ns) > cost_ns * queue {
            return None;
        }
        free_ns = free_ns.max(now_ns) + cost_ns;
        Some(free_ns)
    }));
}
