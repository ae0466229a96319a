//! What a tenant with a valid secret can send that no honest client does. Every packet is
//! well-formed and rightly signed.

use rand::RngExt;
use seed::SeededRng;
use wire::{Epoch, Flags, Header, KeyHash, Op, PART_BYTES, Packet, Secret};

use super::Attack;
use crate::{
    tenant::Tenant,
    workload::{KEY_LEN, Key},
};

/// Numbers of the keys that are made up: above those of any honest load.
const MADE_UP: u64 = 1_000_000_000_000;
/// Keys of [`Attack::MadeUpGrants`] that are written again and again.
const WRITTEN: u64 = 64;
/// Keys with values that are too large, asked for in turn; after [`PASSES`] of them others follow.
const LARGE: u64 = 128;
const PASSES: u64 = 32;
/// How often a key is asked for to be just about hot.
const JUST_HOT: u64 = 8;

/// One packet of an attack.
pub(crate) struct Hostile {
    pub attack: Attack,
    header: Header,
    key: Key,
    value_len: usize,
}

/// The packets of all attacks, in turn.
pub(crate) struct Attacks {
    /// Switches have the ids from 1 to this one.
    switches: u16,
    only: Option<Attack>,
    turn: u64,
    request: u64,
}

impl Attacks {
    /// Against switches of the ids 1 to `switches`; all kinds, or one.
    pub fn new(switches: u16, only: Option<Attack>) -> Attacks {
        Attacks {
            switches: switches.max(1),
            only,
            turn: 0,
            // Above those of honest load.
            request: 1 << 40,
        }
    }

    /// The next packet in a tenant's name, and the one that is to follow it at once.
    pub fn next(
        &mut self,
        tenant: &Tenant,
        client: u64,
        rng: &mut SeededRng,
    ) -> [Option<Hostile>; 2] {
        let kinds = Attack::ALL.len() as u64;
        let (attack, turn) = match self.only {
            Some(attack) => (attack, self.turn),
            None => (Attack::ALL[(self.turn % kinds) as usize], self.turn / kinds),
        };
        self.turn += 1;
        // Two packets at most; they rise, as those of any client.
        let request = self.request;
        self.request += 2;
        let packet = |op, key: Key| Hostile {
            attack,
            header: Header {
                tenant: tenant.id,
                client,
                request,
                key_hash: key.hash,
                key_len: KEY_LEN as u8,
                ..Header::new(op)
            },
            key,
            value_len: 0,
        };
        let asks_for_grant = |mut packet: Hostile, rng: &mut SeededRng| {
            let switch = rng.random_range(1..=self.switches);
            packet.header.flags = Flags::GRANT;
            packet.header.epoch = Epoch::new(switch, rng.random_range(1..1 << 40));
            packet
        };
        let large = wire::max_value(KEY_LEN);
        match attack {
            Attack::MadeUpGrants => {
                let key = tenant.keys.any(MADE_UP + turn % WRITTEN);
                let read = asks_for_grant(packet(Op::ReadRequest, key), rng);
                let mut write = packet(Op::WriteRequest, key);
                write.header.request += 1;
                write.value_len = 64;
                [Some(read), Some(write)]
            }
            Attack::EndlessGrants => {
                let number = match turn % 2 {
                    0 => turn / 2 % tenant.keys.len() as u64,
                    _ => 2 * MADE_UP + turn,
                };
                let read = packet(Op::ReadRequest, tenant.keys.any(number));
                [Some(asks_for_grant(read, rng)), None]
            }
            Attack::Fetches => {
                let number = rng.random_range(0..tenant.keys.len() as u64);
                let fetch = packet(Op::FetchRequest, tenant.keys.any(number));
                [Some(asks_for_grant(fetch, rng)), None]
            }
            Attack::TooLarge => {
                let (pass, at) = (turn / LARGE, turn % LARGE);
                let key = tenant.keys.any(3 * MADE_UP + pass / PASSES * LARGE + at);
                let write = pass % PASSES == 0;
                let mut packet =
                    packet([Op::ReadRequest, Op::WriteRequest][usize::from(write)], key);
                packet.value_len = if write { large } else { 0 };
                [Some(packet), None]
            }
            Attack::JustHot => {
                let number = turn / JUST_HOT;
                let mut read = packet(Op::ReadRequest, tenant.keys.any(4 * MADE_UP + number));
                if number % 2 == 1 {
                    // The same for each of its requests.
                    let claimed = Secret([7; 16]).key_hash(tenant.id, &number.to_be_bytes());
                    read.header.key_hash = KeyHash(claimed.0);
                }
                [Some(read), None]
            }
            Attack::MadeUpClients => {
                let mut write = packet(Op::WriteRequest, tenant.keys.any(turn % WRITTEN));
                write.header.client = rng.random();
                write.value_len = 64;
                [Some(write), None]
            }
            Attack::HalfSent => {
                let mut write = packet(Op::WriteRequest, tenant.keys.any(turn % WRITTEN));
                write.header.total = wire::MAX_VALUE_DEFAULT;
                write.value_len = PART_BYTES;
                [Some(write), None]
            }
        }
    }
}

impl Hostile {
    /// Where it is to go: as an honest request for its key would.
    pub fn store(&self, tenant: &Tenant) -> usize {
        tenant.store_of(&self.key)
    }

    /// Writes it, signed by its tenant, over what is there.
    pub fn write(&self, tenant: &Tenant, to: &mut Vec<u8>) {
        to.clear();
        let value = vec![0x5a; self.value_len];
        let packet = Packet::new(self.header, &self.key.bytes, &value);
        packet.encode(&tenant.secret, to).expect("its lengths fit");
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use wire::Cluster;

    #[test]
    fn every_kind_comes_well_formed_and_signed() {
        let mut cluster = Cluster::single("10.0.0.1:7117".parse().unwrap(), 4);
        cluster.tenants.push(wire::Tenant {
            id: 7,
            secret: format!("{:032x}", 99),
            also_secret: None,
            hash_secret: None,
            rate: 0,
            over_rate: wire::OverRate::Forward,
            write_back_ms: 0,
            stores: vec![],
        });
        let config = serde_json::json!({
            "cluster": cluster, "keys": 100, "value_len": 64, "seed": 1,
        });
        let config = serde_json::from_value(config).unwrap();
        let tenant = Tenant::new(&config, 7).unwrap();
        let (mut attacks, mut rng) = (Attacks::new(2, None), seed::rng(1, "hostile"));
        let (mut seen, mut ids) = (BTreeMap::new(), std::collections::BTreeSet::new());
        let mut bytes = vec![];
        for _ in 0..140_000 {
            for hostile in attacks.next(&tenant, 5, &mut rng).into_iter().flatten() {
                hostile.write(&tenant, &mut bytes);
                let packet = Packet::decode(&bytes).unwrap();
                assert!(packet.tag_is_valid(&tenant.secret));
                let header = &packet.header;
                assert!(ids.insert((header.client, header.request)));
                let of: &mut [u64; 4] = seen.entry(hostile.attack).or_default();
                of[0] += 1;
                of[1] += u64::from(header.epoch.switch() > 0);
                of[2] += u64::from(header.op == Op::WriteRequest);
                let own = tenant_hash(header.tenant, packet.key);
                of[3] += u64::from(header.key_hash != own);
            }
        }
        let [sent, stamped, written, misnamed] =
            [0, 1, 2, 3].map(|what| Attack::ALL.map(|attack| seen[&attack][what]));
        assert!(sent.iter().all(|count| *count >= 20_000), "{sent:?}");
        assert_eq!(stamped, [20_000, 20_000, 20_000, 0, 0, 0, 0]);
        assert_eq!([written[0], written[5], written[6]], [20_000; 3]);
        assert!(written[3] > 100, "{written:?}");
        assert_eq!(misnamed, [0, 0, 0, 0, 10_000, 0, 0]);
    }

    fn tenant_hash(tenant: u32, key: &[u8]) -> KeyHash {
        let mut secret = [0; 16];
        secret[15] = 99;
        Secret(secret).key_hash(tenant, key)
    }
}
