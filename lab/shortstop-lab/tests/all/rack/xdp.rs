//! Somebody else's XDP program: two instructions that pass every packet.

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use anyhow::bail;
use lab::namespace::within;

/// `bpf(2)` with an attribute of 32-bit words, padded with zeros.
fn bpf(command: i64, attribute: &[u32]) -> anyhow::Result<OwnedFd> {
    let mut words = [0u32; 32];
    words[..attribute.len()].copy_from_slice(attribute);
    // SAFETY: the attribute is as long as said; pointers in it outlive the call.
    let fd = unsafe { libc::syscall(libc::SYS_bpf, command, words.as_ptr(), size_of_val(&words)) };
    if fd < 0 {
        bail!("bpf command {command}: {}", std::io::Error::last_os_error());
    }
    // SAFETY: a new descriptor that nobody else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
}

fn halves<T>(pointer: *const T) -> [u32; 2] {
    let address = pointer as u64;
    let (low, high) = (address as u32, (address >> 32) as u32);
    if cfg!(target_endian = "little") { [low, high] } else { [high, low] }
}

/// Attaches a program that passes every packet to an interface, for as long as the result lives. In
/// native mode it makes a veth take in what its peer sends back in native mode.
pub fn attach_pass(space: &str, interface: &str, native: bool) -> OwnedFd {
    const PROG_LOAD: i64 = 5;
    const LINK_CREATE: i64 = 28;
    const TYPE_XDP: u32 = 6;
    const ATTACH_XDP: u32 = 37;
    const SKB_MODE: u32 = 1 << 1;
    const DRIVER_MODE: u32 = 1 << 2;
    let load_and_attach = || {
        // r0 = XDP_PASS; exit. Each: op, registers, offset, 32-bit operand.
        let mut code = [[0u8; 8]; 2];
        (code[0][0], code[1][0]) = (0xb7, 0x95);
        code[0][4..].copy_from_slice(&2u32.to_ne_bytes());
        let ([c0, c1], [l0, l1]) = (halves(code.as_ptr()), halves(c"GPL".as_ptr()));
        let program = bpf(PROG_LOAD, &[TYPE_XDP, code.len() as u32, c0, c1, l0, l1])?;
        let name = std::ffi::CString::new(interface)?;
        // SAFETY: a terminated string.
        let index = unsafe { libc::if_nametoindex(name.as_ptr()) };
        let mode = if native { DRIVER_MODE } else { SKB_MODE };
        bpf(LINK_CREATE, &[program.as_raw_fd() as u32, index, ATTACH_XDP, mode])
    };
    within(space, load_and_attach).unwrap_or_else(|e| panic!("{interface} in {space}: {e:#}"))
}
