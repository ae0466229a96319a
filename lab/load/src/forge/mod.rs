//! Requests that nobody is entitled to send: what a guesser of numbers and tags would try, and what
//! a tenant with a valid secret could ([`hostile`]).

mod alike;
mod attack;
mod hostile;

pub use attack::Attack;
pub(super) use hostile::Attacks;

use rand::RngExt;
use seed::SeededRng;
use wire::{Packet, Status, TENANT_OPEN, TENANT_SYSTEM};

use super::{PhaseResult, window::SentRequest};

/// Where the tenant's number and the tag stand in a request.
const TENANT: std::ops::Range<usize> = 4..8;
const TAG: std::ops::Range<usize> = 72..80;

/// Gives a genuine request a random tag, and half the time a random tenant.
pub(super) fn spoil(bytes: &mut [u8], rng: &mut SeededRng) {
    if rng.random::<bool>() {
        let tenant = rng.random_range(TENANT_OPEN + 1..TENANT_SYSTEM);
        bytes[TENANT].copy_from_slice(&tenant.to_be_bytes());
    }
    bytes[TAG].copy_from_slice(&rng.random::<u64>().to_be_bytes());
}

/// Counts an answer to a forged request: a refusal says "who are you?", everything else gives
/// something away.
pub(super) fn take_answer(result: &mut PhaseResult, packet: &Packet, sent: &SentRequest) {
    let accepted = !matches!(packet.header.status, Status::Denied);
    result.forged_accepted += u64::from(accepted);
    if let Some(counts) = result.intervals.get_mut(sent.interval as usize) {
        counts.lost += 1;
        result.lost += 1;
        result.refused += 1;
    }
}

#[cfg(test)]
mod tests {
    use wire::{Header, Op, Secret};

    use super::*;
    use seed::rng;

    #[test]
    fn what_is_spoiled_fits_no_secret() {
        let secret = Secret([3; 16]);
        let header = Header { tenant: 7, ..Header::new(Op::ReadRequest) };
        let mut genuine = vec![];
        Packet::new(header, b"key", &[]).encode(&secret, &mut genuine).unwrap();
        let mut rng = rng(1, "forge");
        let mut own = 0;
        for _ in 0..1000 {
            let mut bytes = genuine.clone();
            spoil(&mut bytes, &mut rng);
            let packet = Packet::decode(&bytes).unwrap();
            own += u32::from(packet.header.tenant == 7);
            assert_ne!(bytes[TAG], genuine[TAG]);
            assert_ne!(packet.header.tenant, TENANT_OPEN);
        }
        assert!((400..600).contains(&own), "{own} of 1000 in the tenant's name");
    }
}
