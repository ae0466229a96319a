//! Which switches are in which chain: by rendezvous hashing, so that a switch that comes or goes
//! moves little.

use decide::SwitchId;
use wire::mixed;

/// How much a chain wants a switch.
fn score(tenant: u32, chain: usize, switch: SwitchId) -> u64 {
    mixed(u64::from(tenant) << 32 ^ (chain as u64) << 16 ^ u64::from(switch))
}

/// These switches, those first that a chain wants most.
pub fn ranked(
    tenant: u32,
    chain: usize,
    switches: impl IntoIterator<Item = SwitchId>,
) -> Vec<SwitchId> {
    let mut all: Vec<SwitchId> = switches.into_iter().collect();
    all.sort_by_key(|switch| std::cmp::Reverse((score(tenant, chain, *switch), *switch)));
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_are_spread_and_who_goes_moves_nobody_else() {
        let head = |chain, switches: &[SwitchId]| ranked(7, chain, switches.to_vec())[0];
        let mut heads = [0; 4];
        for chain in 0..400 {
            let all = ranked(7, chain, [1, 2, 3, 4]);
            heads[usize::from(all[0]) - 1] += 1;
            let without: Vec<SwitchId> = all.iter().copied().filter(|s| *s != 3).collect();
            assert_eq!(ranked(7, chain, [1, 2, 4]), without);
        }
        assert!(heads.iter().all(|count| (60..140).contains(count)), "{heads:?}");
        assert_eq!(head(0, &[5]), 5);
    }
}
