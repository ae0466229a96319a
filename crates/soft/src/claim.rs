//! Keeps the kernel from handling the packets that a soft switch takes: packet sockets get copies,
//! and the kernel would forward, deliver or refuse its own as well.
//!
//! An nftables table of the switch's own drops them before they are routed. It belongs to a socket
//! of this process, so the kernel removes it when the process ends, however it ends: then it
//! forwards everything again, as behind a switch that was detached. Kernels before 5.12 know no
//! owners; there the table is named after the switch, removed at the end, and by the next start
//! should the end have been sudden. Until then nothing of ours passes that machine.

use std::io;

use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_NETFILTER};

use crate::ours::{self, Check};

const NEW_TABLE: u8 = 0;
const DELETE_TABLE: u8 = 2;
const NEW_CHAIN: u8 = 3;
const NEW_RULE: u8 = 6;
/// The table goes with the socket that made it.
const OWNED: u32 = 2;
/// Before the kernel puts fragments together, and before connections are tracked.
const PRIORITY: i32 = -450;
const PRE_ROUTING: u32 = 0;
const REGISTER: u32 = 1;
const CHAIN: &str = "taken";

/// While it is held, the kernel drops what is ours on these interfaces.
pub struct Claim {
    socket: Socket,
    table: String,
    owned: bool,
}

impl Claim {
    /// On interfaces by their index, for a switch of that name.
    ///
    /// # Errors
    /// No nftables in this kernel, no CAP_NET_ADMIN, or a switch of that name holds one here.
    pub fn new(name: &str, interfaces: &[u32]) -> io::Result<Claim> {
        match Claim::held(name, interfaces, true) {
            Err(e) if matches!(e.raw_os_error(), Some(libc::EOPNOTSUPP | libc::EINVAL)) => {
                Claim::held(name, interfaces, false)
            }
            other => other,
        }
    }

    fn held(name: &str, interfaces: &[u32], owned: bool) -> io::Result<Claim> {
        let claim = Claim::connect(name, owned)?;
        match claim.make(interfaces) {
            Err(e) if e.raw_os_error() == Some(libc::EEXIST) => {
                claim.remove()?;
                claim.make(interfaces)?;
            }
            other => other?,
        }
        Ok(claim)
    }

    fn connect(name: &str, owned: bool) -> io::Result<Claim> {
        let socket = Socket::new(NETLINK_NETFILTER)?;
        socket.connect(&SocketAddr::new(0, 0))?;
        let table = format!("shortstop-{name}");
        Ok(Claim { socket, table, owned })
    }

    /// Removes the table of this name that is ours or nobody's.
    fn remove(&self) -> io::Result<()> {
        match self.send(vec![self.message(DELETE_TABLE, 0, &self.named(1))]) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
            other => other,
        }
    }

    /// All of it or nothing.
    fn make(&self, interfaces: &[u32]) -> io::Result<()> {
        const EXCLUSIVE: u16 = (libc::NLM_F_CREATE | libc::NLM_F_EXCL) as u16;
        const APPEND: u16 = (libc::NLM_F_CREATE | libc::NLM_F_APPEND) as u16;
        let flags = if self.owned { OWNED } else { 0 };
        let table = self.named(1).number(2, flags);
        let hook = Attributes::default().number(1, PRE_ROUTING).number(2, PRIORITY as u32);
        let chain = self.named(1).text(3, CHAIN).nest(4, hook).text(7, "filter");
        let mut messages = vec![
            self.message(NEW_TABLE, EXCLUSIVE, &table),
            self.message(NEW_CHAIN, EXCLUSIVE, &chain),
        ];
        for interface in interfaces {
            for rule in ours::rules() {
                let came_in =
                    Attributes::default().meta(INTERFACE).compare(EQUAL, &interface.to_ne_bytes());
                let all =
                    rule.iter().fold(came_in, |all, check| check.expressions(all)).drop_packet();
                let rule = self.named(1).text(2, CHAIN).nest(4, all);
                messages.push(self.message(NEW_RULE, APPEND, &rule));
            }
        }
        self.send(messages)
    }

    fn named(&self, attribute: u16) -> Attributes {
        Attributes::default().text(attribute, &self.table)
    }

    fn message(&self, kind: u8, flags: u16, attributes: &Attributes) -> Vec<u8> {
        const NFT: u16 = (libc::NFNL_SUBSYS_NFTABLES as u16) << 8;
        message(NFT | u16::from(kind), flags, libc::NFPROTO_INET as u8, 0, &attributes.0)
    }

    /// As one transaction; the first thing that was refused is the error.
    fn send(&self, messages: Vec<Vec<u8>>) -> io::Result<()> {
        const BEGIN: u16 = libc::NFNL_MSG_BATCH_BEGIN as u16;
        const END: u16 = libc::NFNL_MSG_BATCH_END as u16;
        const NFT: u16 = libc::NFNL_SUBSYS_NFTABLES as u16;
        let mut bytes = message(BEGIN, 0, 0, NFT, &[]);
        let last = messages.len() - 1;
        for (n, mut message) in messages.into_iter().enumerate() {
            if n == last {
                // What was refused before is told all the same.
                message[6] |= libc::NLM_F_ACK as u8;
            }
            bytes.extend(message);
        }
        bytes.extend(message(END, 0, 0, NFT, &[]));
        self.socket.send(&bytes, 0)?;
        let (answer, _) = self.socket.recv_from_full()?;
        let first = result(&answer)?;
        // Answers to the rest may be on their way: the next question must not meet them.
        self.socket.set_non_blocking(true)?;
        while self.socket.recv_from_full().is_ok() {}
        self.socket.set_non_blocking(false)?;
        first
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        // Also if it is owned: a child that this process is just starting may have the socket for a
        // moment longer.
        if let Err(e) = self.remove() {
            tracing::warn!(
                "nftables table {}: {e}; `nft delete table inet {0}` removes it",
                self.table
            );
        }
    }
}

/// The error that an answer carries, or none.
fn result(answer: &[u8]) -> io::Result<io::Result<()>> {
    let short = || io::Error::from(io::ErrorKind::InvalidData);
    let code: [u8; 4] = answer.get(16..20).and_then(|b| b.try_into().ok()).ok_or_else(short)?;
    Ok(match i32::from_ne_bytes(code) {
        0 => Ok(()),
        code => Err(io::Error::from_raw_os_error(-code)),
    })
}

/// A netlink message with the header of netfilter.
fn message(kind: u16, flags: u16, family: u8, resource: u16, body: &[u8]) -> Vec<u8> {
    let len = 20 + body.len() as u32;
    let mut bytes = len.to_ne_bytes().to_vec();
    bytes.extend(kind.to_ne_bytes());
    bytes.extend((flags | libc::NLM_F_REQUEST as u16).to_ne_bytes());
    bytes.extend([0; 8]);
    bytes.extend([family, 0]);
    bytes.extend(resource.to_be_bytes());
    bytes.extend(body);
    bytes
}

/// What `meta` loads.
const LENGTH: u32 = 0;
const INTERFACE: u32 = 4;
const FAMILY: u32 = 15;
const PACKET_TYPE: u32 = 19;
/// How `cmp` compares.
const EQUAL: u32 = 0;
const AT_MOST: u32 = 3;

/// Netlink attributes one behind the other. Numbers are in network byte order, as all of
/// nftables' are.
#[derive(Default)]
struct Attributes(Vec<u8>);

impl Attributes {
    fn raw(mut self, kind: u16, bytes: &[u8]) -> Attributes {
        self.0.extend((4 + bytes.len() as u16).to_ne_bytes());
        self.0.extend(kind.to_ne_bytes());
        self.0.extend(bytes);
        self.0.resize(self.0.len().next_multiple_of(4), 0);
        self
    }

    fn number(self, kind: u16, number: u32) -> Attributes {
        self.raw(kind, &number.to_be_bytes())
    }

    fn text(self, kind: u16, text: &str) -> Attributes {
        self.raw(kind, &[text.as_bytes(), &[0]].concat())
    }

    fn nest(self, kind: u16, inner: Attributes) -> Attributes {
        self.raw(kind | libc::NLA_F_NESTED as u16, &inner.0)
    }

    /// One more element of a rule's list.
    fn expression(self, name: &str, data: Attributes) -> Attributes {
        self.nest(1, Attributes::default().text(1, name).nest(2, data))
    }

    fn compare(self, how: u32, with: &[u8]) -> Attributes {
        let value = Attributes::default().raw(1, with);
        let data = Attributes::default().number(1, REGISTER).number(2, how).nest(3, value);
        self.expression("cmp", data)
    }

    fn meta(self, key: u32) -> Attributes {
        self.expression("meta", Attributes::default().number(1, REGISTER).number(2, key))
    }

    fn payload(self, at: u32, len: u32) -> Attributes {
        const NETWORK_HEADER: u32 = 1;
        let data = Attributes::default().number(1, REGISTER).number(2, NETWORK_HEADER);
        self.expression("payload", data.number(3, at).number(4, len))
    }

    fn and(self, mask: u16) -> Attributes {
        let value = |bytes: [u8; 2]| Attributes::default().raw(1, &bytes);
        let data = Attributes::default().number(1, REGISTER).number(2, REGISTER).number(3, 2);
        let data = data.nest(4, value(mask.to_be_bytes())).nest(5, value([0, 0]));
        self.expression("bitwise", data)
    }

    fn in_network_order(self) -> Attributes {
        let data = Attributes::default().number(1, REGISTER).number(2, REGISTER);
        self.expression("byteorder", data.number(3, 1).number(4, 4).number(5, 4))
    }

    fn drop_packet(self) -> Attributes {
        const DROP: u32 = 0;
        let verdict = Attributes::default().number(1, DROP);
        let data = Attributes::default().nest(2, verdict);
        self.expression("immediate", Attributes::default().number(1, 0).nest(2, data))
    }
}

impl Check {
    /// Adds what breaks a rule off unless this holds.
    fn expressions(self, all: Attributes) -> Attributes {
        match self {
            Check::IsForUs => all.meta(PACKET_TYPE).compare(EQUAL, &[libc::PACKET_HOST]),
            // In a register numbers have the host's byte order, but for comparisons by size.
            Check::Fits => {
                all.meta(LENGTH).in_network_order().compare(AT_MOST, &ours::LONGEST.to_be_bytes())
            }
            Check::Family(family) => all.meta(FAMILY).compare(EQUAL, &[family]),
            Check::Byte(at, is) => all.payload(at, 1).compare(EQUAL, &[is]),
            Check::Half { at, mask, is } => {
                let loaded = all.payload(at, 2);
                let masked = if mask == u16::MAX { loaded } else { loaded.and(mask) };
                masked.compare(EQUAL, &is.to_be_bytes())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use lab::namespace::{ip, within};

    use super::*;

    /// As before Linux 5.12, killed and started again.
    #[test]
    fn a_table_that_nobody_owns_is_taken_over_and_removed() {
        let space = format!("ss-claim{}", std::process::id());
        ip(&["netns", "add", &space]).unwrap();
        let done = within(&space, || {
            let exists = || {
                let asks = Claim::connect("test", true)?;
                let refused = asks.make(&[1]).err().and_then(|e| e.raw_os_error());
                let exists = matches!(refused, Some(libc::EEXIST | libc::EPERM));
                if exists {
                    std::mem::forget(asks); // not its table
                }
                Ok::<_, io::Error>(exists)
            };
            std::mem::forget(Claim::held("test", &[1], false)?);
            let left = exists()?;
            let again = Claim::held("test", &[1], false)?;
            let (held, _) = (exists()?, drop(again));
            let owned = Claim::held("test", &[1], true)?;
            let (owned, _) = (exists()?, drop(owned));
            Ok([left, held, owned, exists()?])
        });
        ip(&["netns", "del", &space]).unwrap();
        assert_eq!(done.unwrap(), [true, true, true, false]);
    }
}
