//! `bpf/user/switch.h` and `packet.h`, struct by struct.

use std::ffi::{c_char, c_int, c_long, c_void};

pub const TABLES: usize = 64;
pub const PROGRAMS: usize = 128;
pub const CPUS: usize = 64;
pub const GROUP_PORTS: usize = 64;

/// A program: takes a packet, gives an XDP verdict.
pub type Run = unsafe extern "C" fn(*mut Packet) -> c_int;

/// `struct xdp_md`.
#[repr(C)]
pub struct Packet {
    pub data: c_long,
    pub data_end: c_long,
    pub ingress_ifindex: u32,
    pub egress_ifindex: u32,
    pub linear: *mut u8,
    pub rest: *mut u8,
    pub linear_len: u32,
    pub rest_len: u32,
    pub head_room: u32,
    pub tail_room: u32,
}

/// `struct user_table`.
#[repr(C)]
pub struct Table {
    pub base: *mut u8,
    pub hash: *mut c_void,
    pub stride: u64,
    pub max_entries: u32,
    pub kind: u32,
    pub key_size: u32,
    pub value_size: u32,
}

/// `struct user_group`.
#[repr(C)]
pub struct Group {
    pub egress: Option<Run>,
    pub count: u32,
    pub comes_back: u32,
    pub ports: [u32; GROUP_PORTS],
}

impl Group {
    /// A port, and the recirculation port beside it.
    pub fn pair(port: u32, round: u32) -> Group {
        let mut ports = [0; GROUP_PORTS];
        ports[..2].copy_from_slice(&[port, round]);
        Group { egress: None, count: 2, comes_back: 1, ports }
    }

    /// As it stands in a table.
    pub fn as_bytes(&self) -> &[u8] {
        // SAFETY: no padding: a pointer, two words, an even number of words.
        unsafe { std::slice::from_raw_parts((&raw const *self).cast(), size_of::<Group>()) }
    }
}

/// `struct user_switch`.
#[repr(C)]
pub struct Switch {
    pub table: [Table; TABLES],
    pub program: [Option<Run>; PROGRAMS],
    pub entry: Option<Run>,
    pub comes_back: Option<Run>,
    pub fib: Option<unsafe extern "C" fn(*mut c_void, *mut Fib) -> c_long>,
    pub fib_context: *mut c_void,
    pub cpu: [*mut Cpu; CPUS],
    pub cpus: u32,
    pub mask_of_buckets: u32,
    pub count_of_pages: u32,
    pub mutant: u32,
}

/// `struct user_cpu`.
#[repr(C)]
pub struct Cpu {
    pub at: *mut Switch,
    pub runs: u64,
    pub now_ns: u64,
    pub late_ns: u64,
    pub random: u64,
    pub group: *const Group,
    pub port: u32,
    pub number: u32,
    pub moment: Option<unsafe extern "C" fn(*mut c_void)>,
    pub moment_of: *mut c_void,
}

/// `struct user_map`.
#[repr(C)]
pub struct Map {
    pub name: *const c_char,
    pub map: *mut c_void,
    pub kind: u32,
    pub key_size: u32,
    pub value_size: u32,
    pub max_entries: u32,
}

/// `struct user_program`.
#[repr(C)]
pub struct Program {
    pub name: *const c_char,
    pub run: Run,
}

/// `struct user_unit`.
#[repr(C)]
pub struct Unit {
    pub maps: *const Map,
    pub programs: *const Program,
    pub map_count: u32,
    pub program_count: u32,
}

/// `struct user_size`.
#[repr(C)]
pub struct Size {
    pub name: *const c_char,
    pub entries: u32,
}

/// `struct bpf_fib_lookup`, of which 64 bytes have been the same since it was made.
#[repr(C)]
pub struct Fib {
    pub family: u8,
    pub l4_protocol: u8,
    pub ports: [u16; 2],
    pub tot_len: u16,
    pub ifindex: u32,
    pub flow: u32,
    pub source: [u8; 16],
    pub destination: [u8; 16],
    pub vlan: [u16; 2],
    pub smac: [u8; 6],
    pub dmac: [u8; 6],
}

const _: () = assert!(size_of::<Fib>() == 64);

unsafe extern "C" {
    pub fn entry_unit() -> *const Unit;
    pub fn user_switch_new(
        units: *const *const Unit,
        count: u32,
        sizes: *const Size,
        size_count: u32,
        cpus: u32,
    ) -> *mut Switch;
    pub fn user_switch_free(at: *mut Switch);
    pub fn user_table_named(at: *mut Switch, name: *const c_char) -> *mut Table;
    pub fn user_run(cpu: *mut Cpu, packet: *mut Packet, program: Run) -> c_int;
    pub fn user_quiesce(at: *mut Switch);
    pub fn user_hash_lookup(hash: *mut c_void, key: *const c_void) -> *mut c_void;
    pub fn user_hash_update(
        hash: *mut c_void,
        key: *const c_void,
        value: *const c_void,
        flags: u64,
    ) -> c_long;
    pub fn user_hash_delete(hash: *mut c_void, key: *const c_void) -> c_long;
    pub fn user_hash_at(
        hash: *mut c_void,
        place: u32,
        key: *mut *mut c_void,
        value: *mut *mut c_void,
        end: *mut bool,
    ) -> bool;
    pub fn user_ring_take(ring: *mut Table, to: *mut c_void, room: u32) -> u32;
}
