//! A collector of traces on port 0: takes what OTLP exporters post over HTTP.

use std::future::ready;
use std::net::SocketAddr;
use std::sync::{Arc, mpsc};
use std::thread;

use actix_web::web::{self, Bytes};
use actix_web::{App, HttpResponse, HttpServer, guard, rt};
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::trace::v1::Span;
use parking_lot::Mutex;
use prost::Message;
use settings::TraceConfig;

pub(crate) struct Collector {
    address: SocketAddr,
    bodies: Arc<Mutex<Vec<Bytes>>>,
}

impl Collector {
    pub(crate) fn start() -> Self {
        let bodies: Arc<Mutex<Vec<Bytes>>> = Arc::default();
        let (taken, (sender, address)) = (Arc::clone(&bodies), mpsc::channel());
        thread::spawn(move || {
            let take = move |body: Bytes| {
                taken.lock().push(body);
                ready(HttpResponse::Ok())
            };
            let protobuf = || guard::Header("content-type", "application/x-protobuf");
            let route = move || web::post().guard(protobuf()).to(take.clone());
            let app = move || App::new().route("/v1/traces", route());
            let server = HttpServer::new(app).workers(1).disable_signals();
            let server = server.bind("127.0.0.1:0").expect("a free port");
            sender.send(server.addrs()[0]).expect("the test waits");
            // It ends with the process of the tests.
            let _ = rt::System::new().block_on(server.run());
        });
        Self { address: address.recv().expect("it listens"), bodies }
    }

    /// The setting of a server that exports so large a part of its new traces to here.
    pub(crate) fn traces(&self, ratio: &str) -> TraceConfig {
        let endpoint = Some(format!("http://{}/v1/traces", self.address));
        TraceConfig { endpoint, sample_ratio: ratio.parse().expect("it is a ratio") }
    }

    /// The bytes of everything that was posted.
    pub(crate) fn bodies(&self) -> Vec<Bytes> {
        self.bodies.lock().clone()
    }

    /// All spans; checks who sent them.
    pub(crate) fn spans(&self) -> Vec<Span> {
        let mut spans = Vec::new();
        for body in self.bodies() {
            let request = ExportTraceServiceRequest::decode(body).expect("it is protobuf");
            for resource in request.resource_spans {
                let told = format!("{:?}", resource.resource.expect("a resource"));
                assert!(told.contains("service.name") && told.contains("duovec"), "{told}");
                spans.extend(resource.scope_spans.into_iter().flat_map(|scope| scope.spans));
            }
        }
        spans
    }
}
