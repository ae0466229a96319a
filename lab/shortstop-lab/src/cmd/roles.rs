//! What experiments start as processes of a lab: load, recording clients, faulty links.

use std::{
    fs::File,
    io::{BufReader, Write, stdin, stdout},
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::Context;
use lab::{link, steered::Program};
use plan::topology::Fault;
use serde::de::DeserializeOwned;

/// Offers load as a configuration says.
#[derive(clap::Args)]
pub struct Load {
    /// Configuration (JSON).
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
    /// Write results here instead of to standard output.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// What a process does that is told more on its standard input, and answers on standard output.
#[derive(clap::Args)]
pub struct Clients {
    /// Configuration (JSON).
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
}

/// A faulty link.
#[derive(clap::Args)]
pub struct FaultyLink {
    /// One interface.
    #[arg(long)]
    a: String,
    /// The other interface.
    #[arg(long)]
    b: String,
    /// What goes wrong (JSON).
    #[arg(long)]
    fault: String,
}

impl Clients {
    /// Is the program that a discipline brings.
    pub fn be(&self, program: &Program) -> anyhow::Result<ExitCode> {
        let path = self.config.display();
        let config = std::fs::read_to_string(&self.config).with_context(|| path.to_string())?;
        (program.run)(&config)?;
        Ok(ExitCode::SUCCESS)
    }
}

fn read<T: DeserializeOwned>(config: &Path) -> anyhow::Result<T> {
    let path = config.display();
    let text = std::fs::read_to_string(config).with_context(|| path.to_string())?;
    serde_json::from_str(&text).with_context(|| path.to_string())
}

/// Offers load.
pub fn offer_load(args: &Load) -> anyhow::Result<ExitCode> {
    let (config, input) = (read(&args.config)?, BufReader::new(stdin()));
    match &args.json {
        Some(file) => {
            let out = File::create(file).with_context(|| file.display().to_string())?;
            load::run(config, input, out)?;
        }
        None => load::run(config, input, stdout())?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Is clients that record what they see, until standard input ends.
pub fn be_clients(args: &Clients) -> anyhow::Result<ExitCode> {
    history::clients(&read(&args.config)?, BufReader::new(stdin()), stdout())?;
    Ok(ExitCode::SUCCESS)
}

/// Is clients that send commands of Redis and record what they see, until standard input ends.
pub fn be_command_clients(args: &Clients) -> anyhow::Result<ExitCode> {
    history::command_clients(&read(&args.config)?, BufReader::new(stdin()), stdout())?;
    Ok(ExitCode::SUCCESS)
}

/// Is a faulty link between two interfaces.
pub fn be_faulty_link(args: &FaultyLink) -> anyhow::Result<ExitCode> {
    let fault: Fault = serde_json::from_str(&args.fault).context("--fault")?;
    let counts = link::run(&args.a, &args.b, fault, || {
        println!("ready");
        let _ = stdout().flush();
    })?;
    println!("{}", serde_json::to_string(&counts)?);
    Ok(ExitCode::SUCCESS)
}
