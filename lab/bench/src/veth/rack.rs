//! The hosts, their servers, and what these hold.

use std::{
    io::{Read, Write},
    net::{IpAddr, TcpStream},
    os::fd::AsRawFd,
};

use anyhow::{Context, bail, ensure};
use dataplane::Mode;
use lab::namespace;
use libbpf_rs::libbpf_sys;
use plan::topology::{Link, Node, ProcessSpec, Topology};
use wire::Secret;

use crate::{
    cache::{self, Cache},
    kernel,
    runs::Program,
    words::words,
};

/// Bytes of every value.
pub const VALUE_LEN: usize = 128;
/// Keys that the store and memcached hold.
pub const KEYS: usize = 40_000;
/// Of which the switch holds so many; another share is asked for as misses.
pub const CACHED: usize = 10_000;
/// Where memcached listens.
pub const MEMCACHED_PORT: u16 = 11_211;

/// Who asks.
pub const CLIENT: &str = "client";
/// Ours.
pub const SWITCH: &str = "switch";
/// A soft one.
pub const SOFT: &str = "soft";
const PLAIN: &str = "plain";
/// Behind ours.
pub const STORE: &str = "store";
/// Where a bare program reflects.
pub const MIRROR: &str = "mirror";
/// memcached on a link of its own.
pub const NEAR: &str = "near";
/// memcached behind the router without our program.
pub const FAR: &str = "far";
/// CPU of the client.
pub const CLIENT_CPU: usize = 0;
/// Likewise of the servers.
pub const SERVER_CPU: usize = 1;

/// The 16 bytes of key `number`.
pub fn key(number: usize) -> Vec<u8> {
    format!("key{number:013}").into_bytes()
}

/// A value as `store --populate` makes it: the key again and again.
pub fn value(number: usize) -> Vec<u8> {
    key(number).into_iter().cycle().take(VALUE_LEN).collect()
}

fn process(name: &str, command: &str, ready: &str) -> ProcessSpec {
    let (cpu, ready) = (Some(SERVER_CPU), Some(ready.into()));
    ProcessSpec { cpu, ready, ..ProcessSpec::new(name, words(command)) }
}

/// A client with five ways: through the switch to a store, through a router of the same kind
/// without our program to memcached, straight to memcached, straight to a reflector, straight to a
/// soft switch.
pub fn topology() -> Topology {
    let node = |name: &str, processes| Node { name: name.into(), processes };
    let memcached = |host: &str| {
        let command = format!(
            "memcached -u root -t 1 -m 256 -l {{address:{host}}} -p {MEMCACHED_PORT} -U {MEMCACHED_PORT} \
             -P {{dir}}/{host}.pid"
        );
        vec![process("memcached", &command, &format!("{{dir}}/{host}.pid"))]
    };
    let store = format!(
        "shortstop-lab store --listen {{address:{STORE}}}:{} --populate {KEYS}:{VALUE_LEN} \
         --status-socket {{dir}}/store.sock",
        wire::PORT
    );
    let link = |a: &str, b: &str| Link::between([a.into(), b.into()]);
    Topology {
        hosts: vec![
            node(CLIENT, vec![]),
            node(MIRROR, vec![]),
            node(STORE, vec![process("store", &store, "{dir}/store.sock")]),
            node(NEAR, memcached(NEAR)),
            node(FAR, memcached(FAR)),
        ],
        switches: vec![node(SWITCH, vec![]), node(PLAIN, vec![]), node(SOFT, vec![])],
        links: vec![
            link(CLIENT, SWITCH),
            link(CLIENT, MIRROR),
            link(CLIENT, NEAR),
            link(CLIENT, PLAIN),
            link(SWITCH, STORE),
            link(PLAIN, FAR),
            link(CLIENT, SOFT),
        ],
        ..Topology::default()
    }
}

/// Gives memcached every key.
///
/// # Errors
/// It does not take them.
pub fn fill_memcached(namespace: &str, address: IpAddr) -> anyhow::Result<()> {
    namespace::within(namespace, || {
        let mut stream = TcpStream::connect((address, MEMCACHED_PORT))
            .with_context(|| format!("memcached at {address}"))?;
        let mut text = vec![];
        for number in 0..KEYS {
            let key = String::from_utf8(key(number))?;
            text.extend(format!("set {key} 0 0 {VALUE_LEN} noreply\r\n").into_bytes());
            text.extend(value(number));
            text.extend(b"\r\n");
        }
        text.extend(b"version\r\n");
        stream.write_all(&text)?;
        let mut reply = [0; 64];
        let got = stream.read(&mut reply)?;
        ensure!(reply[..got].starts_with(b"VERSION"), "memcached refused what it was to hold");
        Ok(())
    })
}

/// Attaches the bare reflector to an interface, on socket buffers, as the switch's program is.
///
/// # Errors
/// The kernel refuses.
pub fn reflect_at(namespace: &str, interface: &str) -> anyhow::Result<()> {
    const SKB_MODE: u32 = 1 << 1;
    namespace::within(namespace, || {
        let floors = kernel::bare()?;
        let reflector = Program::of(&floors, "reflect")?;
        let index = nix::net::if_::if_nametoindex(interface)?;
        // SAFETY: a valid descriptor, which the interface holds on to; no options.
        let failed = unsafe {
            libbpf_sys::bpf_xdp_attach(
                index as i32,
                reflector.0.as_raw_fd(),
                SKB_MODE,
                std::ptr::null(),
            )
        };
        if failed != 0 {
            bail!("attaching the reflector: {}", std::io::Error::from_raw_os_error(-failed));
        }
        Ok(())
    })
}

/// Fills a switch and attaches it. Returns the numbers of the items that it holds.
///
/// # Errors
/// The kernel refuses.
pub fn fill_switch(
    cache: &mut Cache,
    items: &[(Vec<u8>, Vec<u8>)],
    interfaces: &[String],
) -> anyhow::Result<Vec<usize>> {
    let tenant = cache::tenant(wire::TENANT_OPEN, Secret::NONE);
    let mut held = vec![];
    for (number, (key, value)) in items.iter().enumerate() {
        let hash = tenant.secret.key_hash(tenant.id, key);
        if cache.fill(&tenant, hash, key, value)? {
            held.push(number);
        }
    }
    for interface in interfaces {
        cache.attach(interface, Mode::Generic)?;
    }
    Ok(held)
}
