//! The digest that protects a manifest against accidental changes.
//!
//! From version 2 on, `manifest.json` starts with one of [`PREFIXES`], 64 hexadecimal digits and a quotation mark. The digits
//! are the SHA-256 of the whole file with those 64 digits replaced by `0`. Any changed byte in the file, for example in
//! a class name, an option or the hash of the tokenizer, therefore contradicts the digest. The digest protects against
//! accidents, not against someone who recomputes it.

use sha2::{Digest, Sha256};

use crate::error::{Error, Result};
use crate::storage::hex;

/// First bytes of a manifest by version, up to the digits of the digest. All have the same length.
const PREFIXES: [&[u8]; 3] = [
    b"{\n  \"manifest_version\": 2,\n  \"digest\": \"sha256:",
    b"{\n  \"manifest_version\": 3,\n  \"digest\": \"sha256:",
    b"{\n  \"manifest_version\": 4,\n  \"digest\": \"sha256:",
];
/// Position of the digits of the digest.
const DIGITS_START: usize = PREFIXES[0].len();
/// Number of hexadecimal digits of a SHA-256.
const DIGITS: usize = 64;

/// Returns the value of the `digest` member before the digest is known.
pub(super) fn placeholder() -> String {
    format!("sha256:{}", "0".repeat(DIGITS))
}

/// Replaces the placeholder in the bytes of a manifest with the digest and returns the value of the member.
pub(super) fn seal(json: &mut [u8]) -> Result<String> {
    let digest = digest_of(json)?;
    json[DIGITS_START..DIGITS_START + DIGITS].copy_from_slice(digest.as_bytes());
    Ok(format!("sha256:{digest}"))
}

/// Checks the bytes of a manifest against its digest.
pub(super) fn check(json: &[u8]) -> Result<()> {
    if digest_of(json)?.as_bytes() == &json[DIGITS_START..DIGITS_START + DIGITS] {
        return Ok(());
    }
    Err(altered("the content of the manifest does not match its digest"))
}

/// Computes the correct digest of these bytes, ignoring the one they contain.
fn digest_of(json: &[u8]) -> Result<String> {
    let found = PREFIXES.iter().find_map(|&prefix| Some((prefix, json.strip_prefix(prefix)?.get(DIGITS..)?)));
    let Some((prefix, rest)) = found.filter(|(_, rest)| rest.first() == Some(&b'"')) else {
        return Err(altered("the manifest does not start with its version and digest"));
    };
    let mut hash = Sha256::new();
    hash.update(prefix);
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
        let [.., prefix] = PREFIXES;
        format!("{}{}\"{rest}", String::from_utf8_lossy(prefix), "0".repeat(DIGITS)).into_bytes()
    }

    #[test]
    fn the_prefixes_never_change() {
        for (version, prefix) in (2..).zip(PREFIXES) {
            let expected = format!("{{\n  \"manifest_version\": {version},\n  \"digest\": \"sha256:");
            assert_eq!(prefix, expected.as_bytes());
            assert_eq!(prefix.len(), DIGITS_START);
        }
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
        for json in [&b""[..], b"{}", PREFIXES[0], &manifest("")[..DIGITS_START + DIGITS]] {
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
