//! `shortstop tenant`: who shares the switches' memory, on which terms and with which secret, by
//! the controller's `/v1/tenants`.

use std::{net::SocketAddr, process::ExitCode};

use api::types::{NewSecret, OverRate, Policy, TenantChange, TenantSpec, TenantView, Terms};
use clap::Subcommand;
use commands::{
    api::Api,
    command_line::end_when_unread,
    common::{socket_address, time},
    output::print,
};

use super::table::{table, yes};

/// Manages tenants: who shares the cache memory, and on what terms.
#[derive(clap::Args)]
#[command(
    after_help = "Example:\n  shortstop tenant create --name shop --quota 8 --policy near-client\n  shortstop tenant list"
)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Lists the tenants.
    #[command(after_help = "Example:\n  shortstop tenant list --json")]
    List {
        #[command(flatten)]
        api: Api,
    },
    /// Shows one tenant, switch by switch.
    #[command(after_help = "Example:\n  shortstop tenant show 7")]
    Show {
        /// Number of the tenant.
        id: u32,
        /// With its secrets.
        #[arg(long)]
        secrets: bool,
        #[command(flatten)]
        api: Api,
    },
    /// Creates a tenant and prints it with its secret.
    #[command(
        after_help = "Example:\n  shortstop tenant create --name shop --quota 8 --rate 50000 --over-rate drop"
    )]
    Create {
        /// Number [default: the lowest that is free].
        #[arg(long)]
        id: Option<u32>,
        /// Take the number of a tenant that was removed, with what that one left in the stores: all
        /// of it with --secret and that one's first secret, else what lies where its keys hash to
        /// now.
        #[arg(long)]
        reuse: bool,
        /// Its secret, 32 hex digits [default: a random one, which is safer: other users of this
        /// machine see a command's options].
        #[arg(long, value_name = "HEX")]
        secret: Option<String>,
        #[command(flatten)]
        terms: TermOptions,
        #[command(flatten)]
        api: Api,
    },
    /// Changes what is given of a tenant; the rest stays.
    #[command(after_help = "Example:\n  shortstop tenant change 7 --quota 12 --policy even-split")]
    Change {
        /// Number of the tenant.
        id: u32,
        #[command(flatten)]
        terms: TermOptions,
        #[command(flatten)]
        api: Api,
    },
    /// Removes a tenant; its pages go back.
    #[command(after_help = "Example:\n  shortstop tenant remove 7")]
    Remove {
        /// Number of the tenant.
        id: u32,
        #[command(flatten)]
        api: Api,
    },
    /// Begins a rotation of its secret, or finishes one.
    #[command(
        after_help = "Example:\n  shortstop tenant rotate 7\n  (give clients the output of `shortstop tenant credentials 7`)\n  shortstop tenant rotate 7 --finish"
    )]
    Rotate {
        /// Number of the tenant.
        id: u32,
        /// Only the new secret is accepted from now on.
        #[arg(long)]
        finish: bool,
        #[command(flatten)]
        api: Api,
    },
    /// Prints the cluster file for its clients: the stores, and this tenant alone with its secrets.
    #[command(after_help = "Example:\n  shortstop tenant credentials 7 > shop.toml")]
    Credentials {
        /// Number of the tenant.
        id: u32,
        #[command(flatten)]
        api: Api,
    },
}

#[derive(clap::Args)]
/// The terms of a tenant, as options.
struct TermOptions {
    /// What lists, logs and the audit log call it.
    #[arg(long)]
    name: Option<String>,
    /// Guaranteed pages over all switches.
    #[arg(long, value_name = "PAGES")]
    quota: Option<u32>,
    /// Which switches its pages fill first: near-client, near-store, even-split or measured.
    #[arg(long, value_name = "POLICY")]
    policy: Option<Policy>,
    /// Requests per second that each switch admits; 0: unlimited.
    #[arg(long, value_name = "N")]
    rate: Option<u64>,
    /// What switches do with requests above the rate: forward or drop.
    #[arg(long, value_parser = over_rate)]
    over_rate: Option<OverRate>,
    /// What decides what is cached.
    #[arg(long, value_name = "NAME")]
    discipline: Option<String>,
    /// The stores that may hold its keys, separated by commas.
    #[arg(long, value_name = "ADDR:PORT", value_delimiter = ',', value_parser = socket_address)]
    stores: Option<Vec<SocketAddr>>,
    /// Where its clients are: addresses or prefixes, separated by commas.
    #[arg(long, value_name = "PLACE", value_delimiter = ',')]
    clients: Option<Vec<String>>,
    /// Whether it may use idle pages beyond its quota: true or false.
    #[arg(long)]
    borrow: Option<bool>,
    /// Write-back: switches answer writes of hot keys, and the stores have them so long after at
    /// most, 10ms to 60s; 0: off.
    #[arg(long, value_name = "TIME", value_parser = write_back)]
    write_back: Option<u32>,
    /// An option of its discipline; repeat for several. Those that are not named stay as they are.
    #[arg(long, value_name = "NAME=N", value_parser = option)]
    option: Vec<(String, u32)>,
}

fn option(text: &str) -> Result<(String, u32), String> {
    let (name, number) = text.split_once('=').ok_or("expected NAME=N")?;
    let number = number.parse().map_err(|e| format!("{number:?}: {e}"))?;
    Ok((name.into(), number))
}

fn over_rate(text: &str) -> Result<OverRate, String> {
    match text {
        "forward" => Ok(OverRate::Forward),
        "drop" => Ok(OverRate::Drop),
        _ => Err("expected forward or drop".into()),
    }
}

fn write_back(text: &str) -> Result<u32, String> {
    if text == "0" {
        return Ok(0);
    }
    let ms = u32::try_from(time(text)?.as_millis()).unwrap_or(u32::MAX);
    wire::check_write_back(ms)?;
    Ok(ms)
}

impl TermOptions {
    fn change(self) -> anyhow::Result<TenantChange> {
        // Places are read as the controller reads them.
        let places = serde_json::json!({ "clients": self.clients });
        let TenantChange { clients, .. } =
            serde_json::from_value(places).map_err(|e| anyhow::anyhow!("--clients: {e}"))?;
        Ok(TenantChange {
            name: self.name,
            quota: self.quota,
            policy: self.policy,
            rate: self.rate,
            over_rate: self.over_rate,
            discipline: self.discipline,
            stores: self.stores,
            clients,
            borrow: self.borrow,
            write_back_ms: self.write_back,
            options: (!self.option.is_empty()).then(|| self.option.into_iter().collect()),
        })
    }
}

/// Asks the controller and prints its answer.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    match args.command {
        Command::List { api } => {
            let all = api.list("/v1/tenants", |t: &TenantView| t.id.to_string())?;
            api.print(&all, |all| list(all))
        }
        Command::Show { id, secrets, api } => {
            let tenant: TenantView = api.get(&format!("/v1/tenants/{id}?secrets={secrets}"))?;
            api.print(&tenant, show)
        }
        Command::Create { id, reuse, secret, terms, api } => {
            let spec = TenantSpec {
                id,
                reuse,
                secret,
                ..Terms::default().changed_by(terms.change()?).into()
            };
            let tenant: TenantView = api.change("POST", "/v1/tenants", Some(&spec))?;
            api.print(&tenant, show)
        }
        Command::Change { id, terms, api } => {
            let change = terms.change()?;
            let tenant: TenantView =
                api.change("PATCH", &format!("/v1/tenants/{id}"), Some(&change))?;
            api.print(&tenant, show)
        }
        Command::Remove { id, api } => {
            api.send("DELETE", &format!("/v1/tenants/{id}"), None)?;
            api.print(&serde_json::json!({ "removed": id }), |_| {
                format!("tenant {id} is removed\n")
            })
        }
        Command::Rotate { id, finish, api } => {
            let method = if finish { "DELETE" } else { "POST" };
            let secret: NewSecret =
                api.change(method, &format!("/v1/tenants/{id}/secret"), None::<&()>)?;
            api.print(&secret, rotated)
        }
        Command::Credentials { id, api } => {
            let text = api.text(&format!("/v1/tenants/{id}/credentials"))?;
            if api.json {
                return api.print(&serde_json::json!({ "cluster": text }), |_| String::new());
            }
            end_when_unread();
            print(text)?;
            Ok(ExitCode::SUCCESS)
        }
    }
}

fn list(all: &[TenantView]) -> String {
    let head = [
        "id",
        "name",
        "quota",
        "own",
        "borrowed",
        "lent out",
        "items",
        "policy",
        "rate",
        "discipline",
    ];
    let row = |t: &TenantView| {
        vec![
            t.id.to_string(),
            t.terms.name.clone(),
            t.terms.quota.to_string(),
            t.own_pages.to_string(),
            t.borrowed_pages.to_string(),
            t.lent_out_pages.to_string(),
            t.items.to_string(),
            t.terms.policy.name().into(),
            t.terms.rate.to_string(),
            t.terms.discipline.clone(),
        ]
    };
    table(&head, &all.iter().map(row).collect::<Vec<_>>())
}

fn show(t: &TenantView) -> String {
    let mut rows = vec![
        ("quota", format!("{} pages guaranteed", t.terms.quota)),
        (
            "pages",
            format!(
                "{} own, {} borrowed, {} lent out, {} leaving",
                t.own_pages, t.borrowed_pages, t.lent_out_pages, t.leaving_pages
            ),
        ),
        ("leases", leases(t)),
        ("items", format!("{} in {} cells", t.items, t.cells)),
        ("fragmentation", format!("{:.1} %", t.fragmentation * 100.0)),
        ("policy", t.terms.policy.name().into()),
        ("borrows", yes(t.terms.borrow)),
        ("discipline", t.terms.discipline.clone()),
        ("rate", rate(t)),
        ("write-back", written_back(t)),
        ("options", options(t)),
        ("stores", stores(t)),
        ("clients", or_all(&t.terms.clients, "where the traffic shows them")),
        ("rotating", yes(t.rotating)),
    ];
    let secrets =
        [("secret", &t.secret), ("also accepted", &t.also_secret), ("hash secret", &t.hash_secret)];
    for (name, secret) in secrets {
        rows.extend(secret.clone().map(|secret| (name, secret)));
    }
    let mut out = format!("tenant {} {:?}\n", t.id, t.terms.name);
    for (name, value) in rows {
        out += &format!("  {name:<15} {value}\n");
    }
    if !t.switches.is_empty() {
        let head = ["switch", "own", "borrowed", "leaving", "items", "cells"];
        let row = |s: &api::types::TenantOnSwitch| {
            vec![
                s.switch.to_string(),
                s.own_pages.to_string(),
                s.borrowed_pages.to_string(),
                s.leaving_pages.to_string(),
                s.items.to_string(),
                s.cells.to_string(),
            ]
        };
        let rows: Vec<_> = t.switches.iter().map(row).collect();
        out += &format!("\n{}", table(&head, &rows));
    }
    out
}

fn stores(t: &TenantView) -> String {
    let all = or_all(&t.terms.stores, "all");
    let lost = or_all(&t.lost_stores, "none");
    match t.lost_stores.len() {
        0 => all,
        n if n == t.terms.stores.len() => format!(
            "{all}: none is in the cluster file, so nobody serves it (shortstop tenant change {} --stores)",
            t.id
        ),
        _ => format!("{all}; not in the cluster file: {lost}"),
    }
}

fn leases(t: &TenantView) -> String {
    let one = |l: &api::types::LeaseView| {
        format!("{} pages for {} s, unless in use then", l.pages, l.ends_in_s)
    };
    match t.leases.is_empty() {
        true => "none".into(),
        false => t.leases.iter().map(one).collect::<Vec<_>>().join("; "),
    }
}

fn rate(t: &TenantView) -> String {
    let over = match t.terms.over_rate {
        OverRate::Forward => "forwarded",
        OverRate::Drop => "dropped",
    };
    match t.terms.rate {
        0 => "unlimited".into(),
        rate => format!("{rate} requests/s and switch, those above are {over}"),
    }
}

fn written_back(t: &TenantView) -> String {
    match t.terms.write_back_ms {
        0 => "no".into(),
        ms => format!("stores have what switches answered within {ms} ms"),
    }
}

fn options(t: &TenantView) -> String {
    let given = t.terms.options.iter();
    or_all(&given.map(|(name, n)| format!("{name}={n}")).collect::<Vec<_>>(), "the usual ones")
}

fn or_all<T: ToString>(list: &[T], none: &str) -> String {
    if list.is_empty() {
        return none.into();
    }
    let texts: Vec<String> = list.iter().map(T::to_string).collect();
    texts.join(", ")
}

fn rotated(new: &NewSecret) -> String {
    let id = new.tenant;
    let mut out = format!("tenant {id}\n  secret          {}\n", new.secret);
    match &new.also_secret {
        Some(also) => {
            out += &format!(
                "  also accepted   {also}\n\nonce its clients have the new one: shortstop tenant rotate {id} --finish\n"
            );
        }
        None if new.not_told.is_empty() => out += "  no other is accepted\n",
        None => {}
    }
    if !new.not_told.is_empty() {
        let who = new.not_told.join(", ");
        out += &format!(
            "\nnot told yet, and going by the secrets before: {who}\nattach these to the controller; a switch that is gone for good: shortstop topology forget ID\n"
        );
    }
    out
}
