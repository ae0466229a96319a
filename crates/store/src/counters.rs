//! What the store counts: every request by kind, and every drop and refusal by its reason. Each
//! part of the engine counts for itself; a status has all of them side by side.

use serde::{Deserialize, Serialize};

/// Counters since the start; each only rises.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Counters {
    /// Requests of every kind: what was refused or dropped, and what went wrong on the way.
    #[serde(flatten)]
    pub requests: RequestCounters,
    /// Reads, corrections and fetches.
    #[serde(flatten)]
    pub read: ReadCounters,
    /// Writes and deletes, as the books on them have it.
    #[serde(flatten)]
    pub write: WriteCounters,
    /// Copies: granted, invalidated, called back.
    #[serde(flatten)]
    pub keys: KeyCounters,
    /// Reads that others answered from copies.
    #[serde(flatten)]
    pub elsewhere: ElsewhereCounters,
    /// Leases lent.
    #[serde(flatten)]
    pub leases: LeaseCounters,
    /// What others did in the backend.
    #[serde(flatten)]
    pub outside: OutsideCounters,
    /// Commands of Redis or memcached that had keys for themselves.
    #[serde(flatten)]
    pub holds: HoldCounters,
    /// Copies at the clients' side.
    #[serde(flatten)]
    pub holders: HolderCounters,
    /// Disciplines' halves.
    #[serde(flatten)]
    pub halves: HalfCounters,
    /// Keys lent to switches (write-back).
    #[serde(flatten)]
    pub loans: LoanCounters,
    /// Copies of other stores' keys that are held here.
    #[serde(flatten)]
    pub replicas: ReplicaCounters,
}

/// Requests of every kind: what was refused or dropped, and what went wrong on the way.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct RequestCounters {
    /// Requests refused: unknown tenant.
    pub denied_tenant: u64,
    /// Requests refused: wrong tag.
    pub denied_tag: u64,
    /// Requests refused: the key hash is not the key's.
    pub denied_key_hash: u64,
    /// Requests refused: the partition is another store's.
    pub wrong_partition: u64,
    /// Replies cut to NeedPadding: tenant 0 must pad its request to the reply's size.
    pub need_padding: u64,
    /// Reads that found no such key.
    pub reads_not_found: u64,
    /// Parts of writes, and reads of large values, refused with TryAgain: no room for the
    /// whole value.
    pub refused_parts_full: u64,
    /// Requests refused: value or key too large.
    pub refused_too_large: u64,
    /// Requests that the backend failed.
    pub backend_errors: u64,
    /// Requests that the backend refused, or could not be asked: nothing was done, and the answer
    /// says why.
    pub backend_refusals: u64,
    /// Requests dropped: the partition's queue was full.
    pub dropped_rate_limit: u64,
    /// Requests dropped: too many wait for the backend.
    pub dropped_backend_busy: u64,
    /// Datagrams dropped: not a packet of ours.
    pub dropped_malformed: u64,
    /// Datagrams dropped: a part in an op that takes none, or one that does not fit the other parts
    /// of its write.
    pub dropped_part: u64,
    /// Requests in the name of a store that did not send them: the name was taken off.
    pub claims_ignored: u64,
    /// Replies that the system did not take.
    pub replies_lost: u64,
}

/// Reads, corrections and fetches.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ReadCounters {
    /// Reads and corrections taken.
    pub reads: u64,
    /// Of these, reads that named a part of a value.
    pub reads_parts: u64,
    /// Fetches by switch agents.
    pub fetches: u64,
    /// Reads and fetches of a value that was read for a grant of another: the backend was not
    /// asked.
    pub reads_from_memory: u64,
    /// Reads and fetches answered with what the backend said to another's, asked since the key was
    /// changed last.
    pub reads_joined: u64,
    /// Retransmissions of a read that waits for the backend: ignored.
    pub duplicates_reads: u64,
    /// Reads of large values refused with TryAgain: others wrote while the backend was read.
    pub refused_late_reads: u64,
    /// Reads of parts dropped: the value is being read anew already.
    pub dropped_part_reads: u64,
}

/// Writes and deletes, as the books on them have it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct WriteCounters {
    /// Writes and deletes that came, retransmissions included, also that of a client's first write,
    /// which is refused because it names no life of the store yet; one that comes in parts when it
    /// is whole.
    pub writes: u64,
    /// Parts of writes taken, retransmissions included.
    pub writes_parts: u64,
    /// Writes forgotten of which parts were missing when their client gave up.
    pub writes_unfinished: u64,
    /// Writes and deletes that the backend carried out.
    pub writes_applied: u64,
    /// Conditional writes whose condition did not hold.
    pub writes_mismatch: u64,
    /// Writes that waited for at least one switch.
    pub writes_waited: u64,
    /// Writes that queued behind another write to the same key.
    pub writes_queued: u64,
    /// Retransmitted writes answered again (rule 7).
    pub duplicates_answered: u64,
    /// Retransmissions of a write still pending: ignored.
    pub duplicates_pending: u64,
    /// Writes older than the client's window: ignored.
    pub duplicates_too_old: u64,
    /// Writes refused with TryAgain: one lease has not passed since the start.
    pub refused_starting: u64,
    /// Writes refused with TryAgain: too many wait for the same key.
    pub refused_queue_full: u64,
    /// Writes refused with TryAgain: too many clients or requests to remember.
    pub refused_clients_full: u64,
    /// Writes refused with TryAgain: no room in the backend that may be evicted.
    pub refused_memory_full: u64,
}

/// Copies: granted, invalidated, called back.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct KeyCounters {
    /// Grants given (rule 5).
    pub grants: u64,
    /// Grants refused: the switch holds no lease.
    pub grants_no_lease: u64,
    /// Grants refused: a write to the key is pending.
    pub grants_write_pending: u64,
    /// Grants refused: the tenant has no memory on the switch, as the controller says.
    pub grants_not_placed: u64,
    /// Grants refused: the key has moved to another store meanwhile.
    pub grants_moved: u64,
    /// Grants refused: the directory has no more room for the tenant.
    pub grants_directory_full: u64,
    /// Grants refused: writes by others could not be told from the backend just then, or at all.
    pub grants_unwatched: u64,
    /// Invalidations sent, repetitions included.
    pub invalidations: u64,
    /// Acknowledgements that ended a wait.
    pub acks: u64,
    /// Acknowledgements that nobody waited for.
    pub acks_unexpected: u64,
    /// Waits ended because the switch's lease had run out.
    pub waits_lapsed: u64,
    /// Copies called back to make room in the directory.
    pub directory_evictions: u64,
    /// Newest values pushed to stores that hold copies.
    pub pushes: u64,
}

/// Reads that others answered from copies, and the backend sees nothing of.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ElsewhereCounters {
    /// Reads of keys with copies of which switches and holders told.
    pub reads_elsewhere: u64,
    /// Keys that the backend was told are read, again and again.
    pub marks: u64,
    /// Commands to the backend that this took.
    pub mark_commands: u64,
    /// Counts of switches and holders dropped: wrong tag or tenant, or not the holder's token.
    pub dropped_read_counts: u64,
}

/// Leases lent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct LeaseCounters {
    /// Leases given, renewals included.
    pub leases_granted: u64,
    /// Lease terms begun: a switch was new or its lease had lapsed.
    pub lease_terms: u64,
    /// Renewals refused: the switch left an invalidation unanswered for half a lease.
    pub leases_refused_mute: u64,
    /// Renewals refused: the switch's clock went back, or got ahead of ours by more than a lease,
    /// since it last asked. It was started anew or restored from a snapshot, or this machine was,
    /// or stood still; or two switches have one number.
    pub leases_refused_clock: u64,
    /// Lease requests of switches without a lease that were dated no later than one before: sent
    /// once more by somebody, or by a switch that was started anew, which answers the offer that
    /// it gets.
    pub leases_refused_dated: u64,
    /// Lease requests that came while the store waited out the leases of its former self; not
    /// answered.
    pub leases_refused_starting: u64,
    /// Renewals refused: what others wrote to the backend is not known, or its copies have not
    /// gone yet.
    pub leases_refused_unwatched: u64,
    /// Leases that were given back by a switch or store that leaves.
    pub leases_given_back: u64,
    /// Lease offers sent.
    pub lease_offers: u64,
    /// Lease messages dropped: wrong tag or tenant.
    pub dropped_lease_auth: u64,
}

/// What others did in the backend.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct OutsideCounters {
    /// Changes by others of which the backend told.
    pub outside_changes: u64,
    /// Keys whose copies were called back because others may have changed them, or may from now on.
    pub outside_recalls: u64,
    /// Times that anything may have changed: everything was flushed, or the backend's connection
    /// was lost.
    pub outside_losses: u64,
}

/// Copies at the clients' side.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct HolderCounters {
    /// Holders that were given a number.
    pub holders_begun: u64,
    /// Leases lent to holders, renewals included.
    pub holder_leases: u64,
    /// Requests of holders refused: as many as there may be have a number, or as many of
    /// the tenant.
    pub holders_refused_full: u64,
    /// Requests of holders refused: one lease has not passed since the start.
    pub holders_refused_starting: u64,
    /// Requests of holders refused: the backend has not told of outside writes for too long.
    pub holders_refused_unwatched: u64,
    /// Requests of holders refused: the holder leaves invalidations unanswered, or its clock or
    /// the store's went back.
    pub holders_refused_lease: u64,
    /// Requests of holders refused: one at their address has left invalidations unanswered, not
    /// long ago.
    pub holders_refused_mute: u64,
    /// Requests of holders refused: right behind the same holder's last one.
    pub holders_refused_pace: u64,
    /// Grants refused to holders: the key's copies answer too few reads before it is written.
    pub holder_grants_paused: u64,
    /// Grants refused to holders: as many as may have copies of the key.
    pub holder_grants_crowded: u64,
    /// Packets dropped that spoke for a holder and were not its own.
    pub dropped_holder: u64,
}

/// Commands of Redis that had keys for themselves.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct HoldCounters {
    /// Holds: of the keys of one command by the RESP port or the memcached port, or of several that
    /// came together.
    pub holds: u64,
    /// Of these, holds of everything, for which every copy was called back.
    pub holds_of_everything: u64,
    /// Holds whose command may have taken place or not when their connection to Redis or memcached
    /// was lost: they went on for a lease.
    pub holds_unknown: u64,
    /// Holds of everything that were refused, because something that they waited for did not end.
    pub holds_refused: u64,
}

/// Disciplines' halves.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct HalfCounters {
    /// Requests taken by disciplines' halves.
    pub discipline_requests: u64,
    /// Answers of halves.
    pub discipline_replies: u64,
    /// Values read for halves.
    pub discipline_reads: u64,
    /// Packets sent for halves.
    pub discipline_sent: u64,
    /// Messages from the controller that halves were given.
    pub discipline_told: u64,
    /// Reports of halves for the controller.
    pub discipline_reports: u64,
    /// Requests forgotten: their half did not answer within a second.
    pub discipline_unanswered: u64,
    /// What halves asked for that cannot be: an answer to what is no open request of theirs, no
    /// packet of ours, an unknown tenant, too long a report.
    pub discipline_refused: u64,
    /// Requests dropped: too many are open at disciplines' halves.
    pub dropped_discipline_busy: u64,
    /// Datagrams dropped: an op that neither the store nor a discipline takes.
    pub dropped_op: u64,
}

/// Keys lent to switches (write-back).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct LoanCounters {
    /// Keys lent (write-back).
    pub loans: u64,
    /// Loans that were prepared and not made: a switch had no room or did not answer, or the value
    /// does not fit.
    pub loans_cancelled: u64,
    /// Loans called back.
    pub loans_returned: u64,
    /// Of these, because the key was written too rarely to leave it lent.
    pub loans_cold: u64,
    /// Of those that were called back, the owner did not answer: its lease had to lapse.
    pub loans_lapsed: u64,
    /// Of those that were called back, neither switch had the record any more: answered writes of
    /// the last moments may be lost.
    pub loans_lost: u64,
    /// Loans found in the journal at the start.
    pub loans_found: u64,
    /// Hot keys not lent: as many loans as there may be, or keys with a life of their own.
    pub loans_refused_full: u64,
    /// Hot keys not lent: a switch holds no lease.
    pub loans_refused_switch: u64,
    /// Hot keys not lent: their writes pass one switch only.
    pub loans_refused_path: u64,
    /// Hot keys not lent: what others write to the backend matters, or there is no journal, or
    /// it failed.
    pub loans_refused_unsafe: u64,
    /// Values of lent keys written to the backend.
    pub loan_flushes: u64,
    /// Of these, such as the backend failed.
    pub loan_flush_errors: u64,
    /// Writes of lent keys that were told to name the loan.
    pub writes_moved: u64,
    /// Writes answered because the keeper of a loan had kept them.
    pub writes_kept: u64,
    /// Writes of which no keeper could tell whether it kept them.
    pub writes_untold: u64,
    /// Writes refused: they name another life of this store, or ask for the name of this one.
    pub refused_other_life: u64,
    /// Reads dropped: the key was lent.
    pub dropped_lent: u64,
    /// Writes on their way to a keeper that came here; dropped, and the key called back.
    pub dropped_keep: u64,
    /// Messages about loans dropped: wrong tag, or no such loan.
    pub dropped_loan: u64,
}

/// Copies of other stores' keys that are held here.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ReplicaCounters {
    /// Reads of other stores' keys that a switch sent here.
    pub replica_reads: u64,
    /// Of these, reads that were passed on to their home: there was no valid copy.
    pub replica_reads_passed: u64,
    /// Of these, reads that were never answered: their home said nothing, or what nobody can use.
    pub replica_reads_lost: u64,
    /// Questions to homes about keys that are held here, or read.
    pub replica_asks: u64,
    /// Copies installed (rule 5).
    pub replica_grants: u64,
    /// Grants dropped: they came too late, or twice.
    pub replica_grants_stale: u64,
    /// Grants dropped: there is no room for the value.
    pub replica_no_room: u64,
    /// Invalidations of homes answered.
    pub replica_invalidations: u64,
    /// Writes that switches sent here, too.
    pub replica_updates: u64,
    /// Of a write that was told of already: another switch has sent it, too, or it was doubled.
    pub replica_updates_again: u64,
    /// Messages about keys that are not held, or not any longer.
    pub replica_late: u64,
    /// Confirmations sent, repetitions included.
    pub replica_confirms: u64,
    /// Messages about copies dropped: not for us, wrong tag, or from somebody else.
    pub dropped_replica: u64,
    /// Reads dropped: as many wait for homes as may.
    pub dropped_replica_busy: u64,
}
