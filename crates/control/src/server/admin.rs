//! Answers the admin API from the core.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

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

/// How long who makes a tenant anew waits for the switches to be clear of the removed one. Those
/// that are attached take some milliseconds.
const CLEAR_WITHIN: Duration = Duration::from_secs(2);
/// How long who changes a secret waits for those that are to learn of it.
const TOLD_WITHIN: Duration = Duration::from_secs(1);
/// How often these look.
const POLL: Duration = Duration::from_millis(5);

/// A secret that nobody knows.
fn fresh() -> Secret {
    Secret(rand::random())
}

impl SharedCore {
    fn read<R>(&self, look: impl FnOnce(&View<'_>) -> Result<R, Refusal>) -> Result<R, Refusal> {
        self.leading(|core| look(&core.view()))?
    }

    /// Looks at something that has secrets in it, and shows it when they are durable.
    async fn read_secret<R>(
        &self,
        look: impl FnOnce(&View<'_>) -> Result<R, Refusal>,
    ) -> Result<R, Refusal> {
        let (result, position) = self
            .leading(|core| Ok::<_, Refusal>((look(&core.view())?, core.journal().position())))??;
        self.until_shown(position).await?;
        Ok(result)
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

    /// Who was not told yet what is valid now; those that are attached have some time. A controller
    /// that leads no longer says what it knew: what was made is durable.
    async fn not_told(&self) -> Vec<String> {
        let until = Instant::now() + TOLD_WITHIN;
        let mut not_told = vec!["unknown: this controller leads no longer".to_owned()];
        while let Ok(now) = self.leading(|core| core.not_told()) {
            not_told = now;
            if not_told.is_empty() || Instant::now() >= until {
                break;
            }
            tokio::time::sleep(POLL).await;
        }
        not_told
    }

    /// Returns when no switch has anything of a removed tenant any longer, or soon.
    async fn until_clear(&self, id: u32) -> Result<(), Refusal> {
        let until = Instant::now() + CLEAR_WITHIN;
        while !self.leading(|core| core.is_clear_of(id))? && Instant::now() < until {
            tokio::time::sleep(POLL).await;
        }
        Ok(())
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
        let look = |view: &View<'_>| Ok(view.tenants(after, limit, secrets));
        match secrets {
            true => self.read_secret(look).await,
            false => self.read(look),
        }
    }

    async fn tenant(&self, id: u32, secrets: bool) -> Result<TenantView, Refusal> {
        let look = |view: &View<'_>| view.tenant(id, secrets);
        match secrets {
            true => self.read_secret(look).await,
            false => self.read(look),
        }
    }

    async fn create_tenant(&self, who: &str, spec: TenantSpec) -> Result<TenantView, Refusal> {
        if let Some(id) = spec.id {
            self.until_clear(id).await?;
        }
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
        let new = self.make(who, |core, asked| core.rotate_secret(asked, id, fresh())).await?;
        Ok(NewSecret { not_told: self.not_told().await, ..new })
    }

    async fn finish_rotation(&self, who: &str, id: u32) -> Result<NewSecret, Refusal> {
        let new = self.make(who, |core, asked| core.finish_rotation(asked, id)).await?;
        Ok(NewSecret { not_told: self.not_told().await, ..new })
    }

    async fn credentials(&self, id: u32) -> Result<String, Refusal> {
        self.read_secret(|view| view.credentials(id)).await
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

#[cfg(test)]
mod tests {
    use std::pin::pin;

    use decide::{Limits, Registration};

    use super::*;
    use crate::{
        admin::RefusalKind,
        server::core::{CoreConfig, Disciplines},
        state::{Candidate, LoadedState, Location, State},
    };

    static NONE: Registration = decide::NONE;

    /// A controller that leads and whose changes nobody writes.
    async fn leads() -> SharedCore {
        let directory = tempfile::tempdir().unwrap();
        let location = Location::Directory(directory.path().into());
        let candidate = Candidate { name: "a".into(), url: "http://a.example:7118".into() };
        let shared = SharedCore::new(State::open(&location, candidate).await.unwrap());
        let config = CoreConfig {
            cluster: wire::Cluster::single("10.0.0.1:7117".parse().unwrap(), 4),
            limits: Limits::default(),
            settings: Default::default(),
            updates_per_s: 1000,
            sample_shift: 0,
            term: 1,
        };
        let disciplines = vec![(&NONE, (NONE.control)(Limits::default()))];
        let disciplines = Disciplines::new(disciplines, "none");
        shared.begin(Core::new(config, disciplines, LoadedState::default(), 1).unwrap(), 1);
        shared
    }

    #[tokio::test]
    async fn no_secret_is_shown_before_it_is_safe() {
        let shared = leads().await;
        let spec = TenantSpec { id: Some(7), ..TenantSpec::default() };
        let asked = RequestOrigin { who: "test", at_ms: 1 };
        let create = |core: &mut Core| core.create_tenant(asked, spec, fresh()).map(drop);
        shared.leading(create).unwrap().unwrap();
        assert_eq!(shared.tenant(7, false).await.unwrap().secret, None, "this needs no wait");
        let mut shown = pin!(shared.tenant(7, true));
        tokio::select! {
            biased;
            shown = &mut shown => panic!("shown: {shown:?}"),
            () = std::future::ready(()) => {}
        }
        shared.trouble.send_replace(Some("the disk is full".into()));
        let all = shared.tenants(None, 9, true);
        for refused in [shown.await.err(), shared.credentials(7).await.err(), all.await.err()] {
            let refused = refused.expect("nothing is shown");
            assert_eq!(refused.kind, RefusalKind::Unavailable);
            assert!(refused.message.contains("the disk is full"), "{refused}");
        }
        // What was written before the disk failed is shown.
        let position = shared.leading(|core| core.journal().position()).unwrap();
        shared.durable.send_replace(position);
        assert!(shared.tenant(7, true).await.unwrap().secret.is_some());
        assert!(shared.credentials(7).await.unwrap().contains("secret"));
    }
}
