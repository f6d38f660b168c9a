//! Entity tags (RFC 9110, section 8.8.3).

/// Returns the entity tag as a condition of a request, or `None` for a weak one (`W/"…"`): such conditions never match.
pub(super) fn condition(etag: &str) -> Option<String> {
    // Azure listings return it without quotes.
    (!etag.starts_with("W/")).then(|| format!("\"{}\"", opaque(etag)))
}

/// Returns whether both tags belong to the same content. A server may send the same tag as weak in one response only, for
/// example in a compressed one.
pub(super) fn is_same(a: &str, b: &str) -> bool {
    opaque(a) == opaque(b)
}

fn opaque(etag: &str) -> &str {
    etag.trim_start_matches("W/").trim_matches('"')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weak_tags_are_compared_but_no_condition() {
        assert_eq!(condition("\"a\"").as_deref(), Some("\"a\""));
        assert_eq!(condition("a").as_deref(), Some("\"a\""));
        assert_eq!(condition("W/\"a\""), None);
        assert!(is_same("W/\"a\"", "\"a\"") && is_same("a", "\"a\""));
        assert!(!is_same("W/\"a\"", "W/\"b\""));
    }
}
