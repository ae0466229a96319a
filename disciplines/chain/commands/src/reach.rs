//! How the commands reach the chains: which switches, in whose name, how long.

use std::{net::SocketAddr, path::PathBuf, time::Duration};

use chain_client::{Client, Identity, Options};
use commands::{
    common::time,
    secrets,
    target::{read_seal, resolve},
};

use crate::identity;

/// Where the keys are, and in whose name to ask.
#[derive(clap::Args)]
// `coord list` has the options that reach controllers too, under the same name of a group.
#[group(skip)]
pub struct Reach {
    /// The cluster file (TOML), as `shortstop tenant credentials` prints it: switches and the
    /// tenant.
    #[arg(long, value_name = "FILE")]
    cluster: PathBuf,
    /// A switch to ask which chains there are, instead of those of the cluster file; may be given
    /// again.
    #[arg(long = "switch", value_name = "ADDR[:PORT]")]
    switches: Vec<String>,
    /// The tenant whose keys these are; its secret is read from the cluster file.
    #[arg(long, value_name = "ID")]
    tenant: u32,
    /// How long to try, 30s at most.
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = time)]
    timeout: Duration,
    /// Seal values and hide keys with the key in this file: 64 hex digits, readable by its owner
    /// only.
    #[arg(long, value_name = "FILE")]
    seal_key: Option<PathBuf>,
    /// A directory of this user's own for the id under which the switches know its commands, so
    /// that each that writes goes on as an earlier one and takes no room of its own [default:
    /// shortstop-coord in $XDG_RUNTIME_DIR, or in /run for root; shortstop-coord-UID in /tmp].
    #[arg(long, value_name = "DIR")]
    state_dir: Option<PathBuf>,
    /// Print JSON, a line for each thing.
    #[arg(long)]
    pub json: bool,
}

impl Reach {
    /// Whose keys these are.
    pub fn tenant(&self) -> u32 {
        self.tenant
    }

    /// Whether values are sealed and keys hidden.
    pub fn is_sealed(&self) -> bool {
        self.seal_key.is_some()
    }

    /// Connects, and carries on from there. The switches will know the client once it has written.
    pub fn write<T>(
        &self,
        then: impl AsyncFnOnce(Client) -> anyhow::Result<T>,
    ) -> anyhow::Result<T> {
        let locked = identity::take(self.state_dir.as_deref(), self.tenant)?;
        self.run_as(locked.as_ref().map(|locked| locked.identity), then)
    }

    /// Likewise for reads alone: the switches remember nothing of those.
    pub fn read<T>(
        &self,
        then: impl AsyncFnOnce(Client) -> anyhow::Result<T>,
    ) -> anyhow::Result<T> {
        self.run_as(None, then)
    }

    fn run_as<T>(
        &self,
        identity: Option<Identity>,
        then: impl AsyncFnOnce(Client) -> anyhow::Result<T>,
    ) -> anyhow::Result<T> {
        let cluster = secrets::cluster(&self.cluster)?.1;
        let switches: Vec<SocketAddr> = match self.switches.as_slice() {
            [] => Options::of(&cluster).switches,
            some => some.iter().map(|text| resolve("--switch", text)).collect::<Result<_, _>>()?,
        };
        anyhow::ensure!(
            !switches.is_empty(),
            "{}: it names no switch with an address; expected [[switch]] entries, or --switch ADDR",
            self.cluster.display()
        );
        let options = Options {
            deadline: self.timeout,
            identity,
            seal: self.seal_key.as_deref().map(read_seal).transpose()?,
            ..Options::new(switches)
        };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            let client = Client::connect(&cluster, self.tenant, options).await?;
            then(client).await
        })
    }
}
