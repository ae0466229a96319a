use libbpf_rs::{MapCore, MapFlags, Object, ObjectBuilder, OpenObject};

use crate::{
    Error, Home, attach,
    layout::{BUCKET_SLOTS, PAGE_START_CELLS},
};

const ENTRY: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/entry.bpf.o"));

/// The data-plane half of a discipline: an XDP program in a BPF object. Disciplines that differ in their control half
/// only share it.
#[derive(Clone, Copy, Debug)]
pub struct Discipline {
    /// Its name.
    pub name: &'static str,
    /// Name of its program in `object`.
    pub program: &'static str,
    /// Its number, by which tenants refer to it; below 16.
    pub number: u32,
    /// The ELF object.
    pub object: &'static [u8],
}

/// How large a switch's tables are. Fixed from the first load until the switch is detached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    /// Pages of cache memory; each holds 128 items of a 16-byte key and a 128-byte value.
    pub pages: u32,
}

impl Sizes {
    /// Buckets of the lookup table: a power of two, at least 2.5 slots per smallest item, so that
    /// a bucket of eight overflows for about one key in two thousand.
    pub fn buckets(&self) -> u32 {
        let items = self.pages as usize * PAGE_START_CELLS / 3;
        (items * 5 / 2 / BUCKET_SLOTS).next_power_of_two().max(64) as u32
    }
}

/// A loaded data plane. Dropping it leaves programs and maps to the pins and links that hold them.
pub struct Dataplane {
    home: Home,
    entry: Object,
    /// Held until links and pins hold their programs.
    _disciplines: Vec<Object>,
}

fn cpus() -> u32 {
    libbpf_rs::num_possible_cpus().unwrap_or(1) as u32
}

fn check_kernel() -> Result<(), Error> {
    let uname = nix::sys::utsname::uname().map_err(|e| Error::System {
        what: "asking for the kernel's release",
        source: e.into(),
    })?;
    let release = uname.release().to_string_lossy().into_owned();
    let mut numbers = release
        .split(['.', '-'])
        .map(|part| part.parse::<u32>().unwrap_or(0));
    let version = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    if version < (6, 1) {
        Err(Error::OldKernel { found: release })
    } else {
        Ok(())
    }
}

/// Opens an object with every map pinned (or found again) in `home`, and loads it.
fn load(home: &Home, what: &str, object: &[u8], sizes: Sizes) -> Result<Object, Error> {
    let mut open: OpenObject = ObjectBuilder::default()
        .open_memory(object)
        .map_err(Error::bpf(format!("opening program {what}")))?;
    let (buckets, cpus) = (sizes.buckets(), cpus());
    for mut map in open.maps_mut() {
        let name = map.name().to_string_lossy().into_owned();
        if name.contains(".rodata") {
            // The only constant is bucket_mask.
            let wrong = Error::bpf("setting the bucket mask");
            map.set_initial_value(&(buckets - 1).to_ne_bytes())
                .map_err(wrong)?;
            continue;
        }
        let entries = match name.as_str() {
            "buckets" => Some(buckets),
            "pages" => Some(sizes.pages),
            "hits" => Some(buckets * BUCKET_SLOTS as u32 * cpus),
            "sketches" => Some(cpus),
            _ => None,
        };
        if let Some(entries) = entries {
            map.set_max_entries(entries)
                .map_err(Error::bpf(format!("sizing map {name}")))?;
        }
        map.set_pin_path(home.map(&name))
            .map_err(Error::bpf(format!("pinning map {name}")))?;
    }
    open.load().map_err(|source| match source.kind() {
        libbpf_rs::ErrorKind::PermissionDenied => Error::NotPermitted("loading BPF programs"),
        libbpf_rs::ErrorKind::InvalidInput if home.exists() => Error::OtherLayout {
            name: home.name().into(),
            reason: source.to_string(),
        },
        _ => Error::bpf(format!("loading program {what}"))(source),
    })
}

impl Dataplane {
    /// Loads the entry program and `disciplines`, and pins their maps in `home`. Maps that are pinned there
    /// already, from an agent that crashed or is being upgraded, are taken over as they are.
    ///
    /// # Errors
    /// No privilege, an old kernel, tables pinned in another size: see [`Error`].
    pub fn load(home: Home, disciplines: &[Discipline], sizes: Sizes) -> Result<Dataplane, Error> {
        check_kernel()?;
        if !nix::unistd::geteuid().is_root() {
            return Err(Error::NotPermitted("loading BPF programs"));
        }
        quiet_libbpf();
        let was_there = home.exists();
        home.create()?;
        let loaded = Dataplane::load_into(&home, disciplines, sizes);
        if loaded.is_err() && !was_there {
            let _ = home.remove();
        }
        loaded
    }

    fn load_into(
        home: &Home,
        disciplines: &[Discipline],
        sizes: Sizes,
    ) -> Result<Dataplane, Error> {
        let entry = load(home, "entry", ENTRY, sizes)?;
        let mut loaded: Vec<(&[u8], Object)> = Vec::new();
        for discipline in disciplines {
            let bytes = discipline.object;
            let at = match loaded.iter().position(|(same, _)| *same == bytes) {
                Some(at) => at,
                None => {
                    loaded.push((bytes, load(home, discipline.name, bytes, sizes)?));
                    loaded.len() - 1
                }
            };
            register(&entry, &loaded[at].1, discipline)?;
        }
        Ok(Dataplane {
            home: home.clone(),
            entry,
            _disciplines: loaded.into_iter().map(|(_, object)| object).collect(),
        })
    }

    /// Where it is pinned.
    pub fn home(&self) -> &Home {
        &self.home
    }

    /// Attaches the entry program to an interface, or replaces the one of an earlier agent in place,
    /// and admits the interface as a port.
    ///
    /// # Errors
    /// No such interface, MTU too small, occupied, no native mode: see [`Error`].
    pub fn attach(&self, interface: &str, mode: attach::Mode) -> Result<attach::Attached, Error> {
        let attached = attach::attach(&self.home, &self.program(), interface, mode)?;
        self.add_port(attached.ifindex)?;
        Ok(attached)
    }

    /// The entry program, for attaching and for test runs.
    pub fn program(&self) -> libbpf_rs::ProgramMut<'_> {
        self.entry
            .progs_mut()
            .next()
            .expect("entry.bpf.c has one program")
    }

    fn add_port(&self, ifindex: u32) -> Result<(), Error> {
        // struct bpf_devmap_val: target, and no program behind it.
        let value = u64::from(ifindex).to_ne_bytes();
        self.map("ports")
            .update(&ifindex.to_ne_bytes(), &value, MapFlags::ANY)
            .map_err(Error::bpf("adding a port"))
    }

    fn map(&self, name: &str) -> libbpf_rs::Map<'_> {
        find_map(&self.entry, name)
    }
}

fn find_map<'a>(object: &'a Object, name: &str) -> libbpf_rs::Map<'a> {
    object
        .maps()
        .find(|map| map.name() == name)
        .expect("maps.h defines it")
}

fn register(entry: &Object, object: &Object, discipline: &Discipline) -> Result<(), Error> {
    use std::os::fd::{AsFd, AsRawFd};
    let program = object
        .progs_mut()
        .find(|program| program.name() == discipline.program)
        .expect("a discipline's object has its program");
    find_map(entry, "disciplines")
        .update(
            &discipline.number.to_ne_bytes(),
            &program.as_fd().as_raw_fd().to_ne_bytes(),
            MapFlags::ANY,
        )
        .map_err(Error::bpf(format!("registering {}", discipline.name)))
}

/// libbpf's own messages go to the log; errors reach the user as [`Error`].
fn quiet_libbpf() {
    libbpf_rs::set_print(Some((
        libbpf_rs::PrintLevel::Debug,
        |level, text| match level {
            libbpf_rs::PrintLevel::Warn => tracing::debug!(target: "libbpf", "{}", text.trim_end()),
            _ => tracing::trace!(target: "libbpf", "{}", text.trim_end()),
        },
    )));
}
