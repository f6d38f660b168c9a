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

/// Returns the path of a member without `.` components; `None` if it leads out of the tar file.
pub(in crate::source) fn safe_path(name: &[u8]) -> Option<String> {
    if name.starts_with(b"/") {
        return None;
    }
    let mut path = String::new();
    for part in name.split(|&b| b == b'/').filter(|part| !part.is_empty() && *part != b".") {
        if part == b".." {
            return None;
        }
        if !path.is_empty() {
            path.push('/');
        }
        path.push_str(&portable_name(OsStr::from_bytes(part)));
    }
    Some(path)
}

/// Divides a path into the name of the sample and the extension of the member.
pub(in crate::source) fn divide(path: &str) -> (&str, String) {
    let last = path.rfind('/').map_or(0, |slash| slash + 1);
    // A leading dot hides a file and does not end its name.
    match path[last..].char_indices().skip(1).find(|(_, c)| *c == '.') {
        Some((dot, _)) => (&path[..last + dot], path[last + dot + 1..].to_ascii_lowercase()),
        None => (path, String::new()),
    }
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

    #[test]
    fn paths_are_safe_and_divided_at_the_first_dot() {
        let parts = |name: &[u8]| safe_path(name).map(|p| (divide(&p).0.to_owned(), divide(&p).1));
        let some = |name: &str, extension: &str| Some((name.to_owned(), extension.to_owned()));
        assert_eq!(parts(b"./a.b/0001.left.JPG"), some("a.b/0001", "left.jpg"));
        assert_eq!(parts(b"x"), some("x", ""));
        assert_eq!(parts(b".hidden"), some(".hidden", ""));
        assert_eq!(parts("ä.jpg".as_bytes()), some("ä", "jpg"));
        assert_eq!(parts(b"caf\xe9.jpg"), some("caf%E9", "jpg"));
        assert_eq!(parts(b""), some("", ""));
        for name in [b"/a.jpg".as_slice(), b"../a.jpg", b"a/../b.jpg", b".."] {
            assert_eq!(parts(name), None);
        }
    }
}
