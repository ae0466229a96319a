//! `shortstop token`: makes a token that the controller will accept, and the lines for its
//! token file.
//!
//! Works without a controller: the file, which has a hash only, and the token go different ways.

use std::{path::PathBuf, process::ExitCode};

use anyhow::bail;
use commands::output::print_line;
use control::auth::{self, NewToken, Role};

/// Makes a token and the lines for the controller's token file, which has only the token's hash.
#[derive(clap::Args)]
#[command(
    after_help = "Example:\n  shortstop token ops admin --add tokens.toml > ops.token\n  shortstop token shop tenant --tenant 7\n\nThe token goes to standard output; the lines for the file, without --add, to standard error. Keep the token from others:\n  umask 077"
)]
pub struct Args {
    /// Name of its user, as the audit log is to show it.
    name: String,
    /// What it allows: everything; to see; to use one tenant's memory; to attach as a switch; to
    /// follow as a store.
    #[arg(value_parser = ["admin", "viewer", "tenant", "switch", "store"])]
    role: String,
    /// The tenant, for the role tenant.
    #[arg(long, value_name = "ID")]
    tenant: Option<u32>,
    /// The only switch, for the role switch.
    #[arg(long, value_name = "ID", value_parser = clap::value_parser!(u16).range(1..=i64::from(wire::SWITCH_MOST)))]
    switch: Option<u16>,
    /// Add the lines to this token file, which is made if it is not there. After an error it is as
    /// it was.
    #[arg(long, value_name = "FILE")]
    add: Option<PathBuf>,
    /// Print both as one line of JSON.
    #[arg(long)]
    json: bool,
}

/// Prints a new token.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let role = match (args.role.as_str(), args.tenant, args.switch) {
        ("admin", None, None) => Role::Admin,
        ("viewer", None, None) => Role::Viewer,
        ("store", None, None) => Role::Store,
        ("switch", None, switch) => Role::Switch(switch),
        ("tenant", Some(id), None) => Role::Tenant(id),
        ("tenant", None, _) => bail!("role tenant: expected --tenant ID"),
        (role, Some(_), _) => bail!("role {role} has no --tenant; only role tenant has"),
        (role, _, Some(_)) => bail!("role {role} has no --switch; only role switch has"),
        (role, ..) => bail!("role {role:?} is not known"),
    };
    let print = |made: &NewToken| match args.json {
        true => print_line(serde_json::json!({ "token": made.token, "entry": made.entry })),
        false => print_line(&made.token),
    };
    match &args.add {
        Some(path) => auth::add(path, &args.name, role, print)??,
        None => {
            let made = auth::make(&args.name, role).map_err(anyhow::Error::msg)?;
            if !args.json {
                eprint!("{}", made.entry);
            }
            print(&made)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}
