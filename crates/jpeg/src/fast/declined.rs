//! The error for files that need another decoder.

/// The file is damaged, of a kind that [`FastDecoder`](crate::FastDecoder) does not decode, or does not match
/// the request. Another decoder can tell which.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Declined;

impl std::fmt::Display for Declined {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the file is damaged or not a common JPEG")
    }
}

impl std::error::Error for Declined {}
