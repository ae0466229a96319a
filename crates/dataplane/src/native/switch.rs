//! A switch in this process: its tables, the programs that its disciplines have as native code, its
//! ports, and its routes, which the caller knows.

use std::{
    ffi::{CStr, CString, c_long, c_void},
    net::IpAddr,
    ptr::{self, NonNull},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use super::{ffi, keyed::Keyed};
use crate::{
    Error, Object, RECIRCULATION, Sizes,
    layout::{OF_ENTRY, PROGRAMS_PER_DISCIPLINE, RECIRCULATION_PORTS},
    object::CLONES,
};

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
struct Nowhere;

impl Fib for Nowhere {
    fn route(&self, _: IpAddr, _: IpAddr, _: u16, _: u32) -> Route {
        Route::None
    }
}

/// What shows the time to programs and agent, in nanoseconds.
#[derive(Clone, Debug)]
pub enum Clock {
    /// CLOCK_BOOTTIME: leases and lives end on time also where the machine was suspended meanwhile.
    Boot,
    /// What somebody sets.
    Set(Arc<AtomicU64>),
}

impl Clock {
    /// Now.
    pub fn now_ns(&self) -> u64 {
        match self {
            Clock::Boot => {
                let now = nix::time::clock_gettime(nix::time::ClockId::CLOCK_BOOTTIME)
                    .expect("CLOCK_BOOTTIME always exists");
                now.tv_sec() as u64 * 1_000_000_000 + now.tv_nsec() as u64
            }
            Clock::Set(ns) => ns.load(Relaxed),
        }
    }
}

/// A switch in this process: the programs as native code, with tables of its own. As many as
/// one likes.
pub struct Switch {
    raw: NonNull<ffi::Switch>,
    name: String,
    /// Names of its tables.
    tables: Vec<String>,
    /// The program that each map of groups has at its egresses.
    egress: Vec<(String, Option<ffi::Run>)>,
    clock: Clock,
    /// Behind the pointer in `raw`; fat, so boxed once more.
    _fib: Box<Box<dyn Fib>>,
}

// SAFETY: tables are shared as they are between the kernel's CPUs and an agent: by atomics, and by
// locks within.
unsafe impl Send for Switch {}
// SAFETY: as above.
unsafe impl Sync for Switch {}

/// An object's native half.
struct Unit(&'static ffi::Unit);

impl Unit {
    /// # Safety
    /// The function is one that `bpf::compile` made.
    unsafe fn of(function: decide::Native) -> Unit {
        // SAFETY: a constant of the program.
        Unit(unsafe { &*function().cast::<ffi::Unit>() })
    }

    fn entry() -> Unit {
        // SAFETY: a constant of the program.
        Unit(unsafe { &*ffi::entry_unit() })
    }

    fn maps(&self) -> &'static [ffi::Map] {
        // SAFETY: as many as it says.
        unsafe { std::slice::from_raw_parts(self.0.maps, self.0.map_count as usize) }
    }

    fn programs(&self) -> &'static [ffi::Program] {
        if self.0.program_count == 0 {
            return &[];
        }
        // SAFETY: as many as it says.
        unsafe { std::slice::from_raw_parts(self.0.programs, self.0.program_count as usize) }
    }

    fn program(&self, name: &str) -> Option<ffi::Run> {
        let found = self.programs().iter().find(|p| text(p.name) == name);
        found.map(|p| p.run)
    }

    fn map_names(&self) -> impl Iterator<Item = (&'static str, u32)> + use<> {
        self.maps().iter().map(|map| (text(map.name), map.kind))
    }
}

fn text(name: *const std::ffi::c_char) -> &'static str {
    // SAFETY: a string constant of the program.
    unsafe { CStr::from_ptr(name) }.to_str().unwrap_or_default()
}

const ARRAY_OF_MAPS: u32 = libbpf_rs::MapType::ArrayOfMaps as u32;

impl Switch {
    /// A switch of these programs with empty tables.
    ///
    /// # Errors
    /// An object without native code, or one that is not as it says; no memory.
    pub fn new(
        name: &str,
        objects: &[Object],
        sizes: Sizes,
        cpus: u32,
        clock: Clock,
    ) -> Result<Arc<Switch>, Error> {
        let entry = Unit::entry();
        let mut units: Vec<*const ffi::Unit> = vec![entry.0];
        let shared: Vec<&str> = entry.map_names().map(|(name, _)| name).collect();
        let mut entries: Vec<(String, u32)> = vec![];
        let mut egress = vec![];
        let mut steps = vec![];
        for object in objects {
            object.check()?;
            let native = object
                .native
                .ok_or_else(|| object.wrong("it has no native code"))?;
            // SAFETY: registrations name functions of `bpf::compile`.
            let unit = unsafe { Unit::of(native) };
            let is_first = !units.contains(&ptr::from_ref(unit.0));
            for (step, name) in object.steps.iter().enumerate() {
                let program = unit.program(name);
                let program = program
                    .ok_or_else(|| object.wrong(format!("its object has no program {name}")))?;
                let place = object.number as usize * PROGRAMS_PER_DISCIPLINE + step;
                steps.push((place, program));
            }
            if is_first {
                units.push(unit.0);
                let run = object.egress.and_then(|name| unit.program(name));
                let groups = unit.map_names().filter(|(_, kind)| *kind == ARRAY_OF_MAPS);
                egress.extend(groups.map(|(name, _)| (name.to_owned(), run)));
                entries.extend(object.maps.iter().map(|(name, n)| ((*name).to_owned(), *n)));
            }
        }
        entries.extend(
            shared
                .iter()
                .filter_map(|name| Some(((*name).to_owned(), sizes.on(name, cpus)?))),
        );
        let raw = raw_switch(&units, &entries, cpus)?;
        let fib: Box<Box<dyn Fib>> = Box::new(Box::new(Nowhere));
        let mut switch = Switch {
            raw,
            name: name.into(),
            tables: table_names(&units),
            egress,
            clock,
            _fib: fib,
        };
        // SAFETY: just made, and nobody else has it yet.
        let raw = unsafe { switch.raw.as_mut() };
        for (place, program) in steps {
            raw.program[place] = Some(program);
        }
        for (name, place) in OF_ENTRY {
            raw.program[place as usize] = entry.program(name);
        }
        raw.entry = entry.program("entry");
        raw.comes_back = entry.program("comes_back");
        #[cfg(debug_assertions)]
        {
            raw.mutant = super::mutant::chosen();
        }
        raw.mask_of_buckets = sizes.buckets() - 1;
        raw.count_of_pages = sizes.pages;
        switch.set_fib(Box::new(Nowhere));
        Ok(Arc::new(switch))
    }

    /// Gives a switch that nobody else has yet its routes; before, nobody knows a way.
    ///
    /// # Panics
    /// If somebody has it.
    pub fn routed(mut self: Arc<Switch>, fib: Box<dyn Fib>) -> Arc<Switch> {
        let alone = Arc::get_mut(&mut self).expect("nobody else has it");
        *alone._fib = fib;
        self
    }

    fn set_fib(&mut self, fib: Box<dyn Fib>) {
        *self._fib = fib;
        let context = ptr::from_ref::<Box<dyn Fib>>(&self._fib);
        // SAFETY: nobody else has the switch, so no program runs.
        let raw = unsafe { self.raw.as_mut() };
        raw.fib_context = context.cast_mut().cast();
        raw.fib = Some(look_up);
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What shows it the time.
    pub fn clock(&self) -> &Clock {
        &self.clock
    }

    /// CPUs that its tables have room for.
    pub fn cpus(&self) -> u32 {
        // SAFETY: made once, never changed.
        unsafe { self.raw.as_ref() }.cpus
    }

    pub(super) fn raw(&self) -> *mut ffi::Switch {
        self.raw.as_ptr()
    }

    /// Names of the tables that a discipline of that name has of its own.
    pub(crate) fn tables_of(&self, discipline: &str) -> Vec<String> {
        let prefix = format!("{discipline}_");
        let own = self.tables.iter().filter(|name| name.starts_with(&prefix));
        own.cloned().collect()
    }

    /// Names of all its tables.
    pub(super) fn table_names(&self) -> Vec<String> {
        self.tables.clone()
    }

    /// A table by its name.
    pub(crate) fn table(self: &Arc<Switch>, name: &str) -> Option<Keyed> {
        let name = CString::new(name).ok()?;
        // SAFETY: the name outlives the call.
        let found = unsafe { ffi::user_table_named(self.raw.as_ptr(), name.as_ptr()) };
        Some(Keyed::new(self.clone(), NonNull::new(found)?))
    }

    /// Waits until no program can still see what was removed before.
    pub(crate) fn quiesce(&self) {
        // SAFETY: it lives.
        unsafe { ffi::user_quiesce(self.raw.as_ptr()) };
    }

    /// Names a port: programs may forward to it.
    ///
    /// # Errors
    /// More than 256 ports.
    pub fn add_port(self: &Arc<Switch>, index: u32, name: &str) -> Result<(), Error> {
        let names = self.table("port_names").expect("maps.h defines it");
        let ports = self.table("ports").expect("maps.h defines it");
        let wrong = || Error::bpf("adding a port");
        let key = index.to_ne_bytes();
        names
            .update(&key, &crate::ports::port_name(name))
            .map_err(wrong())?;
        if name != RECIRCULATION {
            ports
                .update(&key, &crate::ports::devmap_value(index, None))
                .map_err(wrong())?;
        }
        self.send_round().map_err(wrong())
    }

    /// Has programs send packets round by the recirculation port, if there is one by now, and clone
    /// to all others.
    fn send_round(self: &Arc<Switch>) -> libbpf_rs::Result<()> {
        let maps = [RECIRCULATION, CLONES].map(|name| self.table(name));
        let ([Some(recirculation), Some(clones)], Some(round)) = (maps, self.port(RECIRCULATION))
        else {
            return Ok(());
        };
        let ports = self.table("ports").expect("maps.h defines it");
        let value = crate::ports::devmap_value(round, None);
        for number in 0..RECIRCULATION_PORTS {
            recirculation.update(&number.to_ne_bytes(), &value)?;
            for port in ports.keys() {
                let port = u32::from_ne_bytes(*port.first_chunk().expect("an index"));
                let pair = ffi::Group::pair(port, round);
                clones.update(&crate::group::clone_key(port, number), pair.as_bytes())?;
            }
        }
        Ok(())
    }

    /// Whether one of its disciplines sends packets round.
    pub fn recirculates(&self) -> bool {
        self.tables.iter().any(|name| name == RECIRCULATION)
    }

    /// The index of a port by its name.
    pub(crate) fn port(self: &Arc<Switch>, name: &str) -> Option<u32> {
        let names = self.table("port_names")?;
        let wanted = crate::ports::port_name(name);
        let key = names.keys().into_iter().find(|key| {
            let value = names.lookup(key);
            value.is_some_and(|value| value == wanted)
        })?;
        Some(u32::from_ne_bytes(*key.first_chunk()?))
    }

    /// The maps of groups, with how many each can hold.
    pub(crate) fn groups(self: &Arc<Switch>) -> Vec<(String, u32)> {
        let size = |name: &str| self.table(name).map_or(0, |table| table.max_entries());
        let names = self.egress.iter().map(|(name, _)| name);
        names.map(|name| (name.clone(), size(name))).collect()
    }

    /// As [`crate::Dataplane::set_group`].
    pub(crate) fn set_group(
        self: &Arc<Switch>,
        map: &str,
        index: u32,
        ports: &[u32],
    ) -> Result<(), Error> {
        let (_, egress) = self
            .egress
            .iter()
            .find(|(name, _)| name == map)
            .ok_or_else(|| Error::row(map, "no discipline here has such a map"))?;
        let table = self.table(map).expect("it is in the list");
        crate::group::check(map, index, table.max_entries(), ports.len())?;
        let mut group = ffi::Group {
            egress: *egress,
            count: ports.len() as u32,
            comes_back: 0,
            ports: [0; ffi::GROUP_PORTS],
        };
        group.ports[..ports.len()].copy_from_slice(ports);
        let place = table.at(index as usize).cast::<ffi::Group>();
        // SAFETY: an element of this type. Programs that run see an empty group, or all of it: the
        // count comes last.
        unsafe {
            (&raw mut (*place).count).write_volatile(0);
            self.quiesce();
            let count = std::mem::take(&mut group.count);
            place.write(group);
            std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
            (&raw mut (*place).count).write_volatile(count);
        }
        Ok(())
    }
}

impl Drop for Switch {
    fn drop(&mut self) {
        // SAFETY: made by `user_switch_new`; whoever reads it holds an `Arc`.
        unsafe { ffi::user_switch_free(self.raw.as_ptr()) };
    }
}

fn raw_switch(
    units: &[*const ffi::Unit],
    entries: &[(String, u32)],
    cpus: u32,
) -> Result<NonNull<ffi::Switch>, Error> {
    let names: Vec<CString> = entries
        .iter()
        .map(|(name, _)| CString::new(name.as_str()).expect("names have no NUL"))
        .collect();
    let sizes: Vec<ffi::Size> = names
        .iter()
        .zip(entries)
        .map(|(name, (_, entries))| ffi::Size {
            name: name.as_ptr(),
            entries: *entries,
        })
        .collect();
    // SAFETY: all of it outlives the call.
    let raw = unsafe {
        ffi::user_switch_new(
            units.as_ptr(),
            units.len() as u32,
            sizes.as_ptr(),
            sizes.len() as u32,
            cpus,
        )
    };
    NonNull::new(raw).ok_or(Error::System {
        what: "making the tables of a switch in this process",
        source: std::io::ErrorKind::OutOfMemory.into(),
    })
}

fn table_names(units: &[*const ffi::Unit]) -> Vec<String> {
    let mut names: Vec<String> = units
        .iter()
        // SAFETY: constants of the program.
        .flat_map(|unit| Unit(unsafe { &**unit }).map_names())
        .map(|(name, _)| name.to_owned())
        .collect();
    names.sort();
    names.dedup();
    names
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
unsafe extern "C" fn look_up(context: *mut c_void, fib: *mut ffi::Fib) -> c_long {
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
