//! Runtime for requests, one per process.
//!
//! Threads do not survive a fork, so a forked process starts its own runtime. The parent's runtime is leaked in the
//! child, because dropping it would wait for threads that do not exist there.

use std::cell::Cell;
use std::collections::HashMap;
use std::future::Future;
use std::io;
use std::path::Path;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::runtime::{Builder, Runtime};
use tokio::sync::{Semaphore, SemaphorePermit};

use super::super::interrupt;
use super::client::Client;
use super::outages::Outages;
use crate::error::{Error, Result};

/// Number of threads for connections. They only move bytes.
const THREADS: usize = 2;
/// Number of attempts before a lock counts as held by a thread that does not exist in this process.
const LOCK_ATTEMPTS: u32 = 1000;
/// Maximum number of clients that are kept for later requests.
const MAX_CLIENTS: usize = 64;
/// Maximum concurrent requests for bytes of sources.
const READS_AT_ONCE: usize = 128;

/// State for requests, one per process.
pub(super) struct PerProcess {
    runtime: Runtime,
    clients: Mutex<HashMap<String, Client>>,
    reads: Semaphore,
    pub(super) outages: Outages,
}

type Owned = Option<(u32, &'static PerProcess)>;

static SHARED: Mutex<Owned> = Mutex::new(None);

thread_local! {
    /// Last value found by this thread, so that it seldom needs the lock.
    static KNOWN: Cell<Owned> = const { Cell::new(None) };
}

/// Returns the state of this process.
///
/// # Errors
///
/// Fails if the system refuses to start a thread.
pub(super) fn current() -> Result<&'static PerProcess> {
    let pid = std::process::id();
    if let Some((owner, found)) = KNOWN.get()
        && owner == pid
    {
        return Ok(found);
    }
    // The lock may have been held during the fork; this thread then proceeds without it.
    let mut shared = None;
    for _ in 0..LOCK_ATTEMPTS {
        match SHARED.try_lock() {
            Ok(lock) => shared = Some(lock),
            Err(std::sync::TryLockError::Poisoned(lock)) => shared = Some(lock.into_inner()),
            Err(std::sync::TryLockError::WouldBlock) => std::thread::sleep(Duration::from_millis(1)),
        }
        if shared.is_some() {
            break;
        }
    }
    let found = match shared.as_deref() {
        Some(&Some((owner, found))) if owner == pid => found,
        _ => {
            let fail = |e: io::Error| Error::io("start threads for object storage", Path::new(""), e);
            let runtime = Builder::new_multi_thread()
                .worker_threads(THREADS)
                .thread_name("objects")
                .enable_all()
                .build()
                .map_err(fail)?;
            let (reads, outages) = (Semaphore::new(READS_AT_ONCE), Outages::default());
            Box::leak(Box::new(PerProcess { runtime, clients: Mutex::default(), reads, outages }))
        }
    };
    if let Some(shared) = shared.as_deref_mut() {
        *shared = Some((pid, found));
    }
    KNOWN.set(Some((pid, found)));
    Ok(found)
}

impl PerProcess {
    /// Returns the client called `name`, created with `make` if there is none.
    pub(super) fn client(&self, name: &str, make: impl FnOnce() -> Result<Client>) -> Result<Client> {
        let mut clients = self.clients.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(client) = clients.get(name) {
            return Ok(client.clone());
        }
        let client = make()?;
        // A process whose credentials change often must not keep the connections of all old ones.
        if clients.len() >= MAX_CLIENTS {
            clients.clear();
        }
        clients.insert(name.to_owned(), client.clone());
        Ok(client)
    }

    /// Waits for a free request slot. Never returns `None`, because the semaphore is never closed.
    pub(super) async fn permit(&self) -> Option<SemaphorePermit<'_>> {
        self.reads.acquire().await.ok()
    }

    /// Starts `future` without waiting for it.
    pub(super) fn spawn(&self, future: impl Future<Output = ()> + Send + 'static) {
        self.runtime.spawn(future);
    }

    /// Runs `future` to completion. Also works inside other runtimes, where it blocks the thread.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Interrupted`](crate::error::ErrorKind) if the thread was [interrupted](interrupt); `future` is then
    /// canceled.
    pub(super) fn wait<T: Send + 'static>(
        &self,
        future: impl Future<Output = T> + Send + 'static,
    ) -> Result<T> {
        interrupt::check()?;
        let (sender, receiver) = mpsc::sync_channel(1);
        let task = self.runtime.spawn(async move {
            // The receiver may be gone when the process ends.
            let _ = sender.send(future.await);
        });
        loop {
            match receiver.recv_timeout(interrupt::INTERVAL) {
                Ok(result) => return Ok(result),
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(Error::internal("a request to object storage ended without a result"));
                }
                Err(RecvTimeoutError::Timeout) => interrupt::check().inspect_err(|_| task.abort())?,
            }
        }
    }
}
