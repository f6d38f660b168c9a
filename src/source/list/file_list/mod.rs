//! The files of a plan, compressed in memory.
//!
//! A plan lists every file of its sources, and is read from start to end many times: to find splits and classes, to
//! divide it into units, and to write it. As values of [`SourceFile`], ten million files take three gigabytes; here
//! they take about a hundred megabytes.

mod block;

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use self::block::{BlockReader, OpenBlock};
use super::source_file::SourceFile;
use crate::error::{Error, Result};

/// Number of files that are compressed together. More files would compress better, but make access to single files
/// slower.
const BLOCK_FILES: usize = 512;

/// Source files in a fixed order.
#[derive(Clone, Default)]
pub struct FileList {
    /// Compressed, [`BLOCK_FILES`] files each.
    blocks: Vec<Box<[u8]>>,
    /// The files after the last block.
    open: OpenBlock,
    len: usize,
    bytes: u64,
}

impl FileList {
    /// Returns the number of files.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns whether there are no files.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the total size of all files, in bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Appends a file.
    pub fn push(&mut self, file: &SourceFile) {
        self.open.push(file);
        self.len += 1;
        self.bytes = self.bytes.saturating_add(file.bytes);
        if self.len.is_multiple_of(BLOCK_FILES) {
            self.blocks.push(self.open.seal());
        }
    }

    /// Returns the file with this ordinal. For consecutive files, [`FileList::range`] is hundreds of times as fast.
    pub fn get(&self, ordinal: usize) -> Option<SourceFile> {
        self.range(ordinal..ordinal.saturating_add(1)).next()
    }

    /// Returns all files.
    pub fn iter(&self) -> Iter<'_> {
        self.range(0..self.len)
    }

    /// Returns the files with these ordinals, as far as they exist.
    pub fn range(&self, ordinals: Range<usize>) -> Iter<'_> {
        let end = ordinals.end.min(self.len);
        Iter { list: self, next: ordinals.start.min(end), end, started: false, files: BlockReader::default() }
    }

    /// Returns the files as compressed blocks, which [`FileList::add_block`] accepts.
    pub fn blocks(&self) -> impl Iterator<Item = Cow<'_, [u8]>> {
        let mut rest = self.open.clone();
        let is_open = !self.len.is_multiple_of(BLOCK_FILES);
        let last = is_open.then(|| Cow::Owned(rest.seal().into_vec()));
        self.blocks.iter().map(|block| Cow::Borrowed(&**block)).chain(last)
    }

    /// Appends the files of one of the [`FileList::blocks`] of another list. Returns false if the bytes are not a valid
    /// block, or if the block before it was not full.
    #[must_use]
    pub fn add_block(&mut self, bytes: Vec<u8>) -> bool {
        let mut files = BlockReader::default();
        if files.open(&bytes).is_none() {
            return false;
        }
        let (mut count, mut sum) = (0, 0u64);
        while files.advance().is_some() {
            count += 1;
            sum = sum.saturating_add(files.bytes);
        }
        if !self.len.is_multiple_of(BLOCK_FILES) || count > BLOCK_FILES || !files.is_at_end() {
            return false;
        }
        if count == BLOCK_FILES {
            self.blocks.push(bytes.into_boxed_slice());
            self.len += count;
            self.bytes = self.bytes.saturating_add(sum);
        } else if files.open(&bytes).is_some() {
            while files.advance().is_some() {
                self.push(&files.file());
            }
        }
        true
    }

    /// Resets `reader` to the first file of a block.
    fn read_block(&self, ordinal: usize, reader: &mut BlockReader) -> Option<()> {
        match self.blocks.get(ordinal) {
            Some(block) => reader.open(block),
            None => {
                self.open.read(reader);
                Some(())
            }
        }
    }
}

impl fmt::Debug for FileList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self).finish()
    }
}

impl Extend<SourceFile> for FileList {
    fn extend<I: IntoIterator<Item = SourceFile>>(&mut self, files: I) {
        files.into_iter().for_each(|file| self.push(&file));
    }
}

impl FromIterator<SourceFile> for FileList {
    fn from_iter<I: IntoIterator<Item = SourceFile>>(files: I) -> Self {
        let mut list = Self::default();
        list.extend(files);
        list
    }
}

impl<'a> IntoIterator for &'a FileList {
    type Item = SourceFile;
    type IntoIter = Iter<'a>;

    fn into_iter(self) -> Iter<'a> {
        self.iter()
    }
}

/// Iterator over consecutive files of a [`FileList`].
pub struct Iter<'a> {
    list: &'a FileList,
    next: usize,
    end: usize,
    started: bool,
    /// Reader of the block of the next file, positioned at that file.
    files: BlockReader,
}

impl fmt::Debug for Iter<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Iter").field("next", &self.next).field("end", &self.end).finish_non_exhaustive()
    }
}

impl Iterator for Iter<'_> {
    type Item = SourceFile;

    fn next(&mut self) -> Option<SourceFile> {
        if self.next == self.end {
            return None;
        }
        let in_block = self.next % BLOCK_FILES;
        if !self.started || in_block == 0 {
            self.list.read_block(self.next / BLOCK_FILES, &mut self.files)?;
            for _ in 0..in_block {
                self.files.advance()?;
            }
            self.started = true;
        }
        self.files.advance()?;
        self.next += 1;
        Some(self.files.file())
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.end - self.next, Some(self.end - self.next))
    }
}

impl ExactSizeIterator for Iter<'_> {}

/// Access to files of a list in approximately their order: recently read blocks are kept.
pub struct NearbyFiles<'a> {
    list: &'a FileList,
    /// Ordinals and files of the blocks, the most recent one last.
    blocks: Vec<(usize, Vec<SourceFile>)>,
}

impl<'a> NearbyFiles<'a> {
    /// Number of blocks that are kept.
    const KEPT: usize = 4;

    /// Starts to access the files of `list`.
    pub fn new(list: &'a FileList) -> Self {
        Self { list, blocks: Vec::new() }
    }

    /// Returns the file with this ordinal.
    pub fn get(&mut self, ordinal: usize) -> Option<&SourceFile> {
        let block = ordinal / BLOCK_FILES;
        if let Some(at) = self.blocks.iter().position(|(kept, _)| *kept == block) {
            self.blocks[at..].rotate_left(1);
        } else {
            if self.blocks.len() == Self::KEPT {
                self.blocks.remove(0);
            }
            let start = block * BLOCK_FILES;
            self.blocks.push((block, self.list.range(start..start + BLOCK_FILES).collect()));
        }
        self.blocks.last()?.1.get(ordinal % BLOCK_FILES)
    }
}

/// Access to files that are shared with tasks, most often the same one again or the next one.
pub struct FileCursor<'a> {
    files: NearbyFiles<'a>,
    /// Files that were read in advance, by ordinal.
    ahead: BTreeMap<usize, Arc<SourceFile>>,
    /// The last file, with its ordinal.
    last: Option<(usize, Arc<SourceFile>)>,
}

impl<'a> FileCursor<'a> {
    /// Starts to access the files of `list`.
    pub fn new(list: &'a FileList) -> Self {
        Self { files: NearbyFiles::new(list), ahead: BTreeMap::new(), last: None }
    }

    /// Starts to access the files of `list` with these `ordinals` in any order. They are read now, so that each block is
    /// unpacked once.
    ///
    /// # Errors
    ///
    /// Fails if the list is shorter.
    pub fn of(list: &'a FileList, ordinals: impl IntoIterator<Item = usize>) -> Result<Self> {
        let mut cursor = Self::new(list);
        for ordinal in ordinals.into_iter().collect::<BTreeSet<_>>() {
            let file = cursor.get(ordinal)?;
            cursor.ahead.insert(ordinal, file);
        }
        Ok(cursor)
    }

    /// Returns the file with this ordinal.
    ///
    /// # Errors
    ///
    /// Fails if the list is shorter.
    pub fn get(&mut self, ordinal: usize) -> Result<Arc<SourceFile>> {
        if let Some((last, file)) = &self.last
            && *last == ordinal
        {
            return Ok(Arc::clone(file));
        }
        if let Some(file) = self.ahead.get(&ordinal) {
            return Ok(Arc::clone(file));
        }
        let file = Arc::new(self.files.get(ordinal).cloned().ok_or_else(not_in_list)?);
        self.last = Some((ordinal, Arc::clone(&file)));
        Ok(file)
    }
}

/// Returns the error for an ordinal that is too large.
pub fn not_in_list() -> Error {
    Error::internal("a unit has a file that is not in the plan")
}

/// A selection of the files of a list.
#[derive(Debug, Clone)]
pub struct ChosenFiles<'a> {
    files: &'a FileList,
    /// Whether each file is selected; `None`: all are.
    chosen: Option<Vec<bool>>,
}

impl<'a> ChosenFiles<'a> {
    /// Selects all files of a list.
    pub fn all(files: &'a FileList) -> Self {
        Self { files, chosen: None }
    }

    /// Selects the files that `choose` keeps.
    pub fn filtered(files: &'a FileList, mut choose: impl FnMut(&SourceFile) -> bool) -> Self {
        let chosen = files.iter().map(|file| choose(&file)).collect();
        Self { files, chosen: Some(chosen) }
    }

    /// Selects those of the selected files that `choose` keeps.
    #[must_use]
    pub fn also(&self, choose: impl Fn(&SourceFile) -> bool) -> Self {
        let mut known = self.chosen.iter().flatten();
        Self::filtered(self.files, |file| known.next().copied().unwrap_or(true) && choose(file))
    }

    /// Returns the first selected file in each folder: files in one folder follow each other. Files in no folder are left
    /// out.
    pub(in crate::source) fn first_in_folders(&self) -> impl Iterator<Item = SourceFile> {
        let mut last = String::new();
        self.iter().filter(move |file| {
            let folder = file.origin.rsplit_once('/').map_or("", |(folder, _)| folder);
            let is_first = folder != last;
            folder.clone_into(&mut last);
            is_first
        })
    }

    /// Returns the selected files, in order.
    pub fn iter(&self) -> impl Iterator<Item = SourceFile> {
        let chosen = self.chosen.as_deref();
        let is_chosen = move |at: usize| chosen.is_none_or(|chosen| chosen.get(at).copied().unwrap_or(false));
        self.files.iter().enumerate().filter(move |(at, _)| is_chosen(*at)).map(|(_, file)| file)
    }

    /// Returns whether there are no files.
    pub fn is_empty(&self) -> bool {
        match &self.chosen {
            Some(chosen) => !chosen.contains(&true),
            None => self.files.is_empty(),
        }
    }
}

#[cfg(test)]
mod tests;
