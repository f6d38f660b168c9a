//! Checks open files against their SHA-256.

use dsconvert_dataset::error::{Error, Result};
use dsconvert_dataset::storage::Blob;
use sha2::{Digest, Sha256};

/// Bytes hashed between two progress reports.
const CHUNK_BYTES: u64 = 1 << 20;

/// Checks that the SHA-256 of `blob` is `expected` (lower-case hexadecimal). `each_chunk` is called with the number of
/// bytes hashed since its last call.
///
/// # Errors
///
/// [`ErrorKind::Corrupt`](dsconvert_dataset::error::ErrorKind) when the hash differs.
pub(super) fn check_sha256(blob: &Blob, expected: &str, mut each_chunk: impl FnMut(u64)) -> Result<()> {
    let mut hash = Sha256::new();
    let mut offset = 0;
    while offset < blob.len() {
        let bytes = CHUNK_BYTES.min(blob.len() - offset);
        hash.update(blob.read(offset, bytes)?);
        offset += bytes;
        each_chunk(bytes);
    }
    let found = hash.finalize();
    let same = expected.len() == 2 * found.len()
        && found
            .iter()
            .zip(expected.as_bytes().chunks(2))
            .all(|(byte, hex)| format!("{byte:02x}").as_bytes() == hex);
    if same {
        return Ok(());
    }
    Err(Error::corrupt("the SHA-256 of the file differs from the recorded one")
        .at_path(blob.path())
        .help("the file was altered; restore it or convert again"))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use bytes::Bytes;

    use super::*;

    #[test]
    fn a_hash_is_compared_whole() {
        let blob = Blob::from_bytes(Path::new("x"), Bytes::from_static(b"abc"));
        let right = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        let mut bytes = 0;
        check_sha256(&blob, right, |n| bytes += n).unwrap();
        assert_eq!(bytes, 3);
        for wrong in ["", "ba", &right[..62], &right.replace("ad", "ae"), &right.to_uppercase()] {
            assert!(check_sha256(&blob, wrong, |_| {}).is_err(), "{wrong}");
        }
    }
}
