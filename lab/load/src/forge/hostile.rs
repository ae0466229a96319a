//! What a tenant with a valid secret can send that no honest client does. Every packet is
//! well-formed and rightly signed.

use std::collections::VecDeque;

use rand::RngExt;
use seed::SeededRng;
use wire::{
    Epoch, Flags, Header, HolderProof, KeyHash, NodeId, Op, PART, PART_BYTES, Packet, Secret,
    Status, store_node,
};

use super::{Attack, alike::Alike};
use crate::{
    lives::Lives,
    tenant::Tenant,
    workload::{KEY_LEN, Key},
};

/// Numbers of the keys that are made up: above those of any honest load. Each attack that needs
/// some has as many for itself.
const MADE_UP: u64 = 100_000_000_000;
/// Keys that are written again and again.
const WRITTEN: u64 = 64;
/// Keys with values that are too large, asked for in turn; after [`PASSES`] of them others follow.
const LARGE: u64 = 128;
const PASSES: u64 = 32;
/// How often a key is asked for to be just about hot.
const JUST_HOT: u64 = 8;
/// Parts of a value that is read with all of them.
const PARTS: u64 = 8;
/// How often it is read before the next is written anew.
const READS: u64 = 31;
/// In the place of a version, in the read of a part: that of whatever the key holds.
const ANY_VERSION: u64 = u64::MAX;

/// Holders that have been answered, and go on from there, at most.
const HOLDERS: usize = 1024;

/// A holder that is made up, as far as a store has let it come.
struct MadeUpHolder {
    client: u64,
    /// The number that the store has given it; 0: none yet.
    number: NodeId,
    proof: HolderProof,
}

impl MadeUpHolder {
    /// The store that a client asks: which one its number says.
    fn store_of(client: u64) -> usize {
        (client & 0xff) as usize
    }
}

/// One packet of an attack.
pub(crate) struct Hostile {
    pub attack: Attack,
    header: Header,
    key: Key,
    value_len: usize,
    /// Bytes behind it, for an answer that is as long.
    padding: usize,
    /// The place of the store that it goes to, if that is not its key's.
    to: Option<usize>,
}

/// The packets of all attacks of one tenant, in turn.
pub(crate) struct Attacks {
    /// Switches have the ids from 1 to this one.
    switches: u16,
    /// Stores of the cluster.
    stores: usize,
    only: Option<Attack>,
    turn: u64,
    request: u64,
    alike: Alike,
    /// Of the stores, and of keys that are lent, by their place among those.
    lives: Lives,
    holders: VecDeque<MadeUpHolder>,
}

/// What all packets of one turn have in common.
struct Turn<'t> {
    attack: Attack,
    number: u64,
    tenant: &'t Tenant,
    client: u64,
    request: u64,
}

impl Turn<'_> {
    fn packet(&self, op: Op, key: Key) -> Hostile {
        let header = Header {
            tenant: self.tenant.id,
            client: self.client,
            request: self.request,
            key_hash: key.hash,
            key_len: KEY_LEN as u8,
            ..Header::new(op)
        };
        Hostile { attack: self.attack, header, key, value_len: 0, padding: 0, to: None }
    }

    /// A key of this number among those that the attack makes up.
    fn made_up(&self, number: u64) -> Key {
        self.tenant.keys.any((1 + self.attack as u64) * MADE_UP + number)
    }

    fn write(&self, key: Key, value_len: usize) -> Hostile {
        Hostile { value_len, ..self.packet(Op::WriteRequest, key) }
    }

    /// Writes a value in so many parts, all of them full.
    fn write_parts(&self, key: Key, parts: u64) -> Vec<Hostile> {
        let part = |number| {
            let mut write = self.write(key, PART_BYTES);
            write.header.total = total_of(parts);
            write.header.part = place_of(number);
            write
        };
        (0..parts).map(part).collect()
    }

    /// A read that takes a part of a value for an answer.
    fn read_part(&self, key: Key) -> Hostile {
        Hostile { padding: PART_BYTES, ..self.packet(Op::ReadRequest, key) }
    }
}

/// Bytes of a value of so many parts.
fn total_of(parts: u64) -> u32 {
    parts as u32 * PART_BYTES as u32
}

/// Where a part begins, as headers say it.
fn place_of(part: u64) -> u16 {
    part as u16 * (PART_BYTES / PART) as u16
}

impl Attacks {
    /// Of the tenant at this place among those of its generator, against switches of the ids 1 to
    /// `switches` and so many stores; all kinds, or one.
    pub fn new(
        tenant: &Tenant,
        place: usize,
        switches: u16,
        stores: usize,
        only: Option<Attack>,
    ) -> Attacks {
        let made_up = Attack::ALL.len() as u64 + 1;
        Attacks {
            switches: switches.max(1),
            stores,
            only,
            turn: 0,
            // Above those of honest load, and each tenant's apart.
            request: (1 + place as u64) << 40,
            alike: Alike::new(tenant, made_up * MADE_UP),
            lives: Lives::new(stores),
            holders: VecDeque::new(),
        }
    }

    /// The next packet in a tenant's name, and those that are to follow it at once.
    pub fn next(&mut self, tenant: &Tenant, client: u64, rng: &mut SeededRng) -> Vec<Hostile> {
        let kinds = Attack::ALL.len() as u64;
        let (attack, number) = match self.only {
            Some(attack) => (attack, self.turn),
            None => (Attack::ALL[(self.turn % kinds) as usize], self.turn / kinds),
        };
        self.turn += 1;
        // Two requests at most; they rise, as those of any client.
        let request = self.request;
        self.request += 2;
        let turn = Turn { attack, number, tenant, client, request };
        match attack {
            Attack::MadeUpGrants => {
                let key = turn.made_up(number % WRITTEN);
                let read = self.asks_for_grant(turn.packet(Op::ReadRequest, key), rng);
                let mut write = turn.write(key, 64);
                write.header.request += 1;
                vec![read, write]
            }
            Attack::EndlessGrants => {
                let key = honest_or_absent(&turn);
                vec![self.asks_for_grant(turn.packet(Op::ReadRequest, key), rng)]
            }
            Attack::Fetches => {
                let key = rng.random_range(0..tenant.keys.len() as u64);
                let fetch = turn.packet(Op::FetchRequest, tenant.keys.any(key));
                vec![self.asks_for_grant(fetch, rng)]
            }
            Attack::TooLarge => vec![too_large(&turn)],
            Attack::JustHot => vec![just_hot(&turn)],
            Attack::ReadTwice => {
                let read = || turn.packet(Op::ReadRequest, turn.made_up(number));
                let mut again = read();
                again.header.request += 1;
                vec![read(), again]
            }
            Attack::OneBucket => vec![turn.packet(Op::ReadRequest, self.alike.read(number))],
            Attack::MadeUpClients => {
                let mut write = turn.write(tenant.keys.any(number % WRITTEN), 64);
                write.header.client = rng.random();
                vec![write]
            }
            Attack::HalfSent => {
                let mut write = turn.write(tenant.keys.any(number % WRITTEN), PART_BYTES);
                write.header.total = wire::MAX_VALUE_DEFAULT;
                vec![write]
            }
            Attack::LongValues => long_values(&turn),
            Attack::AllParts => self.all_parts(&turn),
            Attack::OtherStores => vec![self.other_store(&turn)],
            Attack::Borrowed => vec![self.borrowed(&turn, rng)],
            Attack::HalfRequests => {
                let key = turn.made_up(number);
                vec![Hostile { value_len: 64, ..turn.packet(Op::DisciplineRequest, key) }]
            }
            Attack::MadeUpHolders => vec![self.made_up_holder(&turn, rng)],
        }
    }

    /// Takes note of what an answer to an attack says of the lives of keys that are lent: a write
    /// that names none of them is answered by no switch. And of what a store says to holders.
    pub fn hear(&mut self, tenant: &Tenant, answer: &Packet) {
        let header = &answer.header;
        let goes_on = matches!(header.status, Status::Ok | Status::TryAgain);
        if header.op == Op::HolderLeaseReply && goes_on && self.holders.len() < HOLDERS {
            self.holders.push_back(MadeUpHolder {
                client: header.client,
                number: header.epoch.switch(),
                proof: HolderProof::from_hash(header.key_hash),
            });
        }
        let is_write = answer.header.op == Op::WriteReply;
        let place = self.alike.place_of_lent(answer.key).filter(|_| is_write);
        if let Some(place) = place {
            let (_, key) = self.alike.lent(place.into());
            let (store, named) = (tenant.store_of(&key), self.life_of(tenant, place, &key));
            self.lives.heard(store, place, named, &answer.header);
        }
    }

    fn life_of(&self, tenant: &Tenant, place: u32, key: &Key) -> u16 {
        let own = self.lives.of_key(place);
        own.unwrap_or_else(|| self.lives.of_store(tenant.store_of(key)))
    }

    fn asks_for_grant(&self, mut packet: Hostile, rng: &mut SeededRng) -> Hostile {
        let switch = rng.random_range(1..=self.switches);
        packet.header.flags = Flags::GRANT;
        packet.header.epoch = Epoch::new(switch, rng.random_range(1..1 << 40));
        packet
    }

    fn all_parts(&self, turn: &Turn<'_>) -> Vec<Hostile> {
        let key = self.alike.long(turn.number / (1 + READS));
        if turn.number.is_multiple_of(1 + READS) {
            return turn.write_parts(key, PARTS);
        }
        let mut read = turn.read_part(key);
        read.header.flags = Flags::ALL;
        vec![read]
    }

    fn other_store(&self, turn: &Turn<'_>) -> Hostile {
        let key = honest_or_absent(turn);
        let other = (turn.tenant.store_of(&key) + 1) % self.stores;
        let (op, value_len) = match turn.number % 3 {
            2 => (Op::ReplicaUpdate, 64),
            _ => (Op::ReadRequest, 0),
        };
        let mut sent = turn.packet(op, key);
        sent.header.node = store_node(other).unwrap_or_default();
        Hostile { to: Some(other), value_len, ..sent }
    }

    /// Every third time another one begins; else one that was answered asks again with the token
    /// that it was given, or fetches a grant. What it is granted nobody writes, so that its silence
    /// is not noticed.
    fn made_up_holder(&mut self, turn: &Turn<'_>, rng: &mut SeededRng) -> Hostile {
        let goes_on = !turn.number.is_multiple_of(3);
        let holder = goes_on.then(|| self.holders.pop_front()).flatten();
        let holder = holder.unwrap_or_else(|| {
            let store = turn.number as usize % self.stores.min(0x100);
            let client = rng.random::<u64>() << 8 | store as u64;
            MadeUpHolder { client, number: 0, proof: HolderProof::default() }
        });
        let store = MadeUpHolder::store_of(holder.client);
        let keys = turn.tenant.keys.len() as u64;
        let unwritten = keys.saturating_sub(WRITTEN).max(1);
        let mut all = (0..unwritten)
            .map(|at| turn.tenant.keys.any(keys - 1 - (turn.number + at) % unwritten));
        let its = all.find(|key| turn.tenant.store_of(key) == store);
        let key = its.unwrap_or_else(|| turn.tenant.keys.any(0));
        let mut packet = match holder.number {
            0 => turn.packet(Op::HolderLeaseRequest, key),
            _ => turn.packet(Op::HolderFetch, key),
        };
        packet.header.client = holder.client;
        packet.header.epoch = Epoch::new(holder.number, 0);
        if holder.number == 0 {
            packet.header.version = turn.request;
            packet.header.key_hash = holder.proof.to_hash();
            packet.header.key_len = 0;
        } else {
            packet.header.request = holder.proof.token;
            packet.header.epoch = Epoch::new(holder.number, turn.request);
            packet.header.flags = Flags::GRANT;
        }
        Hostile { to: Some(store), ..packet }
    }

    fn borrowed(&self, turn: &Turn<'_>, rng: &mut SeededRng) -> Hostile {
        let (place, key) = self.alike.lent(turn.number);
        let mut write = turn.write(key, 64);
        write.header.client = rng.random();
        write.header.life = self.life_of(turn.tenant, place, &key);
        write
    }
}

/// A key of the tenant, or every other time one that is not there.
fn honest_or_absent(turn: &Turn<'_>) -> Key {
    match turn.number % 2 {
        0 => turn.tenant.keys.any(turn.number / 2 % turn.tenant.keys.len() as u64),
        _ => turn.made_up(turn.number),
    }
}

fn too_large(turn: &Turn<'_>) -> Hostile {
    let (pass, at) = (turn.number / LARGE, turn.number % LARGE);
    let key = turn.made_up(pass / PASSES * LARGE + at);
    match pass % PASSES {
        0 => turn.write(key, wire::max_value(KEY_LEN)),
        _ => turn.packet(Op::ReadRequest, key),
    }
}

fn just_hot(turn: &Turn<'_>) -> Hostile {
    let number = turn.number / JUST_HOT;
    let mut read = turn.packet(Op::ReadRequest, turn.made_up(number));
    if number % 2 == 1 {
        // The same for each of its requests.
        let claimed = Secret([7; 16]).key_hash(turn.tenant.id, &number.to_be_bytes());
        read.header.key_hash = KeyHash(claimed.0);
    }
    read
}

/// Each value has two parts; a turn later it is read from its first, then from its second on.
fn long_values(turn: &Turn<'_>) -> Vec<Hostile> {
    let key = turn.made_up(turn.number / 3);
    match turn.number % 3 {
        0 => turn.write_parts(key, 2),
        1 => vec![turn.read_part(key)],
        _ => {
            let mut read = turn.read_part(key);
            read.header.total = total_of(2);
            read.header.part = place_of(1);
            read.header.version = ANY_VERSION;
            vec![read]
        }
    }
}

impl Hostile {
    /// Where it is to go: as an honest request for its key would, unless it says otherwise.
    pub fn store(&self, tenant: &Tenant) -> usize {
        self.to.unwrap_or_else(|| tenant.store_of(&self.key))
    }

    /// Writes it, signed by its tenant, over what is there.
    pub fn write(&self, tenant: &Tenant, to: &mut Vec<u8>) {
        to.clear();
        let value = vec![0x5a; self.value_len];
        let key = if self.header.op.has_key() { &self.key.bytes[..] } else { &[] };
        let packet = Packet::new(self.header, key, &value);
        packet.encode(&tenant.secret, to).expect("its lengths fit");
        to.resize(to.len() + self.padding, 0);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use super::*;
    use wire::{Cluster, Status};

    const TURNS: usize = 10_000;

    fn tenant() -> Tenant {
        let mut cluster = Cluster::single("10.0.0.1:7117".parse().unwrap(), 4);
        cluster.tenants.push(wire::Tenant::new(7, format!("{:032x}", 99)));
        let config = serde_json::json!({
            "cluster": cluster, "keys": 100, "value_len": 64, "seed": 1,
        });
        let config = serde_json::from_value(config).unwrap();
        Tenant::new(&config, 7).unwrap()
    }

    /// What was seen of the packets of one kind.
    #[derive(Default)]
    struct PacketCounts {
        sent: usize,
        stamped: usize,
        written: usize,
        misnamed: usize,
        elsewhere: usize,
        keys: BTreeSet<Vec<u8>>,
        clients: BTreeSet<u64>,
    }

    #[test]
    fn every_kind_comes_well_formed_and_signed() {
        let tenant = tenant();
        let mut attacks = Attacks::new(&tenant, 0, 2, 3, None);
        let mut rng = seed::rng(1, "hostile");
        let mut seen: BTreeMap<Attack, PacketCounts> = BTreeMap::new();
        let (mut ids, mut bytes) = (BTreeSet::new(), vec![]);
        for _ in 0..TURNS * Attack::ALL.len() {
            for hostile in attacks.next(&tenant, 5, &mut rng) {
                hostile.write(&tenant, &mut bytes);
                assert!(bytes.len() <= wire::MAX_PAYLOAD);
                let packet = Packet::decode(&bytes).unwrap();
                assert!(packet.tag_is_valid(&tenant.secret));
                let header = &packet.header;
                assert!(ids.insert((header.client, header.request, header.part)));
                let of = seen.entry(hostile.attack).or_default();
                of.sent += 1;
                of.stamped += usize::from(header.epoch.switch() > 0);
                of.written += usize::from(header.op == Op::WriteRequest);
                if header.op.has_key() {
                    of.misnamed += usize::from(header.key_hash != tenant_hash(packet.key));
                    of.elsewhere +=
                        usize::from(hostile.store(&tenant) != tenant.store_of(&hostile.key));
                }
                of.keys.insert(packet.key.to_vec());
                of.clients.insert(header.client);
            }
        }
        assert_eq!(seen.len(), Attack::ALL.len());
        let count = |of: fn(&PacketCounts) -> usize| {
            let counted = seen.iter().filter(|(_, seen)| of(seen) > 0);
            counted.map(|(attack, seen)| (*attack, of(seen))).collect::<Vec<_>>()
        };
        assert!(seen.values().all(|of| of.sent >= TURNS));
        let stamping = [Attack::MadeUpGrants, Attack::EndlessGrants, Attack::Fetches];
        assert_eq!(count(|of| of.stamped), stamping.map(|attack| (attack, TURNS)));
        assert_eq!(count(|of| of.misnamed), [(Attack::JustHot, TURNS / 2)]);
        assert_eq!(count(|of| of.elsewhere), [(Attack::OtherStores, TURNS)]);
        let written = [
            Attack::MadeUpGrants,
            Attack::TooLarge,
            Attack::MadeUpClients,
            Attack::HalfSent,
            Attack::LongValues,
            Attack::AllParts,
            Attack::Borrowed,
        ];
        assert_eq!(
            count(|of| of.written).iter().map(|(attack, _)| *attack).collect::<Vec<_>>(),
            written
        );
        for (attack, keys) in [(Attack::ReadTwice, TURNS), (Attack::HalfRequests, TURNS)] {
            assert_eq!(seen[&attack].keys.len(), keys, "{attack:?}");
        }
        for attack in [Attack::MadeUpClients, Attack::Borrowed, Attack::MadeUpHolders] {
            assert_eq!(seen[&attack].clients.len(), TURNS, "{attack:?}");
        }
        let alike = [Attack::OneBucket, Attack::AllParts, Attack::Borrowed];
        let ends = alike.iter().flat_map(|attack| &seen[attack].keys);
        let ends: BTreeSet<u64> = ends.map(|key| tenant_hash(key).low() & 0xfff).collect();
        assert_eq!(ends.len(), 1, "one bucket and one set");
    }

    #[test]
    fn who_borrows_names_the_life_that_he_hears_of() {
        let tenant = tenant();
        let mut attacks = Attacks::new(&tenant, 0, 2, 1, Some(Attack::Borrowed));
        let mut rng = seed::rng(1, "hostile");
        let mut next = |attacks: &mut Attacks| {
            let mut packets = attacks.next(&tenant, 5, &mut rng);
            packets.pop().unwrap()
        };
        let first = next(&mut attacks);
        assert_eq!(first.header.life, wire::LIFE_UNKNOWN);
        let refusal = Header {
            status: Status::OtherLife,
            flags: Flags::CACHED,
            life: 90,
            ..Header { op: Op::WriteReply, ..first.header }
        };
        attacks.hear(&tenant, &Packet::new(refusal, &first.key.bytes, &[]));
        let lives = [(); super::super::alike::LENT].map(|()| next(&mut attacks));
        let named = lives.iter().filter(|write| write.header.life == 90);
        let named: Vec<_> = named.map(|write| write.key.bytes).collect();
        assert_eq!(named, [first.key.bytes], "it is the life of one key");
    }

    #[test]
    fn a_made_up_holder_does_what_a_store_asks_of_one() {
        let tenant = tenant();
        let mut attacks = Attacks::new(&tenant, 0, 2, 3, Some(Attack::MadeUpHolders));
        let mut rng = seed::rng(1, "hostile");
        let mut next = |attacks: &mut Attacks| attacks.next(&tenant, 5, &mut rng).pop().unwrap();
        let first = next(&mut attacks);
        assert_eq!(first.header.op, Op::HolderLeaseRequest);
        let mut answer = |attacks: &mut Attacks, status, number, token, term| {
            let header = Header {
                status,
                epoch: Epoch::new(number, 0),
                key_hash: HolderProof { token, term }.to_hash(),
                ..Header { op: Op::HolderLeaseReply, ..first.header }
            };
            attacks.hear(&tenant, &Packet::new(header, &[], &[]));
            next(attacks)
        };
        let again = answer(&mut attacks, Status::TryAgain, 0, 71, 0);
        let proof = HolderProof::from_hash(again.header.key_hash);
        assert_eq!((again.header.op, proof.token), (Op::HolderLeaseRequest, 71));
        let fetch = answer(&mut attacks, Status::Ok, 0xc001, 72, 9);
        assert_eq!((fetch.header.op, fetch.header.request), (Op::HolderFetch, 72));
        assert_eq!(fetch.header.epoch.switch(), 0xc001);
        for packet in [&again, &fetch] {
            assert_eq!(packet.header.client, first.header.client);
            assert_eq!(packet.store(&tenant), first.store(&tenant));
        }
    }

    fn tenant_hash(key: &[u8]) -> KeyHash {
        let mut secret = [0; 16];
        secret[15] = 99;
        Secret(secret).key_hash(7, key)
    }
}
