//! Answers the admin API from the core.

use std::collections::BTreeMap;

use api::types::{
    AuditEntry, ClusterView, KeyList, NewSecret, PageGrant, PageRequest, PageView, ReturnPages,
    RouteSettings, RouteTable, TenantChange, TenantSpec, TenantView, TopologySpec, TopologyView,
};
use wire::Secret;

use super::{
    core::{Core, RequestOrigin},
    shared::{SharedCore, clock_ms},
    views::View,
};
use crate::admin::{Admin, KeyFilter, PageFilter, Refusal};

/// A secret that nobody knows.
fn fresh() -> Secret {
    Secret(rand::random())
}

impl SharedCore {
    fn read<R>(&self, look: impl FnOnce(&View<'_>) -> Result<R, Refusal>) -> Result<R, Refusal> {
        self.leading(|core| look(&core.view()))?
    }

    /// Makes a change and returns when all of it is durable.
    async fn make<R>(
        &self,
        who: &str,
        make: impl FnOnce(&mut Core, RequestOrigin<'_>) -> Result<R, Refusal>,
    ) -> Result<R, Refusal> {
        self.writes()?;
        let (result, position) = self.leading(|core| {
            let at_ms = clock_ms();
            let result = make(core, RequestOrigin { who, at_ms })?;
            Ok::<_, Refusal>((result, core.journal().position()))
        })??;
        self.until_durable(position).await?;
        Ok(result)
    }
}

#[tonic::async_trait]
impl Admin for SharedCore {
    async fn tenants(
        &self,
        after: Option<u32>,
        limit: usize,
        secrets: bool,
    ) -> Result<Vec<TenantView>, Refusal> {
        self.read(|view| Ok(view.tenants(after, limit, secrets)))
    }

    async fn tenant(&self, id: u32, secrets: bool) -> Result<TenantView, Refusal> {
        self.read(|view| view.tenant(id, secrets))
    }

    async fn create_tenant(&self, who: &str, spec: TenantSpec) -> Result<TenantView, Refusal> {
        self.make(who, |core, asked| core.create_tenant(asked, spec, fresh())).await
    }

    async fn change_tenant(
        &self,
        who: &str,
        id: u32,
        change: TenantChange,
    ) -> Result<TenantView, Refusal> {
        self.make(who, |core, asked| core.change_tenant(asked, id, change)).await
    }

    async fn remove_tenant(&self, who: &str, id: u32) -> Result<(), Refusal> {
        self.make(who, |core, asked| core.remove_tenant(asked, id)).await
    }

    async fn rotate_secret(&self, who: &str, id: u32) -> Result<NewSecret, Refusal> {
        self.make(who, |core, asked| core.rotate_secret(asked, id, fresh())).await
    }

    async fn finish_rotation(&self, who: &str, id: u32) -> Result<NewSecret, Refusal> {
        self.make(who, |core, asked| core.finish_rotation(asked, id)).await
    }

    async fn credentials(&self, id: u32) -> Result<String, Refusal> {
        self.read(|view| view.credentials(id))
    }

    async fn pages(&self, filter: PageFilter) -> Result<Vec<PageView>, Refusal> {
        self.read(|view| view.pages(filter))
    }

    async fn keys(&self, id: u32, filter: KeyFilter) -> Result<KeyList, Refusal> {
        self.read(|view| view.keys(id, &filter))
    }

    async fn ask_pages(
        &self,
        who: &str,
        id: u32,
        request: PageRequest,
        own: bool,
    ) -> Result<PageGrant, Refusal> {
        self.make(who, |core, asked| core.ask_pages(asked, id, request, own)).await
    }

    async fn return_pages(
        &self,
        who: &str,
        id: u32,
        pages: ReturnPages,
        own: bool,
    ) -> Result<PageGrant, Refusal> {
        self.make(who, |core, asked| core.return_pages(asked, id, &pages, own)).await
    }

    async fn topology(&self) -> Result<TopologyView, Refusal> {
        self.read(|view| Ok(view.topology()))
    }

    async fn declare_topology(
        &self,
        who: &str,
        topology: TopologySpec,
    ) -> Result<TopologyView, Refusal> {
        self.make(who, |core, asked| core.declare_topology(asked, topology)).await
    }

    async fn forget_switch(&self, who: &str, id: u16) -> Result<TopologyView, Refusal> {
        self.make(who, |core, asked| core.forget_switch(asked, id)).await
    }

    async fn routes(&self) -> Result<RouteTable, Refusal> {
        self.read(|view| Ok(view.routes()))
    }

    async fn set_routes(&self, who: &str, settings: RouteSettings) -> Result<RouteTable, Refusal> {
        self.make(who, |core, asked| Ok(core.manage_routes(asked, settings.managed))).await
    }

    async fn audit(&self, after: u64, limit: usize) -> Result<Vec<AuditEntry>, Refusal> {
        self.read(|view| Ok(view.audit(after, limit)))
    }

    async fn cluster(&self) -> Result<ClusterView, Refusal> {
        let leader = self.state.leader();
        let term = *self.term.borrow();
        let switches = self.read(|view| Ok(view.switches())).unwrap_or_default();
        Ok(ClusterView {
            term: leader.as_ref().map_or(term, |l| l.term),
            leader: leader.map(|l| l.url),
            leading: term > 0,
            uptime_ms: self.now().as_millis() as u64,
            switches,
        })
    }

    async fn counters(&self) -> Result<BTreeMap<String, u64>, Refusal> {
        let now = self.now();
        self.read(|view| Ok(view.counters(now)))
    }
}
