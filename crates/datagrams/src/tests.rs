//! Over loopback: what is sent arrives, as what it was, where it was to, and from whom it was said
//! to be.

use std::{
    convert::Infallible,
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6, UdpSocket},
    os::fd::AsRawFd,
    time::Duration,
};

use proptest::prelude::*;

use crate::{BATCH, Datagram, Destination, Receiver, Refusal, Sender, name::Name};

/// Long enough for any machine; only a datagram that is lost takes so long.
const PATIENCE: Duration = Duration::from_secs(20);

fn socket() -> UdpSocket {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket
}

fn address(socket: &UdpSocket) -> SocketAddr {
    socket.local_addr().unwrap()
}

/// A port that nobody can send to.
const NOWHERE: Destination =
    Destination::Address(SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0));

fn datagram(bytes: &[u8], to: Destination) -> Datagram<'_> {
    Datagram { parts: [bytes, &[]], to, source: None }
}

fn never(error: io::Error) -> Result<Refusal, Infallible> {
    panic!("{error}");
}

/// Receives so many, in buffers of parts of so many bytes.
fn receive(
    receiver: &mut Receiver,
    socket: &UdpSocket,
    count: usize,
    sizes: [usize; 2],
) -> Vec<(Vec<u8>, Option<SocketAddr>)> {
    let mut memory = vec![(vec![0; sizes[0]], vec![0; sizes[1]]); BATCH + 1];
    let mut taken = vec![];
    while taken.len() < count {
        let buffers = memory.iter_mut().map(|(a, b)| [&mut a[..], &mut b[..]]);
        let got = receiver.receive(socket, buffers).unwrap();
        assert!((1..=BATCH).contains(&got));
        taken.extend((0..got).map(|at| {
            let (first, second) = &memory[at];
            let mut bytes = [&first[..], &second[..]].concat();
            bytes.truncate(receiver.len(at));
            (bytes, receiver.source(at))
        }));
    }
    taken
}

proptest! {
    /// Any datagrams in any number to several sockets, the bytes divided in any way on both sides.
    #[test]
    fn what_is_sent_arrives_in_order(
        datagrams in prop::collection::vec(
            (prop::collection::vec(any::<u8>(), 0..200), 0..200usize, 0..3usize),
            0..100,
        ),
        divided in 1..200usize,
        coalescing: bool,
    ) {
        let (from, to) = (socket(), [socket(), socket(), socket()]);
        let outgoing = datagrams.iter().map(|(bytes, cut, to_one)| {
            let (first, second) = bytes.split_at((*cut).min(bytes.len()));
            Datagram {
                parts: [first, second],
                to: Destination::Address(address(&to[*to_one])),
                source: None,
            }
        });
        let mut sender = if coalescing { Sender::coalescing() } else { Sender::default() };
        prop_assert_eq!(sender.send(&from, outgoing, never), Ok(0));
        let source = Some(address(&from));
        let mut receiver = Receiver::with_sources();
        for (i, to) in to.iter().enumerate() {
            let sent = datagrams.iter().filter(|(.., to_one)| *to_one == i);
            let sent: Vec<_> = sent.map(|(bytes, ..)| (bytes.clone(), source)).collect();
            let taken = receive(&mut receiver, to, sent.len(), [divided, 200 - divided]);
            prop_assert_eq!(taken, sent);
        }
    }

    #[test]
    fn addresses_are_read_as_they_were_written(
        ip in any::<IpAddr>(), port: u16, flow: u32, scope: u32,
    ) {
        let address = match ip {
            IpAddr::V4(ip) => (ip, port).into(),
            IpAddr::V6(ip) => SocketAddrV6::new(ip, port, flow, scope).into(),
        };
        let mut name = Name([0xff; 28]);
        let len = name.set(Destination::Address(address));
        prop_assert_eq!(name.address(len), Some(address));
        prop_assert_eq!(name.address(len - 1), None);
    }
}

#[test]
fn an_interface_is_an_address_of_the_link_layer() {
    let mut name = Name([0xff; 28]);
    let len = name.set(Destination::Interface(0x0102_0304));
    let mut expected = [0; 20];
    expected[..2].copy_from_slice(&(libc::AF_PACKET as u16).to_ne_bytes());
    expected[4..8].copy_from_slice(&0x0102_0304u32.to_ne_bytes());
    assert_eq!(name.0[..len as usize], expected);
    assert_eq!(name.address(len), None);
}

/// Runs of one length, each with a shorter one behind it or not, some to another socket, some with
/// a source of their own; and more bytes than one message takes.
#[test]
fn what_is_sent_as_one_message_arrives_as_what_it_was() {
    let (from, to, other) = (socket(), socket(), socket());
    let lens = [&[7][..], &[40; 30], &[9, 0, 9, 9], &[1400; 60], &[3, 40]].concat();
    let fill = |(at, len): (usize, &usize)| vec![at as u8; *len];
    let bytes: Vec<Vec<u8>> = lens.iter().enumerate().map(fill).collect();
    let outgoing = bytes.iter().enumerate().map(|(at, bytes)| {
        let to = if at == 20 { &other } else { &to };
        let source = (at == 25).then_some(IpAddr::V4(Ipv4Addr::LOCALHOST));
        let (first, second) = bytes.split_at(bytes.len() / 3);
        Datagram { parts: [first, second], to: Destination::Address(address(to)), source }
    });
    assert_eq!(Sender::coalescing().send(&from, outgoing, never), Ok(0));
    let mut expected: Vec<_> = bytes.into_iter().map(|bytes| (bytes, None)).collect();
    let elsewhere = expected.remove(20);
    let mut receiver = Receiver::default();
    assert_eq!(receive(&mut receiver, &other, 1, [2048, 0]), [elsewhere]);
    assert_eq!(receive(&mut receiver, &to, expected.len(), [2048, 0]), expected);
}

fn set(socket: &UdpSocket, level: libc::c_int, option: libc::c_int) {
    let on: libc::c_int = 1;
    let (value, len) = ((&raw const on).cast(), size_of_val(&on) as libc::socklen_t);
    // SAFETY: the options that are set here are of this type, and the value is alive.
    let done = unsafe { libc::setsockopt(socket.as_raw_fd(), level, option, value, len) };
    assert_eq!(done, 0);
}

/// To a socket that takes what came as one message as one.
#[test]
fn datagrams_of_one_length_are_one_message() {
    let (from, to) = (socket(), socket());
    set(&to, libc::SOL_UDP, libc::UDP_GRO);
    let bytes: Vec<[u8; 40]> = (0..30).map(|at| [at; 40]).collect();
    let outgoing = || {
        let there = Destination::Address(address(&to));
        bytes.iter().map(move |bytes| datagram(bytes, there))
    };
    let room = [30 * 40, 0];
    assert_eq!(Sender::coalescing().send(&from, outgoing(), never), Ok(0));
    let taken = receive(&mut Receiver::default(), &to, 1, room);
    assert_eq!(taken, [(bytes.concat(), None)]);
    assert_eq!(Sender::default().send(&from, outgoing(), never), Ok(0));
    assert_eq!(receive(&mut Receiver::default(), &to, 30, room)[0].0, bytes[0]);
}

/// A socket that sends no checksums takes no message of several.
#[test]
fn what_cannot_be_one_message_is_sent_one_by_one() {
    let (from, to) = (socket(), socket());
    set(&from, libc::SOL_SOCKET, libc::SO_NO_CHECK);
    let bytes: Vec<[u8; 40]> = (0..6).map(|at| [at; 40]).collect();
    let there = Destination::Address(address(&to));
    let mut sender = Sender::coalescing();
    for _ in 0..2 {
        let outgoing = bytes.iter().map(|bytes| datagram(bytes, there));
        assert_eq!(sender.send(&from, outgoing, never), Ok(0));
        let taken = receive(&mut Receiver::default(), &to, bytes.len(), [40, 0]);
        assert_eq!(taken, bytes.iter().map(|bytes| (bytes.to_vec(), None)).collect::<Vec<_>>());
    }
}

/// One in the first batch, the last of it, and one in the second.
#[test]
fn one_that_is_refused_holds_up_no_other() {
    let (from, to) = (socket(), socket());
    let bytes: Vec<[u8; 1]> = (0..100).map(|i| [i]).collect();
    let is_refused = |i: u8| [3, BATCH as u8 - 1, 70].contains(&i);
    let outgoing = bytes.iter().map(|bytes| match is_refused(bytes[0]) {
        true => datagram(bytes, NOWHERE),
        false => datagram(bytes, Destination::Address(address(&to))),
    });
    let mut kinds = vec![];
    let refused = |error: io::Error| {
        kinds.push(error.kind());
        // The first is tried again, in vain.
        Ok::<_, Infallible>(match kinds.len() {
            1 => Refusal::Again,
            _ => Refusal::Skip,
        })
    };
    assert_eq!(Sender::default().send(&from, outgoing, refused), Ok(3));
    assert_eq!(kinds, [io::ErrorKind::InvalidInput; 4]);
    let expected = bytes.iter().filter(|bytes| !is_refused(bytes[0]));
    let expected: Vec<_> = expected.map(|bytes| (bytes.to_vec(), None)).collect();
    let taken = receive(&mut Receiver::default(), &to, 97, [16, 0]);
    assert_eq!(taken, expected);
}

#[test]
fn an_error_ends_it_where_it_happened() {
    let (from, to) = (socket(), socket());
    let there = Destination::Address(address(&to));
    let outgoing = [(b"1", there), (b"2", NOWHERE), (b"3", there)];
    let outgoing = outgoing.map(|(bytes, to)| datagram(bytes, to));
    let ended = Sender::default().send(&from, outgoing, Err);
    assert_eq!(ended.unwrap_err().kind(), io::ErrorKind::InvalidInput);
    Sender::default().send(&from, [datagram(b"4", there)], never).unwrap();
    let taken = receive(&mut Receiver::default(), &to, 2, [16, 0]);
    assert_eq!(taken, [(b"1".to_vec(), None), (b"4".to_vec(), None)]);
}

/// Also the same sender with and without a source, of either family.
#[test]
fn it_bears_the_source_that_it_was_given() {
    let mut sender = Sender::default();
    let mut arrives_from = |bound: IpAddr, to: IpAddr, source: Option<IpAddr>| {
        let from = UdpSocket::bind((bound, 0)).unwrap();
        let to = UdpSocket::bind((to, 0)).unwrap();
        to.set_read_timeout(Some(PATIENCE)).unwrap();
        let outgoing = Datagram { source, ..datagram(b"x", Destination::Address(address(&to))) };
        assert_eq!(sender.send(&from, [outgoing], never), Ok(0));
        let taken = receive(&mut Receiver::with_sources(), &to, 1, [16, 0]);
        let (bytes, arrived) = taken.into_iter().next().unwrap();
        assert_eq!(bytes, b"x");
        let arrived = arrived.unwrap();
        assert_eq!(arrived.port(), address(&from).port());
        arrived.ip()
    };
    let [any, here] = [Ipv4Addr::UNSPECIFIED, Ipv4Addr::LOCALHOST].map(IpAddr::from);
    let other = IpAddr::from([127, 0, 0, 9]);
    assert_eq!(arrives_from(any, here, Some(other)), other);
    assert_eq!(arrives_from(any, here, None), here);
    let [any, here] = [Ipv6Addr::UNSPECIFIED, Ipv6Addr::LOCALHOST].map(IpAddr::from);
    if UdpSocket::bind((here, 0)).is_ok() {
        assert_eq!(arrives_from(any, here, Some(here)), here);
        assert_eq!(arrives_from(any, here, None), here);
    }
}

#[test]
fn a_connected_socket_needs_no_address() {
    let (from, to) = (socket(), socket());
    from.connect(address(&to)).unwrap();
    let outgoing = [b"1", b"2"].map(|bytes| datagram(bytes, Destination::Peer));
    assert_eq!(Sender::default().send(&from, outgoing, never), Ok(0));
    let taken = receive(&mut Receiver::default(), &to, 2, [16, 0]);
    assert_eq!(taken, [(b"1".to_vec(), None), (b"2".to_vec(), None)]);
}

#[test]
fn what_does_not_fit_is_cut_off() {
    let (from, to) = (socket(), socket());
    let there = Destination::Address(address(&to));
    let outgoing = [datagram(b"abcdef", there), datagram(b"x", there)];
    assert_eq!(Sender::default().send(&from, outgoing, never), Ok(0));
    let taken = receive(&mut Receiver::default(), &to, 2, [1, 3]);
    assert_eq!(taken, [(b"abcd".to_vec(), None), (b"x".to_vec(), None)]);
}

/// One buffer of two, and then the rest.
#[test]
fn no_more_come_than_there_are_buffers() {
    let (from, to) = (socket(), socket());
    let there = Destination::Address(address(&to));
    let outgoing = [datagram(b"1", there), datagram(b"2", there)];
    assert_eq!(Sender::default().send(&from, outgoing, never), Ok(0));
    let (mut buffer, mut receiver) = ([0; 4], Receiver::default());
    for expected in [b'1', b'2'] {
        let got = receiver.receive(&to, [[&mut buffer[..], &mut []]]);
        assert_eq!((got.unwrap(), receiver.len(0)), (1, 1));
        assert_eq!(buffer[0], expected);
    }
}

#[test]
fn a_socket_that_does_not_block_says_so() {
    let to = socket();
    to.set_nonblocking(true).unwrap();
    let mut buffer = [0; 4];
    let received = Receiver::default().receive(&to, [[&mut buffer[..], &mut []]]);
    assert_eq!(received.unwrap_err().kind(), io::ErrorKind::WouldBlock);
}
