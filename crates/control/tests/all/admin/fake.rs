//! An admin API that answers from nowhere, and refuses what it is told to.

use std::{collections::BTreeMap, sync::Mutex};

use api::types::*;
use control::admin::{Admin, KeyFilter, PageFilter, Refusal, RefusalKind};

/// Knows tenant 7 and page 3/17.
#[derive(Default)]
pub struct Fake {
    /// What every call answers, if there is one.
    pub refuse: Mutex<Option<Refusal>>,
    /// Who changed something last, and what.
    pub last: Mutex<Option<(String, String)>>,
}

impl Fake {
    fn ask(&self) -> Result<(), Refusal> {
        self.refuse.lock().unwrap().clone().map_or(Ok(()), Err)
    }

    fn change(&self, who: &str, what: &str) -> Result<(), Refusal> {
        self.ask()?;
        *self.last.lock().unwrap() = Some((who.into(), what.into()));
        Ok(())
    }

    fn known(&self, id: u32) -> Result<(), Refusal> {
        self.ask()?;
        if id == 7 {
            return Ok(());
        }
        Err(Refusal::no_tenant(id))
    }
}

fn view(id: u32, secrets: bool) -> TenantView {
    serde_json::from_value(serde_json::json!({
        "id": id, "name": "shop", "rotating": false, "quota": 4, "policy": "measured", "rate": 0,
        "secret": secrets.then(|| "0".repeat(31) + "1"), "over_rate": "forward", "discipline": "none", "stores": [],
        "clients": ["10.0.1.0/24"], "borrow": true, "write_back_ms": 0, "declared": false, "own_pages": 4,
        "borrowed_pages": 1, "lent_out_pages": 0, "leaving_pages": 0, "items": 10, "cells": 12, "fragmentation": 0.25, "switches": [],
    }))
    .unwrap()
}

fn secret(tenant: u32) -> NewSecret {
    NewSecret { tenant, secret: "1".repeat(32), also_secret: None, not_told: vec![] }
}

fn page() -> PageView {
    PageView {
        switch: 3,
        page: 17,
        tenant: Some(7),
        kind: PageKind::Own,
        items: 1,
        cells: 1,
        idle_windows: Some(0),
    }
}

#[tonic::async_trait]
impl Admin for Fake {
    async fn tenants(
        &self,
        after: Option<u32>,
        limit: usize,
        secrets: bool,
    ) -> Result<Vec<TenantView>, Refusal> {
        self.ask()?;
        assert!((1..=LIST_MAX).contains(&limit));
        let all = [view(7, secrets), view(9, secrets)];
        let wanted = all.into_iter().filter(|t| after.is_none_or(|a| t.id > a));
        Ok(wanted.take(limit).collect())
    }

    async fn tenant(&self, id: u32, secrets: bool) -> Result<TenantView, Refusal> {
        self.known(id).map(|()| view(id, secrets))
    }

    async fn create_tenant(&self, who: &str, spec: TenantSpec) -> Result<TenantView, Refusal> {
        self.change(who, "create")?;
        Ok(view(spec.id.unwrap_or(1), true))
    }

    async fn change_tenant(
        &self,
        who: &str,
        id: u32,
        _: TenantChange,
    ) -> Result<TenantView, Refusal> {
        self.known(id)?;
        self.change(who, "change")?;
        Ok(view(id, false))
    }

    async fn remove_tenant(&self, who: &str, id: u32) -> Result<(), Refusal> {
        self.known(id)?;
        self.change(who, "remove")
    }

    async fn rotate_secret(&self, who: &str, id: u32) -> Result<NewSecret, Refusal> {
        self.known(id)?;
        self.change(who, "rotate")?;
        Ok(secret(id))
    }

    async fn finish_rotation(&self, who: &str, id: u32) -> Result<NewSecret, Refusal> {
        self.known(id)?;
        self.change(who, "finish")?;
        Ok(secret(id))
    }

    async fn credentials(&self, id: u32) -> Result<String, Refusal> {
        self.known(id).map(|()| "partitions = 1\n".into())
    }

    async fn pages(&self, filter: PageFilter) -> Result<Vec<PageView>, Refusal> {
        self.ask()?;
        assert!((1..=LIST_MAX).contains(&filter.limit));
        Ok(vec![page()])
    }

    async fn keys(&self, id: u32, filter: KeyFilter) -> Result<KeyList, Refusal> {
        self.known(id)?;
        assert!((1..=LIST_MAX).contains(&filter.limit));
        Ok(KeyList::default())
    }

    async fn ask_pages(
        &self,
        who: &str,
        id: u32,
        _: PageRequest,
        own: bool,
    ) -> Result<PageGrant, Refusal> {
        assert_eq!(own, who == "tenant 7");
        self.known(id)?;
        self.change(who, "ask")?;
        Ok(PageGrant { pages: vec![page()], quota: 5 })
    }

    async fn return_pages(
        &self,
        who: &str,
        id: u32,
        pages: ReturnPages,
        own: bool,
    ) -> Result<PageGrant, Refusal> {
        assert_eq!(own, who == "tenant 7");
        self.known(id)?;
        if let Some(page) = pages.pages.iter().find(|p| p.switch != 3) {
            let line = format!("page {page} is not held by tenant {id}: it is free");
            return Err(Refusal::new(RefusalKind::Conflict, line));
        }
        self.change(who, "return")?;
        Ok(PageGrant { pages: vec![page()], quota: 3 })
    }

    async fn topology(&self) -> Result<TopologyView, Refusal> {
        self.ask().map(|()| TopologyView::default())
    }

    async fn declare_topology(
        &self,
        who: &str,
        topology: TopologySpec,
    ) -> Result<TopologyView, Refusal> {
        self.change(who, &format!("declare {}", topology.switches.len()))?;
        Ok(TopologyView::default())
    }

    async fn forget_switch(&self, who: &str, id: u16) -> Result<TopologyView, Refusal> {
        self.change(who, &format!("forget {id}"))?;
        Ok(TopologyView::default())
    }

    async fn routes(&self) -> Result<RouteTable, Refusal> {
        self.ask().map(|()| RouteTable::default())
    }

    async fn set_routes(&self, who: &str, _: RouteSettings) -> Result<RouteTable, Refusal> {
        self.change(who, "routes")?;
        Ok(RouteTable::default())
    }

    async fn audit(&self, _: u64, limit: usize) -> Result<Vec<AuditEntry>, Refusal> {
        assert!((1..=LIST_MAX).contains(&limit));
        self.ask().map(|()| vec![])
    }

    async fn cluster(&self) -> Result<ClusterView, Refusal> {
        self.ask().map(|()| ClusterView::default())
    }

    async fn counters(&self) -> Result<BTreeMap<String, u64>, Refusal> {
        self.ask()?;
        Ok([("inserts".to_string(), 1)].into())
    }
}
