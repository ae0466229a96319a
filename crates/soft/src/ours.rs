//! Which packets a soft switch takes from the kernel: whole UDP datagrams from or to our port,
//! straight behind an IP header without options or extensions, addressed to this host's interface
//! without a VLAN, and no longer than a frame's buffer. That is all that the entry program
//! would look at.
//!
//! Said once as [`rules`], and rendered twice: for the sockets that take a copy ([`filter`]) and
//! for the kernel to drop its own ([`crate::claim`]). If the two differed, a packet would be lost
//! or handled twice.

use dataplane::native::Frame;
use libc::sock_filter as Instruction;

/// Bytes of an Ethernet header.
pub const ETHERNET: u32 = 14;
/// Longest packet in bytes, from the IP header on.
pub const LONGEST: u32 = Frame::MAX as u32 - ETHERNET;

const V4: u8 = libc::AF_INET as u8;
const V6: u8 = libc::AF_INET6 as u8;
const UDP: u8 = libc::IPPROTO_UDP as u8;

/// What must hold of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Check {
    /// Addressed to this host's interface.
    IsForUs,
    /// Not longer than [`LONGEST`].
    Fits,
    /// Of this address family.
    Family(u8),
    /// The byte that far into the IP header.
    Byte(u32, u8),
    /// The two bytes that far into it, as far as `mask` goes.
    Half {
        /// Offset in bytes.
        at: u32,
        /// Bits that count.
        mask: u16,
        /// What they must be.
        is: u16,
    },
}

/// A packet is ours if all checks of one rule hold.
pub fn rules() -> [Vec<Check>; 4] {
    use Check::{Byte, Family, Fits, Half, IsForUs};
    let port = |at| Half { at, mask: u16::MAX, is: wire::PORT };
    let whole = Half { at: 6, mask: 0x3fff, is: 0 };
    let v4 = |at| vec![IsForUs, Fits, Family(V4), Byte(0, 0x45), Byte(9, UDP), whole, port(at)];
    let v6 = |at| vec![IsForUs, Fits, Family(V6), Byte(6, UDP), port(at)];
    [v4(22), v4(20), v6(42), v6(40)]
}

fn instruction(code: u32, k: u32) -> Instruction {
    Instruction { code: code as u16, jt: 0, jf: 0, k }
}

fn load(size: u32, at: u32) -> Instruction {
    instruction(libc::BPF_LD | size | libc::BPF_ABS, at)
}

fn give(bytes: u32) -> Instruction {
    instruction(libc::BPF_RET | libc::BPF_K, bytes)
}

/// Something beside the packet that the kernel knows of it.
fn aside(what: i32) -> Instruction {
    load(libc::BPF_W, (libc::SKF_AD_OFF + what) as u32)
}

impl Check {
    /// Loads what is compared, compares it, and with what; true: equality is wanted.
    fn code(self) -> (Vec<Instruction>, u32, u32, bool) {
        let equals = |load, is| (vec![load], libc::BPF_JEQ, is, true);
        match self {
            Check::IsForUs => equals(aside(libc::SKF_AD_PKTTYPE), libc::PACKET_HOST.into()),
            Check::Fits => {
                let len = instruction(libc::BPF_LD | libc::BPF_W | libc::BPF_LEN, 0);
                (vec![len], libc::BPF_JGT, LONGEST + ETHERNET, false)
            }
            Check::Family(V4) => equals(load(libc::BPF_H, 12), libc::ETH_P_IP as u32),
            Check::Family(_) => equals(load(libc::BPF_H, 12), libc::ETH_P_IPV6 as u32),
            Check::Byte(at, is) => equals(load(libc::BPF_B, ETHERNET + at), is.into()),
            Check::Half { at, mask, is } => {
                let and = instruction(libc::BPF_ALU | libc::BPF_AND | libc::BPF_K, mask.into());
                (vec![load(libc::BPF_H, ETHERNET + at), and], libc::BPF_JEQ, is.into(), true)
            }
        }
    }
}

/// Classic BPF for a packet socket: accepts frames that are ours, whole. Tags lie beside a frame;
/// the kernel gives those of a VLAN to its interface later, or drops them. A tag of VLAN 0 is a
/// priority and nothing else: the kernel takes it off, and the claim has the frame dropped.
pub fn filter() -> Vec<Instruction> {
    const VLAN: u32 = 0xfff;
    let jump = |compare, with| instruction(libc::BPF_JMP | compare | libc::BPF_K, with);
    let mut code = vec![
        aside(libc::SKF_AD_VLAN_TAG_PRESENT),
        Instruction { jt: 3, ..jump(libc::BPF_JEQ, 0) },
        aside(libc::SKF_AD_VLAN_TAG),
        Instruction { jf: 1, ..jump(libc::BPF_JSET, VLAN) },
        give(0),
    ];
    for rule in rules() {
        let mut fails = vec![];
        for check in rule {
            let (loads, compare, with, wanted) = check.code();
            code.extend(loads);
            fails.push((code.len(), wanted));
            code.push(jump(compare, with));
        }
        code.push(give(u32::MAX));
        for (at, wanted) in fails {
            let distance = u8::try_from(code.len() - at - 1).expect("a rule is short");
            let over = if wanted { &mut code[at].jf } else { &mut code[at].jt };
            *over = distance;
        }
    }
    code.push(give(0));
    code
}

/// Classic BPF that accepts nothing.
pub fn nothing() -> Vec<Instruction> {
    vec![give(0)]
}
