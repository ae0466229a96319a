//! The programs of a switch in the kernel or in this process, as the agent's tables call them
//! without asking which.

use std::{collections::BTreeSet, sync::Arc};

use crate::{
    Error, Refusal,
    attach::kept::{KeptPorts, PortNews},
    load::dataplane::Dataplane,
    maps::backing::Backing,
    native::Switch,
};

/// The programs of a switch, wherever they run.
pub enum Programs {
    /// In the kernel.
    Kernel(Dataplane),
    /// In this process.
    Native(Arc<Switch>),
}

impl Programs {
    /// Where their tables are.
    pub fn backing(&self) -> Backing {
        match self {
            Programs::Kernel(dataplane) => dataplane.home().into(),
            Programs::Native(switch) => switch.into(),
        }
    }

    /// As [`Dataplane::refused`].
    pub fn refused(&self) -> &[(&'static str, Refusal)] {
        match self {
            Programs::Kernel(dataplane) => dataplane.refused(),
            Programs::Native(_) => &[],
        }
    }

    /// As [`Dataplane::need`]; in this process all programs are there.
    ///
    /// # Errors
    /// As [`Dataplane::need`].
    pub fn need(&mut self, disciplines: &BTreeSet<u32>) -> Result<(), Error> {
        match self {
            Programs::Kernel(dataplane) => dataplane.need(disciplines),
            Programs::Native(_) => Ok(()),
        }
    }

    /// The index of a port by its name, that of the recirculation port included.
    pub fn port(&self, name: &str) -> Option<u32> {
        match self {
            Programs::Kernel(dataplane) => dataplane.port(name),
            Programs::Native(switch) => switch.port(name),
        }
    }

    /// As [`Dataplane::note_interfaces`]; programs in this process see only frames for their
    /// interfaces.
    ///
    /// # Errors
    /// As [`Dataplane::note_interfaces`].
    pub fn note_interfaces(&self) -> Result<(), Error> {
        match self {
            Programs::Kernel(dataplane) => dataplane.note_interfaces(),
            Programs::Native(_) => Ok(()),
        }
    }

    /// Attaches interfaces again that were made anew. A switch in this process has none.
    pub fn keep_attached(&self, ports: &mut KeptPorts) -> Vec<PortNews> {
        match self {
            Programs::Kernel(dataplane) => ports.look(dataplane),
            Programs::Native(_) => vec![],
        }
    }

    /// The maps of groups that the objects have, with how many each can hold.
    pub fn groups(&self) -> Vec<(String, u32)> {
        match self {
            Programs::Kernel(dataplane) => dataplane.groups(),
            Programs::Native(switch) => switch.groups(),
        }
    }

    /// As [`Dataplane::set_group`].
    ///
    /// # Errors
    /// As [`Dataplane::set_group`].
    pub fn set_group(&self, map: &str, index: u32, ports: &[u32]) -> Result<(), Error> {
        match self {
            Programs::Kernel(dataplane) => dataplane.set_group(map, index, ports),
            Programs::Native(switch) => switch.set_group(map, index, ports),
        }
    }
}

impl From<Dataplane> for Programs {
    fn from(dataplane: Dataplane) -> Programs {
        Programs::Kernel(dataplane)
    }
}

impl From<Arc<Switch>> for Programs {
    fn from(switch: Arc<Switch>) -> Programs {
        Programs::Native(switch)
    }
}
