//! One array that this process and the programs have in the same memory, in the kernel or in this
//! process. To read or write an element is no call at all.

use std::{marker::PhantomData, num::NonZeroUsize, os::fd::AsFd, ptr::NonNull, sync::Arc};

use libbpf_rs::{MapCore, MapHandle};
use nix::sys::mman::{MapFlags, ProtFlags, mmap, munmap};

use super::{
    bpffs::Home,
    local::{LocalMap, LocalMaps},
};
use crate::Error;

/// What ends with the last reference to an array.
enum Memory {
    /// Mapped here.
    Kernel(NonNull<std::ffi::c_void>, NonZeroUsize),
    /// A switch's.
    Native(#[allow(dead_code)] LocalMap),
}

impl Drop for Memory {
    fn drop(&mut self) {
        if let Memory::Kernel(start, bytes) = self {
            // SAFETY: exactly the mapping that `open` made; no reference outlives its owner.
            let _ = unsafe { munmap(*start, bytes.get()) };
        }
    }
}

/// An array of a data plane in this process's memory, shared with the programs. `T` is made of
/// atomics, since programs on every CPU read and write it at the same time. In the kernel's memory
/// or in this process's.
pub(crate) struct SharedArray<T> {
    start: NonNull<std::ffi::c_void>,
    len: usize,
    _memory: Memory,
    kind: PhantomData<T>,
}

// SAFETY: the memory is only handed out as `&T`, and every `T` in use consists of atomics.
unsafe impl<T> Send for SharedArray<T> {}
// SAFETY: as above.
unsafe impl<T> Sync for SharedArray<T> {}

impl<T> SharedArray<T> {
    /// Maps the pinned array `name` whole.
    pub fn open(home: &Home, name: &str) -> Result<SharedArray<T>, Error> {
        let map = MapHandle::from_pinned_path(home.map(name))
            .map_err(Error::bpf(format!("opening map {name} of switch {}", home.name())))?;
        let len = map.max_entries() as usize;
        let stride = (map.value_size() as usize).next_multiple_of(8);
        let layout_is_ours = size_of::<T>() == map.value_size() as usize
            && (len == 1 || stride == size_of::<T>() || size_of::<T>() == 4);
        if !layout_is_ours {
            let reason = format!("{name}: values of {} bytes", map.value_size());
            return Err(Error::OtherLayout { name: home.name().into(), reason });
        }
        let bytes =
            NonZeroUsize::new((stride * len).next_multiple_of(4096)).expect("maps are not empty");
        // SAFETY: a new shared mapping of a file that stays valid for as long as it is mapped.
        let start = unsafe {
            let access = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
            mmap(None, bytes, access, MapFlags::MAP_SHARED, map.as_fd(), 0)
        }
        .map_err(|e| Error::System { what: "mapping a BPF array", source: e.into() })?;
        Ok(SharedArray { start, len, _memory: Memory::Kernel(start, bytes), kind: PhantomData })
    }

    /// The array `name` of a switch in this process.
    pub fn native(maps: &Arc<LocalMaps>, name: &str) -> Result<SharedArray<T>, Error> {
        let other = |reason: String| Error::OtherLayout {
            name: maps.name().into(),
            reason: format!("{name}: {reason}"),
        };
        let table = maps.table(name).ok_or_else(|| other("there is none".into()))?;
        let stride = size_of::<T>().next_multiple_of(8);
        if size_of::<T>() != table.value_size() as usize || stride != table.stride() {
            return Err(other(format!("values of {} bytes", table.value_size())));
        }
        let start = NonNull::new(table.at(0)).ok_or_else(|| other("it is no array".into()))?;
        Ok(SharedArray {
            start: start.cast(),
            len: table.max_entries() as usize,
            _memory: Memory::Native(table),
            kind: PhantomData,
        })
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Element `index`.
    ///
    /// # Panics
    /// If there is no such element.
    pub fn at(&self, index: usize) -> &T {
        assert!(index < self.len, "index {index} of {}", self.len);
        let stride = size_of::<T>().next_multiple_of(8);
        // SAFETY: inside the mapping, which lives as long as `self`; arrays are aligned to 8 bytes.
        unsafe { &*self.start.as_ptr().cast::<u8>().add(index * stride).cast::<T>() }
    }
}
