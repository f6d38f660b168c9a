//! Reads single files of a tar file.

use std::ops::Range;
use std::sync::Arc;

use crate::error::Error;
use crate::sample::RejectCode;
use crate::source::archive::member_reader::{MAX_MEMBER_BYTES, MemberReader};
use crate::source::io::broken::Broken;
use crate::source::io::opened::OpenedFile;

/// Location of a file in a tar file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TarMember {
    /// Offset of the content.
    pub offset: u64,
    /// Size of the file in bytes.
    pub size: u64,
}

impl TarMember {
    /// Returns whether a tar file of `archive_bytes` bytes ends before the file does.
    pub(in crate::source) fn is_cut_off(&self, archive_bytes: u64) -> bool {
        self.offset.checked_add(self.size).is_none_or(|end| end > archive_bytes)
    }

    /// Returns the range of the content in a tar file of `archive_bytes` bytes.
    fn range(&self, archive_bytes: u64) -> Result<Range<u64>, Broken> {
        if self.is_cut_off(archive_bytes) {
            return Err(Broken::damaged(RejectCode::Truncated, "the tar file ends before the file does"));
        }
        Ok(self.offset..self.offset + self.size)
    }

    /// As [`Self::range`], for a file that is read as a whole.
    pub(in crate::source) fn small_range(&self, archive_bytes: u64) -> Result<Range<u64>, Broken> {
        if self.size > MAX_MEMBER_BYTES {
            let message =
                format!("the file has {} bytes, more than the limit of {MAX_MEMBER_BYTES}", self.size);
            return Err(Broken::damaged(RejectCode::TooLarge, message));
        }
        self.range(archive_bytes)
    }

    /// Reads the file from the tar file `opened`.
    ///
    /// # Errors
    ///
    /// Returns an error if the tar file cannot be read or has changed, or if the file is too large or cut off.
    pub(in crate::source) fn read_opened(&self, opened: &OpenedFile) -> Result<Vec<u8>, Broken> {
        let range = self.small_range(opened.bytes())?;
        opened.will_read(range.clone())?;
        let mut bytes = vec![0; self.size as usize];
        opened.read_exact_at(&mut bytes, range.start).map_err(|e| Error::io("read", opened.path(), e))?;
        opened.check_unchanged()?;
        Ok(bytes)
    }

    /// Opens a reader of the file in a tar file that is already open. It reads files of any size, in pieces.
    ///
    /// # Errors
    ///
    /// As [`Self::read_opened`].
    pub(in crate::source) fn open(&self, opened: &Arc<OpenedFile>) -> Result<MemberReader, Broken> {
        let range = self.range(opened.bytes())?;
        opened.will_read(range.clone())?;
        Ok(MemberReader::new(Arc::clone(opened), range, false, self.size, None))
    }
}
