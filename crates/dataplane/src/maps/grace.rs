//! Waits for the programs that run at the moment: only then may the memory of what they can no
//! longer find be used for something else.

use std::{
    os::fd::{AsFd, AsRawFd},
    sync::Arc,
};

use libbpf_rs::{MapCore, MapFlags, MapHandle, MapType, libbpf_sys};

use super::local::LocalMaps;
use crate::Error;

/// Waits for programs that are running. `membarrier` would not do: it refuses where a CPU runs
/// without a tick (`nohz_full`), and waits for nothing where there is only one CPU. The kernel
/// promises this of every change to a map of maps, so one is kept that nobody looks into.
///
/// Where programs run in this process, it is asked itself.
pub(crate) enum Grace {
    Kernel { outer: MapHandle, inner: MapHandle },
    Native(Arc<LocalMaps>),
}

fn create(kind: MapType, name: &str, inner: Option<&MapHandle>) -> Result<MapHandle, Error> {
    let opts = libbpf_sys::bpf_map_create_opts {
        sz: size_of::<libbpf_sys::bpf_map_create_opts>() as u64,
        inner_map_fd: inner.map_or(0, |map| map.as_fd().as_raw_fd() as u32),
        ..Default::default()
    };
    MapHandle::create(kind, Some(name), 4, 4, 1, &opts)
        .map_err(Error::bpf("creating a map to wait for programs with"))
}

impl Grace {
    pub fn new() -> Result<Grace, Error> {
        let inner = create(MapType::Array, "grace_inner", None)?;
        let outer = create(MapType::ArrayOfMaps, "grace", Some(&inner))?;
        Ok(Grace::Kernel { outer, inner })
    }

    pub fn native(maps: Arc<LocalMaps>) -> Grace {
        Grace::Native(maps)
    }

    /// Returns once every program run that began before this call has ended: an RCU grace period,
    /// some milliseconds.
    pub fn wait(&self) -> Result<(), Error> {
        let (outer, inner) = match self {
            Grace::Kernel { outer, inner } => (outer, inner),
            Grace::Native(maps) => {
                maps.quiesce();
                return Ok(());
            }
        };
        let inner = inner.as_fd().as_raw_fd();
        outer
            .update(&0u32.to_ne_bytes(), &inner.to_ne_bytes(), MapFlags::ANY)
            .map_err(Error::bpf("waiting for running programs"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Makes `membarrier` fail with EINVAL in this thread, as it does on a machine with
    /// `nohz_full`.
    fn refuse_membarrier() {
        let statement =
            |code: u32, k: u32| libc::sock_filter { code: code as u16, jt: 0, jf: 0, k };
        let mut filter = [
            statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0), // the call's number
            libc::sock_filter {
                code: (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16,
                jt: 0,
                jf: 1,
                k: libc::SYS_membarrier as u32,
            },
            statement(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ERRNO | libc::EINVAL as u32),
            statement(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ALLOW),
        ];
        let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
        // SAFETY: `program` and the filter that it points at live through the calls.
        unsafe {
            assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
            let mode = libc::SECCOMP_MODE_FILTER;
            assert_eq!(libc::prctl(libc::PR_SET_SECCOMP, mode, &raw const program), 0);
            assert_ne!(libc::syscall(libc::SYS_membarrier, 1, 0, 0), 0);
        }
    }

    #[test]
    fn programs_are_waited_for_where_membarrier_is_refused() {
        assert!(nix::unistd::geteuid().is_root(), "BPF maps need root");
        std::thread::spawn(|| {
            refuse_membarrier();
            let grace = Grace::new().unwrap();
            for _ in 0..3 {
                grace.wait().unwrap();
            }
        })
        .join()
        .unwrap();
    }
}
