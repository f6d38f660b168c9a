//! Uploads of files to objects, and downloads of objects to files.

use std::fs::File;
use std::io::{Read, Write};
use std::ops::Range;
use std::path::Path;

use super::remote::Remote;
use crate::error::{Error, ErrorKind, Result};
use crate::pipeline::stop::Stop;
use crate::pipeline::workers;
use crate::storage::objects::is_cut_short;
use crate::storage::{NewFile, Written};

/// Bytes read from a file at a time.
const CHUNK_BYTES: usize = 1 << 20;
/// Maximum bytes per request. Objects up to this size are downloaded with a single request.
const REQUEST_BYTES: u64 = 8 << 20;
/// Bytes of an object that are downloaded concurrently.
const WINDOW_BYTES: u64 = 64 << 20;
/// Number of small requests in progress at a time.
const REQUESTS: usize = 16;

/// Number of attempts to upload a file from its start.
const UPLOAD_ATTEMPTS: usize = 5;

impl Remote {
    /// Uploads the file `from` to the object called `name`. `expected` describes the content that was written to the
    /// file.
    pub(in crate::pipeline) fn upload(
        &self,
        from: &Path,
        name: &str,
        expected: Option<&Written>,
        stop: &Stop,
    ) -> Result<()> {
        // The client retries single requests, but if the response to a whole upload is cut short, the upload fails.
        for _ in 1..UPLOAD_ATTEMPTS {
            match self.upload_once(from, name, expected, stop) {
                Err(error) if error.kind() == ErrorKind::Io && is_cut_short(&error) => {}
                result => return result,
            }
        }
        self.upload_once(from, name, expected, stop)
    }

    fn upload_once(&self, from: &Path, name: &str, expected: Option<&Written>, stop: &Stop) -> Result<()> {
        let url = self.object(name)?;
        let fail = |e| Error::io("read", from, e);
        let mut file = File::open(from).map_err(fail)?;
        let mut upload = self.bucket.upload(&url)?;
        let mut chunk = vec![0; CHUNK_BYTES];
        loop {
            stop.check()?;
            let count = match file.read(&mut chunk) {
                Ok(0) => break,
                Err(e) if e.kind() == std::io::ErrorKind::Interrupted => continue,
                read => read.map_err(fail)?,
            };
            upload.write_all(&chunk[..count]).map_err(|e| match e.downcast::<Error>() {
                Ok(error) => error,
                Err(e) => Error::io("upload", url.as_path(), e),
            })?;
        }
        let sent = upload.finish()?;
        match expected {
            Some(expected) if *expected != sent => {
                let message = "the uploaded bytes are not those that were written to this file";
                Err(Error::new(ErrorKind::Io, message)
                    .at_path(from)
                    .help("check the disk, or choose another folder with `scratch`"))
            }
            _ => Ok(()),
        }
    }

    /// Downloads the object called `name` to the file `to`. `bytes` is the size of the object, if known.
    pub(super) fn download(&self, name: &str, bytes: Option<u64>, to: &Path) -> Result<Written> {
        let url = self.object(name)?;
        let bytes = match bytes {
            Some(bytes) => bytes,
            None => match self.bucket.head(&url)? {
                Some(object) => object.bytes,
                None => {
                    return Err(Error::new(ErrorKind::Io, "there is no such object").at_path(url.as_path()));
                }
            },
        };
        let fail = |e| Error::io("write", to, e);
        let mut file = NewFile::create(to)?;
        if bytes <= REQUEST_BYTES {
            let (content, _) = self.bucket.get(&url, bytes)?;
            file.write_all(&content).map_err(fail)?;
            return file.finish();
        }
        let (mut at, mut etag) = (0, None);
        while at < bytes {
            let end = bytes.min(at + WINDOW_BYTES);
            let starts = (at..end).step_by(REQUEST_BYTES as usize);
            let ranges: Vec<Range<u64>> = starts.map(|start| start..end.min(start + REQUEST_BYTES)).collect();
            let (parts, found) = self.bucket.get_ranges(&url, bytes, etag.as_deref(), &ranges)?;
            parts.iter().try_for_each(|part| file.write_all(part)).map_err(fail)?;
            (at, etag) = (end, found);
        }
        file.finish()
    }
}

/// Calls `each` with all `items`, up to [`REQUESTS`] at a time, in any order.
pub(super) fn for_all<T: Sync>(
    items: &[T],
    doing: &str,
    stop: &Stop,
    each: impl Fn(&T) -> Result<()> + Sync,
) -> Result<()> {
    workers::for_all(items, REQUESTS, doing, stop, each)
}
