//! What this folder needs of rtnetlink: a connection that ends with its owner, and errors in
//! one line.

use std::io;

use futures_util::{Stream, StreamExt};
use rtnetlink::{
    Error, Handle, MulticastGroup,
    packet_core::NetlinkPayload,
    packet_route::{RouteNetlinkMessage, link::LinkMessage},
};
use tokio::task::JoinHandle;

/// A socket to the kernel of the network namespace in which it was made.
pub(super) struct Netlink {
    /// Makes requests.
    pub handle: Handle,
    driver: JoinHandle<()>,
}

impl Netlink {
    /// Opens a socket for requests; the kernel checks them strictly, and filters what it lists.
    ///
    /// # Errors
    /// The kernel has no more sockets.
    pub fn open() -> io::Result<Netlink> {
        let (connection, handle, _) = rtnetlink::new_connection_with_strict_check()?;
        let driver = tokio::spawn(connection);
        Ok(Netlink { handle, driver })
    }
}

impl Drop for Netlink {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

/// Something that the kernel said by itself.
pub(super) enum News {
    /// A link's new state.
    Link(LinkMessage),
    /// Anything else, and also that some news was lost.
    Other,
}

/// What the kernel tells of links, addresses and neighbours. Behind this is a queue without a
/// limit: whoever reads it may not wait for anything else. Ends with the socket.
///
/// # Errors
/// The kernel has no more sockets.
pub(super) fn news() -> io::Result<(Netlink, impl Stream<Item = News> + Unpin)> {
    let groups = [
        MulticastGroup::Link,
        MulticastGroup::Ipv4Ifaddr,
        MulticastGroup::Ipv6Ifaddr,
        MulticastGroup::Neigh,
    ];
    let (connection, handle, messages) = rtnetlink::new_multicast_connection(&groups)?;
    let driver = tokio::spawn(connection);
    let news = messages.map(|(message, _)| match message.payload {
        NetlinkPayload::InnerMessage(RouteNetlinkMessage::NewLink(link)) => News::Link(link),
        _ => News::Other,
    });
    Ok((Netlink { handle, driver }, news))
}

/// The error number of a refused request, if the kernel gave one.
pub(super) fn errno(error: &Error) -> Option<i32> {
    match error {
        Error::NetlinkError(message) => message.to_io().raw_os_error(),
        _ => None,
    }
}

/// An error for a line of text.
pub(super) fn describe(error: &Error) -> String {
    match error {
        Error::NetlinkError(message) => message.to_io().to_string(),
        other => other.to_string(),
    }
}
