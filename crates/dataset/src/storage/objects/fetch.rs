//! Range requests for an object whose metadata is known.

use std::ops::Range;

use bytes::Bytes;
use object_store::path::Path as Key;
use object_store::{Error as Failure, ObjectStore};

use super::bucket::{Object, nanoseconds};
use super::etag;
use super::failure::{changed, failure};
use super::range_request::{FailedStage, request_range};
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
    if let Some(error) = runtime.outages.check(root) {
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
