//! JSON form of paths: a string for UTF-8 paths, an array of byte values for other paths.
//!
//! Used as `#[serde(with = "crate::stored_path")]`. Plans list the files of a source, and a file name may contain any
//! bytes.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

#[derive(Deserialize)]
#[serde(untagged)]
enum StoredPath {
    Text(String),
    Bytes(Vec<u8>),
}

pub(crate) fn serialize<S: Serializer>(path: &Path, serializer: S) -> Result<S::Ok, S::Error> {
    match path.to_str() {
        Some(text) => serializer.serialize_str(text),
        None => path.as_os_str().as_bytes().serialize(serializer),
    }
}

pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<PathBuf, D::Error> {
    Ok(match StoredPath::deserialize(deserializer)? {
        StoredPath::Text(text) => text.into(),
        StoredPath::Bytes(bytes) => OsString::from_vec(bytes).into(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Holder(#[serde(with = "super")] PathBuf);

    #[test]
    fn any_path_survives_json() {
        for bytes in [&b"a/b.jpg"[..], b"\xff\xfe/x", "\u{e4}/\n".as_bytes(), b""] {
            let path = Holder(OsString::from_vec(bytes.to_vec()).into());
            let json = serde_json::to_string(&path).unwrap();
            assert_eq!(serde_json::from_str::<Holder>(&json).unwrap(), path, "{json}");
        }
    }
}
