//! Store clients and their retry policy.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use object_store::aws::{AmazonS3Builder, S3ConditionalPut};
use object_store::azure::MicrosoftAzureBuilder;
use object_store::gcp::GoogleCloudStorageBuilder;
use object_store::http::HttpBuilder;
use object_store::list::PaginatedListStore;
use object_store::{ClientOptions, Error as Failure, ObjectStore, RetryConfig};

use super::super::object_url::ObjectUrl;
use super::failure::is_cut_short;
use super::repeated::{CountingConnector, count_repeated_request};
use crate::error::{Error, Result};

/// Time limit for retrying a request, unless `DSCONVERT_RETRY_SECONDS` sets another.
const RETRY_SECONDS: u64 = 180;
/// Maximum retries per request. The delay between them grows to 15 seconds.
const MAX_RETRIES: usize = 20;
/// Timeout for a server that sends nothing.
const READ_TIMEOUT: Duration = Duration::from_secs(30);
/// Timeout for connecting.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Store settings that complement the environment, such as `endpoint_url` or `aws_access_key_id`. The names are those
/// of the environment variables in lower case.
pub type Settings = BTreeMap<String, String>;

/// Client of a store.
#[derive(Clone)]
pub(super) struct Client {
    pub(super) store: Arc<dyn ObjectStore>,
    /// Paginated listing; `None` for web servers.
    pub(super) pages: Option<ListingClient>,
}

impl Client {
    fn listing<S: ObjectStore + PaginatedListStore>(store: S) -> Self {
        let store = Arc::new(store);
        Self { pages: Some(Arc::clone(&store) as _), store }
    }
}

/// Returns the time for which a failed request is retried.
pub(super) fn retry_time() -> Duration {
    let seconds = std::env::var("DSCONVERT_RETRY_SECONDS").ok().and_then(|text| text.parse().ok());
    Duration::from_secs(seconds.unwrap_or(RETRY_SECONDS))
}

/// Creates a client with the credentials from the environment.
pub(super) fn connect(url: &ObjectUrl, settings: &Settings) -> Result<Client> {
    // `reqwest` uses the default provider of the process. An error means that the program has already installed one.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let retry =
        RetryConfig { max_retries: MAX_RETRIES, retry_timeout: retry_time(), ..RetryConfig::default() };
    let options = ClientOptions::new()
        .with_allow_http(url.scheme() == "http" || has_plain_endpoint(settings))
        .with_timeout_disabled()
        .with_read_timeout(READ_TIMEOUT)
        .with_connect_timeout(CONNECT_TIMEOUT);
    // Fails for names that the store does not support.
    macro_rules! with_settings {
        ($builder:expr) => {{
            let builder =
                $builder.with_client_options(options).with_http_connector(CountingConnector::default());
            settings.iter().try_fold(builder, |builder, (name, value)| {
                Ok::<_, Failure>(builder.with_config(name.to_ascii_lowercase().parse()?, value))
            })
        }};
    }
    let root = url.root();
    let made: Result<Client, Failure> = match url.scheme() {
        "s3" | "s3a" => with_settings!(AmazonS3Builder::from_env()).and_then(|builder| {
            let builder = builder.with_url(root).with_conditional_put(S3ConditionalPut::ETagMatch);
            Ok(Client::listing(builder.with_retry(retry).build()?))
        }),
        "gs" => with_settings!(GoogleCloudStorageBuilder::from_env())
            .and_then(|builder| Ok(Client::listing(builder.with_url(root).with_retry(retry).build()?))),
        "http" | "https" => with_settings!(HttpBuilder::new()).and_then(|builder| {
            let store = Arc::new(builder.with_url(root).with_retry(retry).build()?);
            Ok(Client { store, pages: None })
        }),
        _ => with_settings!(MicrosoftAzureBuilder::from_env())
            .and_then(|builder| Ok(Client::listing(builder.with_url(root).with_retry(retry).build()?))),
    };
    made.map_err(|e| {
        Error::usage("invalid settings for the store")
            .at_path(url.as_path())
            .caused_by(e)
            .help("\"Use object storage\" in the documentation lists the environment variables")
    })
}

/// Returns whether a configured endpoint has no TLS. Configuring one counts as permission to use it.
fn has_plain_endpoint(settings: &Settings) -> bool {
    let is_plain = |name: &str, value: &str| {
        let name = name.to_ascii_lowercase();
        (name.contains("endpoint") || name.contains("base_url")) && value.starts_with("http://")
    };
    let stores = ["AWS_", "AZURE_", "GOOGLE_"];
    settings.iter().any(|(name, value)| is_plain(name, value))
        || std::env::vars().any(|(name, value)| {
            stores.iter().any(|store| name.starts_with(store)) && is_plain(&name, &value)
        })
}

/// Client for paginated listing.
pub(super) type ListingClient = Arc<dyn PaginatedListStore>;

/// Repeats a request while its response is truncated. The client itself does this only for object content. Otherwise it
/// retries only if there is no response, or one that reports a server error.
pub(super) async fn retry_truncated<T, F: Future<Output = Result<T, Failure>>>(
    mut request: impl FnMut() -> F,
) -> Result<T, Failure> {
    let mut failed = 0;
    loop {
        match request().await {
            Err(e) if is_cut_short(&e) && failed < MAX_RETRIES => {
                failed += 1;
                count_repeated_request();
                pause(failed).await;
            }
            result => return result,
        }
    }
}

/// Waits before the next attempt, given that `failed` attempts have failed.
async fn pause(failed: usize) {
    tokio::time::sleep(Duration::from_millis(50 << failed.min(8))).await;
}
