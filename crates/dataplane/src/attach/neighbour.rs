//! The XDP program of somebody else that is in the way on an interface, and how it goes.

use libbpf_rs::query::{LinkInfoIter, LinkTypeInfo, ProgInfoIter, ProgInfoQueryOptions};

use super::{interface::xdp_of, links::programs_at};
use crate::maps::bpffs::{Home, switches};

/// What libxdp calls its program that runs others in turn.
const DISPATCHER: &str = "xdp_dispatcher";

/// What to tell somebody who wants to attach to an interface that has a program.
pub(crate) fn in_the_way(interface: &str, ifindex: u32) -> String {
    let found = program_of(ifindex);
    // Interfaces of other network namespaces may have the same index, but not the same
    // program there.
    let is_its = |name: &String| {
        let home = Home::new(name);
        home.is_ok_and(|home| {
            let mut programs = programs_at(&home, ifindex);
            programs.any(|program| found.is_some_and(|(found, _)| found == program))
        })
    };
    if let Some(switch) = switches().unwrap_or_default().into_iter().find(is_its) {
        return format!(
            "switch {switch} of this machine is; `shortstop switch detach --name {switch}`"
        );
    }
    let Some((program, mode)) = found else {
        return format!("what it is the kernel does not say; `ip link show dev {interface}`");
    };
    let name = name_of(program);
    if name == DISPATCHER {
        return format!(
            "libxdp's dispatcher is, which runs what `xdp-loader status {interface}` lists and cannot run a switch; `xdp-loader unload {interface} --all`"
        );
    }
    let holds = |link: &libbpf_rs::query::LinkInfo| {
        link.prog_id == program
            && matches!(&link.info, LinkTypeInfo::Xdp(xdp) if xdp.ifindex == ifindex)
    };
    match LinkInfoIter::default().find(holds) {
        Some(link) => format!(
            "{name:?} is (program {program}), held by link {} of a process or a pin; end what attached it (`bpftool link detach id {}`)",
            link.id, link.id
        ),
        None => {
            format!("{name:?} is (program {program}); `ip link set dev {interface} {mode} off`")
        }
    }
}

/// The id of the program on an interface, and what `ip` calls its mode.
fn program_of(ifindex: u32) -> Option<(u32, &'static str)> {
    let opts = xdp_of(ifindex)?;
    let all = [
        (opts.drv_prog_id, "xdpdrv"),
        (opts.skb_prog_id, "xdpgeneric"),
        (opts.hw_prog_id, "xdpoffload"),
    ];
    all.into_iter().find(|(id, _)| *id != 0)
}

fn name_of(program: u32) -> String {
    let mut all = ProgInfoIter::with_query_opts(ProgInfoQueryOptions::default());
    all.find(|info| info.id == program)
        .map_or(String::new(), |info| info.name.to_string_lossy().into_owned())
}
