//! Limits for files in archives.

/// Maximum size of a file in an archive that is read as a whole, in bytes.
pub(in crate::source) const MAX_MEMBER_BYTES: u64 = 256 << 20;
