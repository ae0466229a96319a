//! A listener with a [`Fake`] behind it, and a client that does not follow redirects.

use std::{net::SocketAddr, pin::Pin, sync::Arc, time::Duration};

use api::proto::{
    FromStore, FromSwitch, StatusReply, StatusRequest, ToStore, ToSwitch,
    control_server::{Control, ControlServer},
};
use control::{
    auth::{Role, make},
    http::app,
    serve::{Listen, RunningServer},
};
use tokio_stream::Stream;
use tonic::{Request, Response, Status, Streaming};

use super::fake::Fake;

/// Ends a test that hangs; nothing takes that long.
pub const PATIENCE: Duration = Duration::from_secs(90);

/// Answers what it can, so that calls that are let through can be told from those that are not.
pub struct Grpc;

type ResponseStream<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

#[tonic::async_trait]
impl Control for Grpc {
    type AttachStream = ResponseStream<ToSwitch>;
    type ServeStream = ResponseStream<ToStore>;

    async fn attach(
        &self,
        _: Request<Streaming<FromSwitch>>,
    ) -> Result<Response<Self::AttachStream>, Status> {
        Ok(Response::new(Box::pin(tokio_stream::empty())))
    }

    async fn serve(
        &self,
        _: Request<Streaming<FromStore>>,
    ) -> Result<Response<Self::ServeStream>, Status> {
        Ok(Response::new(Box::pin(tokio_stream::empty())))
    }

    async fn status(&self, _: Request<StatusRequest>) -> Result<Response<StatusReply>, Status> {
        Ok(Response::new(StatusReply::default()))
    }
}

/// A listener that serves.
pub struct Site {
    pub serving: RunningServer,
    pub fake: Arc<Fake>,
}

pub fn loopback() -> SocketAddr {
    "127.0.0.1:0".parse().unwrap()
}

impl Site {
    pub async fn start(listen: &Listen) -> Site {
        let fake = Arc::new(Fake::default());
        let admin = fake.clone();
        let serving = RunningServer::start(listen, move |access| {
            let grpc = tonic::service::Routes::new(ControlServer::new(Grpc)).into_axum_router();
            app(admin, access, grpc)
        })
        .await
        .unwrap();
        Site { serving, fake }
    }

    /// Sends a request in clear text.
    pub async fn send(&self, request: TestRequest) -> TestResponse {
        let url = format!("http://{}", self.serving.address());
        request.to(agent(None), url).await
    }
}

/// A request to be sent.
#[derive(Clone, Default)]
pub struct TestRequest {
    pub method: &'static str,
    pub path: String,
    pub kind: &'static str,
    pub body: Option<String>,
    pub token: Option<String>,
    pub origin: bool,
    /// Asks for the controller by this name, not by its address.
    pub host: Option<&'static str>,
}

/// What came back.
#[derive(Debug)]
pub struct TestResponse {
    pub status: u16,
    pub text: String,
    pub location: Option<String>,
}

impl TestResponse {
    /// The error's line, which must be one.
    pub fn error(&self) -> String {
        let json: serde_json::Value = serde_json::from_str(&self.text)
            .unwrap_or_else(|e| panic!("{e}: {self:?} should be JSON"));
        let line = json["error"].as_str().expect("an error").to_string();
        assert!(!line.is_empty() && !line.contains('\n'), "{line:?}");
        line
    }
}

pub fn request(method: &'static str, path: &str, body: &str) -> TestRequest {
    TestRequest {
        method,
        path: path.into(),
        kind: "application/json",
        body: (!body.is_empty()).then(|| body.into()),
        ..TestRequest::default()
    }
}

pub fn agent(tls: Option<ureq::tls::TlsConfig>) -> ureq::Agent {
    let mut config = ureq::Agent::config_builder()
        .http_status_as_error(false)
        .max_redirects(0)
        .max_redirects_will_error(false)
        .timeout_global(Some(PATIENCE));
    if let Some(tls) = tls {
        config = config.tls_config(tls);
    }
    config.build().into()
}

impl TestRequest {
    pub async fn to(self, agent: ureq::Agent, url: String) -> TestResponse {
        self.try_to(agent, url).await.unwrap()
    }

    pub async fn try_to(
        self,
        agent: ureq::Agent,
        url: String,
    ) -> Result<TestResponse, ureq::Error> {
        let send = move || {
            let mut request = ureq::http::Request::builder()
                .method(self.method)
                .uri(format!("{url}{}", self.path));
            if let Some(token) = &self.token {
                request = request.header("authorization", format!("Bearer {token}"));
            }
            if self.origin {
                request = request.header("origin", "http://elsewhere.example");
            }
            if let Some(host) = self.host {
                request = request.header("host", host);
            }
            let mut response = match self.body {
                Some(body) => {
                    let request = request.header("content-type", self.kind);
                    agent.run(request.body(body).unwrap())?
                }
                None => agent.run(request.body(()).unwrap())?,
            };
            let header = response.headers().get("location");
            Ok(TestResponse {
                location: header.map(|value| value.to_str().unwrap().into()),
                status: response.status().as_u16(),
                text: response.body_mut().read_to_string()?,
            })
        };
        tokio::task::spawn_blocking(send).await.unwrap()
    }
}

/// A token file with one token of each role, and the tokens by their names.
pub struct TokenFile {
    pub directory: tempfile::TempDir,
    pub tokens: Vec<(&'static str, String)>,
}

impl TokenFile {
    pub fn new() -> TokenFile {
        use std::os::unix::fs::PermissionsExt;
        let roles = [
            ("admin", Role::Admin),
            ("viewer", Role::Viewer),
            ("tenant 7", Role::Tenant(7)),
            ("tenant 9", Role::Tenant(9)),
            ("switch", Role::Switch(None)),
            ("store", Role::Store),
        ];
        let directory = tempfile::tempdir().unwrap();
        let (mut text, mut tokens) = (String::new(), vec![]);
        for (name, role) in roles {
            let made = make(name, role).unwrap();
            text += &made.entry;
            tokens.push((name, made.token));
        }
        let file = TokenFile { directory, tokens };
        std::fs::write(file.path(), text).unwrap();
        std::fs::set_permissions(file.path(), std::fs::Permissions::from_mode(0o600)).unwrap();
        file
    }

    pub fn path(&self) -> std::path::PathBuf {
        self.directory.path().join("tokens.toml")
    }

    pub fn of(&self, name: &str) -> String {
        let found = self.tokens.iter().find(|(n, _)| *n == name);
        found.expect("a token of this name").1.clone()
    }
}
