//! The request for a range of an object.

use std::ops::Range;

use bytes::Bytes;
use object_store::path::Path as Key;
use object_store::{Error as Failure, GetOptions, GetRange, ObjectMeta, ObjectStore};

use super::client::retry_truncated;
use super::etag;

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
