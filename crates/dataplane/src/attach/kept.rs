//! Interfaces that come and go while a switch runs: one that is made anew, as that of a guest that
//! restarts, is another to the kernel, and is attached again under its name.

use std::{fmt, fs};

use super::{
    attachment::{Attachment, Mode},
    interface::ifindex_if_there,
    links::link_path,
    offloads,
    recirculation::Loops,
};
use crate::{Error, load::dataplane::Dataplane};

/// An interface that is to stay attached.
struct KeptPort {
    interface: String,
    generic: bool,
    /// The interface that runs the program; none: there is none of this name now, or it refuses.
    attached: Option<u32>,
    /// The interface that refused, so that it is said once.
    refused: Option<u32>,
    /// How often in a row it has.
    refusals: u32,
    /// Looks that pass until it is tried again.
    pause: u32,
}

/// After so many refusals there are pauses, each twice as long, up to two to the power of so many
/// looks: each try changes settings of a driver, and some drivers begin anew for that.
const REFUSALS_AT_ONCE: u32 = 3;
const LONGEST_PAUSE: u32 = 6;

/// The interfaces that a switch is to stay attached to.
pub struct KeptPorts {
    ports: Vec<KeptPort>,
    loops: Loops,
}

/// What became of an interface.
#[derive(Debug)]
pub enum PortNews {
    /// There is none of this name any more.
    Gone(String),
    /// There is one again, and it is attached.
    Back(Attachment),
    /// There is one again, which cannot be attached.
    Refused(String, Error),
}

impl fmt::Display for PortNews {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PortNews::Gone(name) => {
                write!(f, "interface {name} is gone: attached again as soon as there is one")
            }
            PortNews::Back(port) => {
                let mode = if port.mode == Mode::Native { "native" } else { "generic" };
                write!(f, "interface {} is there again: attached, {mode} mode", port.interface)
            }
            PortNews::Refused(name, error) => {
                write!(f, "interface {name} is there again, and cannot be attached: {error}")
            }
        }
    }
}

impl KeptPorts {
    /// Those that are attached now, and those that there are none of these names of yet; values go
    /// round as these loops have it.
    pub fn new(attached: &[Attachment], missing: &[String], loops: Loops) -> KeptPorts {
        let generic = attached.iter().any(|port| port.mode == Mode::Generic);
        let port = |interface: &String, attached| KeptPort {
            interface: interface.clone(),
            generic,
            attached,
            refused: None,
            refusals: 0,
            pause: 0,
        };
        let there = attached.iter().map(|of| port(&of.interface, Some(of.ifindex)));
        let missing = missing.iter().map(|name| port(name, None));
        KeptPorts { ports: there.chain(missing).collect(), loops }
    }

    /// Attaches what was made anew. Costs a system call for each interface where nothing happened.
    pub fn look(&mut self, dataplane: &Dataplane) -> Vec<PortNews> {
        let look = |port: &mut KeptPort| port.look(dataplane);
        let news: Vec<PortNews> = self.ports.iter_mut().filter_map(look).collect();
        let ports: Vec<&Attachment> = news.iter().filter_map(PortNews::attached).collect();
        if !ports.is_empty()
            && let Err(error) = self.send_round_again(dataplane)
        {
            tracing::warn!("values do not go round by what was attached again: {error}");
        }
        news
    }

    fn send_round_again(&self, dataplane: &Dataplane) -> Result<(), Error> {
        let attached = self.ports.iter().filter_map(|port| {
            Some(Attachment {
                interface: port.interface.clone(),
                ifindex: port.attached?,
                mode: if port.generic { Mode::Generic } else { Mode::Native },
                reason: String::new(),
                taken_over: true,
            })
        });
        dataplane.recirculate(&attached.collect::<Vec<_>>(), &self.loops).map(drop)
    }
}

impl PortNews {
    fn attached(&self) -> Option<&Attachment> {
        match self {
            PortNews::Back(attached) => Some(attached),
            PortNews::Gone(_) | PortNews::Refused(..) => None,
        }
    }
}

impl KeptPort {
    fn look(&mut self, dataplane: &Dataplane) -> Option<PortNews> {
        let there = ifindex_if_there(&self.interface)?;
        if there == self.attached {
            return None;
        }
        let before = self.attached.take();
        if let Some(before) = before {
            // It may have another name now: then nothing must be redirected to it any more, before
            // it has no program.
            if let Err(error) = dataplane.forget_port(before) {
                tracing::warn!("{}: {error}", self.interface);
            }
            // What was pinned of the one that has gone.
            let _ = fs::remove_file(link_path(dataplane.home(), &self.interface, before));
            offloads::restore(dataplane.home(), &self.interface, before);
        }
        let Some(ifindex) = there else {
            self.refused = None;
            return Some(PortNews::Gone(self.interface.clone()));
        };
        if self.refused != Some(ifindex) {
            (self.refusals, self.pause) = (0, 0);
        }
        if self.pause > 0 {
            self.pause -= 1;
            return None;
        }
        match dataplane.attach_one(&self.interface, self.generic, "it was made anew") {
            Ok(attached) => {
                self.attached = Some(attached.ifindex);
                self.refused = None;
                Some(PortNews::Back(attached))
            }
            Err(error) => {
                let is_known = self.refused.replace(ifindex) == Some(ifindex);
                self.refusals += 1;
                let twice = self.refusals.saturating_sub(REFUSALS_AT_ONCE).min(LONGEST_PAUSE);
                self.pause = (1 << twice) - 1;
                (!is_known).then(|| PortNews::Refused(self.interface.clone(), error))
            }
        }
    }
}
