//! `shortstop page`: which tenant holds which pages of the switches' memory, and asking for pages
//! and giving them back, by the controller's `/v1/pages` and `/v1/tenants/ID/pages`.

use std::process::ExitCode;

use api::types::{PageGrant, PageId, PageRequest, PageView, ReturnPages};
use clap::Subcommand;
use commands::api::Api;

use super::table::table;

/// Lists pages of cache memory, asks for them and gives them back.
#[derive(clap::Args)]
#[command(
    after_help = "Example:\n  shortstop page ask 7 4 --lease 3600\n  shortstop page list --tenant 7\n  shortstop page return 7 3/17"
)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Lists pages and who holds them.
    #[command(after_help = "Example:\n  shortstop page list --switch 3 --kind free")]
    List {
        /// Only pages that this tenant holds.
        #[arg(long, value_name = "ID")]
        tenant: Option<u32>,
        /// Only pages of this switch.
        #[arg(long, value_name = "ID")]
        switch: Option<u16>,
        /// Only pages held like this.
        #[arg(long, value_parser = ["own", "lent", "leaving", "free"])]
        kind: Option<String>,
        #[command(flatten)]
        api: Api,
    },
    /// Asks for guaranteed pages for a tenant: all of them or none. Raises its quota.
    #[command(after_help = "Example:\n  shortstop page ask 7 4 --switch 3 --lease 3600")]
    Ask {
        /// Number of the tenant.
        tenant: u32,
        /// How many pages.
        #[arg(value_parser = clap::value_parser!(u32).range(1..))]
        pages: u32,
        /// From this switch only [default: where the tenant's policy wants them].
        #[arg(long, value_name = "ID")]
        switch: Option<u16>,
        /// After so many seconds, those that are unused go back.
        #[arg(long, value_name = "SECONDS")]
        lease: Option<u64>,
        #[command(flatten)]
        api: Api,
    },
    /// Gives pages of a tenant back. Lowers its quota.
    #[command(
        after_help = "Example:\n  shortstop page return 7 3/17 3/18\n  shortstop page return 7 --count 2"
    )]
    Return {
        /// Number of the tenant.
        tenant: u32,
        /// The pages, as SWITCH/PAGE.
        #[arg(required_unless_present = "count", conflicts_with = "count")]
        pages: Vec<PageId>,
        /// So many, the coldest first.
        #[arg(long, value_name = "N")]
        count: Option<u32>,
        #[command(flatten)]
        api: Api,
    },
}

/// Asks the controller and prints its answer.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    match args.command {
        Command::List { tenant, switch, kind, api } => {
            let parameters: Vec<String> = [
                tenant.map(|id| format!("tenant={id}")),
                switch.map(|id| format!("switch={id}")),
                kind.map(|kind| format!("kind={kind}")),
            ]
            .into_iter()
            .flatten()
            .collect();
            let path = format!("/v1/pages?{}", parameters.join("&"));
            let pages = api.list(&path, |p: &PageView| p.id().to_string())?;
            api.print(&pages, |pages| list(pages))
        }
        Command::Ask { tenant, pages, switch, lease, api } => {
            let request = PageRequest { pages, switch, lease_s: lease };
            let path = format!("/v1/tenants/{tenant}/pages");
            let grant: PageGrant = api.change("POST", &path, Some(&request))?;
            api.print(&grant, granted)
        }
        Command::Return { tenant, pages, count, api } => {
            let request = ReturnPages { pages, count };
            let path = format!("/v1/tenants/{tenant}/pages");
            let grant: PageGrant = api.change("DELETE", &path, Some(&request))?;
            api.print(&grant, granted)
        }
    }
}

fn list(pages: &[PageView]) -> String {
    let head = ["page", "tenant", "kind", "items", "cells", "idle windows"];
    let or_dash = |number: Option<String>| number.unwrap_or_else(|| "-".into());
    let row = |p: &PageView| {
        vec![
            p.id().to_string(),
            or_dash(p.tenant.map(|id| id.to_string())),
            p.kind.name().into(),
            p.items.to_string(),
            p.cells.to_string(),
            or_dash(p.idle_windows.map(|n| n.to_string())),
        ]
    };
    table(&head, &pages.iter().map(row).collect::<Vec<_>>())
}

fn granted(grant: &PageGrant) -> String {
    let pages = match grant.pages.is_empty() {
        true => "no page yet: they come when their switch has cleared them\n".into(),
        false => list(&grant.pages),
    };
    format!("{pages}\nquota {} pages\n", grant.quota)
}
