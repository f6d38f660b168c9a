//! The digest that protects a manifest against accidental changes.
//!
//! From version 2 on, `manifest.json` starts with [`PREFIX`], 64 hexadecimal digits and a quotation mark. The digits
//! are the SHA-256 of the whole file with those 64 digits replaced by `0`. Any changed byte in the file, for example in
//! a class name, an option or the hash of the tokenizer, therefore contradicts the digest. The digest protects against
//! accidents, not against someone who recomputes it.

use sha2::{Digest, Sha256};

use crate::error::{Error, Result};
use crate::storage::hex;

/// First bytes of a version 2 manifest, up to the digits of the digest.
const PREFIX: &[u8] = b"{\n  \"manifest_version\": 2,\n  \"digest\": \"sha256:";
/// Number of hexadecimal digits of a SHA-256.
const DIGITS: usize = 64;

/// Returns the value of the `digest` member before the digest is known.
pub(super) fn placeholder() -> String {
    format!("sha256:{}", "0".repeat(DIGITS))
}

/// Replaces the placeholder in the bytes of a manifest with the digest and returns the value of the member.
pub(super) fn seal(json: &mut [u8]) -> Result<String> {
    let digest = digest_of(json)?;
    json[PREFIX.len()..PREFIX.len() + DIGITS].copy_from_slice(digest.as_bytes());
    Ok(format!("sha256:{digest}"))
}

/// Checks the bytes of a version 2 manifest against its digest.
pub(super) fn check(json: &[u8]) -> Result<()> {
    if digest_of(json)?.as_bytes() == &json[PREFIX.len()..PREFIX.len() + DIGITS] {
        return Ok(());
    }
    Err(altered("the content of the manifest does not match its digest"))
}

/// Computes the correct digest of these bytes, ignoring the one they contain.
fn digest_of(json: &[u8]) -> Result<String> {
    let rest = json.strip_prefix(PREFIX).and_then(|rest| rest.get(DIGITS..));
    let Some(rest) = rest.filter(|rest| rest.first() == Some(&b'"')) else {
        return Err(altered("the manifest does not start with its version and digest"));
    };
    let mut hash = Sha256::new();
    hash.update(PREFIX);
    hash.update([b'0'; DIGITS]);
    hash.update(rest);
    Ok(hex(&hash.finalize()))
}

pub(super) fn altered(what: &str) -> Error {
    Error::corrupt(what).help("the file was edited or damaged; restore it, or convert the sources again")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn manifest(rest: &str) -> Vec<u8> {
        format!("{}{}\"{rest}", String::from_utf8_lossy(PREFIX), "0".repeat(DIGITS)).into_bytes()
    }

    #[test]
    fn the_prefix_never_changes() {
        assert_eq!(PREFIX, b"{\n  \"manifest_version\": 2,\n  \"digest\": \"sha256:");
    }

    #[test]
    fn the_digest_covers_the_file_with_its_digits_set_to_zero() {
        let mut json = manifest(",\n  \"format\": \"arrow\"\n}\n");
        let zeros = hex(&Sha256::digest(&json));
        assert_eq!(seal(&mut json).unwrap(), format!("sha256:{zeros}"));
        check(&json).unwrap();
        assert!(String::from_utf8(json).unwrap().contains(&zeros));
    }

    #[test]
    fn bytes_without_a_digest_are_rejected() {
        for json in [&b""[..], b"{}", PREFIX, &manifest("")[..PREFIX.len() + DIGITS]] {
            assert!(check(json).is_err());
        }
    }

    proptest! {
        #[test]
        fn every_changed_byte_is_detected(rest in "[a-z \"{}]{0,200}", at in any::<prop::sample::Index>(), flip in 1u8..) {
            let mut json = manifest(&rest);
            seal(&mut json).unwrap();
            check(&json).unwrap();
            let at = at.index(json.len());
            json[at] ^= flip;
            prop_assert!(check(&json).is_err());
        }
    }
}
