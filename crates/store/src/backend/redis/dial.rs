//! How Redis servers are reached: as they are, or by TLS.

use std::{io, time::Duration};

use redis::{
    AsyncConnectionConfig, Client, ConnectionAddr, ConnectionInfo, RedisResult,
    aio::MultiplexedConnection,
};
use tls::{Connector, rustls::pki_types::ServerName};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpStream, UnixStream},
    task::JoinSet,
    time::timeout,
};
use tokio_rustls::{TlsConnector, client::TlsStream};

use crate::tcp;

/// What a master sends.
pub(crate) type Reader = Box<dyn AsyncRead + Send + Unpin>;
/// What a master is sent.
pub(crate) type Writer = Box<dyn AsyncWrite + Send + Unpin>;

/// How servers are reached.
#[derive(Clone)]
pub(crate) struct Dial {
    /// By TLS: whom to believe.
    pub connector: Option<Connector>,
    /// How long that may take.
    pub within: Duration,
    /// Whom a server shows that it is by its certificate, where that is not the host that is
    /// connected to.
    pub name: Option<String>,
}

impl Dial {
    /// By TLS or not, for any server.
    pub fn new(connector: Option<Connector>, within: Duration) -> Dial {
        Dial { connector, within, name: None }
    }

    /// For a server that has this name.
    pub fn named(&self, name: Option<&String>) -> Dial {
        Dial { name: name.cloned(), ..self.clone() }
    }

    /// Two halves of a connection on which nothing has been said.
    ///
    /// # Errors
    /// Nobody answers there, or nobody who is believed.
    pub async fn halves(&self, at: &ConnectionAddr) -> io::Result<(Reader, Writer)> {
        let open = async {
            Ok::<(Reader, Writer), io::Error>(match (at, &self.connector) {
                (ConnectionAddr::Tcp(host, port), Some(connector)) => {
                    let (read, write) =
                        tokio::io::split(self.secured(connector, host, *port).await?);
                    (Box::new(read), Box::new(write))
                }
                (ConnectionAddr::Tcp(host, port), None) => {
                    let (read, write) = plain(host, *port).await?.into_split();
                    (Box::new(read), Box::new(write))
                }
                (ConnectionAddr::Unix(path), _) => {
                    let (read, write) = UnixStream::connect(path).await?.into_split();
                    (Box::new(read), Box::new(write))
                }
                _ => return Err(io::Error::other("no plain connection")),
            })
        };
        timeout(self.within, open).await?
    }

    /// A connection that is logged in. By TLS a task carries it, which ends with the set.
    ///
    /// # Errors
    /// Nobody answers there, or nobody who is believed, or the server refuses the login.
    pub async fn connection(
        &self,
        info: ConnectionInfo,
    ) -> RedisResult<(MultiplexedConnection, JoinSet<()>)> {
        self.connection_with(info, &self.times()).await
    }

    /// What a connection is opened with: each answer may take as long as all else does. By itself
    /// the library gives a server half a second.
    pub fn times(&self) -> AsyncConnectionConfig {
        AsyncConnectionConfig::new()
            .set_connection_timeout(Some(self.within))
            .set_response_timeout(Some(self.within))
    }

    /// The same, with what else is wanted of it.
    ///
    /// # Errors
    /// As above.
    pub async fn connection_with(
        &self,
        info: ConnectionInfo,
        config: &AsyncConnectionConfig,
    ) -> RedisResult<(MultiplexedConnection, JoinSet<()>)> {
        let mut carries = JoinSet::new();
        let (Some(connector), ConnectionAddr::Tcp(host, port)) = (&self.connector, info.addr())
        else {
            let client = Client::open(info)?;
            let made = client.get_multiplexed_async_connection_with_config(config).await?;
            return Ok((made, carries));
        };
        let open = async {
            let stream = self.secured(connector, host, *port).await?;
            let (settings, config) = (info.redis_settings(), config.clone());
            MultiplexedConnection::new_with_config(settings, stream, config).await
        };
        let (made, driver) = timeout(self.within, open).await.map_err(io::Error::from)??;
        carries.spawn(driver);
        Ok((made, carries))
    }

    async fn secured(
        &self,
        connector: &Connector,
        host: &str,
        port: u16,
    ) -> io::Result<TlsStream<TcpStream>> {
        // An address of version 6 stands in brackets.
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let name = self.name.as_deref().unwrap_or(host);
        let name = ServerName::try_from(name.to_string()).map_err(|_| {
            io::Error::other(format!("{name}: no name that a certificate can be for"))
        })?;
        let stream = plain(host, port).await?;
        TlsConnector::from(connector.config()).connect(name, stream).await
    }
}

async fn plain(host: &str, port: u16) -> io::Result<TcpStream> {
    let stream = TcpStream::connect((host, port)).await?;
    tcp::to_server(&stream)?;
    Ok(stream)
}

#[cfg(test)]
mod tests {
    use redis::IntoConnectionInfo;
    use socket2::SockRef;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    #[tokio::test]
    async fn a_redis_whose_host_has_vanished_is_noticed() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let stream = plain("127.0.0.1", listener.local_addr().unwrap().port()).await.unwrap();
        let socket = SockRef::from(&stream);
        assert!(socket.keepalive().unwrap());
        let asked = (socket.tcp_keepalive_time(), socket.tcp_keepalive_interval());
        assert_eq!((asked.0.unwrap().as_secs(), asked.1.unwrap().as_secs()), (10, 5));
        assert_eq!(socket.tcp_keepalive_retries().unwrap(), 2);
        assert_eq!(socket.tcp_user_timeout().unwrap(), Some(Duration::from_secs(20)));
    }

    /// A server under load answers when it can: the client library's own half second is no
    /// measure of ours.
    #[tokio::test]
    async fn a_redis_may_take_as_long_as_the_store_gives_it() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        tokio::spawn(async move {
            let (mut server, _) = listener.accept().await.unwrap();
            let mut said = vec![];
            while server.read_buf(&mut said).await.is_ok_and(|len| len > 0) {
                let told = String::from_utf8_lossy(&said).into_owned();
                let answers = told.matches("SETINFO").count() + told.matches("PING").count();
                if told.contains("PING") {
                    tokio::time::sleep(Duration::from_millis(600)).await;
                }
                server.write_all("+OK\r\n".repeat(answers).as_bytes()).await.unwrap();
                said.clear();
            }
        });
        let dial = Dial::new(None, Duration::from_secs(60));
        let info = format!("redis://127.0.0.1:{port}").into_connection_info().unwrap();
        let (mut connection, _carries) = dial.connection(info).await.unwrap();
        let answer: redis::RedisResult<String> =
            redis::cmd("PING").query_async(&mut connection).await;
        assert_eq!(answer.unwrap(), "OK");
    }
}
