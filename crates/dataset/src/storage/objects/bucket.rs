//! Requests to one bucket.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt;
use object_store::aws::{AmazonS3Builder, S3ConditionalPut};
use object_store::azure::MicrosoftAzureBuilder;
use object_store::gcp::GoogleCloudStorageBuilder;
use object_store::http::HttpBuilder;
use object_store::path::Path as Key;
use object_store::{
    ClientOptions, Error as Failure, GetOptions, GetRange, ObjectMeta, ObjectStore, ObjectStoreExt, PutMode,
    RetryConfig,
};

use super::super::object_url::ObjectUrl;
use super::failure::{changed, failure};
use super::runtime;
use super::upload::Upload;
use crate::error::{Error, ErrorKind, Result};

/// Requests of one call that are under way at a time.
const AT_ONCE: usize = 16;
/// How long a request is tried again, unless `DSCONVERT_RETRY_SECONDS` says otherwise.
const RETRY_SECONDS: u64 = 180;
/// Requests are this often tried again at most. The time between them grows to 15 seconds.
const RETRIES: usize = 20;
/// How long a server may be silent.
const SILENCE: Duration = Duration::from_secs(30);

/// What a store says about an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Object {
    /// Where it is.
    pub url: ObjectUrl,
    /// Its size.
    pub bytes: u64,
    /// Time of its last change, in nanoseconds since 1970.
    pub modified_ns: i128,
    /// Its entity tag: another one when its content is another. Some servers have none.
    pub etag: Option<String>,
}

/// The outcome of creating an object that must not be there yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Created {
    /// It was created.
    New,
    /// It was there, with this very content: another attempt, or one whose answer was lost.
    Same,
    /// It was there, with other content.
    Other,
}

/// The client of the store that an address is in. Cloning is cheap.
#[derive(Debug, Clone)]
pub struct Bucket {
    root: ObjectUrl,
}

impl Bucket {
    /// The bucket, container or server of `url`. Sends nothing.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Usage`] when the environment does not describe the store.
    pub fn of(url: &ObjectUrl) -> Result<Self> {
        let bucket = Self { root: url.clone() };
        bucket.client()?;
        Ok(bucket)
    }

    pub(super) fn client(&self) -> Result<Arc<dyn ObjectStore>> {
        runtime::current()?.client(self.root.root(), || connect(&self.root))
    }

    /// What is at `url`; `None` when there is nothing.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Io`]: the store cannot be asked.
    pub fn head(&self, url: &ObjectUrl) -> Result<Option<Object>> {
        let (client, key) = (self.client()?, key(url)?);
        match runtime::current()?.wait(async move { client.head(&key).await })? {
            Ok(meta) => Ok(Some(object(url.clone(), &meta))),
            Err(Failure::NotFound { .. }) => Ok(None),
            Err(e) => Err(failure("look at the object", url, e)),
        }
    }

    /// The whole object, which must be small.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Io`]: it cannot be read, or has more than `most` bytes.
    pub fn get(&self, url: &ObjectUrl, most: u64) -> Result<(Bytes, Object)> {
        let (client, key) = (self.client()?, key(url)?);
        let fail = |e| failure("read", url, e);
        let read = runtime::current()?.wait(async move {
            let got = client.get(&key).await?;
            let meta = got.meta.clone();
            let bytes = if meta.size > most { Bytes::new() } else { got.bytes().await? };
            Ok((bytes, meta))
        })?;
        let (bytes, meta) = read.map_err(fail)?;
        if meta.size > most {
            return Err(Error::new(
                ErrorKind::Io,
                format!("the object has {} bytes, more than it should", meta.size),
            )
            .at_path(url.as_path()));
        }
        Ok((bytes, object(url.clone(), &meta)))
    }

    /// Ranges of an object of `bytes` bytes, [`AT_ONCE`] requests at a time, in the order of `ranges`. With `etag`, of the object that
    /// has it.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Io`]: a range cannot be read, or the object is another one.
    pub fn get_ranges(
        &self,
        url: &ObjectUrl,
        bytes: u64,
        etag: Option<&str>,
        ranges: &[Range<u64>],
    ) -> Result<(Vec<Bytes>, Option<String>)> {
        let (client, key) = (self.client()?, key(url)?);
        let etag = etag.map(str::to_owned);
        let wanted: Vec<(Range<u64>, Option<String>)> =
            ranges.iter().map(|range| (range.clone(), etag.clone())).collect();
        let got = runtime::current()?.wait(async move {
            let requests = wanted.into_iter().map(|(range, if_match)| {
                let (client, key) = (Arc::clone(&client), key.clone());
                async move {
                    let range = Some(GetRange::Bounded(range));
                    let got = client
                        .get_opts(&key, GetOptions { range, if_match, ..GetOptions::default() })
                        .await?;
                    let (size, etag) = (got.meta.size, got.meta.e_tag.clone());
                    Ok::<_, Failure>((got.bytes().await?, size, etag))
                }
            });
            let mut stream = futures_util::stream::iter(requests).buffered(AT_ONCE);
            let mut parts = Vec::new();
            while let Some(part) = stream.next().await {
                parts.push(part?);
            }
            Ok(parts)
        })?;
        let parts = got.map_err(|e| failure("read", url, e))?;
        let found = parts.first().and_then(|(.., etag)| etag.clone());
        let mut all = Vec::with_capacity(parts.len());
        for ((part, size, tag), range) in parts.into_iter().zip(ranges) {
            if size != bytes {
                return Err(Error::corrupt(format!("the object has {size} bytes, {bytes} are expected"))
                    .at_path(url.as_path())
                    .help("it was altered or cut short; restore it or convert again"));
            }
            if tag != found {
                return Err(changed(url));
            }
            if part.len() as u64 != range.end - range.start {
                return Err(Error::new(
                    ErrorKind::Io,
                    "the store sent another number of bytes than was asked for",
                )
                .at_path(url.as_path())
                .at_offset(range.start));
            }
            all.push(part);
        }
        Ok((all, found))
    }

    /// Creates a small object unless there is one.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Io`]: it cannot be written. An answer that was lost is none: the object is read back.
    pub fn create(&self, url: &ObjectUrl, content: &Bytes) -> Result<Created> {
        let (client, key) = (self.client()?, key(url)?);
        let payload = content.clone();
        let put = runtime::current()?
            .wait(async move { client.put_opts(&key, payload.into(), PutMode::Create.into()).await })?;
        match put {
            Ok(_) => Ok(Created::New),
            Err(Failure::AlreadyExists { .. } | Failure::Precondition { .. }) => {
                let (there, _) = self.get(url, u64::MAX)?;
                Ok(if there == content { Created::Same } else { Created::Other })
            }
            Err(e) => Err(failure("write", url, e)),
        }
    }

    /// Writes a small object, in the place of one that may be there.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Io`]: it cannot be written.
    pub fn put(&self, url: &ObjectUrl, content: Bytes) -> Result<()> {
        let (client, key) = (self.client()?, key(url)?);
        let put = runtime::current()?.wait(async move { client.put(&key, content.into()).await })?;
        put.map(|_| ()).map_err(|e| failure("write", url, e))
    }

    /// Starts an upload in pieces, of an object of any size.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Io`]: the store refuses it.
    pub fn upload(&self, url: &ObjectUrl) -> Result<Upload> {
        let (client, key) = (self.client()?, key(url)?);
        Upload::start(url.clone(), client, key)
    }

    /// Gives everything whose key starts with that of `folder` and a slash, in byte order of the keys.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Io`]: the store cannot be asked. The first error of `each`.
    pub fn list(&self, folder: &ObjectUrl, mut each: impl FnMut(Object) -> Result<()>) -> Result<()> {
        let (client, prefix) = (self.client()?, key(folder)?);
        let (sender, receiver) = std::sync::mpsc::sync_channel(1024);
        runtime::current()?.spawn(async move {
            let mut listing = client.list(Some(&prefix));
            while let Some(found) = listing.next().await {
                // Nobody receives after an error.
                let ends = found.is_err();
                if sender.send(found).is_err() || ends {
                    break;
                }
            }
        });
        let mut last: Option<Object> = None;
        for found in receiver {
            let meta = found.map_err(|e| failure("list", folder, e))?;
            let url = format!("{}/{}", folder.root(), meta.location);
            let Ok(Some(url)) = ObjectUrl::parse(std::path::Path::new(&url)) else { continue };
            let found = object(url, &meta);
            if last.as_ref().is_some_and(|last| last.url.key() >= found.url.key()) {
                return Err(Error::new(ErrorKind::Io, "the store does not list its keys in byte order")
                    .at_path(folder.as_path())
                    .help("name the files in a list (--files-from)"));
            }
            last = Some(found.clone());
            each(found)?;
        }
        Ok(())
    }

    /// Removes an object, if it is there.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Io`]: the store refuses.
    pub fn delete(&self, url: &ObjectUrl) -> Result<()> {
        let (client, key) = (self.client()?, key(url)?);
        match runtime::current()?.wait(async move { client.delete(&key).await })? {
            Ok(()) | Err(Failure::NotFound { .. }) => Ok(()),
            Err(e) => Err(failure("delete", url, e)),
        }
    }
}

fn key(url: &ObjectUrl) -> Result<Key> {
    Key::parse(url.key())
        .map_err(|e| Error::usage("no object can have this address").at_path(url.as_path()).caused_by(e))
}

fn object(url: ObjectUrl, meta: &ObjectMeta) -> Object {
    let modified_ns = meta.last_modified.timestamp_nanos_opt().unwrap_or_default();
    Object { url, bytes: meta.size, modified_ns: i128::from(modified_ns), etag: meta.e_tag.clone() }
}

/// A client with the credentials of the environment.
fn connect(url: &ObjectUrl) -> Result<Arc<dyn ObjectStore>> {
    let seconds = std::env::var("DSCONVERT_RETRY_SECONDS").ok().and_then(|text| text.parse().ok());
    let retry = RetryConfig {
        max_retries: RETRIES,
        retry_timeout: Duration::from_secs(seconds.unwrap_or(RETRY_SECONDS)),
        ..RetryConfig::default()
    };
    let plain = |names: &[&str]| {
        let is_plain = |name: &&str| std::env::var(name).is_ok_and(|url| url.starts_with("http://"));
        names.iter().any(is_plain) || url.scheme() == "http"
    };
    let options = |names: &[&str]| {
        ClientOptions::new()
            .with_allow_http(plain(names))
            .with_timeout_disabled()
            .with_read_timeout(SILENCE)
            .with_connect_timeout(Duration::from_secs(10))
    };
    let root = url.root();
    let made: Result<Arc<dyn ObjectStore>, Failure> = match url.scheme() {
        "s3" | "s3a" => AmazonS3Builder::from_env()
            .with_url(root)
            .with_conditional_put(S3ConditionalPut::ETagMatch)
            .with_client_options(options(&["AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT"]))
            .with_retry(retry)
            .build()
            .map(|store| Arc::new(store) as _),
        "gs" => GoogleCloudStorageBuilder::from_env()
            .with_url(root)
            .with_client_options(options(&["GOOGLE_BASE_URL", "GOOGLE_STORAGE_BASE_URL"]))
            .with_retry(retry)
            .build()
            .map(|store| Arc::new(store) as _),
        "http" | "https" => HttpBuilder::new()
            .with_url(root)
            .with_client_options(options(&[]))
            .with_retry(retry)
            .build()
            .map(|store| Arc::new(store) as _),
        _ => MicrosoftAzureBuilder::from_env()
            .with_url(root)
            .with_client_options(options(&["AZURE_ENDPOINT", "AZURE_STORAGE_ENDPOINT"]))
            .with_retry(retry)
            .build()
            .map(|store| Arc::new(store) as _),
    };
    made.map_err(|e| {
        Error::usage("the store cannot be used as the environment describes it")
            .at_path(url.as_path())
            .caused_by(e)
            .help("docs/how-to/use-object-storage.md lists the variables")
    })
}
