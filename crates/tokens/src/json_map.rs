//! Vocabularies as JSON objects in the order of their ids, so that the bytes of a file depend on nothing else.

use serde::ser::{SerializeMap, Serializer};

/// Writes `vocab` as an object; for `serialize_with`.
pub(crate) fn as_map<K: AsRef<str>, S: Serializer>(
    vocab: &[(K, u32)],
    serializer: S,
) -> Result<S::Ok, S::Error> {
    let mut map = serializer.serialize_map(Some(vocab.len()))?;
    for (token, id) in vocab {
        map.serialize_entry(token.as_ref(), id)?;
    }
    map.end()
}
