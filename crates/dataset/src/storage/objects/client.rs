//! Store clients and their retry policy.

use std::ffi::OsString;
use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, Instant};

use object_store::aws::{AmazonS3Builder, S3ConditionalPut};
use object_store::azure::MicrosoftAzureBuilder;
use object_store::gcp::GoogleCloudStorageBuilder;
use object_store::http::HttpBuilder;
use object_store::list::PaginatedListStore;
use object_store::{BackoffConfig, ClientOptions, Error as Failure, ObjectStore, RetryConfig};

use super::super::object::Settings;
use super::super::object_url::ObjectUrl;
use super::failure::is_cut_short;
use super::retries::{ObservedConnector, count_repeated_request};
use crate::error::{Error, Result};

/// Starts of the names of environment variables that the clients of stores read.
const STORE_VARIABLES: [&str; 6] = ["AWS_", "AZURE_", "GOOGLE_", "IDENTITY_", "MSI_", "SERVICE_ACCOUNT"];
/// Environment variable with the time limit for retrying a request in seconds.
const RETRY_VARIABLE: &str = "DSCONVERT_RETRY_SECONDS";
/// Time limit for retrying a request, unless the variable sets another.
const RETRY_SECONDS: u64 = 180;
/// Maximum retries per request: so many that only the time limit ends them.
const MAX_RETRIES: usize = 1_000_000;
/// Delay before the first retry.
const FIRST_DELAY: Duration = Duration::from_millis(100);
/// Maximum delay between retries.
const MAX_DELAY: Duration = Duration::from_secs(15);
/// A delay is chosen at random, up to this multiple of the one before. Delays grow only if it is above e, because the
/// geometric mean of uniform numbers up to `n` is `n / e`.
const DELAY_GROWTH: f64 = 4.0;
/// Timeout for a server that sends nothing.
const READ_TIMEOUT: Duration = Duration::from_secs(30);
/// Timeout for connecting.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

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

/// Returns the time for which a failed request is retried. [`connect`] has refused invalid values.
pub(super) fn retry_time() -> Duration {
    configured_retry_time().unwrap_or(Duration::from_secs(RETRY_SECONDS))
}

/// Same as [`retry_time`]; fails if the environment variable is not a number of seconds.
fn configured_retry_time() -> Result<Duration> {
    let Some(text) = std::env::var_os(RETRY_VARIABLE) else { return Ok(Duration::from_secs(RETRY_SECONDS)) };
    let seconds = text.to_str().and_then(|text| text.parse().ok()).ok_or_else(|| {
        Error::usage(format!(
            "invalid value of the environment variable {RETRY_VARIABLE}: {}",
            text.display()
        ))
        .help("set a whole number of seconds, such as 180, or unset it")
    })?;
    Ok(Duration::from_secs(seconds))
}

/// Returns the policy for requests that are retried for `time`.
fn retry_policy(time: Duration) -> RetryConfig {
    // The last delay may start just before the time limit.
    let max_backoff = MAX_DELAY.min(time / 4).max(FIRST_DELAY);
    let backoff = BackoffConfig { init_backoff: FIRST_DELAY, max_backoff, base: DELAY_GROWTH };
    RetryConfig { backoff, max_retries: MAX_RETRIES, retry_timeout: time }
}

/// Returns the variables of the environment that configure clients, and their values now.
pub(super) fn environment() -> Settings {
    let is_read = |name: &str| STORE_VARIABLES.iter().any(|prefix| name.starts_with(prefix));
    let text =
        |(name, value): (OsString, OsString)| Some((name.into_string().ok()?, value.into_string().ok()?));
    std::env::vars_os().filter_map(text).filter(|(name, _)| is_read(name)).collect()
}

/// Creates a client with the credentials of `environment`, and with `settings` that override them.
pub(super) fn connect(url: &ObjectUrl, environment: &Settings, settings: &Settings) -> Result<Client> {
    // `reqwest` uses the default provider of the process. An error means that the program has already installed one.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let retry_time = configured_retry_time()?;
    let retry = retry_policy(retry_time);
    let options = ClientOptions::new()
        .with_allow_http(
            url.scheme() == "http" || has_plain_endpoint(environment) || has_plain_endpoint(settings),
        )
        .with_timeout_disabled()
        .with_read_timeout(READ_TIMEOUT)
        .with_connect_timeout(CONNECT_TIMEOUT);
    let root = url.root();
    // Fails for names that the store does not support.
    macro_rules! with_settings {
        ($builder:expr) => {{
            let connector = ObservedConnector::new(root, retry_time);
            let builder = $builder.with_client_options(options).with_http_connector(connector);
            // Names that the store does not support may be meant for other programs.
            let builder = environment.iter().fold(builder, |builder, (name, value)| {
                match name.to_ascii_lowercase().parse() {
                    Ok(key) => builder.with_config(key, value),
                    Err(_) => builder,
                }
            });
            settings.iter().try_fold(builder, |builder, (name, value)| {
                Ok::<_, Failure>(builder.with_config(name.to_ascii_lowercase().parse()?, value))
            })
        }};
    }
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
    settings.iter().any(|(name, value)| is_plain(name, value))
}

/// Client for paginated listing.
pub(super) type ListingClient = Arc<dyn PaginatedListStore>;

/// Repeats a request while its response is truncated. The client itself does this only for object content. Otherwise it
/// retries only if there is no response, or one that reports a server error.
pub(super) async fn retry_truncated<T, F: Future<Output = Result<T, Failure>>>(
    mut request: impl FnMut() -> F,
) -> Result<T, Failure> {
    let (start, mut delay) = (Instant::now(), FIRST_DELAY);
    loop {
        match request().await {
            Err(e) if is_cut_short(&e) && start.elapsed() < retry_time() => {
                count_repeated_request();
                tokio::time::sleep(delay).await;
                delay = (delay * 2).min(MAX_DELAY);
            }
            result => return result,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Retries were once exhausted after 6 to 24 seconds: the delays did not grow.
    #[test]
    fn delays_grow_until_requests_are_rare() {
        let policy = retry_policy(Duration::from_secs(180)).backoff;
        let (mut random, mut retries) = (1_u64, 0);
        const RUNS: u32 = 100;
        for _ in 0..RUNS {
            // The algorithm of `BackoffConfig`, with fixed random numbers.
            let (mut delay, mut elapsed) = (policy.init_backoff, Duration::ZERO);
            while elapsed < Duration::from_secs(180) {
                elapsed += delay;
                retries += 1;
                random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let share = (random >> 11) as f64 / (1_u64 << 53) as f64;
                let range = (delay.mul_f64(policy.base) - policy.init_backoff).mul_f64(share);
                delay = (policy.init_backoff + range).min(policy.max_backoff);
            }
        }
        assert!((12..40).contains(&(retries / RUNS)), "{retries}");
    }

    #[test]
    fn a_short_limit_has_short_delays() {
        assert_eq!(retry_policy(Duration::from_secs(8)).backoff.max_backoff, Duration::from_secs(2));
        assert_eq!(retry_policy(Duration::ZERO).backoff.max_backoff, FIRST_DELAY);
    }
}
