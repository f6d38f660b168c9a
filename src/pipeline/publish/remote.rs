//! The prefix in object storage that a dataset is written to.

use std::path::Path;
use std::time::Duration;

use bytes::Bytes;

use super::scratch_dir::ScratchDir;
use crate::error::{Error, ErrorKind, Result};
use crate::manifest::{MANIFEST_NAME, MAX_MANIFEST_BYTES, Manifest};
use crate::pipeline::output_check::{CHOOSE_OR_REPLACE, overlap, refuse_overlap};
use crate::pipeline::output_state::{Existing, ResumeCheck, WORK_NAME};
use crate::storage::ObjectUrl;
use crate::storage::objects::{Bucket, Created};

/// Number of checks before a prefix is considered to hold unrelated objects.
const CONTENT_CHECKS: u32 = 3;
/// Pause between two checks.
const PAUSE: Duration = Duration::from_millis(100);

/// An output in object storage.
#[derive(Debug, Clone)]
pub(in crate::pipeline) struct Remote {
    pub(super) url: ObjectUrl,
    pub(super) bucket: Bucket,
}

/// Contents of a prefix.
enum PrefixContents {
    Nothing,
    Dataset,
    /// An unfinished run.
    Run,
    Other,
}

impl Remote {
    /// Returns the output `out` if it is a URL. Sends no requests.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Usage`](crate::error::ErrorKind) if this URL cannot be written to, or the environment does not
    /// configure its store.
    pub(in crate::pipeline) fn of(out: &Path) -> Result<Option<Self>> {
        let Some(url) = ObjectUrl::parse(out).map_err(|e| e.of_option("out"))? else { return Ok(None) };
        if url.is_server() {
            return Err(Error::usage("a dataset cannot be written to a web server")
                .at_path(url.as_path())
                .of_option("out")
                .help("use a local directory, or a URL that starts with s3://, gs:// or az://"));
        }
        let bucket = Bucket::of(&url).map_err(|e| e.of_option("out"))?;
        Ok(Some(Self { url, bucket }))
    }

    /// Returns the location of the dataset, for messages.
    pub(in crate::pipeline) fn path(&self) -> &Path {
        self.url.as_path()
    }

    /// Returns the URL of the object called `name` under the prefix.
    pub(super) fn object(&self, name: &str) -> Result<ObjectUrl> {
        self.url.join(name)
    }

    /// Refuses everything that can be refused without writing: options that object storage does not support, sources
    /// that overlap the output, and a prefix in use.
    pub(in crate::pipeline) fn check(
        &self,
        existing: Existing,
        scratch: Option<&Path>,
        sources: &[&Path],
    ) -> Result<()> {
        self.check_existing(existing)?;
        for source in sources {
            if let Some(url) = ObjectUrl::parse(source)? {
                if url.is_within(&self.url) || self.url.is_within(&url) {
                    return Err(overlap(self.path(), "the output", source));
                }
            } else {
                refuse_overlap(&ScratchDir::root(scratch), "the scratch directory", source)
                    .map_err(|e| e.help("choose a directory outside the sources with `scratch`"))?;
            }
        }
        let resumed = matches!(existing, Existing::Resume(_));
        let (what, help) = match self.contents()? {
            PrefixContents::Nothing => return Ok(()),
            PrefixContents::Dataset | PrefixContents::Run if resumed => return Ok(()),
            PrefixContents::Dataset => ("a dataset already exists", "choose another prefix for `out`"),
            PrefixContents::Run => (
                "a run into this prefix has not finished",
                "finish it with `resume`, or choose another prefix for `out`",
            ),
            PrefixContents::Other => (
                "the prefix contains objects that do not belong to a dataset",
                "choose another prefix for `out`",
            ),
        };
        Err(Error::usage(what).at_path(self.path()).help(help))
    }

    /// Refuses options that datasets in object storage do not support.
    pub(in crate::pipeline) fn check_existing(&self, existing: Existing) -> Result<()> {
        let (what, help) = match existing {
            Existing::Refuse | Existing::Resume(ResumeCheck::Sizes) => return Ok(()),
            Existing::Overwrite => {
                ("a dataset in object storage cannot be overwritten", "choose another prefix for `out`")
            }
            Existing::Resume(ResumeCheck::Hashes) => (
                "shards in object storage can only be checked by size",
                "leave out the check, and verify the committed dataset with `dsconvert inspect --verify`",
            ),
            Existing::Resume(ResumeCheck::Repair) => (
                "a dataset in object storage cannot be repaired",
                "convert again into another prefix, and copy the damaged shard from there",
            ),
        };
        Err(Error::usage(what).at_path(self.path()).help(help))
    }

    /// Returns the contents of the prefix. Another run may start or end between the requests, and no order of the
    /// requests is right for both. So contents that appear unrelated to a dataset are checked again.
    fn contents(&self) -> Result<PrefixContents> {
        for _ in 0..CONTENT_CHECKS {
            if !self.bucket.holds(&self.url)? {
                return Ok(PrefixContents::Nothing);
            }
            // A run removes its working objects after writing the manifest.
            let is_run = self.bucket.holds(&self.object(WORK_NAME)?)?;
            if self.bucket.head(&self.object(MANIFEST_NAME)?)?.is_some() {
                return Ok(PrefixContents::Dataset);
            }
            if is_run {
                return Ok(PrefixContents::Run);
            }
            std::thread::sleep(PAUSE);
        }
        Ok(PrefixContents::Other)
    }

    /// Returns the manifest if the dataset is committed.
    pub(in crate::pipeline) fn manifest(&self) -> Result<Option<Manifest>> {
        let url = self.object(MANIFEST_NAME)?;
        let found = self.bucket.find(&url, MAX_MANIFEST_BYTES)?;
        found.map(|(json, _)| Manifest::parse(&json).map_err(|e| e.at_path(url.as_path()))).transpose()
    }

    /// Refuses to upload more files once another process has committed a dataset. An upload that has already started is
    /// not stopped: it replaces an object by one with the same bytes.
    pub(in crate::pipeline) fn check_uncommitted(&self) -> Result<()> {
        match self.bucket.head(&self.object(MANIFEST_NAME)?)? {
            None => Ok(()),
            Some(_) => {
                let message = "a dataset was committed to this prefix by another process";
                Err(Error::new(ErrorKind::NotCommitted, message)
                    .at_path(self.path())
                    .help("choose another prefix for `out`"))
            }
        }
    }

    /// Creates an object that must not already exist with other content. If it does, `differs` returns the error.
    pub(super) fn create(
        &self,
        url: &ObjectUrl,
        content: Vec<u8>,
        differs: impl FnOnce() -> Error,
    ) -> Result<()> {
        match self.bucket.create(url, &Bytes::from(content))? {
            Created::New | Created::Same => Ok(()),
            Created::Other => Err(differs().at_path(url.as_path())),
        }
    }
}

/// Returns whether another process may have committed the dataset and removed objects that this process needed.
pub(in crate::pipeline) fn may_be_overtaken(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Io | ErrorKind::NotCommitted)
}

/// Adapts the help of an error to the output `out`: object storage has neither `--overwrite` nor `--resume=repair`.
pub(in crate::pipeline) fn adapt_help(error: Error, out: &Path) -> Error {
    let replaces = |help: &str| help.contains("`overwrite`") || help.contains("`resume=repair`");
    let Some(help) = error.remedy().filter(|help| ObjectUrl::is_url(out) && replaces(help)) else {
        return error;
    };
    let adapted = help
        .replace(CHOOSE_OR_REPLACE, "choose another prefix for `out`")
        .replace("plan again with `overwrite`", "plan again into another prefix");
    error.help(match replaces(&adapted) {
        true => "repeat the command that was interrupted, or choose another prefix for `out`".to_owned(),
        false => adapted,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_object_stores_are_remote_outputs() {
        assert!(Remote::of(Path::new("out")).unwrap().is_none());
        for refused in ["https://host/x", "file:///x", "s3://", "s3://b/../x"] {
            assert!(Remote::of(Path::new(refused)).is_err(), "{refused}");
        }
    }

    #[test]
    fn help_fits_the_output() {
        let adapted = |help: &str, out: &str| {
            let error = Error::usage("x").help(help.to_owned());
            adapt_help(error, Path::new(out)).remedy().unwrap().to_owned()
        };
        let differs = format!("add `seed 1`; or {CHOOSE_OR_REPLACE}");
        for (help, remote) in [
            (CHOOSE_OR_REPLACE, "choose another prefix for `out`"),
            (&differs, "add `seed 1`; or choose another prefix for `out`"),
            ("now, plan again with `overwrite`", "now, plan again into another prefix"),
            (
                "start again with `overwrite`",
                "repeat the command that was interrupted, or choose another prefix for `out`",
            ),
            ("check the disk", "check the disk"),
        ] {
            assert_eq!(adapted(help, "out"), help);
            assert_eq!(adapted(help, "s3://bucket/out"), remote);
        }
    }
}
