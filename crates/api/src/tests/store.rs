//! A store's stream, and the status.

use std::{
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};

use crate::{
    StoreNews, follow,
    proto::{
        self, FromStore, FromSwitch, HalfAck, HalfMessage, HalfReport, StatusReply, StatusRequest,
        StoreHello, ToStore, ToSwitch, control_server::Control, from_store::Body, to_store,
    },
    status,
};
use tokio::sync::mpsc;
use tokio_stream::{Stream, wrappers::ReceiverStream};
use tonic::{Request, Response, Status, Streaming};
use wire::Cluster;

use super::fake::{endpoint, serve_grpc, serve_json};

type ResponseStream<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

/// Both ends of a stream, as the controller has them.
struct Stand {
    from_store: Streaming<FromStore>,
    to_store: mpsc::Sender<Result<ToStore, Status>>,
}

impl Stand {
    async fn hears(&mut self) -> Body {
        self.from_store.message().await.unwrap().unwrap().body.unwrap()
    }

    async fn says(&self, body: to_store::Body) {
        self.to_store.send(Ok(ToStore { body: Some(body) })).await.unwrap();
    }
}

/// Hands streams of stores to the test while it leads.
struct Fake {
    leads: Arc<AtomicBool>,
    streams: mpsc::Sender<Stand>,
}

#[tonic::async_trait]
impl Control for Fake {
    type AttachStream = ResponseStream<ToSwitch>;
    type ServeStream = ResponseStream<ToStore>;

    async fn attach(
        &self,
        _: Request<Streaming<FromSwitch>>,
    ) -> Result<Response<Self::AttachStream>, Status> {
        Err(Status::unimplemented("for stores"))
    }

    async fn serve(
        &self,
        request: Request<Streaming<FromStore>>,
    ) -> Result<Response<Self::ServeStream>, Status> {
        if !self.leads.load(Relaxed) {
            return Err(Status::unavailable("stands by"));
        }
        let (to_store, down) = mpsc::channel(1);
        let stand = Stand { from_store: request.into_inner(), to_store };
        self.streams.send(stand).await.unwrap();
        Ok(Response::new(Box::pin(ReceiverStream::new(down))))
    }

    async fn status(&self, _: Request<StatusRequest>) -> Result<Response<StatusReply>, Status> {
        Ok(Response::new(StatusReply {
            leading: self.leads.load(Relaxed),
            ..StatusReply::default()
        }))
    }
}

/// A controller, whether it leads, and the streams that it is offered.
async fn controller(leads: bool) -> (String, Arc<AtomicBool>, mpsc::Receiver<Stand>) {
    let (streams, offered) = mpsc::channel(1);
    let leads = Arc::new(AtomicBool::new(leads));
    let fake = Fake { leads: leads.clone(), streams };
    (serve_grpc(fake).await, leads, offered)
}

fn message(seq: u64) -> to_store::Body {
    to_store::Body::Message(HalfMessage {
        seq,
        discipline: "d".into(),
        tenant: 7,
        message: seq.to_string().into(),
    })
}

fn told(seq: u64) -> StoreNews {
    StoreNews::Message { discipline: "d".into(), tenant: 7, message: seq.to_string().into() }
}

#[tokio::test]
async fn a_store_follows_whoever_leads_and_acknowledges_what_it_took() {
    let (first, first_leads, mut at_first) = controller(true).await;
    let (second, second_leads, mut at_second) = controller(false).await;
    let (take, mut taken) = mpsc::channel(1);
    let (report, reported) = mpsc::channel::<HalfReport>(8);
    let reported = tokio::sync::Mutex::new(reported);
    let hello = StoreHello { name: "left".into(), address: "10.0.0.1:7117".into() };
    let endpoint = endpoint(&[&first, &second]);
    let following = follow(
        &endpoint,
        &hello,
        async |told| take.send(told).await.unwrap(),
        async || match reported.lock().await.recv().await {
            Some(report) => vec![report],
            None => std::future::pending().await,
        },
    );
    let cluster = Cluster::single("10.0.0.1:7117".parse().unwrap(), 4);
    let in_proto = proto::Cluster::from(&cluster);
    let test = async {
        let mut stand = at_first.recv().await.unwrap();
        assert_eq!(stand.hears().await, Body::Hello(hello.clone()));
        assert_eq!(taken.recv().await, Some(StoreNews::Began));
        // What cannot be used is left out.
        let mut broken = in_proto.clone();
        broken.stores.clear();
        stand.says(to_store::Body::Cluster(Box::new(broken))).await;
        stand.says(to_store::Body::Cluster(Box::new(in_proto.clone()))).await;
        assert_eq!(taken.recv().await, Some(StoreNews::Cluster(cluster.clone())));
        let placements = proto::Placements {
            tenants: vec![proto::TenantSwitches { tenant: 7, switches: vec![1, 70_000, 2] }],
        };
        stand.says(to_store::Body::Placements(placements)).await;
        let told_placements = StoreNews::Placements(vec![(7, 1), (7, 2)]);
        assert_eq!(taken.recv().await, Some(told_placements));
        stand.says(message(5)).await;
        assert_eq!(taken.recv().await, Some(told(5)));
        assert_eq!(stand.hears().await, Body::Ack(HalfAck { seq: 5 }));
        let load = HalfReport { discipline: "d".into(), tenant: 7, report: "load".into() };
        report.send(load.clone()).await.unwrap();
        assert_eq!(stand.hears().await, Body::Report(load.clone()));
        // Taken in before the stream ends, acknowledged to nobody: it comes again.
        stand.says(message(6)).await;
        first_leads.store(false, Relaxed);
        second_leads.store(true, Relaxed);
        drop(stand);
        let mut stand = at_second.recv().await.unwrap();
        assert_eq!(stand.hears().await, Body::Hello(hello.clone()));
        stand.says(message(6)).await;
        stand.says(message(7)).await;
        let mut last = taken.recv().await;
        let mut began = 0;
        while last != Some(told(7)) {
            match last {
                Some(StoreNews::Began) => began += 1,
                last => assert_eq!(last, Some(told(6))),
            }
            last = taken.recv().await;
        }
        assert_eq!(began, 1);
        let mut acknowledged = 0;
        while acknowledged < 7 {
            let Body::Ack(HalfAck { seq }) = stand.hears().await else {
                panic!("no acknowledgement");
            };
            assert!(seq > acknowledged);
            acknowledged = seq;
        }
    };
    tokio::select! {
        () = following => panic!("it ended"),
        () = test => {}
    }
}

#[tokio::test]
async fn the_status_is_the_leaders_if_there_is_one() {
    let (one, ..) = controller(false).await;
    let (other, leads, _offered) = controller(true).await;
    let both = endpoint(&["http://127.0.0.1:1", &one, &other]);
    assert!(status::fetch_from(&both).await.unwrap().leading);
    leads.store(false, Relaxed);
    assert!(!status::fetch_from(&both).await.unwrap().leading);
    let strange = serve_json(axum::Router::new(), None).await;
    let line = status::fetch(&strange).await.unwrap_err();
    assert!(line.starts_with(&strange) && line.len() > strange.len() + 2, "{line}");
    let line = status::fetch("http://127.0.0.1:1").await.unwrap_err();
    assert!(line.contains("no controller answers at http://127.0.0.1:1"), "{line}");
}
