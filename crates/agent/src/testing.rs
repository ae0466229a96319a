//! A controller for tests, which knows nothing but the order in which a switch has to speak.

use std::{pin::Pin, sync::Arc};

use api::{
    ControlEndpoint,
    proto::{
        FromStore, FromSwitch, Setup, StatusReply, StatusRequest, ToStore, ToSwitch,
        control_server::{Control, ControlServer},
        from_switch::Body,
        to_switch,
    },
};
use tokio::sync::{Notify, mpsc};
use tokio_stream::{
    Stream,
    wrappers::{ReceiverStream, TcpListenerStream},
};
use tonic::{Request, Response, Status, Streaming};

type ResponseStream<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

/// Answers a switch that said who it is and then the whole list of what it holds with a setup; ends
/// the stream of any other.
pub(crate) struct Controller {
    address: std::net::SocketAddr,
    answered: Arc<Notify>,
}

struct Service(Arc<Notify>);

impl Controller {
    pub async fn start() -> Controller {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let answered = Arc::<Notify>::default();
        let service = ControlServer::new(Service(answered.clone()));
        let server = tonic::transport::Server::builder().add_service(service);
        tokio::spawn(server.serve_with_incoming(TcpListenerStream::new(listener)));
        Controller { address, answered }
    }

    /// Waits until a switch has its setup.
    pub async fn has_answered(&self) {
        self.answered.notified().await;
    }

    pub fn endpoint(&self) -> ControlEndpoint {
        ControlEndpoint::new(&format!("http://{}", self.address)).unwrap()
    }
}

async fn next(switch: &mut Streaming<FromSwitch>) -> Option<Body> {
    switch.message().await.ok()??.body
}

/// Of a cluster with one store and no tenants.
fn setup() -> ToSwitch {
    let cluster = wire::Cluster::single("10.0.2.1:7117".parse().unwrap(), 4);
    let cluster = Some(Box::new((&cluster).into()));
    ToSwitch { body: Some(to_switch::Body::Setup(Setup { cluster, term: 3, ..Setup::default() })) }
}

async fn greet(
    mut switch: Streaming<FromSwitch>,
    down: mpsc::Sender<Result<ToSwitch, Status>>,
    answered: Arc<Notify>,
) {
    let first = next(&mut switch).await;
    let mut then = next(&mut switch).await;
    while matches!(&then, Some(Body::Held(part)) if !part.last) {
        then = next(&mut switch).await;
    }
    let answer = match (first, then) {
        (Some(Body::Hello(_)), Some(Body::Held(_))) => Ok(setup()),
        other => Err(Status::invalid_argument(format!("{other:?}"))),
    };
    let _ = down.send(answer).await;
    answered.notify_one();
    while next(&mut switch).await.is_some() {}
}

#[tonic::async_trait]
impl Control for Service {
    type AttachStream = ResponseStream<ToSwitch>;
    type ServeStream = ResponseStream<ToStore>;

    async fn attach(
        &self,
        switch: Request<Streaming<FromSwitch>>,
    ) -> Result<Response<Self::AttachStream>, Status> {
        let (down, messages) = mpsc::channel(16);
        tokio::spawn(greet(switch.into_inner(), down, self.0.clone()));
        Ok(Response::new(Box::pin(ReceiverStream::new(messages))))
    }

    async fn serve(
        &self,
        _: Request<Streaming<FromStore>>,
    ) -> Result<Response<Self::ServeStream>, Status> {
        Err(Status::unimplemented("no stores here"))
    }

    async fn status(&self, _: Request<StatusRequest>) -> Result<Response<StatusReply>, Status> {
        Err(Status::unimplemented("nobody asks"))
    }
}
