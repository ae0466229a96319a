//! TLS of one socket: what waits to leave is sealed, what has come is opened.
//!
//! Before both sides believe each other nothing of what comes is a command. How much a peer may
//! send until then is bounded here, and for how long it may take by the loop.

use std::{
    io::{self, Read, Write},
    sync::Arc,
};

use tls::rustls::{
    ClientConfig, ClientConnection, Connection, ServerConfig, ServerConnection,
    pki_types::ServerName,
};

/// Sealed bytes that wait for the socket; what is more waits unsealed.
const SEALED_BYTES: usize = 32 << 10;
/// Bytes that a peer may send before it is believed. Chains of certificates are shorter.
const HANDSHAKE_BYTES: usize = 64 << 10;
/// Reads from the socket without a byte for the loop, after which others have their turn.
const TURNS: usize = 16;

/// One side of a TLS connection.
pub(super) struct TlsSide {
    connection: Connection,
    /// Bytes that came before the peer was believed.
    shaken: usize,
}

fn failed(error: tls::rustls::Error) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}

impl TlsSide {
    /// The side of one who was connected to.
    ///
    /// # Errors
    /// The configuration cannot be used.
    pub fn accepted(config: Arc<ServerConfig>) -> io::Result<TlsSide> {
        Ok(TlsSide::new(ServerConnection::new(config).map_err(failed)?.into()))
    }

    /// The side of one who connects to a server of this name.
    ///
    /// # Errors
    /// The configuration cannot be used.
    pub fn connecting(config: Arc<ClientConfig>, name: ServerName<'static>) -> io::Result<TlsSide> {
        Ok(TlsSide::new(ClientConnection::new(config, name).map_err(failed)?.into()))
    }

    fn new(mut connection: Connection) -> TlsSide {
        connection.set_buffer_limit(Some(SEALED_BYTES));
        TlsSide { connection, shaken: 0 }
    }

    /// Whether the two sides do not believe each other yet.
    pub fn is_shaking(&self) -> bool {
        self.connection.is_handshaking()
    }

    /// Whether sealed bytes wait for the socket.
    pub fn waits(&self) -> bool {
        self.connection.wants_write()
    }

    /// Memory that it takes beyond what every connection has.
    pub fn held(&self) -> usize {
        let handshake = if self.is_shaking() { self.shaken } else { 0 };
        handshake + if self.waits() { SEALED_BYTES } else { 0 }
    }

    /// Opens what has come. Zero bytes: the peer sends nothing more. `None`: nothing of what came
    /// is for the loop, and more may be there.
    ///
    /// # Errors
    /// `WouldBlock` when nothing is there; the peer is not believed, or does not speak TLS.
    pub fn read(
        &mut self,
        socket: &mut impl Socket,
        buffer: &mut [u8],
    ) -> io::Result<Option<usize>> {
        for _ in 0..TURNS {
            match self.connection.reader().read(buffer) {
                // Many end without the word for it. What was begun then is never carried out.
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(Some(0)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                read => return read.map(Some),
            }
            let was_shaking = self.is_shaking();
            let came = self.connection.read_tls(socket)?;
            if was_shaking {
                self.shaken += came;
                if came == 0 {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
                if self.shaken > HANDSHAKE_BYTES {
                    let what = "expected less than 64 KiB before the certificates are known";
                    return Err(io::Error::new(io::ErrorKind::InvalidData, what));
                }
            }
            if let Err(error) = self.connection.process_new_packets() {
                // The peer is told why, if its socket takes it.
                let _ = self.connection.write_tls(socket);
                return Err(failed(error));
            }
        }
        Ok(None)
    }

    /// Seals what there is room for; how much that was.
    ///
    /// # Errors
    /// The connection is over.
    pub fn seal(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.is_shaking() {
            return Ok(0);
        }
        self.connection.writer().write(bytes)
    }

    /// Sends sealed bytes.
    ///
    /// # Errors
    /// `WouldBlock` when the socket takes nothing now.
    pub fn send(&mut self, socket: &mut impl Socket) -> io::Result<()> {
        self.connection.write_tls(socket).map(|_| ())
    }

    /// Says that nothing more will be sent.
    pub fn end(&mut self, socket: &mut impl Socket) {
        self.connection.send_close_notify();
        while self.waits() && self.send(socket).is_ok() {}
    }
}

/// What is read from and written to.
pub(super) trait Socket: Read + Write {}

impl<S: Read + Write> Socket for S {}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use authority::Authority;
    use tls::{ClientFiles, ServerFiles};

    use super::*;

    /// A socket in memory, which gives one piece at a time.
    #[derive(Default)]
    struct Pieces {
        come: VecDeque<Vec<u8>>,
        gone: Vec<u8>,
    }

    impl Read for Pieces {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let piece = self.come.pop_front().ok_or(io::ErrorKind::WouldBlock)?;
            buffer[..piece.len()].copy_from_slice(&piece);
            Ok(piece.len())
        }
    }

    impl Write for Pieces {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.gone.extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// What a client wants to send, in pieces.
    fn pieces(client: &mut ClientConnection) -> VecDeque<Vec<u8>> {
        let mut bytes = vec![];
        while client.wants_write() {
            client.write_tls(&mut bytes).unwrap();
        }
        bytes.chunks(1000).map(<[u8]>::to_vec).collect()
    }

    /// Two sides that believe each other, and the socket of the server.
    fn shaken() -> (ClientConnection, TlsSide, Pieces) {
        let authority = Authority::generate();
        let files = ServerFiles {
            cert: authority.path("server.pem"),
            key: authority.path("server.key"),
            client_ca: None,
        };
        let ca = Some(authority.path("ca.pem"));
        let believed = ClientFiles { ca, own: None }.config().unwrap();
        let name = ServerName::try_from("localhost").unwrap();
        let mut client = ClientConnection::new(believed.into(), name).unwrap();
        let mut server = TlsSide::accepted(files.config().unwrap().into()).unwrap();
        let (mut socket, mut buffer) = (Pieces::default(), [0; 64]);
        while client.is_handshaking() || server.is_shaking() {
            socket.come = pieces(&mut client);
            let read = server.read(&mut socket, &mut buffer);
            assert_eq!(read.unwrap_err().kind(), io::ErrorKind::WouldBlock);
            while server.waits() {
                server.send(&mut socket).unwrap();
            }
            let mut sent = &std::mem::take(&mut socket.gone)[..];
            while !sent.is_empty() {
                client.read_tls(&mut sent).unwrap();
                client.process_new_packets().unwrap();
            }
        }
        (client, server, socket)
    }

    #[test]
    fn who_sends_in_small_pieces_has_a_turn_like_everybody() {
        let (mut client, mut server, mut socket) = shaken();
        client.writer().write_all(&[b'x'; 10_000]).unwrap();
        let sealed: Vec<u8> = pieces(&mut client).into_iter().flatten().collect();
        socket.come = sealed.chunks(sealed.len() / (3 * TURNS)).map(<[u8]>::to_vec).collect();
        let mut buffer = [0; 64];
        for _ in 0..3 {
            assert_eq!(server.read(&mut socket, &mut buffer).unwrap(), None);
        }
        assert_eq!(server.read(&mut socket, &mut buffer).unwrap(), Some(64));
    }

    #[test]
    fn who_changes_keys_without_end_is_sent_away() {
        let (mut client, mut server, mut socket) = shaken();
        for _ in 0..1000 {
            client.refresh_traffic_keys().unwrap();
            socket.come.append(&mut pieces(&mut client));
        }
        let mut reads = (0..1000).map(|_| server.read(&mut socket, &mut [0; 64]));
        let error = reads.find_map(Result::err).unwrap();
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
        assert!(!socket.come.is_empty());
    }
}
