//! The shortstop packet and the words that every other crate shares about it.
//!
//! Bytes flow in ([`Packet::decode`]) and out ([`Packet::encode`]); nothing here opens a socket,
//! reads a clock or allocates more than the packet itself. Every other crate calls this one; it
//! calls none of them. The cluster file needs a TOML parser, so it stands behind the feature
//! `cluster`. The specification with its byte offsets is `docs/protocol.md`; `bpf/wire.h` is the
//! same layout for the data plane, and both check the vectors in `vectors.json`.

#![deny(unsafe_code)]

mod address;
mod backend_name;
mod cluster;
mod error;
mod hash;
mod header;
mod holder_proof;
mod lengths;
mod life;
pub mod maps;
mod mixed;
mod op;
mod packet;
mod read_count;
mod scheme;
mod store;
#[cfg(test)]
mod tests;

// What the fuzzer checks calls this crate by its name, and the tests run it too.
#[cfg(test)]
extern crate self as wire;

pub use backend_name::{backend_name, key_of_backend_name};
pub use cluster::{
    Cluster, ClusterError, OverRate, Secrets, SwitchPlace, Tenant, WRITE_BACK_MS, check_write_back,
};
pub use error::{DecodeError, EncodeError};
pub use hash::{KeyHash, Secret, partition_of};
pub use header::{Epoch, Flags, Header, PART, PART_BYTES, Status};
pub use holder_proof::HolderProof;
pub use lengths::Lengths;
pub use life::{GoesOn, goes_on, life_of_key, life_of_store};
pub use mixed::mixed;
pub use op::Op;
pub use packet::Packet;
pub use read_count::ReadCount;
pub use scheme::{CLUSTER_SLOTS, Digest, KeyHasher, KeyPlaces, PoolServer, Scheme, cluster_slot};
pub use store::Store;

/// A switch's number, 1 to [`SWITCH_MOST`], unique in a cluster.
pub type SwitchId = u16;
/// Who may hold copies of a key: a switch by its number, a store as [`NODE_STORE`] with its place
/// in the cluster file's list, or a holder at the clients' side as the number from [`NODE_HOLDER`]
/// on that the key's store has given it. Stands in [`Epoch`] and in [`Header::node`]; never 0.
pub type NodeId = u16;

/// The highest number that a switch can have.
pub const SWITCH_MOST: SwitchId = NODE_STORE - 1;
/// The bit that a store's [`NodeId`] has, or a holder's, and no switch's.
pub const NODE_STORE: NodeId = 0x8000;
/// The first number that a store gives to a holder; each store gives its own.
pub const NODE_HOLDER: NodeId = 0xc000;
/// In a write's [`Header::node`]: a switch has sent it to the stores that hold copies of its key,
/// too. No store's number.
pub const NODE_ALL: NodeId = 0xffff;
/// Stores that a cluster can have.
pub const STORES_MOST: usize = (NODE_HOLDER - NODE_STORE) as usize;
/// Holders that a store can have at a time.
pub const HOLDERS_MOST: usize = (NODE_ALL - NODE_HOLDER) as usize;

/// The [`NodeId`] of the store at this place of the cluster file's list; `None` beyond
/// [`STORES_MOST`].
pub fn store_node(at: usize) -> Option<NodeId> {
    (at < STORES_MOST).then_some(NODE_STORE | at as NodeId)
}

/// The place in the cluster file's list of the store with this number; `None` if it is no store's.
pub fn store_at(node: NodeId) -> Option<usize> {
    is_store(node).then_some(usize::from(node & !NODE_STORE))
}

/// Whether a number is a store's.
pub const fn is_store(node: NodeId) -> bool {
    node >= NODE_STORE && node < NODE_HOLDER
}

/// Whether a number is one that a store gives to a holder.
pub const fn is_holder(node: NodeId) -> bool {
    node >= NODE_HOLDER && node < NODE_ALL
}

/// The reserved UDP port of requests, replies and control messages.
pub const PORT: u16 = 7117;
/// First byte of every packet: magic `0xA` in the high half, protocol version 2 in the low half.
pub const MAGIC_VERSION: u8 = 0xA2;
/// Length of the fixed header in bytes.
pub const HEADER_LEN: usize = 80;
/// What a reply with [`Status::BackendError`] says as the version where the backend has refused
/// the request, or was not asked: nothing was done, and the value is its words.
pub const BACKEND_REFUSED: u64 = 1;
/// Bytes of the header, from its first, that a reply repeats of its request.
pub const SHARED_LEN: usize = 40;
/// Longest key in bytes (memcached's limit).
pub const MAX_KEY: usize = 250;
/// Longest UDP payload in bytes that fits an Ethernet frame of 1500 bytes over IPv4.
pub const MAX_PAYLOAD: usize = 1472;
/// What a write says as the store's life if its client has not heard of it yet: no store has it, so
/// each answers with its own.
pub const LIFE_UNKNOWN: u16 = 1;
/// The age of a key's life, in OtherLife, by which a store says that it will never do this write in
/// the life that it named: its client may send it in the key's, whenever that began.
pub const LIFE_MOVED: u32 = u32::MAX;
/// `expiry_ms` of a HolderAck whose holder had no copy, and none on its way.
pub const HAD_NONE: u32 = u32::MAX;
/// First byte of keys that no user has: whatever keeps users' keys in switches alone keeps what it
/// needs beside them under such keys.
pub const OWN_KEYS: u8 = 0;
/// The tenant of unkeyed requests, there for trying things out.
pub const TENANT_OPEN: u32 = 0;
/// The tenant under which switches, stores and controllers sign what they say to one another.
pub const TENANT_SYSTEM: u32 = u32::MAX;
/// Expected version in a conditional write that must find the key absent.
pub const VERSION_ABSENT: u64 = 0;
/// Expected version in a conditional write that must find the key present, whatever its version.
pub const VERSION_PRESENT: u64 = u64::MAX;
/// Expected version in a conditional delete that removes nothing, but invalidates all copies, as
/// any write does. It never holds, since versions begin with the seconds since 1970.
pub const VERSION_NEVER: u64 = 1;

/// Longest value in bytes unless the cluster file says otherwise ([`Cluster::max_value`]).
pub const MAX_VALUE_DEFAULT: u32 = 1 << 20;
/// The longest that it may say: what `part` can count.
pub const MAX_VALUE_MOST: u32 = 16 << 20;

/// Longest value in bytes that fits one packet (1500-byte Ethernet, IPv4) beside a key of `key_len`
/// bytes.
pub const fn max_value(key_len: usize) -> usize {
    (MAX_PAYLOAD - HEADER_LEN).saturating_sub(key_len)
}
