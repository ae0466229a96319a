//! A controller for tests, which knows nothing but the order in which a switch has to speak.

use std::pin::Pin;

use api::{
    ControlEndpoint,
    proto::{
        FromStore, FromSwitch, Setup, StatusReply, StatusRequest, ToStore, ToSwitch,
        control_server::{Control, ControlServer},
        from_switch::Body,
        to_switch,
    },
};
use tokio::sync::mpsc;
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
}

struct Service;

impl Controller {
    pub async fn start() -> Controller {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let server = tonic::transport::Server::builder().add_service(ControlServer::new(Service));
        tokio::spawn(server.serve_with_incoming(TcpListenerStream::new(listener)));
        Controller { address }
    }

    pub fn endpoint(&self) -> ControlEndpoint {
        ControlEndpoint::new(&format!("http://{}", self.address)).unwrap()
    }
}

async fn next(switch: &mut Streaming<FromSwitch>) -> Option<Body> {
    switch.message().await.ok()??.body
}

async fn greet(mut switch: Streaming<FromSwitch>, down: mpsc::Sender<Result<ToSwitch, Status>>) {
    let first = next(&mut switch).await;
    let mut then = next(&mut switch).await;
    while matches!(&then, Some(Body::Held(part)) if !part.last) {
        then = next(&mut switch).await;
    }
    let answer = match (first, then) {
        (Some(Body::Hello(_)), Some(Body::Held(_))) => Ok(ToSwitch {
            body: Some(to_switch::Body::Setup(Setup { term: 3, ..Setup::default() })),
        }),
        other => Err(Status::invalid_argument(format!("{other:?}"))),
    };
    let _ = down.send(answer).await;
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
        tokio::spawn(greet(switch.into_inner(), down));
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
