//! Whether this process may make labs: found out by trying what a lab does, without leaving
//! anything.

use std::{io, mem::size_of, os::fd::FromRawFd, process::Command};

use nix::sched::{CloneFlags, unshare};

/// What a lab needs and this process lacks, in one line; none: nothing.
pub fn missing() -> Option<String> {
    tools().or_else(namespaces).or_else(programs)
}

fn tools() -> Option<String> {
    let run = Command::new("ip").arg("-V").output();
    run.err().map(|error| format!("`ip` cannot be run ({error}; Debian: apt install iproute2)"))
}

/// Network namespaces, and a place to mount them: both belong to the thread that asks, and are gone
/// with it.
fn namespaces() -> Option<String> {
    let both = CloneFlags::CLONE_NEWNET | CloneFlags::CLONE_NEWNS;
    let tried = std::thread::spawn(move || unshare(both)).join();
    match tried {
        Ok(Ok(())) => None,
        Ok(Err(error)) => Some(format!("network namespaces are refused ({error})")),
        Err(_) => Some("there is no thread to try network namespaces on".into()),
    }
}

/// The head of `union bpf_attr` for BPF_PROG_LOAD.
#[repr(C)]
struct ProgramLoad {
    kind: u32,
    instructions: u32,
    first: u64,
    license: u64,
    rest: [u64; 13],
}

const BPF_PROG_LOAD: libc::c_int = 5;
const BPF_PROG_TYPE_XDP: u32 = 6;
/// `r0 = 2; exit`: pass.
const PASS: [u64; 2] = [0x0000_0002_0000_00b7, 0x95];

/// XDP programs, tried with the shortest one.
fn programs() -> Option<String> {
    let load = ProgramLoad {
        kind: BPF_PROG_TYPE_XDP,
        instructions: PASS.len() as u32,
        first: PASS.as_ptr() as u64,
        license: c"GPL".as_ptr() as u64,
        rest: [0; 13],
    };
    // SAFETY: the attribute has the stated size, and what it points to lives through the call.
    let fd = unsafe {
        libc::syscall(libc::SYS_bpf, BPF_PROG_LOAD, &raw const load, size_of::<ProgramLoad>())
    };
    if fd < 0 {
        let error = io::Error::last_os_error();
        return Some(format!("BPF programs are refused ({error})"));
    }
    // SAFETY: the kernel just gave us this descriptor, and nobody else has it.
    drop(unsafe { std::fs::File::from_raw_fd(fd as i32) });
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn asking_changes_nothing() {
        let place = || std::fs::read_link("/proc/thread-self/ns/net").unwrap();
        let before = place();
        let first = missing();
        assert_eq!(place(), before);
        assert_eq!(missing(), first);
    }
}
