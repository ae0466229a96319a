//! Answers the admin API from the core.

use std::{collections::BTreeMap, sync::Arc};

use api::types::{
    AuditEntry, ClusterView, NewSecret, PageGrant, PageId, PageRequest, PageView, ReturnPages,
    RouteSettings, RouteTable, TenantChange, TenantSpec, TenantView, TopologySpec, TopologyView,
};

use super::{
    changes::Asked,
    core::Core,
    shared::{Shared, clock_ms},
};
use crate::admin::{Admin, PageFilter, Refusal};

/// The admin API of a controller.
pub struct OnCore {
    shared: Arc<Shared>,
}

impl OnCore {
    /// Of the controller that this belongs to.
    pub fn new(shared: Arc<Shared>) -> OnCore {
        OnCore { shared }
    }

    fn read<R>(&self, look: impl FnOnce(&Core) -> Result<R, Refusal>) -> Result<R, Refusal> {
        self.shared.leading(|core| look(core))?
    }

    /// Makes a change, gives pages out anew, and returns when all of it is durable.
    async fn change<R>(
        &self,
        who: &str,
        make: impl FnOnce(&mut Core, Asked<'_>) -> Result<R, Refusal>,
    ) -> Result<R, Refusal> {
        let now = self.shared.now();
        let (result, position) = self.shared.leading(|core| {
            let at_ms = clock_ms();
            let result = make(core, Asked { who, at_ms })?;
            core.allocate(now);
            Ok::<_, Refusal>((result, core.journal.position()))
        })??;
        self.shared.until_durable(position).await?;
        Ok(result)
    }

    fn view(&self, id: u32, secrets: bool) -> Result<TenantView, Refusal> {
        self.read(|core| Ok(core.tenant_view(core.known_tenant(id)?, secrets)))
    }

    fn views(&self, pages: &[PageId]) -> Result<Vec<PageView>, Refusal> {
        self.read(|core| {
            let view = |id: &PageId| core.page_view(*id, core.ledger.row(*id).as_ref());
            Ok(pages.iter().map(view).collect())
        })
    }
}

#[tonic::async_trait]
impl Admin for OnCore {
    async fn tenants(
        &self,
        after: Option<u32>,
        limit: usize,
        secrets: bool,
    ) -> Result<Vec<TenantView>, Refusal> {
        self.read(|core| {
            let listed = core
                .tenants
                .iter()
                .filter(|t| after.is_none_or(|a| t.id > a));
            let views = listed.take(limit).map(|t| core.tenant_view(t, secrets));
            Ok(views.collect())
        })
    }

    async fn tenant(&self, id: u32, secrets: bool) -> Result<TenantView, Refusal> {
        self.view(id, secrets)
    }

    async fn create_tenant(&self, who: &str, spec: TenantSpec) -> Result<TenantView, Refusal> {
        let id = self
            .change(who, |core, asked| core.create_tenant(asked, spec))
            .await?;
        self.view(id, true)
    }

    async fn change_tenant(
        &self,
        who: &str,
        id: u32,
        change: TenantChange,
    ) -> Result<TenantView, Refusal> {
        self.change(who, |core, asked| core.change_tenant(asked, id, change))
            .await?;
        self.view(id, false)
    }

    async fn remove_tenant(&self, who: &str, id: u32) -> Result<(), Refusal> {
        self.change(who, |core, asked| core.remove_tenant(asked, id))
            .await
    }

    async fn rotate_secret(&self, who: &str, id: u32) -> Result<NewSecret, Refusal> {
        self.change(who, |core, asked| core.rotate_secret(asked, id))
            .await
    }

    async fn finish_rotation(&self, who: &str, id: u32) -> Result<NewSecret, Refusal> {
        self.change(who, |core, asked| core.finish_rotation(asked, id))
            .await
    }

    async fn credentials(&self, id: u32) -> Result<String, Refusal> {
        self.read(|core| {
            core.known_tenant(id)?;
            let mut cluster = core.tenants.cluster(&core.plan.cluster, |t| t.id == id);
            cluster.system_secret = None;
            cluster.open_tenant = id == wire::TENANT_OPEN;
            // A client signs with the newest secret and needs no other.
            cluster
                .tenants
                .iter_mut()
                .for_each(|t| t.also_secret = None);
            Ok(cluster.to_toml())
        })
    }

    async fn pages(&self, filter: PageFilter) -> Result<Vec<PageView>, Refusal> {
        self.read(|core| core.page_views(filter))
    }

    async fn ask_pages(
        &self,
        who: &str,
        id: u32,
        request: PageRequest,
    ) -> Result<PageGrant, Refusal> {
        let granted = self
            .change(who, |core, asked| core.ask_pages(asked, id, request))
            .await?;
        Ok(PageGrant {
            pages: self.views(&granted)?,
            quota: self.view(id, false)?.quota,
        })
    }

    async fn return_pages(
        &self,
        who: &str,
        id: u32,
        pages: ReturnPages,
    ) -> Result<PageGrant, Refusal> {
        let returned = self
            .change(who, |core, asked| core.return_pages(asked, id, &pages))
            .await?;
        Ok(PageGrant {
            pages: self.views(&returned)?,
            quota: self.view(id, false)?.quota,
        })
    }

    async fn topology(&self) -> Result<TopologyView, Refusal> {
        self.read(|core| Ok(core.topology_view()))
    }

    async fn declare_topology(
        &self,
        who: &str,
        topology: TopologySpec,
    ) -> Result<TopologyView, Refusal> {
        self.change(who, |core, asked| core.declare_topology(asked, topology))
            .await?;
        self.topology().await
    }

    async fn routes(&self) -> Result<RouteTable, Refusal> {
        self.read(|core| Ok(core.route_table()))
    }

    async fn set_routes(&self, who: &str, settings: RouteSettings) -> Result<RouteTable, Refusal> {
        self.change(who, |core, asked| {
            core.manage_routes(asked, settings.managed);
            Ok(())
        })
        .await?;
        self.routes().await
    }

    async fn audit(&self, after: u64, limit: usize) -> Result<Vec<AuditEntry>, Refusal> {
        self.read(|core| {
            let entry = |(seq, entry): (u64, &super::audit::Entry)| AuditEntry {
                seq,
                at_ms: entry.at_ms,
                who: entry.who.clone(),
                what: entry.what.clone(),
                detail: entry.detail.clone(),
            };
            Ok(core.audit.after(after).take(limit).map(entry).collect())
        })
    }

    async fn cluster(&self) -> Result<ClusterView, Refusal> {
        let leader = self.shared.state.leader();
        let term = *self.shared.term.borrow();
        let switches = self
            .read(|core| Ok(core.switch_views()))
            .unwrap_or_default();
        Ok(ClusterView {
            term: leader.as_ref().map_or(term, |l| l.term),
            leader: leader.map(|l| l.url),
            leading: term > 0,
            uptime_ms: self.shared.now().as_millis() as u64,
            switches,
        })
    }

    async fn counters(&self) -> Result<BTreeMap<String, u64>, Refusal> {
        let now = self.shared.now();
        self.read(|core| {
            let mut sums = BTreeMap::new();
            for switch in core.status(now, now).switches {
                for (name, count) in switch.counters {
                    *sums.entry(name).or_default() += count;
                }
            }
            Ok(sums)
        })
    }
}
