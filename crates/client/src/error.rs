//! Why a call has no result, as the caller is told.
//!
//! Every call ends with one of these or an answer. Tools and the gateway print the messages as they
//! are, so each names the store, what happened, whether anything can have been written, and what to
//! do about it. A discipline's own client returns the same.

use std::{io, net::SocketAddr};

use crate::OpenError;

/// Why a call has no result. Every message is one line that says what to do where there is
/// something.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An option has a value that cannot work.
    #[error("client option {0}")]
    Options(String),
    /// The cluster file does not know the tenant, or tenant 0 is switched off.
    #[error("tenant {tenant} may not use this cluster: {}", not_here(.0), tenant = .0)]
    UnknownTenant(u32),
    /// A key that no packet can carry.
    #[error("key of {0} bytes: 1 to 250 bytes are possible")]
    KeyLength(usize),
    /// A key that begins with the byte 0, of a tenant whose keys switches hold: those are the
    /// switches' own.
    #[error("key that begins with byte 0: the switches keep such keys for themselves")]
    ReservedKey,
    /// Something that stores do, and whoever else holds the tenant's keys does not.
    #[error("{holders} hold this tenant's keys, and know nothing of {what}")]
    Unsupported {
        /// Who holds them.
        holders: &'static str,
        /// What was asked for.
        what: &'static str,
    },
    /// A value, also one that is read, that is longer than the cluster's values may be; or one that
    /// goes in one packet only and does not fit.
    #[error(
        "value of {} is too large: {max} bytes are possible{}",
        bytes(.len), bound(.in_parts, .sealed)
    )]
    ValueLength {
        /// Bytes of the value.
        len: usize,
        /// Bytes that would be possible, the seal's own not counted.
        max: usize,
        /// Whether it goes in parts: then `max_value` of the cluster file is the bound
        /// ([`wire::Cluster::max_value`]).
        in_parts: bool,
        /// Whether values are sealed, which takes [`Seal::OVERHEAD`](crate::Seal::OVERHEAD) bytes
        /// of each.
        sealed: bool,
    },
    /// The memory for large values ([`Options::memory`](crate::Options::memory)) is in use. Nothing
    /// was sent, or nothing but a read.
    #[error("value of {}: the memory for large values is in use", bytes(.len))]
    NoMemory {
        /// Bytes of the value.
        len: usize,
    },
    /// A time to live of zero, or one too long for its field.
    #[error("time to live must be 1 ms to {} ms (49 days)", u32::MAX)]
    TimeToLive,
    /// The socket could not be made, or the first datagram of a call could not be sent: nothing
    /// was done.
    #[error("{what}: {source}")]
    Socket {
        /// What was tried.
        what: String,
        /// The system's error.
        source: io::Error,
    },
    /// This process was forked from the one that connected the client. Nothing was done.
    #[error("this client is its parent process's: connect a client of its own after fork()")]
    Forked,
    /// As many calls as `Options::max_in_flight` were running until the deadline. Nothing was sent.
    #[error("{limit} calls were in flight until the deadline; nothing was sent")]
    TooManyInFlight {
        /// The limit.
        limit: usize,
    },
    /// No answer to a read before the deadline, or never all parts of one value.
    #[error(
        "{} from {store} within {after_ms} ms ({tries} tries{}{}{})",
        what_came(.changes), put_off(.try_again), reason(.denied), path(.short_path)
    )]
    Timeout {
        /// The store that was asked.
        store: SocketAddr,
        /// The deadline in milliseconds.
        after_ms: u64,
        /// Datagrams sent.
        tries: u32,
        /// How often the value was another one before all its parts were here.
        changes: u32,
        /// Whether the store answered `TryAgain` at least once.
        try_again: bool,
        /// The tenant, if answers that were not signed with its secret said `Denied`.
        denied: Option<u32>,
        /// Whether, as far as was seen, the path carries short datagrams and no long ones.
        short_path: bool,
    },
    /// Not all parts of a value could be sent before the deadline. Nothing was written, and nothing
    /// of it will be.
    #[error(
        "nothing was written: {store} took too few of the value's parts within {after_ms} ms ({sent} of {parts} sent{}{}{})",
        put_off(.try_again), reason(.denied), path(.short_path)
    )]
    NotWhole {
        /// The store that was asked.
        store: SocketAddr,
        /// The deadline in milliseconds.
        after_ms: u64,
        /// Parts sent.
        sent: usize,
        /// Parts that the value has.
        parts: usize,
        /// Whether the store answered `TryAgain` at least once.
        try_again: bool,
        /// The tenant, if answers that were not signed with its secret said `Denied`.
        denied: Option<u32>,
        /// Whether, as far as was seen, the path carries short datagrams and no long ones.
        short_path: bool,
    },
    /// No final answer to a write before the deadline: it may have been applied, may be later,
    /// or never.
    #[error(
        "outcome unknown: no answer to the write from {store} within {after_ms} ms ({tries} tries{}{}{}{})",
        without_room(.no_room), put_off_or_all(.try_again, .each_put_off), reason(.denied), path(.short_path)
    )]
    OutcomeUnknown {
        /// The store that was asked.
        store: SocketAddr,
        /// The deadline in milliseconds, or when the call was given up.
        after_ms: u64,
        /// Datagrams sent.
        tries: u32,
        /// Whether a switch that holds the tenant's keys has no room for this one, for which the
        /// call was given up before its deadline. A copy of it that is still on its way may find
        /// room.
        no_room: bool,
        /// Whether the store answered `TryAgain` at least once.
        try_again: bool,
        /// Whether it answered so each time: then only a copy that the network made of one, and
        /// still carries, can be applied.
        each_put_off: bool,
        /// The tenant, if answers that were not signed with its secret said `Denied`.
        denied: Option<u32>,
        /// Whether, as far as was seen, the path carries short datagrams and no long ones.
        short_path: bool,
    },
    /// The condition of a write did not hold. Nothing was written.
    #[error("condition not met: {}; nothing was written", current_version(.current))]
    Mismatch {
        /// The key's version now; 0: there is no such key.
        current: u64,
    },
    /// The store does not own the key's partition: the cluster file is out of date.
    #[error(
        "{store} does not own this key's partition: the cluster file here differs from the store's"
    )]
    WrongPartition {
        /// The store that was asked.
        store: SocketAddr,
    },
    /// The value is longer than the store takes or gives, or larger than its backend holds; or than
    /// switches that hold the key take, or carry to one another.
    #[error("{store} {}", too_large(.len, .write))]
    TooLarge {
        /// The store that was asked.
        store: SocketAddr,
        /// Bytes of the value that was to be written; 0 of a read.
        len: usize,
        /// Whether the call was a write.
        write: bool,
    },
    /// The key is longer than the store's backend takes. Nothing was written.
    #[error(
        "{store} refuses this key: its backend takes keys of at most {most} bytes of this tenant, if the others are like these"
    )]
    KeyTooLong {
        /// The store that was asked.
        store: SocketAddr,
        /// Bytes of the longest such key.
        most: u64,
    },
    /// The store's backend failed. For a write the outcome is unknown.
    #[error("the backend of {store} failed{}", if *.write { "; outcome unknown" } else { "" })]
    Backend {
        /// The store that was asked.
        store: SocketAddr,
        /// Whether the call was a write.
        write: bool,
    },
    /// The store's backend refused the request, or could not be asked. Nothing was done.
    #[error("the backend of {store} refuses, and nothing was {}: {words}", if *.write { "written" } else { "read" })]
    Refused {
        /// The store that was asked.
        store: SocketAddr,
        /// What the backend said, or the store of it: one line, which begins with a word in
        /// capitals as Redis's errors do.
        words: String,
        /// Whether the call was a write.
        write: bool,
    },
    /// The store does not know the tenant, or the secrets differ.
    #[error("{store} denies the request: tenant {tenant} is {}", not_there(.tenant))]
    Denied {
        /// The store that was asked.
        store: SocketAddr,
        /// The tenant.
        tenant: u32,
    },
    /// Values are sealed here ([`Options::seal`](crate::Options::seal)), and the one that came does
    /// not open.
    #[error(
        "the value that {} answered with does not open with this seal key: {why}; nothing of it is returned",
        whence(.store, .from_switch)
    )]
    NotOpened {
        /// The store that was asked.
        store: SocketAddr,
        /// Whether a switch answered in its place.
        from_switch: bool,
        /// What is wrong with it.
        why: OpenError,
    },
    /// An answer that makes no sense for its request.
    #[error("{store} answered a request with {what}; expected an answer of protocol version {}", wire::MAGIC_VERSION & 0xf)]
    BadReply {
        /// The store that was asked.
        store: SocketAddr,
        /// What came.
        what: &'static str,
    },
}

fn bound(in_parts: &bool, sealed: &bool) -> String {
    let which = match in_parts {
        true => " (max_value in the cluster file, which stores and clients read when they start)",
        false => " beside this key: it goes in one packet",
    };
    let seal = match sealed {
        true => format!(", less the {} bytes of a seal", crate::Seal::OVERHEAD),
        false => String::new(),
    };
    format!("{which}{seal}")
}

fn bytes(len: &usize) -> String {
    if *len == 1 { "1 byte".into() } else { format!("{len} bytes") }
}

fn too_large(len: &usize, write: &bool) -> String {
    match write {
        true => format!(
            "refuses a value of {}: longer than max_value of its cluster file, or larger than its backend holds; or, in chains of switches, than one of a key's versions may be or the links between them carry",
            bytes(len)
        ),
        false => "does not give this value: it is longer than max_value of its cluster file".into(),
    }
}

fn what_came(changes: &u32) -> String {
    match changes {
        0 => "no answer".into(),
        times => format!("no whole value: it was written again {times} times while its parts came"),
    }
}

fn whence(store: &SocketAddr, from_switch: &bool) -> String {
    if *from_switch { format!("a switch before {store}") } else { store.to_string() }
}

fn without_room(no_room: &bool) -> &'static str {
    match no_room {
        true => "; it has no room for this key: give the tenant more pages, or remove something",
        false => "",
    }
}

fn put_off(try_again: &bool) -> &'static str {
    match try_again {
        true => {
            "; it puts requests off for now, as a store does that has just started or is overloaded, and a switch whose controller is away"
        }
        false => "",
    }
}

fn put_off_or_all(try_again: &bool, each: &bool) -> &'static str {
    match each {
        true => {
            "; it put off each of them, as a store does that has just started or is overloaded: nothing was written, unless a copy of one is still on its way"
        }
        false => put_off(try_again),
    }
}

fn reason(tenant: &Option<u32>) -> String {
    tenant.map_or(String::new(), |tenant| {
        format!("; it denies them: tenant {tenant} is {}", not_there(&tenant))
    })
}

fn path(short_path: &bool) -> &'static str {
    match short_path {
        true => {
            "; long datagrams get no answer from there and short ones do: the path's MTU seems to be below 1500, see docs/operations/short-paths.md"
        }
        false => "",
    }
}

fn not_here(tenant: &u32) -> &'static str {
    match *tenant {
        wire::TENANT_OPEN => "the cluster file says open_tenant = false",
        _ => "it is not in the cluster file",
    }
}

fn not_there(tenant: &u32) -> &'static str {
    match *tenant {
        wire::TENANT_OPEN => "switched off there (open_tenant = false)",
        _ => {
            "unknown there or its secret differs (stores know tenants by --control, or by a cluster file like the one here)"
        }
    }
}

fn current_version(current: &u64) -> String {
    match current {
        0 => "the key is absent".into(),
        version => format!("the key's version is {version}"),
    }
}
