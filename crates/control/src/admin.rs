//! The admin API: what people and programs may ask of a controller.

use api::types::{
    AuditEntry, ClusterView, KeyList, NewSecret, PageGrant, PageId, PageKind, PageRequest,
    PageView, ReturnPages, RouteSettings, RouteTable, TenantChange, TenantSpec, TenantView,
    TopologySpec, TopologyView,
};

/// Which pages are asked for; what is absent does not matter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PageFilter {
    /// Of this switch.
    pub switch: Option<u16>,
    /// Held by this tenant.
    pub tenant: Option<u32>,
    /// Held like this.
    pub kind: Option<PageKind>,
    /// Beyond this page, in the order of switch and index.
    pub after: Option<PageId>,
    /// At most so many.
    pub limit: usize,
}

/// Which keys are asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeyFilter {
    /// Those that begin with these bytes.
    pub prefix: Vec<u8>,
    /// Beyond this one, in their order; empty: from the first.
    pub after: Vec<u8>,
    /// At most so many.
    pub limit: usize,
}

/// Why something was not done. Nothing was changed then, but for
/// [`RefusalKind::OutcomeUnknown`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Refusal {
    /// What kind of reason.
    pub kind: RefusalKind,
    /// One line for people: the thing, what was expected, and what was free.
    pub message: String,
}

/// Kinds of [`Refusal`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RefusalKind {
    /// There is no such thing.
    NotFound,
    /// It can never be done as it was asked for.
    Invalid,
    /// It cannot be done as things are.
    Conflict,
    /// So many pages are not to be had. The message says what is free, switch by switch.
    NoRoom,
    /// This one may not ask for it.
    Forbidden,
    /// Another controller leads.
    NotLeader {
        /// Where the leader's HTTP interface is; `None`: there is none at the moment, or it is
        /// not known.
        url: Option<String>,
    },
    /// Not now: for example, the state cannot be written.
    Unavailable,
    /// It may have been done, or may be done yet: to ask again might do it twice.
    OutcomeUnknown,
}

impl Refusal {
    /// A refusal of this kind.
    pub fn new(kind: RefusalKind, message: impl Into<String>) -> Refusal {
        Refusal { kind, message: message.into() }
    }

    /// There is no tenant of this number.
    pub fn no_tenant(id: u32) -> Refusal {
        Refusal::new(RefusalKind::NotFound, format!("there is no tenant {id}"))
    }
}

/// What a controller does for people and programs. `who` is who asked, for the audit log.
///
/// A call that changes something returns after the change is durable, and adds to the audit log. A
/// controller that does not lead refuses those with [`RefusalKind::NotLeader`], and one whose state
/// is not written in the end with [`RefusalKind::OutcomeUnknown`].
///
/// Quota is the guaranteed number of pages of a tenant, over all switches. The guarantees of all
/// tenants together never exceed the pages that there are; pages that are free or idle are lent
/// beyond them.
#[tonic::async_trait]
pub trait Admin: Send + Sync + 'static {
    /// At most `limit` tenants with ids above `after`, by id. Secrets only if `secrets`.
    ///
    /// # Errors
    /// [`RefusalKind::Unavailable`].
    async fn tenants(
        &self,
        after: Option<u32>,
        limit: usize,
        secrets: bool,
    ) -> Result<Vec<TenantView>, Refusal>;

    /// One tenant.
    ///
    /// # Errors
    /// [`RefusalKind::NotFound`].
    async fn tenant(&self, id: u32, secrets: bool) -> Result<TenantView, Refusal>;

    /// Creates a tenant and gives it pages for its quota. The answer has its secrets.
    ///
    /// # Errors
    /// [`RefusalKind::Conflict`] if id or name is taken, [`RefusalKind::NoRoom`] if its quota is
    /// not to be had (the message says what is free on each switch), [`RefusalKind::Invalid`] for a
    /// reserved id, a bad secret, an unknown store or discipline.
    async fn create_tenant(&self, who: &str, spec: TenantSpec) -> Result<TenantView, Refusal>;

    /// Changes a tenant; a higher quota gets it pages at once, a lower one takes the coldest.
    ///
    /// # Errors
    /// As [`Admin::create_tenant`], and [`RefusalKind::NotFound`].
    async fn change_tenant(
        &self,
        who: &str,
        id: u32,
        change: TenantChange,
    ) -> Result<TenantView, Refusal>;

    /// Removes a tenant: its pages leave, its packets count as of an unknown tenant. What it stored
    /// stays in the stores, out of reach.
    ///
    /// # Errors
    /// [`RefusalKind::NotFound`].
    async fn remove_tenant(&self, who: &str, id: u32) -> Result<(), Refusal>;

    /// Begins a rotation: a new secret signs from now on, the one before is accepted too. Clients
    /// fetch credentials again; then [`Admin::finish_rotation`]. The seed of key hashes stays, so
    /// no data moves.
    ///
    /// # Errors
    /// [`RefusalKind::NotFound`]; [`RefusalKind::Conflict`] while a rotation goes on.
    async fn rotate_secret(&self, who: &str, id: u32) -> Result<NewSecret, Refusal>;

    /// Ends a rotation: only the new secret is accepted from now on.
    ///
    /// # Errors
    /// [`RefusalKind::NotFound`]; [`RefusalKind::Conflict`] if no rotation goes on.
    async fn finish_rotation(&self, who: &str, id: u32) -> Result<NewSecret, Refusal>;

    /// What a tenant's clients need: a cluster file (TOML) with the stores, this tenant alone and
    /// no system secret.
    ///
    /// # Errors
    /// [`RefusalKind::NotFound`].
    async fn credentials(&self, id: u32) -> Result<String, Refusal>;

    /// Pages, by switch and index.
    ///
    /// # Errors
    /// [`RefusalKind::NotFound`] for a tenant or switch that there is not.
    async fn pages(&self, filter: PageFilter) -> Result<Vec<PageView>, Refusal>;

    /// Keys of a tenant that some switch is believed to have an item of, in their order; not those
    /// of the switches' own items.
    ///
    /// # Errors
    /// [`RefusalKind::NotFound`].
    async fn keys(&self, id: u32, filter: KeyFilter) -> Result<KeyList, Refusal>;

    /// Raises a tenant's quota by `request.pages`, if so many can be guaranteed, and gives it
    /// pages: where its policy wants them, or on `request.switch`. Free pages first, then those
    /// that others borrow (they leave there first). All or none.
    ///
    /// `own`: the tenant asks for itself; it may ask for no more than an operator gave it and it
    /// has given back since.
    ///
    /// After `request.lease_s` seconds those of the pages that are unused return to the pool, and
    /// the quota falls.
    ///
    /// # Errors
    /// [`RefusalKind::NoRoom`] ("tenant 7: 4 pages were asked for, 3 can be guaranteed: 2 on switch
    /// 1, 1 on switch 3"), [`RefusalKind::Forbidden`] for more than it may ask for itself,
    /// [`RefusalKind::Conflict`] where too many parts of the quota end by themselves already,
    /// [`RefusalKind::NotFound`] for an unknown tenant or switch.
    async fn ask_pages(
        &self,
        who: &str,
        id: u32,
        request: PageRequest,
        own: bool,
    ) -> Result<PageGrant, Refusal>;

    /// Takes pages back and lowers the tenant's quota by their number. The answer lists them, as
    /// `leaving`. All or none. `own`: the tenant gives them back itself, and may ask for as
    /// many again.
    ///
    /// # Errors
    /// [`RefusalKind::Conflict`] for one that the tenant does not hold as its own ("page 3/17 is
    /// not held by tenant 7: it is free"), so also for one that was returned before;
    /// [`RefusalKind::Invalid`] for a count above the quota.
    async fn return_pages(
        &self,
        who: &str,
        id: u32,
        pages: ReturnPages,
        own: bool,
    ) -> Result<PageGrant, Refusal>;

    /// The topology in force.
    ///
    /// # Errors
    /// [`RefusalKind::Unavailable`].
    async fn topology(&self) -> Result<TopologyView, Refusal>;

    /// Replaces what was declared of the topology. Pages and routes follow.
    ///
    /// # Errors
    /// [`RefusalKind::Invalid`] names the entry: a switch listed twice, a link to an unknown one,
    /// networks that overlap.
    async fn declare_topology(
        &self,
        who: &str,
        topology: TopologySpec,
    ) -> Result<TopologyView, Refusal>;

    /// Forgets a switch that is gone for good: its pages, items, links and what was declared of it.
    /// What was guaranteed there is placed elsewhere, as far as there is room. One that comes back
    /// all the same is as a new one.
    ///
    /// # Errors
    /// [`RefusalKind::NotFound`]; [`RefusalKind::Conflict`] while its agent is attached.
    async fn forget_switch(&self, who: &str, id: u16) -> Result<TopologyView, Refusal>;

    /// The routes of all switches.
    ///
    /// # Errors
    /// [`RefusalKind::Unavailable`].
    async fn routes(&self) -> Result<RouteTable, Refusal>;

    /// Lets the controller keep the switches' routes, or leave them alone.
    ///
    /// # Errors
    /// [`RefusalKind::Unavailable`].
    async fn set_routes(&self, who: &str, settings: RouteSettings) -> Result<RouteTable, Refusal>;

    /// At most `limit` changes with numbers above `after`, oldest first.
    ///
    /// # Errors
    /// [`RefusalKind::Unavailable`].
    async fn audit(&self, after: u64, limit: usize) -> Result<Vec<AuditEntry>, Refusal>;

    /// Controllers and switches. Answered by every controller, leader or not.
    ///
    /// # Errors
    /// [`RefusalKind::Unavailable`].
    async fn cluster(&self) -> Result<ClusterView, Refusal>;

    /// Counters by name, for monitoring: the controller's own and the sums over switches.
    ///
    /// # Errors
    /// [`RefusalKind::Unavailable`].
    async fn counters(&self) -> Result<std::collections::BTreeMap<String, u64>, Refusal>;
}
