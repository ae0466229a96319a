//! Why the ledger refuses.

use api::types::PageId;
use decide::SwitchId;

use super::PAGES_MAX;

/// Why pages were not changed. Says nothing of other tenants but that there are some.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LedgerError {
    /// More pages than are counted.
    #[error("switch {switch}: {pages} pages, at most {PAGES_MAX} can be managed")]
    TooManyPages {
        /// The switch.
        switch: SwitchId,
        /// Its pages.
        pages: u32,
    },
    /// The switch never attached.
    #[error("page {page}: there is no switch {}", page.switch)]
    UnknownSwitch {
        /// As it was named.
        page: PageId,
    },
    /// Beyond the switch's last page.
    #[error("page {page} does not exist: switch {} has {pages} pages, numbered from 0", page.switch)]
    NoSuchPage {
        /// As it was named.
        page: PageId,
        /// Pages of the switch.
        pages: u32,
    },
    /// Nobody holds it.
    #[error("page {page} is not held by tenant {tenant}: it is free")]
    FreePage {
        /// The page.
        page: PageId,
        /// Who wanted to give it back.
        tenant: u32,
    },
    /// Another tenant holds or held it.
    #[error("page {page} is not held by tenant {tenant}: it is another tenant's")]
    AnothersPage {
        /// The page.
        page: PageId,
        /// Who wanted to give it back.
        tenant: u32,
    },
    /// It was given back before, and is being cleared.
    #[error("page {page} is returned twice: tenant {tenant} gave it back already, switch {} is clearing it", page.switch)]
    ReturnedTwice {
        /// The page.
        page: PageId,
        /// Whose it was.
        tenant: u32,
    },
    /// The same page more than once in a request.
    #[error("page {page} is returned twice: it is named twice in one request")]
    NamedTwice {
        /// The page.
        page: PageId,
    },
}
