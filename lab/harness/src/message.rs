//! Packets of the protocol, built up by what is said about them:
//! `read(7, b"key").padded(128).vlan(5)`.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use wire::{Epoch, Flags, Header, Op, Packet, Secret, Status};

use crate::frame::Frame;

/// Tenant 0 has no secret, every other one this kind of secret.
pub fn secret_of(tenant: u32) -> Secret {
    if tenant == wire::TENANT_OPEN {
        return Secret::NONE;
    }
    Secret([tenant as u8; 16])
}

/// Where requests come from.
pub fn client(ipv6: bool) -> SocketAddr {
    SocketAddr::new(address(ipv6, 1), 40_001)
}

/// Where requests go to.
pub fn store(ipv6: bool) -> SocketAddr {
    SocketAddr::new(address(ipv6, 2), wire::PORT)
}

/// Host `last` of the tests' network.
pub fn address(ipv6: bool, last: u8) -> IpAddr {
    if ipv6 {
        return Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, last.into()).into();
    }
    Ipv4Addr::new(10, 0, 0, last).into()
}

/// A packet of ours on its way from one address to another.
#[derive(Clone, Debug)]
pub struct Message {
    pub header: Header,
    pub key: Vec<u8>,
    pub value: Vec<u8>,
    pub padding: usize,
    pub from: SocketAddr,
    pub to: SocketAddr,
    pub vlan: Option<u16>,
    pub hop_limit: u8,
    pub checksum: bool,
    /// A bit of its last byte flips on the way, behind the checksum's back.
    pub flipped: bool,
    /// Its host left the checksum to a device that it does not come to.
    pub unfinished: bool,
    /// Bits to flip in the tag.
    pub spoil: u64,
    /// Makes the tag.
    pub secret: Secret,
}

impl Message {
    fn new(op: Op, tenant: u32, key: &[u8]) -> Message {
        let header = Header {
            tenant,
            client: 0xc11e_0001,
            request: 20_001,
            key_hash: secret_of(tenant).key_hash(tenant, key),
            ..Header::new(op)
        };
        Message {
            header,
            key: key.into(),
            value: vec![],
            padding: 0,
            from: client(false),
            to: store(false),
            vlan: None,
            hop_limit: 61,
            checksum: true,
            flipped: false,
            unfinished: false,
            spoil: 0,
            secret: secret_of(if op.is_system() { wire::TENANT_SYSTEM } else { tenant }),
        }
    }

    pub fn read(tenant: u32, key: &[u8]) -> Message {
        Message::new(Op::ReadRequest, tenant, key)
    }

    pub fn write(tenant: u32, key: &[u8], value: &[u8]) -> Message {
        Message::new(Op::WriteRequest, tenant, key).value(value)
    }

    pub fn delete(tenant: u32, key: &[u8]) -> Message {
        Message::new(Op::DeleteRequest, tenant, key)
    }

    /// Any packet that a client sends.
    pub fn from_client(op: Op, tenant: u32, key: &[u8]) -> Message {
        Message::new(op, tenant, key)
    }

    /// Any packet that a store sends.
    pub fn from_store(op: Op, tenant: u32, key: &[u8]) -> Message {
        let there = Message::new(op, tenant, key);
        Message { from: there.to, to: there.from, ..there }
    }

    /// A reply that grants `value` to `switch` for `epoch`.
    pub fn grant(op: Op, tenant: u32, key: &[u8], value: &[u8], epoch: Epoch) -> Message {
        let mut reply = Message::from_store(op, tenant, key).value(value).epoch(epoch);
        reply.header.flags = Flags::GRANT;
        reply.header.version = 77;
        reply
    }

    /// A lease message, without a key.
    pub fn lease(op: Op, switch: u16, slot: u16) -> Message {
        let mut lease =
            Message::from_store(op, wire::TENANT_SYSTEM, b"").epoch(Epoch::new(switch, 0));
        lease.header.key_hash = Default::default();
        lease.header.client = 0;
        lease.header.request = slot.into();
        lease
    }

    /// As it is after this change.
    pub fn with(mut self, change: impl FnOnce(&mut Message)) -> Message {
        change(&mut self);
        self
    }

    pub fn value(mut self, value: &[u8]) -> Message {
        self.value = value.into();
        self
    }

    /// Room for a reply of a value of `bytes`.
    pub fn padded(mut self, bytes: usize) -> Message {
        self.padding = bytes.saturating_sub(self.value.len());
        self
    }

    pub fn epoch(mut self, epoch: Epoch) -> Message {
        self.header.epoch = epoch;
        self
    }

    pub fn flags(mut self, flags: Flags) -> Message {
        self.header.flags = flags;
        self
    }

    pub fn status(mut self, status: Status) -> Message {
        self.header.status = status;
        self
    }

    pub fn expiry_ms(mut self, expiry_ms: u32) -> Message {
        self.header.expiry_ms = expiry_ms;
        self
    }

    pub fn version(mut self, version: u64) -> Message {
        self.header.version = version;
        self
    }

    /// A key hash that is not the key's.
    pub fn hash_of(mut self, key: &[u8]) -> Message {
        let tenant = self.header.tenant;
        self.header.key_hash = secret_of(tenant).key_hash(tenant, key);
        self
    }

    pub fn over_ipv6(mut self) -> Message {
        for end in [&mut self.from, &mut self.to] {
            let IpAddr::V4(v4) = end.ip() else { continue };
            end.set_ip(address(true, v4.octets()[3]));
        }
        self
    }

    pub fn sent_by(mut self, from: IpAddr) -> Message {
        self.from.set_ip(from);
        self
    }

    pub fn vlan(mut self, tag: u16) -> Message {
        self.vlan = Some(tag);
        self
    }

    pub fn hop_limit(mut self, hop_limit: u8) -> Message {
        self.hop_limit = hop_limit;
        self
    }

    pub fn with_a_flipped_bit(mut self) -> Message {
        self.flipped = true;
        self
    }

    pub fn without_checksum(mut self) -> Message {
        self.checksum = false;
        self
    }

    /// As a socket of this machine leaves it to a device.
    pub fn unfinished(mut self) -> Message {
        self.unfinished = true;
        self
    }

    /// With the first request number from here on whose checksum is what a socket writes for a
    /// device to finish.
    pub fn that_seems_unfinished(mut self) -> Message {
        while !self.frame().seems_unfinished() {
            self.header.request += 1;
        }
        self
    }

    pub fn numbered(mut self, request: u64) -> Message {
        self.header.request = request;
        self
    }

    pub fn signed_with(mut self, secret: Secret) -> Message {
        self.secret = secret;
        self
    }

    pub fn with_a_wrong_tag(mut self) -> Message {
        self.spoil = 1 << 17;
        self
    }

    /// The UDP payload.
    pub fn payload(&self) -> Vec<u8> {
        let mut bytes = vec![];
        Packet::new(self.header, &self.key, &self.value)
            .encode(&self.secret, &mut bytes)
            .expect("lengths are possible");
        let tag = u64::from_be_bytes(bytes[72..80].try_into().expect("eight bytes"));
        bytes[72..80].copy_from_slice(&(tag ^ self.spoil).to_be_bytes());
        bytes.resize(bytes.len() + self.padding, 0);
        bytes
    }

    pub fn frame(&self) -> Frame {
        Frame {
            vlan: self.vlan,
            from: self.from,
            to: self.to,
            hop_limit: self.hop_limit,
            checksum: self.checksum,
            flipped: self.flipped,
            unfinished: self.unfinished,
            payload: self.payload(),
        }
    }
}
