//! What this process writes into tables, one write after the other: words of shared memory
//! ([`Word`]), rows, groups of ports. All of it passes [`about_to_write`], so a test can look at
//! what the next process would find if this one were killed there.

use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering};

#[cfg(debug_assertions)]
use std::cell::RefCell;

#[cfg(debug_assertions)]
thread_local! {
    static LOOK: RefCell<Option<Box<dyn FnMut()>>> = const { RefCell::new(None) };
}

/// Calls `look` before each write that this thread makes to tables of any switch from now on, but
/// for those that `look` makes itself; or nothing any more. Only builds with debug assertions have
/// it.
#[cfg(debug_assertions)]
pub fn before_each_write(look: Option<Box<dyn FnMut()>>) {
    LOOK.set(look);
}

/// The next write follows.
#[inline]
pub(crate) fn about_to_write() {
    #[cfg(debug_assertions)]
    if let Some(mut look) = LOOK.take() {
        look();
        LOOK.set(Some(look));
    }
}

/// An integer that several CPUs change at once.
pub(crate) trait Atomic {
    type Plain;

    fn load(&self, order: Ordering) -> Self::Plain;
    fn store(&self, value: Self::Plain, order: Ordering);
    fn compare_exchange(
        &self,
        current: Self::Plain,
        new: Self::Plain,
        success: Ordering,
        failure: Ordering,
    ) -> Result<Self::Plain, Self::Plain>;
    fn fetch_add(&self, value: Self::Plain, order: Ordering) -> Self::Plain;
    fn fetch_max(&self, value: Self::Plain, order: Ordering) -> Self::Plain;
}

macro_rules! atomic {
    ($($atomic:ty, $plain:ty;)*) => {$(
        impl Atomic for $atomic {
            type Plain = $plain;

            #[inline]
            fn load(&self, order: Ordering) -> $plain {
                <$atomic>::load(self, order)
            }

            #[inline]
            fn store(&self, value: $plain, order: Ordering) {
                <$atomic>::store(self, value, order);
            }

            #[inline]
            fn compare_exchange(
                &self,
                current: $plain,
                new: $plain,
                success: Ordering,
                failure: Ordering,
            ) -> Result<$plain, $plain> {
                <$atomic>::compare_exchange(self, current, new, success, failure)
            }

            #[inline]
            fn fetch_add(&self, value: $plain, order: Ordering) -> $plain {
                <$atomic>::fetch_add(self, value, order)
            }

            #[inline]
            fn fetch_max(&self, value: $plain, order: Ordering) -> $plain {
                <$atomic>::fetch_max(self, value, order)
            }
        }
    )*};
}

atomic! {
    AtomicU8, u8;
    AtomicU16, u16;
    AtomicU32, u32;
    AtomicU64, u64;
}

/// A word of memory that programs share. The structs of `layout.rs` consist of these, so there is
/// no other way to write an element of an array.
#[repr(transparent)]
pub(crate) struct Word<A>(A);

pub(crate) type Word8 = Word<AtomicU8>;
pub(crate) type Word16 = Word<AtomicU16>;
pub(crate) type Word32 = Word<AtomicU32>;
pub(crate) type Word64 = Word<AtomicU64>;

impl<A: Atomic> Word<A> {
    #[inline]
    pub fn load(&self, order: Ordering) -> A::Plain {
        self.0.load(order)
    }

    #[inline]
    pub fn store(&self, value: A::Plain, order: Ordering) {
        about_to_write();
        self.0.store(value, order);
    }

    #[inline]
    pub fn compare_exchange(
        &self,
        current: A::Plain,
        new: A::Plain,
        success: Ordering,
        failure: Ordering,
    ) -> Result<A::Plain, A::Plain> {
        about_to_write();
        self.0.compare_exchange(current, new, success, failure)
    }

    #[inline]
    pub fn fetch_add(&self, value: A::Plain, order: Ordering) -> A::Plain {
        about_to_write();
        self.0.fetch_add(value, order)
    }

    #[inline]
    pub fn fetch_max(&self, value: A::Plain, order: Ordering) -> A::Plain {
        about_to_write();
        self.0.fetch_max(value, order)
    }
}

#[cfg(test)]
mod tests {
    /// A struct that had an atomic of its own could be written past [`super::Word`].
    #[test]
    fn shared_memory_has_no_other_words() {
        assert!(!include_str!("layout.rs").contains("Atomic"));
        assert!(!include_str!("maps/mapped.rs").contains("Atomic"));
    }
}
