//! Two ends of other traffic: datagrams that are sent back, and streams with a checksum.

use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpListener, TcpStream, UdpSocket},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    thread::JoinHandle,
    time::Duration,
};

use lab::namespace::within;

use super::support::PATIENCE;

/// A thread on a host that sends every datagram back.
pub struct Echo {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Echo {
    pub fn start(space: &str, address: SocketAddr) -> Echo {
        let socket = within(space, || Ok(UdpSocket::bind(address)?)).expect("a free port");
        socket.set_read_timeout(Some(Duration::from_millis(50))).expect("a valid timeout");
        let stop = Arc::new(AtomicBool::new(false));
        let own = stop.clone();
        let thread = std::thread::spawn(move || {
            let mut buffer = vec![0; 1 << 16];
            while !own.load(SeqCst) {
                if let Ok((len, from)) = socket.recv_from(&mut buffer) {
                    let _ = socket.send_to(&buffer[..len], from);
                }
            }
        });
        Echo { stop, thread: Some(thread) }
    }
}

impl Drop for Echo {
    fn drop(&mut self) {
        self.stop.store(true, SeqCst);
        self.thread.take().map(JoinHandle::join);
    }
}

/// A socket on a host that talks to an echo.
pub struct Caller {
    socket: UdpSocket,
    number: u32,
}

impl Caller {
    pub fn new(space: &str, to: SocketAddr) -> Caller {
        let any = if to.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
        let made = within(space, || {
            let socket = UdpSocket::bind(any)?;
            socket.connect(to)?;
            Ok(socket)
        });
        let socket = made.expect("a socket");
        socket.set_read_timeout(Some(PATIENCE)).expect("a valid timeout");
        Caller { socket, number: 0 }
    }

    /// Sends one datagram of this length and waits until it is back, unharmed. None is sent twice.
    pub fn round_trip(&mut self, len: usize) {
        self.number += 1;
        let mut sent: Vec<u8> = (0..len).map(|i| (i * 31 + i / 253) as u8).collect();
        sent[..4].copy_from_slice(&self.number.to_be_bytes());
        self.socket.send(&sent).expect("sent");
        let mut back = vec![0; 1 << 16];
        let got = self
            .socket
            .recv(&mut back)
            .unwrap_or_else(|e| panic!("datagram {} of {len} bytes was lost: {e}", self.number));
        assert!(back[..got] == sent, "datagram of {len} bytes came back as {got} others");
    }
}

/// Bytes that look random, the same ones each time.
struct Noise(u64);

impl Noise {
    fn fill(&mut self, buffer: &mut [u8]) {
        for chunk in buffer.chunks_mut(8) {
            self.0 ^= self.0 << 13;
            self.0 ^= self.0 >> 7;
            self.0 ^= self.0 << 17;
            chunk.copy_from_slice(&self.0.to_le_bytes()[..chunk.len()]);
        }
    }
}

/// FNV-1a.
fn checksum(sum: u64, bytes: &[u8]) -> u64 {
    bytes.iter().fold(sum, |sum, byte| (sum ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

/// Sends `len` bytes by TCP from one host to another and compares what arrived.
pub fn stream(from: &str, to: &str, address: SocketAddr, len: usize) {
    let listener = within(to, || Ok(TcpListener::bind(address)?)).expect("a free port");
    let address = listener.local_addr().expect("an address");
    let receiver = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept()?;
        stream.set_read_timeout(Some(PATIENCE))?;
        let (mut buffer, mut sum, mut total) = (vec![0; 1 << 16], 0, 0);
        loop {
            let got = stream.read(&mut buffer)?;
            if got == 0 {
                // The answer goes the other way through the switch.
                stream.write_all(&u64::to_le_bytes(sum))?;
                return Ok::<usize, std::io::Error>(total);
            }
            sum = checksum(sum, &buffer[..got]);
            total += got;
        }
    });
    let connect = || Ok(TcpStream::connect_timeout(&address, PATIENCE)?);
    let mut stream = within(from, connect).expect("a connection");
    stream.set_write_timeout(Some(PATIENCE)).expect("a valid timeout");
    stream.set_read_timeout(Some(PATIENCE)).expect("a valid timeout");
    let (mut noise, mut sum, mut left) = (Noise(88_172_645_463_325_252), 0, len);
    let mut buffer = vec![0; 1 << 16];
    while left > 0 {
        let now = left.min(buffer.len());
        noise.fill(&mut buffer[..now]);
        sum = checksum(sum, &buffer[..now]);
        stream.write_all(&buffer[..now]).expect("the stream goes on");
        left -= now;
    }
    stream.shutdown(std::net::Shutdown::Write).expect("the end is sent");
    let mut answer = [0; 8];
    stream.read_exact(&mut answer).expect("the checksum comes back");
    assert_eq!(receiver.join().expect("no panic").expect("received"), len);
    assert_eq!(u64::from_le_bytes(answer), sum, "{address}: other bytes arrived");
}
