//! Clients that send commands of Redis: by the RESP port of each store, and to one of them by way
//! of a gateway.

use std::{net::SocketAddr, process::Child};

use anyhow::Context;
use history::{ClientsConfig, CommandClientsConfig, CommandsConfig};
use lab::process::{Launch, ProcessId, launch};

use super::{
    LENT,
    layout::{CLIENT_HOSTS, SERVERS},
};
use crate::rig::{Clients, Rig};

/// Clients of each port, and of the gateway.
const CLIENTS: u32 = 2;
/// Numbers of these clients are above those of others.
const FIRST: u32 = 1_000;
/// Longest pause between two commands of a client, in microseconds.
const PAUSE_US: u64 = 20_000;
/// Part of the commands that delete every key of a store.
const FLUSHES: f64 = 0.0015;
/// Part of the commands that are transactions with a key that is watched.
const WATCHES: f64 = 0.05;
/// The port of the gateway.
const GATEWAY: u16 = 6379;

/// A gateway that runs; it ends with this.
pub(super) struct Gateway(Child);

impl Drop for Gateway {
    fn drop(&mut self) {
        let id = ProcessId::of(self.0.id() as i32);
        id.into_iter().for_each(|id| id.signal(libc::SIGTERM));
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts all of them. `config` is that of a client host; the clients of the ports are on the
/// servers, those of the gateway on the first client host.
///
/// # Errors
/// Something does not start.
pub(super) fn start(
    rig: &mut Rig,
    all: &mut Clients,
    config: &ClientsConfig,
) -> anyhow::Result<Gateway> {
    for (i, server) in SERVERS.into_iter().enumerate() {
        let config = CommandClientsConfig {
            commands: commands(config, i, i as u32),
            server: resp_socket(rig, server)?,
            pause_us: PAUSE_US,
        };
        rig.command_clients(all, server, "commands", &config)?;
    }
    let (gateway, address) = start_gateway(rig, SERVERS[0])?;
    let config = CommandClientsConfig {
        commands: commands(config, 0, SERVERS.len() as u32),
        server: address.to_string(),
        pause_us: PAUSE_US,
    };
    rig.command_clients(all, CLIENT_HOSTS[0], "commands", &config)?;
    Ok(gateway)
}

fn commands(config: &ClientsConfig, store: usize, group: u32) -> CommandsConfig {
    let first = FIRST + group * CLIENTS;
    let clients = ClientsConfig { first, clients: CLIENTS, ..config.clone() };
    CommandsConfig { clients, store, lent: LENT.into(), flushes: FLUSHES, watches: WATCHES }
}

fn resp_socket(rig: &Rig, server: &str) -> anyhow::Result<String> {
    Ok(rig.file(&format!("{server}-resp"))?.display().to_string())
}

fn start_gateway(rig: &Rig, server: &str) -> anyhow::Result<(Gateway, SocketAddr)> {
    let address = rig.topology().address_of(server).context("a server has an address")?;
    let address = SocketAddr::from((address, GATEWAY));
    let cluster = rig.file("cluster.toml")?.display().to_string();
    let resp = format!("redis+unix://{}", resp_socket(rig, server)?);
    let listen = address.to_string();
    let words =
        ["shortstop", "gateway", "--listen", &listen, "--cluster", &cluster, "--resp", &resp];
    let child = launch(&Launch {
        namespace: &rig.namespace(server)?,
        command: &words.map(String::from),
        log: &rig.file("gateway.log")?,
        cpu: None,
        nice: 0,
        detached: false,
        piped: false,
    })?;
    Ok((Gateway(child), address))
}
