//! An S3 server on loopback for tests of object storage.
//!
//! It keeps objects in memory, and implements the part of the protocol that clients need: objects with ranges and
//! conditions, create-only PUT, paginated listings, multipart uploads. Signatures are not checked.
//! It fails on demand: see [`Faults`].
//!
//! Requests of the form `http://host:port/key` that name no existing bucket read from the bucket `web`, as from a web
//! server.

mod faults;
mod http;
mod store;

use std::io::{self, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

pub use faults::{Fault, Faults};
use http::{Request, Response};
use store::Store;
pub use store::StoredObject;

/// Number of bytes of a body to send at a time.
const PIECE_BYTES: usize = 64 << 10;

/// A running server. It stops when the value is dropped.
#[derive(Debug)]
pub struct Server {
    address: SocketAddr,
    state: Arc<ServerState>,
}

/// Counters of the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RequestCounts {
    /// Requests that arrived.
    pub requests: u64,
    /// Requests with an injected fault.
    pub faults: u64,
    /// Bytes of response bodies, counted before they are sent.
    pub sent: u64,
    /// Bytes of request bodies.
    pub received: u64,
}

#[derive(Debug)]
struct ServerState {
    store: Mutex<Store>,
    faults: Mutex<Faults>,
    /// Number of times that the faults were changed.
    changes: AtomicU64,
    stopped: AtomicBool,
    requests: AtomicU64,
    failed: AtomicU64,
    sent: AtomicU64,
    received: AtomicU64,
    /// Time at which the simulated link becomes idle, for [`Faults::bytes_per_second`].
    link_idle: Mutex<Instant>,
}

impl Server {
    /// Starts a server with an empty bucket called `bucket`, on `port`, or on a free port if `port` is 0.
    ///
    /// # Errors
    ///
    /// If there is no free port, or a thread cannot be started.
    pub fn start(port: u16, faults: Faults) -> io::Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", port))?;
        let address = listener.local_addr()?;
        let state = Arc::new(ServerState {
            store: Mutex::default(),
            faults: Mutex::new(faults),
            changes: AtomicU64::new(0),
            stopped: AtomicBool::new(false),
            requests: AtomicU64::new(0),
            failed: AtomicU64::new(0),
            sent: AtomicU64::new(0),
            received: AtomicU64::new(0),
            link_idle: Mutex::new(Instant::now()),
        });
        let accepting = Arc::clone(&state);
        thread::Builder::new().name("objects".into()).spawn(move || {
            for stream in listener.incoming() {
                if accepting.stopped.load(Ordering::SeqCst) {
                    break;
                }
                let Ok(stream) = stream else { continue };
                let state = Arc::clone(&accepting);
                // If no thread can be started, the connection is closed and the client retries.
                let _ = thread::Builder::new().spawn(move || state.serve(&stream));
            }
        })?;
        Ok(Self { address, state })
    }

    /// Returns `http://127.0.0.1:port`, the value of `AWS_ENDPOINT_URL`.
    pub fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Returns environment variables that direct clients to this server.
    pub fn environment(&self) -> Vec<(&'static str, String)> {
        vec![
            ("AWS_ENDPOINT_URL", self.endpoint()),
            ("AWS_ACCESS_KEY_ID", "test".into()),
            ("AWS_SECRET_ACCESS_KEY", "test".into()),
            ("AWS_REGION", "us-east-1".into()),
        ]
    }

    /// Stores an object; `key` starts with the bucket: `bucket/a/b.jpg`. The bucket is created.
    pub fn put(&self, key: &str, content: impl Into<Vec<u8>>) {
        self.state.store().put(key, content.into());
    }

    /// Returns the content of an object.
    pub fn get(&self, key: &str) -> Option<Vec<u8>> {
        self.state.store().get(key).map(|stored| stored.content.to_vec())
    }

    /// Removes an object.
    pub fn delete(&self, key: &str) {
        self.state.store().delete(key);
    }

    /// Returns all keys that start with `prefix`, in order.
    pub fn keys(&self, prefix: &str) -> Vec<String> {
        self.state.store().keys(prefix)
    }

    /// Returns the number of multipart uploads that were neither completed nor aborted.
    pub fn open_uploads(&self) -> usize {
        self.state.store().uploads()
    }

    /// Replaces the faults that the server injects.
    pub fn set_faults(&self, faults: Faults) {
        let mut current = self.state.faults.lock().unwrap_or_else(PoisonError::into_inner);
        *current = faults;
        self.state.changes.fetch_add(1, Ordering::SeqCst);
    }

    /// Returns the counters of the server.
    pub fn counts(&self) -> RequestCounts {
        let load = |counter: &AtomicU64| counter.load(Ordering::SeqCst);
        RequestCounts {
            requests: load(&self.state.requests),
            faults: load(&self.state.failed),
            sent: load(&self.state.sent),
            received: load(&self.state.received),
        }
    }

    /// Serves until the process ends.
    pub fn wait(&self) {
        loop {
            thread::park();
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.state.stopped.store(true, Ordering::SeqCst);
        // Wakes the accepting thread, which then sees the flag.
        let _ = TcpStream::connect(self.address);
    }
}

impl ServerState {
    fn store(&self) -> std::sync::MutexGuard<'_, Store> {
        self.store.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Serves one connection until it ends.
    fn serve(&self, stream: &TcpStream) {
        let _ = stream.set_nodelay(true);
        let mut reader = BufReader::new(stream);
        while let Ok(Some(request)) = Request::read(&mut reader) {
            if self.stopped.load(Ordering::SeqCst) || self.answer(stream, &request).is_err() {
                break;
            }
        }
        let _ = stream.shutdown(std::net::Shutdown::Both);
    }

    fn answer(&self, mut stream: &TcpStream, request: &Request) -> io::Result<()> {
        let closed = || io::Error::from(io::ErrorKind::ConnectionAborted);
        if request.path == "/_counts" {
            let load = |counter: &AtomicU64| counter.load(Ordering::SeqCst);
            let json = format!(
                "{{\"requests\": {}, \"faults\": {}, \"sent\": {}, \"received\": {}}}",
                load(&self.requests),
                load(&self.failed),
                load(&self.sent),
                load(&self.received)
            );
            return Response::ok(json.into_bytes())
                .write_head(&mut stream)
                .and_then(|body| stream.write_all(&body));
        }
        let number = self.requests.fetch_add(1, Ordering::SeqCst);
        self.received.fetch_add(request.body.len() as u64, Ordering::SeqCst);
        let (fault, faults, changes) = {
            let faults = self.faults.lock().unwrap_or_else(PoisonError::into_inner);
            (faults.of(number, request), faults.clone(), self.changes.load(Ordering::SeqCst))
        };
        // Bytes after the head of a response to HEAD would be taken for the start of the next one.
        let limit = (request.method == "HEAD").then_some(0);
        thread::sleep(faults.latency);
        if let Some(fault) = fault {
            self.failed.fetch_add(1, Ordering::SeqCst);
            match fault {
                Fault::Dead | Fault::Dropped => return Err(closed()),
                Fault::Internal => {
                    return self.send(stream, Response::error(500, "InternalError"), &faults, limit);
                }
                Fault::SlowDown => {
                    return self.send(stream, Response::error(503, "SlowDown"), &faults, limit);
                }
                Fault::Denied => {
                    return self.send(stream, Response::error(403, "AccessDenied"), &faults, limit);
                }
                Fault::UnknownKey => {
                    return self.send(stream, Response::error(403, "InvalidAccessKeyId"), &faults, limit);
                }
                Fault::Skewed => {
                    return self.send(stream, Response::error(403, "RequestTimeTooSkewed"), &faults, limit);
                }
                Fault::LostResponse => {
                    let _ = self.store().answer(request, &faults);
                    return Err(closed());
                }
                Fault::Truncated => {
                    let response = self.store().answer(request, &faults);
                    let half = response.body.len() / 2;
                    self.send(stream, response, &faults, limit.or(Some(half)))?;
                    return Err(closed());
                }
                Fault::Damaged => {
                    let mut response = self.store().answer(request, &faults);
                    if let Some(first) = response.body.first_mut() {
                        *first ^= 1;
                    }
                    return self.send(stream, response, &faults, limit);
                }
                Fault::Held => {
                    self.hold(changes);
                    return Err(closed());
                }
                Fault::HeldResponse => {
                    let _ = self.store().answer(request, &faults);
                    self.hold(changes);
                    return Err(closed());
                }
                Fault::Slow => thread::sleep(Duration::from_millis(300)),
            }
        }
        let response = self.store().answer(request, &faults);
        self.send(stream, response, &faults, limit)
    }

    /// Waits until the faults are changed, after `changes` changes.
    fn hold(&self, changes: u64) {
        let is_held = || self.changes.load(Ordering::SeqCst) == changes;
        while is_held() && !self.stopped.load(Ordering::SeqCst) {
            thread::sleep(Duration::from_millis(1));
        }
    }

    /// Sends a response, or the first `limit` bytes of its body.
    fn send(
        &self,
        mut stream: &TcpStream,
        response: Response,
        faults: &Faults,
        limit: Option<usize>,
    ) -> io::Result<()> {
        let body = response.write_head(&mut stream)?;
        let body = &body[..limit.unwrap_or(body.len()).min(body.len())];
        for piece in body.chunks(PIECE_BYTES) {
            if let Some(rate) = faults.bytes_per_second {
                let takes = Duration::from_secs_f64(piece.len() as f64 / rate as f64);
                let until = {
                    let mut free = self.link_idle.lock().unwrap_or_else(PoisonError::into_inner);
                    *free = (*free).max(Instant::now()) + takes;
                    *free
                };
                thread::sleep(until.saturating_duration_since(Instant::now()));
            }
            // Counted first, so that a client that has all of the body finds it counted.
            self.sent.fetch_add(piece.len() as u64, Ordering::SeqCst);
            stream.write_all(piece)?;
        }
        stream.flush()
    }
}
