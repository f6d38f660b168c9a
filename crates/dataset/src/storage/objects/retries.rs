//! Observation of retries, which a store client does itself without reporting them: counts them, and says when a store
//! does not respond for long.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use object_store::ClientOptions;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse, HttpService,
    ReqwestConnector,
};

use super::failure::innermost;

/// Time without a usable response after which the program is told.
const TELL_AFTER: Duration = Duration::from_secs(5);

/// Hosts that give credentials to programs on machines of a cloud.
const METADATA_HOSTS: [&str; 3] = ["169.254.169.254", "169.254.170.2", "metadata.google.internal"];
/// Time for which they are asked again if they do not respond: they exist only in a cloud, where they may be unavailable
/// while a machine starts.
const METADATA_RETRY_TIME: Duration = Duration::from_secs(15);

/// Requests of this process that failed and were sent again.
static REPEATED: AtomicU64 = AtomicU64::new(0);

/// What [`on_retries`] has set.
static TELL: OnceLock<fn(&str)> = OnceLock::new();

/// Returns how many requests to object storage this process has sent again because they failed: no response, a broken
/// response, or one that asks to wait or reports a server error.
pub fn repeated_requests() -> u64 {
    REPEATED.load(Relaxed)
}

/// Calls `tell` when all requests to a store have failed for five seconds, with a sentence that says why and how long
/// they are retried; once until the store responds again. Only the first call of this function has an effect.
pub fn on_retries(tell: fn(&str)) {
    // A second call is documented to have no effect.
    let _ = TELL.set(tell);
}

pub(super) fn count_repeated_request() {
    REPEATED.fetch_add(1, Relaxed);
}

/// Connector of the clients of one store, whose retries are observed.
#[derive(Debug)]
pub(super) struct ObservedConnector {
    connector: ReqwestConnector,
    /// Address of the store, for messages.
    store: String,
    retry_time: Duration,
}

impl ObservedConnector {
    pub(super) fn new(store: &str, retry_time: Duration) -> Self {
        Self { connector: ReqwestConnector::default(), store: store.to_owned(), retry_time }
    }
}

impl HttpConnector for ObservedConnector {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        Ok(HttpClient::new(ObservedService {
            client: self.connector.connect(options)?,
            store: self.store.clone(),
            retry_time: self.retry_time,
            silence: Mutex::default(),
            metadata_failed: Mutex::default(),
        }))
    }
}

#[derive(Debug)]
struct ObservedService {
    client: HttpClient,
    store: String,
    retry_time: Duration,
    silence: Mutex<Silence>,
    /// First failure of a request to one of [`METADATA_HOSTS`].
    metadata_failed: Mutex<Option<Instant>>,
}

/// The time since the store last responded.
#[derive(Debug, Default)]
struct Silence {
    /// First failure after the last response.
    since: Option<Instant>,
    is_told: bool,
}

impl HttpService for ObservedService {
    fn call<'service, 'call>(
        &'service self,
        request: HttpRequest,
    ) -> Pin<Box<dyn Future<Output = Result<HttpResponse, HttpError>> + Send + 'call>>
    where
        'service: 'call,
        Self: 'call,
    {
        Box::pin(async move {
            let is_read = request.method().is_safe();
            let is_metadata = request.uri().host().is_some_and(|host| METADATA_HOSTS.contains(&host));
            let response = self.client.execute(request).await;
            if is_metadata {
                return response
                    .map_err(|error| if self.has_no_metadata() { without_retry(error) } else { error });
            }
            let response = response.map_err(|error| match is_rejected_certificate(&error) {
                true => without_retry(error),
                false => error,
            });
            if is_repeated(&response, is_read) {
                count_repeated_request();
                self.failed(&response);
            } else {
                *self.silence() = Silence::default();
            }
            response
        })
    }
}

impl ObservedService {
    /// Counts a failure; tells the program if the store has not responded for long.
    fn failed(&self, response: &Result<HttpResponse, HttpError>) {
        let mut silence = self.silence();
        let since = *silence.since.get_or_insert_with(Instant::now);
        if silence.is_told || since.elapsed() < TELL_AFTER || self.retry_time < TELL_AFTER {
            return;
        }
        silence.is_told = true;
        drop(silence);
        let why = match response {
            Ok(response) => response.status().to_string(),
            Err(error) => innermost(error),
        };
        if let Some(tell) = TELL.get() {
            let seconds = self.retry_time.as_secs();
            tell(&format!("{} does not respond ({why}); retrying for up to {seconds} s", self.store));
        }
    }

    /// Notes that a metadata service does not respond. Returns whether it need not be asked again.
    fn has_no_metadata(&self) -> bool {
        let mut failed = self.metadata_failed.lock().unwrap_or_else(PoisonError::into_inner);
        failed.get_or_insert_with(Instant::now).elapsed() >= METADATA_RETRY_TIME
    }

    fn silence(&self) -> MutexGuard<'_, Silence> {
        self.silence.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns whether the certificate of the server is not accepted. Another attempt would fail for the same reason.
fn is_rejected_certificate(error: &HttpError) -> bool {
    innermost(error).contains("certificate")
}

/// Returns `error` as one after which the client does not send the request again.
fn without_retry(error: HttpError) -> HttpError {
    HttpError::new(HttpErrorKind::Unknown, error)
}

/// Returns whether the store client sends the request again, provided that its retry limit is not reached.
fn is_repeated(response: &Result<HttpResponse, HttpError>, is_read: bool) -> bool {
    match response {
        Ok(response) => {
            let status = response.status();
            status.is_server_error() || matches!(status.as_u16(), 408 | 429)
        }
        Err(error) => match error.kind() {
            HttpErrorKind::Connect | HttpErrorKind::Request => true,
            HttpErrorKind::Timeout | HttpErrorKind::Interrupted => is_read,
            _ => false,
        },
    }
}
