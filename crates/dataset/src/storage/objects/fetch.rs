//! Range requests for an object whose metadata is known.

use std::ops::Range;

use bytes::Bytes;
use object_store::path::Path as Key;
use object_store::{Error as Failure, GetOptions, GetRange, ObjectMeta, ObjectStore};

use super::super::object::Object;
use super::client::retry_truncated;
use super::etag;
use super::failure::{changed, failure};
use super::outages::PAUSE;
use super::retries::count_repeated_request;
use super::runtime::PerProcess;
use crate::error::Result;

/// Maximum requests for a body that is truncated. If the object has an entity tag, the client itself requests the rest.
const MAX_ATTEMPTS: u32 = 3;

/// Fetches the non-empty `range` of `object`, which must not have changed since it was listed.
///
/// # Errors
///
/// [`ErrorKind::Io`] if the bytes cannot be read or the object has been replaced.
pub(super) async fn fetch(
    runtime: &PerProcess,
    client: &dyn ObjectStore,
    key: &Key,
    object: &Object,
    range: Range<u64>,
) -> Result<Bytes> {
    let (url, root) = (&object.url, object.url.root());
    // The semaphore is never closed, so this is always a permit.
    let _permit = runtime.permit().await;
    if let Some(error) = runtime.outages.check(root, PAUSE) {
        return Err(error.at_path(url.as_path()));
    }
    let mut attempts = 0;
    loop {
        attempts += 1;
        return match get(client, key, object, range.clone()).await {
            Ok(Some(bytes)) => {
                runtime.outages.end(root);
                Ok(bytes)
            }
            Ok(None) => Err(changed(url)),
            Err(FailedStage::Body(_)) if object.etag.is_none() && attempts < MAX_ATTEMPTS => {
                count_repeated_request();
                continue;
            }
            // The client requested the rest of a truncated body, but the object had been replaced.
            Err(FailedStage::Body(e)) if is_precondition(&e) => Err(changed(url)),
            Err(FailedStage::Request(e) | FailedStage::Body(e)) => {
                let is_outage = matches!(e, Failure::Generic { .. });
                let error = failure("read", url, e).at_offset(range.start);
                if is_outage {
                    runtime.outages.add(root, &error);
                }
                Err(error)
            }
        };
    }
}

/// Sends the request. Returns `None` if the object has been replaced.
async fn get(
    client: &dyn ObjectStore,
    key: &Key,
    object: &Object,
    range: Range<u64>,
) -> Result<Option<Bytes>, FailedStage> {
    let length = range.end - range.start;
    let (bytes, meta) = match request_range(client, key, object.bytes, object.etag.as_deref(), range).await {
        Err(FailedStage::Request(Failure::Precondition { .. })) => return Ok(None),
        got => got?,
    };
    let is_same = match (&object.etag, &meta.e_tag) {
        (Some(then), Some(now)) => etag::is_same(then, now),
        _ => nanoseconds(&meta) == object.modified_ns,
    };
    Ok((is_same && bytes.len() as u64 == length).then_some(bytes))
}

/// Returns whether one of the causes is that the object has a different entity tag.
fn is_precondition(error: &(dyn std::error::Error + 'static)) -> bool {
    let mut cause = Some(error);
    while let Some(error) = cause {
        if matches!(error.downcast_ref(), Some(Failure::Precondition { .. })) {
            return true;
        }
        cause = error.source();
    }
    false
}

/// Maximum size of an object that is requested as a whole for each range, from a server without range support.
const MAX_WHOLE_BYTES: u64 = 8 << 20;

/// A request that failed, by its stage.
pub(super) enum FailedStage {
    Request(Failure),
    Body(Failure),
}

impl FailedStage {
    pub(super) fn into_failure(self) -> Failure {
        match self {
            Self::Request(failure) | Self::Body(failure) => failure,
        }
    }
}

/// Requests `range` of an object that should have `total` bytes and, if it is given, the entity tag `etag`. Returns the
/// bytes and the metadata of the object. If that has another size, the caller reports it, and the bytes are empty.
pub(super) async fn request_range(
    client: &dyn ObjectStore,
    key: &Key,
    total: u64,
    etag: Option<&str>,
    range: Range<u64>,
) -> Result<(Bytes, ObjectMeta), FailedStage> {
    let is_whole = range == (0..total);
    let mut options = GetOptions {
        range: (!is_whole).then(|| GetRange::Bounded(range.clone())),
        if_match: etag.and_then(etag::condition),
        ..GetOptions::default()
    };
    let mut got = retry_truncated(|| client.get_opts(key, options.clone())).await;
    // Servers without range support can still send small objects as a whole.
    let is_sent_whole =
        !is_whole && total <= MAX_WHOLE_BYTES && matches!(got, Err(Failure::NotSupported { .. }));
    if is_sent_whole {
        options.range = None;
        got = retry_truncated(|| client.get_opts(key, options.clone())).await;
    }
    let got = got.map_err(FailedStage::Request)?;
    let meta = got.meta.clone();
    if meta.size != total {
        return Ok((Bytes::new(), meta));
    }
    let mut bytes = got.bytes().await.map_err(FailedStage::Body)?;
    if is_sent_whole && bytes.len() as u64 == total {
        bytes = bytes.slice(range.start as usize..range.end as usize);
    }
    Ok((bytes, meta))
}

/// Returns the last modification time in nanoseconds since 1970.
pub(super) fn nanoseconds(meta: &ObjectMeta) -> i128 {
    i128::from(meta.last_modified.timestamp_nanos_opt().unwrap_or_default())
}
