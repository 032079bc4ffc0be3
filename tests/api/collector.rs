//! A collector of traces on port 0: takes what OTLP exporters post over HTTP.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};

use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::trace::v1::Span;
use prost::Message;
use settings::TraceConfig;

/// One thread that serves one connection after the other.
pub(crate) struct Collector {
    address: SocketAddr,
    bodies: Arc<Mutex<Vec<Vec<u8>>>>,
    ending: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Collector {
    pub(crate) fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("it is bound");
        let (bodies, ending) = (Arc::new(Mutex::default()), Arc::new(AtomicBool::new(false)));
        let (taken, over) = (Arc::clone(&bodies), Arc::clone(&ending));
        let thread = thread::spawn(move || {
            for stream in listener.incoming() {
                if over.load(Ordering::SeqCst) {
                    return;
                }
                take_all(stream.expect("a connection"), &taken);
            }
        });
        Self { address, bodies, ending, thread: Some(thread) }
    }

    /// The setting of a server that exports so large a part of its new traces to here.
    pub(crate) fn traces(&self, ratio: &str) -> TraceConfig {
        let endpoint = Some(format!("http://{}/v1/traces", self.address));
        TraceConfig { endpoint, sample_ratio: ratio.parse().expect("it is a ratio") }
    }

    /// The bytes of everything that was posted.
    pub(crate) fn bodies(&self) -> Vec<Vec<u8>> {
        self.bodies.lock().expect("nobody panics").clone()
    }

    /// All spans; checks who sent them.
    pub(crate) fn spans(&self) -> Vec<Span> {
        let mut spans = Vec::new();
        for body in self.bodies() {
            let request = ExportTraceServiceRequest::decode(&*body).expect("it is protobuf");
            for resource in request.resource_spans {
                let told = format!("{:?}", resource.resource.expect("a resource"));
                assert!(told.contains("service.name") && told.contains("duovec"), "{told}");
                spans.extend(resource.scope_spans.into_iter().flat_map(|scope| scope.spans));
            }
        }
        spans
    }
}

impl Drop for Collector {
    fn drop(&mut self) {
        self.ending.store(true, Ordering::SeqCst);
        // Wakes the thread; an exporter that is still connected has been dropped before.
        let _ = TcpStream::connect(self.address);
        if let Some(thread) = self.thread.take().filter(|_| !thread::panicking()) {
            thread.join().expect("the collector does not panic");
        }
    }
}

/// Answers the requests of one connection until its client closes it.
fn take_all(stream: TcpStream, bodies: &Mutex<Vec<Vec<u8>>>) {
    let mut reader = BufReader::new(stream);
    loop {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            match reader.read_line(&mut head) {
                Ok(0) | Err(_) => return,
                Ok(_) => {}
            }
        }
        assert!(head.starts_with("POST /v1/traces HTTP/1.1\r\n"), "{head}");
        let head = head.to_ascii_lowercase();
        assert!(head.contains("content-type: application/x-protobuf"), "{head}");
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
        let length = length.expect("a length").parse().expect("a number");
        let mut body = vec![0; length];
        reader.read_exact(&mut body).expect("the whole body");
        bodies.lock().expect("nobody panics").push(body);
        let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n";
        if reader.get_mut().write_all(answer).is_err() {
            return;
        }
    }
}
