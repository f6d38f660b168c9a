//! Source files in object storage.

use super::planned::PlannedFile;
use crate::error::Result;
use crate::storage::ObjectUrl;
pub(super) use crate::storage::objects::ObjectReader as OpenedObject;
use crate::storage::objects::{Bucket, Object};

/// Opens the object `planned` at `url`. Sends no request.
pub(super) fn open(planned: &PlannedFile, url: ObjectUrl) -> Result<OpenedObject> {
    let object =
        Object { bytes: planned.bytes, modified_ns: planned.modified_ns, etag: planned.etag.clone(), url };
    OpenedObject::open(&Bucket::of(&object.url)?, object)
}

/// Returns the current state of the object at `url`; `None` if there is none.
pub(super) fn stat(url: &ObjectUrl) -> Result<Option<PlannedFile>> {
    Ok(Bucket::of(url)?.head(url)?.map(|object| planned(&object)))
}

pub(super) fn planned(object: &Object) -> PlannedFile {
    PlannedFile {
        path: object.url.as_path().to_owned(),
        bytes: object.bytes,
        modified_ns: object.modified_ns,
        etag: object.etag.clone(),
        follow_symlinks: true,
    }
}
