//! Lists of files: one path per line, or paths terminated by NUL bytes.
//!
//! The order of the list is the order of the records.

use std::io::Read;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::detail::Detail;
use super::named_files::{Resolver, check_named_once};
use super::source_file::SourceFile;
use crate::error::{Error, Result};
use crate::options::{SourceSpec, check_local};
use crate::source::io::encoding::{to_utf8, without_bom};
use crate::source::io::planned::read_file;
use crate::storage::folder_of;

/// The name of standard input.
const STDIN: &str = "-";

/// A list of files.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FilesFrom {
    /// Path of the list; `-` is standard input.
    #[serde(with = "crate::stored_path")]
    pub list: PathBuf,
    /// Whether paths end with a NUL byte instead of a line end.
    pub null: bool,
}

impl FilesFrom {
    /// Returns the default base folder of the paths: the folder of the list, or the working directory for standard
    /// input.
    pub fn folder(&self) -> PathBuf {
        if self.is_stdin() { PathBuf::from(".") } else { folder_of(&self.list).to_owned() }
    }

    /// Returns the option and the path of the list; `None` for standard input.
    pub fn input(&self) -> Option<(&'static str, PathBuf)> {
        (!self.is_stdin()).then(|| ("files_from", self.list.clone()))
    }

    fn is_stdin(&self) -> bool {
        self.list == Path::new(STDIN)
    }

    /// Returns the files in the order of the list. Empty lines are ignored. With `are_images`, a name that leads to no file
    /// may be the name of an image without its extension.
    ///
    /// # Errors
    ///
    /// Returns an error if the list cannot be read or names a file twice.
    pub fn list(
        &self,
        source: &SourceSpec,
        follow_symlinks: bool,
        are_images: bool,
    ) -> Result<(Vec<SourceFile>, Vec<Detail>)> {
        let bytes = if self.is_stdin() {
            let mut bytes = Vec::new();
            let read = std::io::stdin().lock().read_to_end(&mut bytes);
            read.map_err(|e| Error::io("read the list of files", &self.list, e))?;
            bytes
        } else {
            check_local("files_from", &self.list)?;
            read_file(&self.list).map_err(|e| e.of_option("files_from"))?
        };
        let bytes = match self.null {
            true => bytes,
            false => to_utf8(bytes, None)
                .map_err(|reject| Error::usage(reject.message).of_option("files_from").at_path(&self.list))?,
        };
        let list = if self.null { &bytes } else { without_bom(&bytes) };
        let mut resolver = Resolver::new(source, follow_symlinks)?;
        let (mut files, mut details, mut lines) = (Vec::new(), Vec::new(), Vec::new());
        for (line, name) in names(list, self.null) {
            let (file, defect) =
                if are_images { resolver.resolve_image(name)? } else { resolver.resolve(name)? };
            files.push(file);
            details.push(Detail { defect: defect.map(Box::new), ..Detail::default() });
            lines.push(line);
        }
        let unit = if self.null { "path" } else { "line" };
        check_named_once(&files, &self.list, |i| format!("{unit} {}", lines[i]))?;
        Ok((files, details))
    }
}

/// Returns the names in a list with their line numbers, counted from 1.
fn names(list: &[u8], null: bool) -> impl Iterator<Item = (usize, &[u8])> {
    let end = if null { b'\0' } else { b'\n' };
    list.split(move |&b| b == end)
        .enumerate()
        .map(move |(i, name)| (i + 1, if null { name } else { name.strip_suffix(b"\r").unwrap_or(name) }))
        .filter(|(_, name)| !name.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_and_nul_bytes_end_names() {
        let lines: Vec<_> = names(b"a\r\n\nb c\nd", false).collect();
        assert_eq!(lines, [(1, b"a".as_slice()), (3, b"b c"), (4, b"d")]);
        let nul: Vec<_> = names(b"a\nb\r\0\xff\0", true).collect();
        assert_eq!(nul, [(1, b"a\nb\r".as_slice()), (2, b"\xff")]);
        assert_eq!(names(b"", false).count(), 0);
    }
}
