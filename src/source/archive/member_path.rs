//! Paths of files in archives.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use crate::source::portable_name;
use crate::source::splits::is_split_name;

/// A folder that macOS adds to archives.
const MAC_FOLDER: &[u8] = b"__MACOSX";

/// Returns the path without empty and `.` components; `None` if it leads out of the archive or has a hidden component.
pub(super) fn path_of(name: &[u8]) -> Option<Vec<u8>> {
    if name.starts_with(b"/") || name.contains(&0) {
        return None;
    }
    let parts: Vec<&[u8]> =
        name.split(|&byte| byte == b'/').filter(|part| !part.is_empty() && *part != b".").collect();
    // `..` also counts as hidden.
    let is_hidden = |part: &&[u8]| part.starts_with(b".") || *part == MAC_FOLDER;
    (!parts.is_empty() && !parts.iter().any(is_hidden)).then(|| parts.join(&b'/'))
}

pub(super) fn portable(path: &[u8]) -> String {
    let parts: Vec<String> =
        path.split(|&byte| byte == b'/').map(|part| portable_name(OsStr::from_bytes(part))).collect();
    parts.join("/")
}

/// Returns whether all of `paths` are in one folder without a meaning of its own: it is named like the archive, or it
/// contains only folders and is not named like a split.
pub(super) fn has_root(paths: &[&[u8]], archive: &str) -> bool {
    let mut roots = BTreeSet::new();
    let mut holds_files = false;
    for path in paths {
        let mut parts = path.split(|&byte| byte == b'/');
        let root = parts.next().filter(|_| parts.next().is_some());
        holds_files |= parts.next().is_none();
        roots.insert(root);
    }
    match roots.into_iter().collect::<Vec<_>>()[..] {
        [Some(root)] => {
            let root = portable_name(OsStr::from_bytes(root));
            root == archive || (!holds_files && !is_split_name(&root))
        }
        _ => false,
    }
}
