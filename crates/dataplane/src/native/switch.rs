//! A switch in this process: its tables, the programs that its disciplines have as native code, its
//! ports, and its routes, which the caller knows.

use std::{ptr, sync::Arc};

#[cfg(debug_assertions)]
use super::mutant::Mutant;
use super::{
    fib::{Fib, NoRoutes, look_up},
    unit::{Unit, raw_switch, table_names},
};
use crate::{
    Error, ffi,
    layout::{OF_ENTRY, PROGRAMS_PER_DISCIPLINE, RECIRCULATION_PORTS},
    load::{
        object::{CLONES, Object, RECIRCULATION},
        sizes::Sizes,
    },
    maps::{
        backing::Backing,
        clock::Clock,
        group,
        local::{LocalMap, LocalMaps},
        port_bytes,
    },
    writes::about_to_write,
};

/// A switch in this process: the programs as native code, with tables of its own. As many as
/// one likes.
pub struct Switch {
    maps: Arc<LocalMaps>,
    /// The program that each map of groups has at its egresses.
    egress: Vec<(String, Option<ffi::Run>)>,
    /// What programs have a pointer to; fat, so boxed once more.
    fib: Box<Box<dyn Fib>>,
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
            let native = object.native.ok_or_else(|| object.wrong("it has no native code"))?;
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
            shared.iter().filter_map(|name| Some(((*name).to_owned(), sizes.on(name, cpus)?))),
        );
        let raw = raw_switch(&units, &entries, cpus)?;
        // SAFETY: just made.
        let maps = unsafe { LocalMaps::of(raw, name, table_names(&units), clock) };
        let fib: Box<Box<dyn Fib>> = Box::new(Box::new(NoRoutes));
        let mut switch = Switch { maps: Arc::new(maps), egress, fib };
        // SAFETY: nobody else has it yet.
        let raw = unsafe { &mut *switch.raw() };
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
        switch.set_fib(Box::new(NoRoutes));
        Ok(Arc::new(switch))
    }

    /// Gives a switch that nobody else has yet its routes; before, nobody knows a way.
    ///
    /// # Panics
    /// If somebody has it.
    pub fn routed(mut self: Arc<Switch>, fib: Box<dyn Fib>) -> Arc<Switch> {
        let alone = Arc::get_mut(&mut self).expect("nobody else has it");
        *alone.fib = fib;
        self
    }

    fn set_fib(&mut self, fib: Box<dyn Fib>) {
        *self.fib = fib;
        let context = ptr::from_ref::<Box<dyn Fib>>(&self.fib);
        // SAFETY: nobody else has the switch, so no program runs.
        let raw = unsafe { &mut *self.raw() };
        raw.fib_context = context.cast_mut().cast();
        raw.fib = Some(look_up);
    }

    /// Its name.
    pub fn name(&self) -> &str {
        self.maps.name()
    }

    /// What shows it the time.
    pub fn clock(&self) -> &Clock {
        self.maps.clock()
    }

    /// CPUs that its tables have room for.
    pub fn cpus(&self) -> u32 {
        self.maps.cpus()
    }

    pub(super) fn raw(&self) -> *mut ffi::Switch {
        self.maps.raw()
    }

    /// Names of all its tables.
    pub(super) fn table_names(&self) -> &[String] {
        self.maps.names()
    }

    /// A table by its name.
    pub(super) fn table(&self, name: &str) -> Option<LocalMap> {
        self.maps.table(name)
    }

    /// Breaks a rule from now on, or none.
    #[cfg(debug_assertions)]
    pub fn set_mutant(&self, mutant: Option<&Mutant>) {
        let number = mutant.map_or(0, |mutant| mutant.number);
        // SAFETY: it lives; programs that run meanwhile see the one or the other.
        unsafe { (&raw mut (*self.raw()).mutant).write_volatile(number) };
    }

    /// Names a port: programs may forward to it.
    ///
    /// # Errors
    /// More than 256 ports.
    pub fn add_port(&self, index: u32, name: &str) -> Result<(), Error> {
        let names = self.table("port_names").expect("maps.h defines it");
        let ports = self.table("ports").expect("maps.h defines it");
        let wrong = || Error::bpf("adding a port");
        let key = index.to_ne_bytes();
        names.update(&key, &port_bytes::port_name(name)).map_err(wrong())?;
        if name != RECIRCULATION {
            ports.update(&key, &port_bytes::devmap_value(index, None)).map_err(wrong())?;
        }
        self.send_round().map_err(wrong())
    }

    /// Has programs send packets round by the recirculation port, if there is one by now, and clone
    /// to all others.
    fn send_round(&self) -> libbpf_rs::Result<()> {
        let maps = [RECIRCULATION, CLONES].map(|name| self.table(name));
        let ([Some(recirculation), Some(clones)], Some(round)) = (maps, self.port(RECIRCULATION))
        else {
            return Ok(());
        };
        let ports = self.table("ports").expect("maps.h defines it");
        let value = port_bytes::devmap_value(round, None);
        for number in 0..RECIRCULATION_PORTS {
            recirculation.update(&number.to_ne_bytes(), &value)?;
            for port in ports.keys() {
                let port = u32::from_ne_bytes(*port.first_chunk().expect("an index"));
                let pair = ffi::Group::pair(port, round);
                clones.update(&port_bytes::clone_key(port, number), pair.as_bytes())?;
            }
        }
        Ok(())
    }

    /// Whether one of its disciplines sends packets round.
    pub fn recirculates(&self) -> bool {
        self.table_names().iter().any(|name| name == RECIRCULATION)
    }

    /// The index of a port by its name.
    pub(crate) fn port(&self, name: &str) -> Option<u32> {
        let names = self.table("port_names")?;
        let wanted = port_bytes::port_name(name);
        let key = names.keys().into_iter().find(|key| {
            let value = names.lookup(key);
            value.is_some_and(|value| value == wanted)
        })?;
        Some(u32::from_ne_bytes(*key.first_chunk()?))
    }

    /// The maps of groups, with how many each can hold.
    pub(crate) fn groups(&self) -> Vec<(String, u32)> {
        let size = |name: &str| self.table(name).map_or(0, |table| table.max_entries());
        let names = self.egress.iter().map(|(name, _)| name);
        names.map(|name| (name.clone(), size(name))).collect()
    }

    /// As [`crate::Dataplane::set_group`].
    pub(crate) fn set_group(&self, map: &str, index: u32, ports: &[u32]) -> Result<(), Error> {
        let (_, egress) = self
            .egress
            .iter()
            .find(|(name, _)| name == map)
            .ok_or_else(|| Error::row(map, "no discipline here has such a map"))?;
        let table = self.table(map).expect("it is in the list");
        group::check(map, index, table.max_entries(), ports.len())?;
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
            about_to_write();
            (&raw mut (*place).count).write_volatile(0);
            self.maps.quiesce();
            let count = std::mem::take(&mut group.count);
            about_to_write();
            place.write(group);
            about_to_write();
            std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
            (&raw mut (*place).count).write_volatile(count);
        }
        Ok(())
    }
}

impl From<&Arc<Switch>> for Backing {
    fn from(switch: &Arc<Switch>) -> Backing {
        Backing::Native(switch.maps.clone())
    }
}
