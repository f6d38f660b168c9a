//! Counter of retried requests.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use object_store::ClientOptions;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse, HttpService,
    ReqwestConnector,
};

/// Requests of this process that failed and were sent again.
static REPEATED: AtomicU64 = AtomicU64::new(0);

/// Returns how many requests to object storage this process has sent again because they failed: no response, a broken
/// response, or one that asks to wait or reports a server error.
pub fn repeated_requests() -> u64 {
    REPEATED.load(Relaxed)
}

pub(super) fn count_repeated_request() {
    REPEATED.fetch_add(1, Relaxed);
}

/// Connector whose clients count retries. A store client retries requests itself without reporting it.
#[derive(Debug, Default)]
pub(super) struct CountingConnector(ReqwestConnector);

impl HttpConnector for CountingConnector {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        Ok(HttpClient::new(CountingService(self.0.connect(options)?)))
    }
}

#[derive(Debug)]
struct CountingService(HttpClient);

impl HttpService for CountingService {
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
            let response = self.0.execute(request).await;
            if is_repeated(&response, is_read) {
                count_repeated_request();
            }
            response
        })
    }
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
