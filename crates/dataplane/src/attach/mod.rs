//! Programs on interfaces: attaches those of a [`crate::Dataplane`] and takes them off again, and
//! makes the ports that packets go round by.
//!
//! [`modes`] chooses one mode for all interfaces of a switch, [`ports`] admits each, [`attachment`]
//! makes the link that holds the program there. [`interface`] and [`offloads`] are what the kernel
//! tells of an interface and takes, [`links`] what is attached already, [`neighbour`] who else is.
//! [`kept`] attaches those again that are made anew. [`recirculation`] makes ports of the switch's
//! own, [`pin`] says who does their work. [`detach`] takes all of it back, also in another
//! [`namespace`].

pub(crate) mod attachment;
pub(crate) mod detach;
pub(crate) mod interface;
pub(crate) mod kept;
pub(crate) mod links;
pub(crate) mod modes;
pub(crate) mod namespace;
pub(crate) mod neighbour;
pub(crate) mod offloads;
pub(crate) mod pin;
pub(crate) mod ports;
pub(crate) mod recirculation;
