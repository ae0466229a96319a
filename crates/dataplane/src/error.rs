//! Why the data plane could not do something. Every part of this crate returns these; the command
//! line prints them as they are.

use std::{io, path::PathBuf};

/// Why the data plane could not do something; each message names the thing and what to do.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Missing privilege.
    #[error("{0}: not permitted; run as root, or with CAP_BPF, CAP_NET_ADMIN and CAP_SYS_ADMIN")]
    NotPermitted(&'static str),
    /// Where switches are pinned may not be looked at.
    #[error("{0}: only root may look what switches there are: run this as root")]
    NotSeen(PathBuf),
    /// This kernel's verifier does not take a program without which there is no switch.
    #[error(
        "{0}; `shortstop switch --check --log libbpf=debug` tells all, and `shortstop switch --soft` needs no kernel's leave"
    )]
    Refused(crate::Refusal),
    /// The kernel lacks something.
    #[error("Linux {found} is too old: shortstop needs 6.1 or newer")]
    OldKernel {
        /// The release that runs.
        found: String,
    },
    /// A real-time kernel without the lock that keeps softirqs of a CPU apart.
    #[error(
        "Linux {0} is a real-time kernel in which one packet may interrupt another on its CPU (CONFIG_PREEMPT_RT_NEEDS_BH_LOCK is not set, \
         or its configuration is neither in /boot nor beside its modules), and the programs would mix them up; run another kernel, or \
         `shortstop switch --soft`"
    )]
    Preempts(String),
    /// No such interface in this network namespace.
    #[error(
        "interface {0}: there is none of this name in this network namespace; `ip link` lists them"
    )]
    NoInterface(String),
    /// Packets would not fit.
    #[error("interface {name}: its MTU of {mtu} is too small; shortstop needs at least {needed}")]
    SmallMtu {
        /// Interface.
        name: String,
        /// Bytes.
        mtu: u32,
        /// Bytes.
        needed: u32,
    },
    /// Another XDP program is there.
    #[error(
        "interface {name}: an XDP program is attached to it already: {by} first, or leave this interface out"
    )]
    Occupied {
        /// Interface.
        name: String,
        /// Which one, and how it goes.
        by: String,
    },
    /// The driver has no native XDP.
    #[error("interface {name}: its driver refuses native XDP ({reason}); use --mode generic")]
    NoNative {
        /// Interface.
        name: String,
        /// What the kernel said.
        reason: String,
    },
    /// An earlier agent's interface, beside others that are to be in another mode.
    #[error(
        "interface {name}: an earlier agent attached it in {mode} mode, and all interfaces of a switch are in one; run \
         `shortstop switch detach --name {switch}` first"
    )]
    OtherMode {
        /// Interface.
        name: String,
        /// Its mode.
        mode: &'static str,
        /// Switch.
        switch: String,
    },
    /// Pinned maps of another layout.
    #[error(
        "the tables of switch {name} are pinned in another size or layout ({reason}); run `shortstop switch detach --name {name}` first (its cache starts empty then)"
    )]
    OtherLayout {
        /// Switch.
        name: String,
        /// What differs.
        reason: String,
    },
    /// Nothing is pinned under this name.
    #[error(
        "there is no switch {0} on this machine; `shortstop switch status` lists those there are"
    )]
    NoSwitch(String),
    /// Interfaces of another network namespace are left to whoever is there.
    #[error(
        "switch {name} stays attached to {interfaces} in another network namespace: run `shortstop switch detach --name {name}` there as well (`ip netns exec NAMESPACE ...`, or `nsenter --net=/proc/PID/ns/net ...`)"
    )]
    Elsewhere {
        /// Switch.
        name: String,
        /// What it is attached to there.
        interfaces: String,
    },
    /// Somebody else's pins could stand in for the switch's.
    #[error(
        "{path}: others may write there (user {uid}, mode {mode:o}); remove it, and mount bpffs with mode=0700"
    )]
    NotOurs {
        /// A directory in bpffs.
        path: std::path::PathBuf,
        /// Its owner.
        uid: u32,
        /// Its permissions.
        mode: u32,
    },
    /// A name that cannot be a directory.
    #[error("switch name {0:?}: use 1 to 64 letters, digits, '-' or '_'")]
    BadName(String),
    /// A discipline's object is not what it was registered as.
    #[error("discipline {name}: {reason}")]
    Object {
        /// Discipline.
        name: String,
        /// What is wrong.
        reason: String,
    },
    /// Something that a discipline's own map cannot have.
    #[error("map {map}: {reason}")]
    Row {
        /// The map.
        map: String,
        /// What is wrong.
        reason: String,
    },
    /// A file operation.
    #[error("{what} {}: {source}", path.display())]
    File {
        /// What was tried.
        what: &'static str,
        /// On which file.
        path: PathBuf,
        /// What came of it.
        source: io::Error,
    },
    /// A BPF operation.
    #[error("{what}: {source}")]
    Bpf {
        /// What was tried.
        what: String,
        /// What came of it.
        source: libbpf_rs::Error,
    },
    /// Any other system call.
    #[error("{what}: {source}")]
    System {
        /// What was tried.
        what: &'static str,
        /// What came of it.
        source: io::Error,
    },
}

impl Error {
    pub(crate) fn bpf(what: impl Into<String>) -> impl FnOnce(libbpf_rs::Error) -> Error {
        let what = what.into();
        move |source| Error::Bpf { what, source }
    }

    pub(crate) fn row(map: &str, reason: impl Into<String>) -> Error {
        Error::Row { map: map.into(), reason: reason.into() }
    }

    pub(crate) fn file(
        what: &'static str,
        path: impl Into<PathBuf>,
    ) -> impl FnOnce(io::Error) -> Error {
        let path = path.into();
        move |source| Error::File { what, path, source }
    }
}
