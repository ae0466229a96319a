//! The windows of rule 7, one per client; a bounded number of clients.

use std::collections::{BTreeMap, VecDeque};

use hashbrown::HashMap;
use wire::Secret;

use crate::{
    coherence::{Nanos, Verdict, Window},
    shares::Shares,
};
use holder::mutants::{Mutant, mutant};

/// Writes remembered per client: four times the 64 that a client may rely on.
const WINDOW: usize = 256;

/// A client: its tenant, and the number that it drew. Not its address, which may move while it
/// retransmits. Without the tenant, somebody who knows another's number could have its writes taken
/// for repetitions of his own.
pub(crate) type ClientId = (u32, u64);

/// A write, by its client and the client's number for it.
pub(crate) type RequestId = (ClientId, u64);

struct Client<O> {
    window: Window<O>,
    used_ns: Nanos,
}

impl<O> Client<O> {
    /// Whether it has been silent for so long that it retransmits nothing any more.
    fn is_silent(&self, now_ns: Nanos, keep_ns: Nanos) -> bool {
        now_ns.saturating_sub(self.used_ns) > keep_ns
    }
}

/// A tenant that is gone, and of which there are clients that may still retransmit.
struct LeftTenant {
    /// The seed of its key hashes: a tenant with its number and another seed is another one.
    seed: Secret,
    /// From then on they have all been silent for long enough.
    until_ns: Nanos,
}

/// Every client that wrote of late. Each tenant has a share of its own, so that one which makes up
/// client after client fills its own share only, and what is nobody's.
pub(crate) struct Clients<O> {
    clients: HashMap<ClientId, Client<O>>,
    /// Per tenant, in the order in which they came, or were last spared.
    order: HashMap<u32, VecDeque<ClientId>>,
    shares: Shares,
    /// How many tenants there are.
    tenants: usize,
    /// By number. Should the tenant be there again before they are silent, with the same secret,
    /// what they retransmit is what was decided for the one before.
    left: BTreeMap<u32, LeftTenant>,
    /// A client that has written within this time is not forgotten: it may still retransmit.
    keep_ns: Nanos,
}

impl<O: Clone> Clients<O> {
    /// Room for `limit` clients in all, shared by `tenants` tenants.
    pub fn new(limit: usize, tenants: usize, keep_ns: Nanos) -> Clients<O> {
        Clients {
            clients: HashMap::new(),
            order: HashMap::new(),
            shares: Shares::new(limit, tenants),
            tenants,
            left: BTreeMap::new(),
            keep_ns,
        }
    }

    /// From now on so many tenants share the room. What a tenant has it keeps, for it may still
    /// retransmit; a new one finds its share all the same, and the room is exceeded meanwhile.
    pub fn share_among(&mut self, tenants: usize) {
        self.tenants = tenants;
        self.shares.share_among(tenants + self.left.len());
    }

    /// A tenant is gone, whose key hashes had this seed. Of its writes that are under way nobody
    /// will hear: this is their outcome. All of them are remembered for as long as their clients
    /// may retransmit, because the tenant may be there again by then.
    pub fn tenant_left(&mut self, tenant: u32, seed: Secret, unknown: &O, now_ns: Nanos) {
        let Some(order) = self.order.get(&tenant) else { return };
        for id in order {
            if let Some(client) = self.clients.get_mut(id) {
                client.window.give_up(unknown);
            }
        }
        let seed = if mutant(Mutant::DecidedForgotten) { Secret::NONE } else { seed };
        let until_ns = now_ns + self.keep_ns + 1;
        self.left.insert(tenant, LeftTenant { seed, until_ns });
        self.share_among(self.tenants);
    }

    /// Forgets the clients of tenants that are gone and whose numbers others have: `seed_of` says
    /// which seed the key hashes of a tenant have, if there is one. What their clients number the
    /// same is another write.
    pub fn forget_replaced(&mut self, seed_of: impl Fn(u32) -> Option<Secret>) {
        let is_another = |(tenant, left): (&u32, &LeftTenant)| {
            seed_of(*tenant).is_some_and(|seed| seed != left.seed).then_some(*tenant)
        };
        let replaced: Vec<u32> = self.left.iter().filter_map(is_another).collect();
        for tenant in replaced {
            self.left.remove(&tenant);
            for id in self.order.remove(&tenant).into_iter().flatten() {
                self.clients.remove(&id);
            }
            self.shares.forget(tenant);
        }
        self.share_among(self.tenants);
    }

    /// Forgets the clients of tenants that left so long ago that none of them retransmits.
    pub fn tick(&mut self, now_ns: Nanos) {
        if self.next_ns().is_none_or(|next_ns| now_ns < next_ns) {
            return;
        }
        let is_over =
            |(tenant, left): (&u32, &LeftTenant)| (left.until_ns <= now_ns).then_some(*tenant);
        let over: Vec<u32> = self.left.iter().filter_map(is_over).collect();
        for tenant in over {
            self.left.remove(&tenant);
            self.forget_silent(tenant, now_ns);
        }
        self.share_among(self.tenants);
    }

    /// When [`Clients::tick`] has something to do next; none: no tenant has left of late.
    pub fn next_ns(&self) -> Option<Nanos> {
        self.left.values().map(|left| left.until_ns).min()
    }

    /// Forgets the clients of a tenant that retransmit nothing any more: if it is there again,
    /// others have written since.
    fn forget_silent(&mut self, tenant: u32, now_ns: Nanos) {
        let Some(order) = self.order.get_mut(&tenant) else { return };
        let (clients, keep_ns, before) = (&mut self.clients, self.keep_ns, order.len());
        order.retain(|id| {
            let may_retransmit =
                |client: &Client<O>| !client.is_silent(now_ns, keep_ns) || client.window.is_busy();
            let stays = clients.get(id).is_some_and(may_retransmit);
            if !stays {
                clients.remove(id);
            }
            stays
        });
        self.shares.give_back(tenant, before - order.len());
        if order.is_empty() {
            self.order.remove(&tenant);
        }
    }

    /// A write that is whole has come. From a verdict of "new" on it counts as under way.
    pub fn begin(&mut self, (client, request): RequestId, now_ns: Nanos) -> Verdict<O> {
        let id = known_as(client);
        if !self.clients.contains_key(&id) {
            if !self.has_room(id.0, now_ns) {
                return Verdict::Full;
            }
            self.shares.take(id.0, 1);
            self.clients.insert(id, Client { window: Window::default(), used_ns: now_ns });
            self.order.entry(id.0).or_default().push_back(id);
        }
        let client = self.clients.get_mut(&id).expect("inserted above");
        client.used_ns = now_ns;
        client.window.begin(request, WINDOW)
    }

    /// What is known of a write of which a part has come: nothing, if it is new. Nothing is
    /// remembered either.
    pub fn look(&self, (client, request): RequestId) -> Option<Verdict<O>> {
        let id = known_as(client);
        self.clients.get(&id)?.window.known(request)
    }

    /// A write was decided: to be answered so again.
    pub fn finish(&mut self, (client, request): RequestId, outcome: O) {
        let id = known_as(client);
        if let Some(client) = self.clients.get_mut(&id) {
            client.window.finish(request, outcome);
        }
    }

    /// A write that an owner was to decide is decided here after all.
    pub fn reopen(&mut self, (client, request): RequestId) {
        let id = known_as(client);
        if let Some(client) = self.clients.get_mut(&id) {
            client.window.reopen(request);
        }
    }

    /// A write was refused and not carried out: it may come again, and is new then.
    pub fn forget(&mut self, (client, request): RequestId) {
        let id = known_as(client);
        if let Some(client) = self.clients.get_mut(&id) {
            client.window.forget(request);
        }
    }

    /// Every client with when it wrote last and its window, if nothing of it is pending.
    pub fn all(&self) -> impl Iterator<Item = (ClientId, Nanos, &Window<O>)> {
        self.clients.iter().map(|(id, client)| (*id, client.used_ns, &client.window))
    }

    /// A client of a former life that goes on.
    pub fn restore(&mut self, id: ClientId, used_ns: Nanos, window: Window<O>) {
        let client = Client { window, used_ns };
        if self.clients.insert(id, client).is_none() {
            self.shares.take(id.0, 1);
            self.order.entry(id.0).or_default().push_back(id);
        }
    }

    /// Whether a tenant may have one more client. If there is no room, one goes that has been
    /// silent for long enough: of this tenant, or else of the one of the others that has most, and
    /// more than its share.
    fn has_room(&mut self, tenant: u32, now_ns: Nanos) -> bool {
        let may = |shares: &Shares| shares.is_owed(tenant) || shares.has_room(tenant);
        while !may(&self.shares) {
            let is_forgotten = self.forget_one(tenant, now_ns)
                || self
                    .shares
                    .who_has_more(tenant)
                    .is_some_and(|other| self.forget_one(other, now_ns));
            if !is_forgotten {
                return false;
            }
        }
        true
    }

    /// Forgets a client of a tenant: the first of its oldest few that has been silent for
    /// long enough.
    fn forget_one(&mut self, tenant: u32, now_ns: Nanos) -> bool {
        let Some(order) = self.order.get_mut(&tenant) else { return false };
        for _ in 0..8 {
            let Some(id) = order.pop_front() else { return false };
            let silent = self.clients.get(&id).is_none_or(|client| {
                let is_silent = client.is_silent(now_ns, self.keep_ns);
                is_silent && !client.window.is_busy() || mutant(Mutant::ClientForgotten)
            });
            if silent {
                self.clients.remove(&id);
                self.shares.give_back(tenant, 1);
                return true;
            }
            order.push_back(id);
        }
        false
    }
}

/// The client, as rule 7 tells clients apart.
fn known_as((tenant, number): ClientId) -> ClientId {
    let any = mutant(Mutant::ClientOfAnyTenant);
    (if any { wire::TENANT_OPEN } else { tenant }, number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_that_may_still_retransmit_is_not_forgotten() {
        let mut clients = Clients::new(2, 1, 100);
        let id = |n: u8| (0, n.into());
        for n in 1..=2 {
            assert_eq!(clients.begin((id(n), 7), 0), Verdict::New);
            clients.finish((id(n), 7), n);
        }
        assert_eq!(clients.begin((id(3), 7), 50), Verdict::Full, "both wrote within 100");
        assert_eq!(clients.begin((id(2), 7), 60), Verdict::Answered(2));
        assert_eq!(clients.begin((id(3), 7), 120), Verdict::New, "client 1 has been silent");
        assert_eq!(clients.begin((id(2), 7), 120), Verdict::Answered(2));
        assert_eq!(clients.begin((id(1), 7), 130), Verdict::Full);
    }

    #[test]
    fn a_tenant_fills_its_own_share_only() {
        let mut clients: Clients<()> = Clients::new(4, 2, 100);
        let id = |tenant, n: u8| (tenant, n.into());
        let verdicts: Vec<_> = (1..=9).map(|n| clients.begin((id(7, n), 1), 0)).collect();
        let new = verdicts.iter().filter(|v| **v == Verdict::New).count();
        assert_eq!(new, 3, "and what is nobody's");
        assert_eq!(clients.begin((id(8, 1), 1), 0), Verdict::New);
        assert_eq!(clients.begin((id(8, 2), 1), 0), Verdict::Full);
    }

    #[test]
    fn shares_follow_the_number_of_tenants() {
        let mut clients: Clients<()> = Clients::new(4, 1, 100);
        let id = |tenant, n: u8| (tenant, n.into());
        for n in 1..=4 {
            assert_eq!(clients.begin((id(7, n), 1), 0), Verdict::New);
            clients.finish((id(7, n), 1), ());
        }
        clients.share_among(2);
        assert_eq!(clients.begin((id(7, 5), 1), 50), Verdict::Full);
        assert_eq!(clients.begin((id(8, 1), 1), 50), Verdict::New);
        assert_eq!(clients.begin((id(7, 5), 1), 101), Verdict::New);
        let of = |clients: &Clients<()>, tenant| clients.order.get(&tenant).map(VecDeque::len);
        assert_eq!((of(&clients, 7), of(&clients, 8)), (Some(3), Some(1)), "no more than there is");
        for n in 1..=5 {
            clients.finish((id(7, n), 1), ());
        }
        clients.tenant_left(7, Secret::NONE, &(), 150);
        assert_eq!(of(&clients, 7), Some(3), "they may retransmit, should it be there again");
        clients.tick(250);
        assert_eq!(of(&clients, 7), Some(3));
        clients.tick(251);
        assert_eq!((of(&clients, 7), clients.clients.len(), clients.shares.all()), (None, 1, 1));
        assert_eq!(clients.next_ns(), None);
    }

    #[test]
    fn a_tenant_that_is_there_again_has_its_clients_and_another_with_its_number_has_none() {
        let left = || {
            let mut clients = Clients::new(8, 1, 100);
            let verdicts = [1, 2].map(|request| clients.begin(((7, 1), request), 0));
            assert_eq!(verdicts, [Verdict::New, Verdict::New]);
            clients.finish(((7, 1), 1), "done");
            clients.tenant_left(7, Secret([1; 16]), &"unknown", 10);
            clients.forget_replaced(|_| None);
            clients
        };
        let mut again = left();
        again.forget_replaced(|_| Some(Secret([1; 16])));
        assert_eq!(again.begin(((7, 1), 1), 20), Verdict::Answered("done"));
        assert_eq!(again.begin(((7, 1), 2), 20), Verdict::Answered("unknown"));
        again.tick(111);
        assert_eq!(again.begin(((7, 1), 2), 111), Verdict::Answered("unknown"), "it wrote since");
        let mut another = left();
        another.forget_replaced(|_| Some(Secret([2; 16])));
        assert_eq!(another.begin(((7, 1), 1), 20), Verdict::New);
        assert_eq!((another.shares.all(), another.next_ns()), (1, None));
    }

    #[test]
    fn among_a_thousand_tenants_one_has_as_many_clients_as_nobody_else_needs() {
        let config = crate::Config::new(([127, 0, 0, 1], 7117).into());
        let mut clients: Clients<()> = Clients::new(config.client_limit, 1_000, 100);
        let mut writes = |tenant| {
            let verdicts = (0..300).map(|n| clients.begin(((tenant, n), 1), 0));
            verdicts.filter(|verdict| *verdict == Verdict::New).count()
        };
        assert_eq!(writes(0), 300, "300 processes of one tenant write");
        let of_others: Vec<usize> = (1..1_000).map(&mut writes).collect();
        assert!(of_others.iter().all(|clients| *clients >= 16), "{of_others:?}");
    }

    #[test]
    fn who_writes_no_more_makes_room_for_another_tenants_clients() {
        let mut clients: Clients<()> = Clients::new(40, 2, 100);
        let mut writes = |tenant, now_ns| {
            let verdicts = (0..30).map(|n| clients.begin(((tenant, n), 1), now_ns));
            verdicts.filter(|verdict| *verdict == Verdict::New).count()
        };
        assert_eq!(writes(7, 0), 30);
        assert_eq!(writes(8, 50), 10, "the others may still retransmit");
        for n in 0..30 {
            clients.finish(((7, n), 1), ());
        }
        let more = (10..30).map(|n| clients.begin(((8, n), 1), 200));
        assert_eq!(more.filter(|verdict| *verdict == Verdict::New).count(), 20);
    }
}
