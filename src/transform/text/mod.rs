//! Token ids.
