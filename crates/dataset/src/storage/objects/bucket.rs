//! Requests to a bucket.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use futures_util::StreamExt;
use object_store::path::Path as Key;
use object_store::{
    Error as Failure, GetOptions, GetRange, ObjectMeta, ObjectStore, ObjectStoreExt, PutMode,
};

use super::super::object::{Created, Object, Settings};
use super::super::object_url::ObjectUrl;
use super::client::{Client, ListingClient, connect, environment, retry_truncated};
use super::etag;
use super::failure::{changed, failure, is_bucket_missing};
use super::fetch::{FailedStage, nanoseconds, request_range};
use super::runtime;
use super::upload::Upload;
use crate::error::{Error, ErrorKind, Result};

/// Maximum concurrent requests per call.
const MAX_CONCURRENT: usize = 16;

/// Client for the store of an address. Cloning is cheap.
#[derive(Clone)]
pub struct Bucket {
    root: ObjectUrl,
    /// The variables of the environment when the bucket was opened: a program may change its credentials later, also
    /// while other threads send requests.
    environment: Arc<Settings>,
    settings: Arc<Settings>,
}

impl Bucket {
    /// Creates the client for the bucket, container or server of `url`. Sends no request.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Usage`] if the environment does not describe the store.
    pub fn of(url: &ObjectUrl) -> Result<Self> {
        Self::with(url, &Settings::new())
    }

    /// Like [`Self::of`], with `settings` that override the environment.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Usage`] if the settings and the environment do not describe the store.
    pub fn with(url: &ObjectUrl, settings: &Settings) -> Result<Self> {
        let (environment, settings) = (Arc::new(environment()), Arc::new(settings.clone()));
        let bucket = Self { root: url.clone(), environment, settings };
        bucket.client()?;
        Ok(bucket)
    }

    pub(super) fn client(&self) -> Result<Arc<dyn ObjectStore>> {
        Ok(self.connected()?.store)
    }

    /// Returns the client for paginated listing, or `None` for web servers.
    pub(super) fn pages(&self) -> Result<Option<ListingClient>> {
        Ok(self.connected()?.pages)
    }

    fn connected(&self) -> Result<Client> {
        let name = format!("{} {:?} {:?}", self.root.root(), self.environment, self.settings);
        runtime::current()?.client(&name, || connect(&self.root, &self.environment, &self.settings))
    }

    /// Returns the metadata of the object at `url`, or `None` if it does not exist.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Io`] if the store cannot be queried.
    pub fn head(&self, url: &ObjectUrl) -> Result<Option<Object>> {
        Ok(self.heads(std::slice::from_ref(url))?.pop().flatten())
    }

    /// Returns the metadata of the objects at `urls`. Sends up to 16 requests at a time.
    pub(super) fn heads(&self, urls: &[ObjectUrl]) -> Result<Vec<Option<Object>>> {
        let client = self.client()?;
        let keys = urls.iter().map(key).collect::<Result<Vec<Key>>>()?;
        let found = runtime::current()?.wait(async move {
            let requests = keys.into_iter().map(|key| {
                let client = Arc::clone(&client);
                async move { head(client.as_ref(), &key).await }
            });
            futures_util::stream::iter(requests).buffered(MAX_CONCURRENT).collect::<Vec<_>>().await
        })?;
        let found = found.into_iter().zip(urls).map(|(found, url)| match found {
            Ok(meta) => Ok(Some(object(url.clone(), &meta))),
            Err(Failure::NotFound { .. }) => Ok(None),
            Err(e) => Err(failure("request the object", url, e)),
        });
        found.collect()
    }

    /// Reads a whole object, which must be small.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Io`] if it cannot be read or has more than `max_bytes` bytes.
    pub fn get(&self, url: &ObjectUrl, max_bytes: u64) -> Result<(Bytes, Object)> {
        checked(url, max_bytes, self.read(url, max_bytes)?)
    }

    /// Like [`Self::get`], but returns `None` if the object does not exist.
    ///
    /// # Errors
    ///
    /// Same as [`Self::get`].
    pub fn find(&self, url: &ObjectUrl, max_bytes: u64) -> Result<Option<(Bytes, Object)>> {
        match self.read(url, max_bytes)? {
            Err(e @ Failure::NotFound { .. }) if url.is_server() || !is_bucket_missing(&e) => Ok(None),
            read => checked(url, max_bytes, read).map(Some),
        }
    }

    /// Reads an object; omits its content if it is larger than `max_bytes` bytes.
    fn read(&self, url: &ObjectUrl, max_bytes: u64) -> Result<Result<(Bytes, ObjectMeta), Failure>> {
        let (client, key) = (self.client()?, key(url)?);
        let read = runtime::current()?.wait(async move {
            let got = retry_truncated(|| client.get(&key)).await?;
            let meta = got.meta.clone();
            let bytes = if meta.size > max_bytes { Bytes::new() } else { got.bytes().await? };
            Ok((bytes, meta))
        })?;
        if read.is_ok() {
            runtime::current()?.outages.end(url.root());
        }
        Ok(read)
    }

    /// Fails if a request to the store of `url` is not worth sending: the last ones failed despite retries, or one did
    /// after `since`, when the caller started to wait.
    pub(super) fn check_outage(&self, url: &ObjectUrl, since: Instant) -> Result<()> {
        match runtime::current()?.outages.check_since(url.root(), since) {
            Some(error) => Err(error.at_path(url.as_path())),
            None => Ok(()),
        }
    }

    /// Reads `ranges` of an object of `bytes` bytes, up to 16 requests at a time, and returns them in the given order
    /// with the entity tag of the object. If `etag` is given, the object must have that entity tag.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Io`] if a range cannot be read or the object has been replaced.
    pub fn get_ranges(
        &self,
        url: &ObjectUrl,
        bytes: u64,
        etag: Option<&str>,
        ranges: &[Range<u64>],
    ) -> Result<(Vec<Bytes>, Option<String>)> {
        let (client, key) = (self.client()?, key(url)?);
        let (wanted, tag) = (ranges.to_vec(), etag.map(str::to_owned));
        let got = runtime::current()?.wait(async move {
            let requests = wanted.into_iter().map(|range| {
                let (client, key, tag) = (Arc::clone(&client), key.clone(), tag.clone());
                async move { request_range(&*client, &key, bytes, tag.as_deref(), range).await }
            });
            let mut stream = futures_util::stream::iter(requests).buffered(MAX_CONCURRENT);
            let mut parts = Vec::new();
            while let Some(part) = stream.next().await {
                parts.push(part.map_err(FailedStage::into_failure)?);
            }
            Ok(parts)
        })?;
        let outages = &runtime::current()?.outages;
        let parts = got.map_err(|e| {
            let is_outage = matches!(e, Failure::Generic { .. });
            let error = failure("read", url, e);
            if is_outage {
                outages.add(url.root(), &error);
            }
            error
        })?;
        outages.end(url.root());
        let found = parts.first().and_then(|(_, meta)| meta.e_tag.clone());
        let expected = etag.map(str::to_owned).or_else(|| found.clone());
        let mut all = Vec::with_capacity(parts.len());
        for ((part, meta), range) in parts.into_iter().zip(ranges) {
            if meta.size != bytes {
                return Err(Error::corrupt(format!("the object has {} bytes, expected {bytes}", meta.size))
                    .at_path(url.as_path())
                    .help("it was altered or truncated; restore it or convert again"));
            }
            let is_same = match (&expected, &meta.e_tag) {
                (Some(expected), Some(tag)) => etag::is_same(expected, tag),
                (expected, tag) => expected.is_none() && tag.is_none(),
            };
            if !is_same {
                return Err(changed(url));
            }
            let requested = range.end - range.start;
            if part.len() as u64 != requested {
                let message = format!("the store sent {} bytes instead of {requested}", part.len());
                return Err(Error::new(ErrorKind::Io, message).at_path(url.as_path()).at_offset(range.start));
            }
            all.push(part);
        }
        Ok((all, found))
    }

    /// Creates a small object unless it already exists.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Io`] if it cannot be written. A lost response is not an error: the object is read back.
    pub fn create(&self, url: &ObjectUrl, content: &Bytes) -> Result<Created> {
        let (client, key) = (self.client()?, key(url)?);
        let payload = content.clone();
        let put = runtime::current()?.wait(async move {
            retry_truncated(|| client.put_opts(&key, payload.clone().into(), PutMode::Create.into())).await
        })?;
        match put {
            Ok(_) => Ok(Created::New),
            Err(Failure::AlreadyExists { .. } | Failure::Precondition { .. }) => {
                let (existing, _) = self.get(url, u64::MAX)?;
                Ok(if existing == content { Created::Same } else { Created::Other })
            }
            // The response may have been lost after the object was created.
            Err(e) => match self.get(url, content.len() as u64) {
                Ok((existing, _)) if existing == content => Ok(Created::Same),
                _ => Err(failure("write", url, e)),
            },
        }
    }

    /// Starts a multipart upload of an object of any size.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Io`] if the store refuses it.
    pub fn upload(&self, url: &ObjectUrl) -> Result<Upload> {
        let (client, key) = (self.client()?, key(url)?);
        Ok(Upload::start(url.clone(), client, key))
    }

    /// Deletes an object if it exists.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Io`] if the store refuses.
    pub fn delete(&self, url: &ObjectUrl) -> Result<()> {
        let (client, key) = (self.client()?, key(url)?);
        match runtime::current()?.wait(async move { retry_truncated(|| client.delete(&key)).await })? {
            Ok(()) | Err(Failure::NotFound { .. }) => Ok(()),
            Err(e) => Err(failure("delete", url, e)),
        }
    }
}

/// Requests the metadata of an object. Responses to HEAD have no body, so a refusal is repeated as GET to learn the
/// reason.
async fn head(client: &dyn ObjectStore, key: &Key) -> Result<ObjectMeta, Failure> {
    let refused = match retry_truncated(|| client.head(key)).await {
        Err(e @ (Failure::PermissionDenied { .. } | Failure::Unauthenticated { .. })) => e,
        answer => return answer,
    };
    let options = GetOptions { range: Some(GetRange::Bounded(0..1)), ..GetOptions::default() };
    match client.get_opts(key, options).await {
        Err(e @ (Failure::PermissionDenied { .. } | Failure::Unauthenticated { .. })) => Err(e),
        _ => Err(refused),
    }
}

/// Omits the settings, which may be secret.
impl fmt::Debug for Bucket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Bucket").field(&self.root.root()).finish()
    }
}

/// Fails if the object could not be read, or is larger than `max_bytes` bytes.
fn checked(
    url: &ObjectUrl,
    max_bytes: u64,
    read: Result<(Bytes, ObjectMeta), Failure>,
) -> Result<(Bytes, Object)> {
    let (bytes, meta) = read.map_err(|e| failure("read", url, e))?;
    if meta.size > max_bytes {
        let message = format!("the object has {} bytes, but the limit is {max_bytes}", meta.size);
        return Err(Error::new(ErrorKind::Io, message).at_path(url.as_path()));
    }
    Ok((bytes, object(url.clone(), &meta)))
}

pub(super) fn key(url: &ObjectUrl) -> Result<Key> {
    let parsed = match url.is_server() {
        // Web server addresses are already encoded.
        true => Key::from_url_path(url.key()),
        false => Key::parse(url.key()),
    };
    parsed.map_err(|e| Error::usage("the URL is not a valid object key").at_path(url.as_path()).caused_by(e))
}

pub(super) fn object(url: ObjectUrl, meta: &ObjectMeta) -> Object {
    Object { url, bytes: meta.size, modified_ns: nanoseconds(meta), etag: meta.e_tag.clone() }
}
