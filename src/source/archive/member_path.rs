//! Paths of files in archives.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use memchr::memchr;

use crate::options::SplitName;
use crate::source::io::name::portable_name;

/// A folder that macOS adds to archives.
const MAC_FOLDER: &[u8] = b"__MACOSX";

/// Returns the path without empty and `.` components; `None` if it leads out of the archive or has a hidden component.
pub(in crate::source) fn path_of(name: &[u8]) -> Option<Vec<u8>> {
    if name.starts_with(b"/") || name.contains(&0) {
        return None;
    }
    let parts: Vec<&[u8]> =
        name.split(|&byte| byte == b'/').filter(|part| !part.is_empty() && *part != b".").collect();
    // `..` also counts as hidden.
    let is_hidden = |part: &&[u8]| part.starts_with(b".") || *part == MAC_FOLDER;
    (!parts.is_empty() && !parts.iter().any(is_hidden)).then(|| parts.join(&b'/'))
}

pub(in crate::source) fn portable(path: &[u8]) -> String {
    let parts: Vec<String> =
        path.split(|&byte| byte == b'/').map(|part| portable_name(OsStr::from_bytes(part))).collect();
    parts.join("/")
}

/// Returns the number of leading folders of all `paths` that have no meaning of their own. Such a folder holds the whole
/// archive. The first one is named like the archive; or it holds only folders and is not named like a split, as all
/// further ones do.
pub(in crate::source) fn root_parts(paths: &[&[u8]], archive: &str) -> u32 {
    let mut count = 0;
    let mut rests = paths.to_vec();
    while let Some(root) = enter_common_folder(&mut rests) {
        let name = portable_name(OsStr::from_bytes(root.name));
        let is_archive = count == 0 && name == archive;
        if !is_archive && (root.holds_files || SplitName::of(&name).is_some()) {
            break;
        }
        count += 1;
    }
    count as u32
}

/// A folder that contains all files of an archive.
struct CommonFolder<'a> {
    name: &'a [u8],
    /// Whether it directly contains files.
    holds_files: bool,
}

/// Returns the first folder of all `paths` if it is the same, and removes it from them. So the time is linear in the length
/// of the paths, which archives choose.
fn enter_common_folder<'a>(paths: &mut [&'a [u8]]) -> Option<CommonFolder<'a>> {
    let mut common: Option<CommonFolder<'a>> = None;
    for path in paths {
        let end = memchr(b'/', path)?;
        let (name, rest) = (&path[..end], &path[end + 1..]);
        let holds_files = memchr(b'/', rest).is_none();
        let common = common.get_or_insert(CommonFolder { name, holds_files });
        if common.name != name {
            return None;
        }
        common.holds_files |= holds_files;
        *path = rest;
    }
    common
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_around_everything_are_counted() {
        let count = |paths: &[&str]| {
            let paths: Vec<&[u8]> = paths.iter().map(|path| path.as_bytes()).collect();
            root_parts(&paths, "pets")
        };
        assert_eq!(count(&["a/1", "b/2"]), 0);
        assert_eq!(count(&["root/a/1", "root/b/2"]), 1);
        assert_eq!(count(&["food/images/a/1", "food/images/b/2"]), 2);
        // A folder with files is a class, unless it is named like the archive.
        assert_eq!(count(&["root/a/1", "root/a/2"]), 1);
        assert_eq!(count(&["cats/1", "cats/2"]), 0);
        assert_eq!(count(&["pets/1", "pets/2"]), 1);
        assert_eq!(count(&["pets/pets/1"]), 1);
        assert_eq!(count(&["root/a/1", "root/2"]), 0);
        assert_eq!(count(&["root/train/a/1", "root/train/b/2"]), 1);
        assert_eq!(count(&["1", "2"]), 0);
        assert_eq!(count(&[]), 0);
        let deep = "a/".repeat(300_000) + "1";
        assert_eq!(count(&[&deep, &deep]), 299_999, "in linear time");
    }
}
