//! One of the Redis servers behind the stores, as the gateway speaks with it: a connection that is
//! made when it is needed, the server's own words for its errors, and a line in the log when it
//! cannot be used and when it can again.

use std::{
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    time::Duration,
};

use redis::{
    AsyncConnectionConfig, Cmd, ConnectionAddr, IntoConnectionInfo, RedisError, Value,
    aio::MultiplexedConnection,
};
use tokio::{io::AsyncReadExt, net::TcpStream, sync::Mutex, time::timeout};

use super::data::{DataResult, ErrorLine, OUTCOME_UNKNOWN};

/// How long a backend may take for one command, large values included.
const TIMEOUT: Duration = Duration::from_secs(5);
/// How long a server may take to say of itself why it lets nobody in.
const GREETING_WITHIN: Duration = Duration::from_millis(500);
/// Longest line of that.
const GREETING_MAX: usize = 1024;

/// A Redis.
pub(crate) struct Backend {
    client: redis::Client,
    connection: Mutex<Option<MultiplexedConnection>>,
    /// Whether the log's last word is that it cannot be used.
    is_away: AtomicBool,
}

/// Why a command has no result.
enum Failure {
    /// The server's answer.
    Said(String),
    /// The command did not leave.
    NotConnected(RedisError),
    /// It did, and had no answer.
    Lost(RedisError),
}

impl Failure {
    fn why(&self) -> String {
        match self {
            Failure::Said(line) => line.clone(),
            Failure::NotConnected(error) | Failure::Lost(error) => error.to_string(),
        }
    }
}

impl Backend {
    /// With this password, or the one in the address. Connects to nothing yet.
    ///
    /// # Errors
    /// The URL is none.
    pub fn new(url: &str, password: Option<&str>) -> redis::RedisResult<Backend> {
        let client = client(url, password)?;
        Ok(Backend { client, connection: Mutex::default(), is_away: AtomicBool::new(false) })
    }

    /// Says in the log if it cannot be used: who needs it may come much later.
    pub async fn check(&self) {
        if let Err(Failure::Said(line)) = self.ask(&redis::cmd("PING")).await {
            self.is_away.store(true, Relaxed);
            let hint = match line.starts_with("NOAUTH") {
                true => "; name a file with its password: --backend-password-file",
                false => "",
            };
            tracing::warn!("--backend {}: it answers {line:?}{hint}", self.address());
        }
    }

    /// Carries a command out that changes nothing.
    pub async fn read(&self, command: &Cmd) -> DataResult<Value> {
        self.ask(command).await.map_err(|failure| {
            ErrorLine(match failure {
                Failure::Said(line) => line,
                Failure::NotConnected(error) | Failure::Lost(error) => {
                    format!("TRYAGAIN no answer from the backend: {error}")
                }
            })
        })
    }

    /// Carries a command out that may change something.
    pub async fn write(&self, command: &Cmd) -> DataResult<Value> {
        self.ask(command).await.map_err(|failure| {
            ErrorLine(match failure {
                Failure::Said(line) => line,
                Failure::NotConnected(error) => {
                    format!("TRYAGAIN nothing was written: no backend: {error}")
                }
                Failure::Lost(error) => {
                    format!("{OUTCOME_UNKNOWN}: no answer from the backend: {error}")
                }
            })
        })
    }

    async fn ask(&self, command: &Cmd) -> Result<Value, Failure> {
        let answer = self.execute(command).await;
        match &answer {
            Ok(_) if self.is_away.swap(false, Relaxed) => {
                tracing::info!("--backend {}: it answers again", self.address());
            }
            Err(failure @ (Failure::NotConnected(_) | Failure::Lost(_)))
                if !self.is_away.swap(true, Relaxed) =>
            {
                let (address, why) = (self.address(), failure.why());
                tracing::warn!(
                    "--backend {address}: {why}; keys and lives that no packet carries are refused until it answers"
                );
            }
            _ => {}
        }
        answer
    }

    async fn execute(&self, command: &Cmd) -> Result<Value, Failure> {
        let mut connection = match self.connect().await {
            Ok(connection) => connection,
            Err(error) => return Err(self.not_connected(error).await),
        };
        let answer = command.query_async(&mut connection).await;
        match answer {
            Ok(value) => Ok(value),
            Err(error) => match server_error(&error) {
                Some(line) => Err(Failure::Said(line)),
                None => {
                    *self.connection.lock().await = None;
                    Err(Failure::Lost(error))
                }
            },
        }
    }

    async fn connect(&self) -> redis::RedisResult<MultiplexedConnection> {
        let mut connection = self.connection.lock().await;
        if let Some(connection) = &*connection {
            return Ok(connection.clone());
        }
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(TIMEOUT))
            .set_response_timeout(Some(TIMEOUT));
        let new = self.client.get_multiplexed_async_connection_with_config(&config).await?;
        Ok(connection.insert(new).clone())
    }

    /// A server that lets nobody in (protected mode, too many clients) says so in a line before it
    /// closes, which the client library leaves unread.
    async fn not_connected(&self, error: RedisError) -> Failure {
        if let Some(line) = server_error(&error) {
            return Failure::Said(line);
        }
        match error.is_connection_refusal() || error.is_timeout() {
            true => Failure::NotConnected(error),
            false => self.greeting().await.map_or(Failure::NotConnected(error), Failure::Said),
        }
    }

    /// The error that it has for whoever connects, if it has one.
    async fn greeting(&self) -> Option<String> {
        let ConnectionAddr::Tcp(host, port) = self.client.get_connection_info().addr() else {
            return None;
        };
        let said = async {
            let mut stream = TcpStream::connect((host.as_str(), *port)).await?;
            let mut said = [0; GREETING_MAX];
            let len = stream.read(&mut said).await?;
            std::io::Result::Ok(String::from_utf8_lossy(&said[..len]).into_owned())
        };
        let said = timeout(GREETING_WITHIN, said).await.ok()?.ok()?;
        let line = said.strip_prefix('-')?.lines().next()?;
        Some(line.into())
    }

    /// Where it is, without what stands in its URL besides.
    fn address(&self) -> String {
        self.client.get_connection_info().addr().to_string()
    }
}

/// With this password, or the one in the address.
fn client(url: &str, password: Option<&str>) -> redis::RedisResult<redis::Client> {
    let info = url.into_connection_info()?;
    let Some(password) = password else {
        if info.redis_settings().password().is_some() {
            tracing::warn!(
                "the password in --backend can be read by every user of this machine: use --backend-password-file"
            );
        }
        return redis::Client::open(info);
    };
    let settings = info.redis_settings().clone().set_password(password);
    redis::Client::open(info.set_redis_settings(settings))
}

/// The line that the server answered, if it answered with an error.
fn server_error(error: &RedisError) -> Option<String> {
    let code = error.code()?;
    Some(format!("{code} {}", error.detail().unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use tokio::{io::AsyncWriteExt, net::TcpListener};

    use super::*;

    /// A server that says this to whoever connects, and closes.
    async fn closed_with(line: &'static str) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let _ = stream.write_all(line.as_bytes()).await;
                let _ = stream.shutdown().await;
                // What is unread when a socket is closed would take the line back.
                let _ = stream.read_to_end(&mut vec![]).await;
            }
        });
        format!("redis://{address}")
    }

    async fn write_to(url: &str) -> String {
        let backend = Backend::new(url, None).unwrap();
        backend.write(redis::cmd("SET").arg("k").arg("v")).await.unwrap_err().0
    }

    #[tokio::test]
    async fn a_server_that_lets_nobody_in_is_quoted() {
        let protected = "-DENIED Redis is running in protected mode\r\n";
        let said = write_to(&closed_with(protected).await).await;
        assert_eq!(said, "DENIED Redis is running in protected mode");
        let said = write_to(&closed_with("").await).await;
        assert!(said.starts_with("TRYAGAIN nothing was written: no backend:"), "{said}");
        let said = write_to("redis://127.0.0.1:1").await;
        assert!(said.starts_with("TRYAGAIN nothing was written: no backend:"), "{said}");
    }
}
