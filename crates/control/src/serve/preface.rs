//! Tells HTTP/2 in clear text (as gRPC speaks it) from HTTP/1, by a connection's first bytes.
//! hyper's automatic builder could, but would wait for them for ever.

use std::io::{self, Cursor};

use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite},
    net::TcpStream,
};

/// What every HTTP/2 connection begins with (RFC 9113, section 3.4).
const HTTP2: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Reads just enough; true for HTTP/2. What was read stays at the stream's front.
///
/// # Errors
/// Those of reading; a stream that ends before it says which.
pub async fn read(
    mut stream: TcpStream,
) -> io::Result<(impl AsyncRead + AsyncWrite + Unpin + Send + 'static, bool)> {
    let mut bytes = [0; HTTP2.len()];
    let mut len = 0;
    while len < bytes.len() && bytes[..len] == HTTP2[..len] {
        match stream.read(&mut bytes[len..]).await? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            more => len += more,
        }
    }
    let front = Cursor::new(bytes[..len].to_vec());
    let (reader, writer) = stream.into_split();
    let stream = tokio::io::join(front.chain(reader), writer);
    Ok((stream, bytes == *HTTP2))
}
