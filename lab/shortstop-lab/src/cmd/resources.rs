//! `shortstop-lab resources`: the tables that disciplines declare, placed on a switch chip by the
//! crate `rmt`.

use std::process::ExitCode;

use anyhow::anyhow;
use disciplines_experiments::PAPERS;
use rmt::{Chip, Items, PublishedUsage, Usage};
use serde::Serialize;

use shortstop::cmd::table::table;

/// What disciplines would need on a switch chip, computed from their tables, beside what
/// papers publish.
#[derive(clap::Args)]
#[command(
    after_help = "Example:\n  shortstop-lab resources\n  shortstop-lab resources --items 10000 --value-bytes 64 --json"
)]
pub struct Args {
    /// One discipline, with each of its tables; all without.
    #[arg(long, value_name = "NAME")]
    discipline: Option<String>,
    /// Items that a switch is to hold.
    #[arg(long, default_value_t = 65_536, value_parser = clap::value_parser!(u32).range(1..=16_777_216))]
    items: u32,
    /// Bytes of the longest key.
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=wire::MAX_KEY as i64))]
    key_bytes: u32,
    /// Bytes of the longest value.
    #[arg(long, default_value_t = 128, value_parser = clap::value_parser!(u32).range(0..=dataplane::VALUE_MAX_BYTES as i64))]
    value_bytes: u32,
    /// As JSON.
    #[arg(long)]
    json: bool,
}

/// One discipline on the chip.
#[derive(Serialize)]
struct DisciplineUsage {
    discipline: &'static str,
    #[serde(flatten)]
    usage: Usage,
}

#[derive(Serialize)]
struct Resources {
    items: Items,
    computed: Vec<DisciplineUsage>,
    published: Vec<&'static PublishedUsage>,
}

/// Computes and prints.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let items =
        Items { count: args.items, key_bytes: args.key_bytes, value_bytes: args.value_bytes };
    let resources = Resources {
        items,
        computed: computed(args.discipline.as_deref(), items)?,
        published: PAPERS.iter().flat_map(|paper| paper.published).collect(),
    };
    commands::command_line::end_when_unread();
    if args.json {
        println!("{}", serde_json::to_string_pretty(&resources)?);
    } else {
        print!("{}", show(&resources, args.discipline.is_some()));
    }
    Ok(ExitCode::SUCCESS)
}

fn computed(only: Option<&str>, items: Items) -> anyhow::Result<Vec<DisciplineUsage>> {
    let declared = PAPERS.iter().filter_map(|paper| Some((paper.discipline, paper.pipeline?)));
    let chosen: Vec<_> =
        declared.filter(|(name, _)| only.is_none_or(|only| only == *name)).collect();
    if chosen.is_empty() {
        let name = only.unwrap_or_default();
        return Err(anyhow!("--discipline {name}: no discipline of that name declares tables"));
    }
    let place = |(discipline, pipeline): (&'static str, rmt::Pipeline)| {
        let usage = rmt::place(&pipeline(items), 8 * items.key_bytes, &Chip::TOFINO)?;
        Ok(DisciplineUsage { discipline, usage })
    };
    chosen.into_iter().map(place).collect()
}

fn percent(of: f64) -> String {
    format!("{of:.1} %")
}

fn known<T>(value: Option<T>, show: impl Fn(T) -> String) -> String {
    value.map_or("-".into(), show)
}

fn show(resources: &Resources, with_tables: bool) -> String {
    let Items { count, key_bytes, value_bytes } = resources.items;
    let items = format!("{count} of {key_bytes} + {value_bytes} bytes");
    let mut rows: Vec<Vec<String>> = vec![];
    for DisciplineUsage { discipline, usage } in &resources.computed {
        rows.push(vec![
            (*discipline).into(),
            "computed".into(),
            items.clone(),
            usage.stages.to_string(),
            usage.passes.to_string(),
            percent(usage.sram_percent),
            percent(usage.tcam_percent),
            percent(usage.alu_percent),
            usage.phv_bits.to_string(),
        ]);
    }
    for paper in &resources.published {
        let below = if paper.sram_is_bound { "< " } else { "" };
        rows.push(vec![
            paper.system.into(),
            paper.source.into(),
            paper.items.into(),
            known(paper.stages, |stages| stages.to_string()),
            "-".into(),
            known(paper.sram_percent, |of| format!("{below}{}", percent(of))),
            known(paper.tcam_percent, percent),
            known(paper.alu_percent, percent),
            "-".into(),
        ]);
    }
    let head =
        ["system", "source", "items", "stages", "passes", "SRAM", "TCAM", "ALUs", "PHV bits"];
    let mut text = table(&head, &rows);
    if with_tables {
        for DisciplineUsage { usage, .. } in &resources.computed {
            text += &format!("\n{}", tables(usage));
        }
    }
    text
}

fn tables(usage: &Usage) -> String {
    let stages = |(first, last): (u32, u32)| {
        if first == last { first.to_string() } else { format!("{first}-{last}") }
    };
    let rows: Vec<_> = usage
        .tables
        .iter()
        .map(|t| {
            vec![
                t.name.to_string(),
                stages(t.stages),
                t.sram_blocks.to_string(),
                t.tcam_blocks.to_string(),
                t.alus.to_string(),
            ]
        })
        .collect();
    let head = ["table", "stages", "SRAM blocks", "TCAM blocks", "ALUs"];
    table(&head, &rows)
}
