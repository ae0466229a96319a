//! What people and programs ask of a controller that leads, made at once; see
//! [`crate::admin::Admin`] for each. What was changed is safe when the [`Core::journal`] is durable
//! up to its position.

use api::types::{
    NewSecret, PageGrant, PageId, PageRequest, ReturnPages, TenantChange, TenantSpec, TenantView,
};
use wire::Secret;

use super::{
    changes::{self, Change, RequestOrigin},
    core::{ChangeOutcome, Core},
    views::View,
};
use crate::admin::Refusal;

impl Core {
    /// Creates a tenant, with the `fresh` secret unless it asks for another. The answer has
    /// its secrets.
    ///
    /// # Errors
    /// As of [`create_tenant`](crate::admin::Admin::create_tenant).
    pub fn create_tenant(
        &mut self,
        asked: RequestOrigin<'_>,
        spec: TenantSpec,
        fresh: Secret,
    ) -> Result<TenantView, Refusal> {
        let made = self.change(asked, |view| changes::create(view, spec, fresh))?;
        self.view().tenant(made.id, true)
    }

    /// Changes a tenant.
    ///
    /// # Errors
    /// As of [`change_tenant`](crate::admin::Admin::change_tenant).
    pub fn change_tenant(
        &mut self,
        asked: RequestOrigin<'_>,
        id: u32,
        change: TenantChange,
    ) -> Result<TenantView, Refusal> {
        self.change(asked, |view| changes::change(view, id, change))?;
        self.view().tenant(id, false)
    }

    /// Removes a tenant.
    ///
    /// # Errors
    /// As of [`remove_tenant`](crate::admin::Admin::remove_tenant).
    pub fn remove_tenant(&mut self, asked: RequestOrigin<'_>, id: u32) -> Result<(), Refusal> {
        let removed = self.change(asked, |view| changes::remove(view, id));
        removed.map(drop)
    }

    /// Begins a rotation to the `fresh` secret.
    ///
    /// # Errors
    /// As of [`rotate_secret`](crate::admin::Admin::rotate_secret).
    pub fn rotate_secret(
        &mut self,
        asked: RequestOrigin<'_>,
        id: u32,
        fresh: Secret,
    ) -> Result<NewSecret, Refusal> {
        self.secrets(asked, |view| changes::rotate_secret(view, id, fresh))
    }

    /// Ends a rotation.
    ///
    /// # Errors
    /// As of [`finish_rotation`](crate::admin::Admin::finish_rotation).
    pub fn finish_rotation(
        &mut self,
        asked: RequestOrigin<'_>,
        id: u32,
    ) -> Result<NewSecret, Refusal> {
        self.secrets(asked, |view| changes::finish_rotation(view, id))
    }

    fn secrets(
        &mut self,
        asked: RequestOrigin<'_>,
        plan: impl FnOnce(&View<'_>) -> Result<Change, Refusal>,
    ) -> Result<NewSecret, Refusal> {
        let ChangeOutcome { id, tenant, .. } = self.change(asked, plan)?;
        let tenant = tenant.as_ref().map(changes::new_secret);
        tenant.ok_or_else(|| Refusal::no_tenant(id))
    }

    /// Guarantees a tenant more pages.
    ///
    /// # Errors
    /// As of [`ask_pages`](crate::admin::Admin::ask_pages).
    pub fn ask_pages(
        &mut self,
        asked: RequestOrigin<'_>,
        id: u32,
        request: PageRequest,
        own: bool,
    ) -> Result<PageGrant, Refusal> {
        let clock_s = asked.at_ms / 1000;
        let plan = |view: &View<'_>| changes::ask(view, id, request, own, clock_s);
        let made = self.change(asked, plan)?;
        self.grant(id, &made.given)
    }

    /// Takes pages of a tenant back.
    ///
    /// # Errors
    /// As of [`return_pages`](crate::admin::Admin::return_pages).
    pub fn return_pages(
        &mut self,
        asked: RequestOrigin<'_>,
        id: u32,
        pages: &ReturnPages,
        own: bool,
    ) -> Result<PageGrant, Refusal> {
        let made = self.change(asked, |view| changes::give_back(view, id, pages, own))?;
        self.grant(id, &made.left)
    }

    fn grant(&self, id: u32, pages: &[PageId]) -> Result<PageGrant, Refusal> {
        let view = self.view();
        Ok(PageGrant {
            pages: pages.iter().map(|page| view.page(*page)).collect(),
            quota: view.tenant(id, false)?.terms.quota,
        })
    }
}
