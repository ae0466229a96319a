//! Where packets of a switch in this process go next: programs ask as they ask the kernel's routes.

use std::{
    ffi::{c_long, c_void},
    net::IpAddr,
};

use crate::ffi;

/// Where a packet that a program forwards goes next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Route {
    /// To the neighbour of this Ethernet address, by this port of ours, from this address of ours.
    By {
        /// The port's index.
        port: u32,
        /// Its Ethernet address.
        from: [u8; 6],
        /// The neighbour's.
        to: [u8; 6],
    },
    /// Nobody knows the neighbour's address.
    NoNeighbour {
        /// The index of the port that leads there; 0: nobody knows that either.
        port: u32,
    },
    /// It is longer than the way allows.
    TooLong,
    /// The port is none that packets are forwarded from.
    Off,
    /// For this host, or nobody knows a way.
    None,
}

/// The routes of a switch.
pub trait Fib: Send + Sync {
    /// The way of a packet of this length (from the IP header on) between two addresses that came
    /// in by a port.
    fn route(&self, from: IpAddr, to: IpAddr, len: u16, ingress: u32) -> Route;
}

/// Nobody knows a way.
pub(super) struct NoRoutes;

impl Fib for NoRoutes {
    fn route(&self, _: IpAddr, _: IpAddr, _: u16, _: u32) -> Route {
        Route::None
    }
}

const AF_INET: u8 = 2;
const OK: c_long = 0;
const NOT_FORWARDED: c_long = 4;
const FORWARDING_DISABLED: c_long = 5;
const NO_NEIGHBOUR: c_long = 7;
const FRAG_NEEDED: c_long = 8;

/// What programs call.
///
/// # Safety
/// `context` is a `Box<dyn Fib>` that lives, `fib` a lookup.
pub(super) unsafe extern "C" fn look_up(context: *mut c_void, fib: *mut ffi::Fib) -> c_long {
    // SAFETY: the caller's promise.
    let (routes, fib) = unsafe { (&*context.cast::<Box<dyn Fib>>(), &mut *fib) };
    let address = |bytes: [u8; 16]| -> IpAddr {
        if fib.family == AF_INET {
            let [a, b, c, d, ..] = bytes;
            [a, b, c, d].into()
        } else {
            bytes.into()
        }
    };
    let (from, to) = (address(fib.source), address(fib.destination));
    match routes.route(from, to, fib.tot_len, fib.ifindex) {
        Route::By { port, from, to } => {
            (fib.ifindex, fib.smac, fib.dmac) = (port, from, to);
            OK
        }
        Route::NoNeighbour { port } => {
            fib.ifindex = port;
            NO_NEIGHBOUR
        }
        Route::TooLong => FRAG_NEEDED,
        Route::Off => FORWARDING_DISABLED,
        Route::None => NOT_FORWARDED,
    }
}
