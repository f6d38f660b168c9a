//! Parsing of human-readable sizes and reject limits.

use std::fmt;
use std::str::FromStr;

use crate::error::{Error, Result};

/// Parses a number of bytes: `4096`, `64k`, `256MiB`, `1.5GB`. `k`, `M`, `G`, `T` and `KiB`, `MiB`, … are powers of
/// 1024; `kB`, `MB`, … are powers of 1000.
pub fn parse_size(text: &str) -> Result<u64> {
    let bad = || {
        Error::usage(format!("{text:?} is not a size"))
            .help("write a number of bytes, such as 4096, 64k, 256MiB or 1GB")
    };
    let text = text.trim();
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let scale: u64 = match unit.trim() {
        "" | "B" => 1,
        "k" | "K" | "KiB" => 1 << 10,
        "M" | "MiB" => 1 << 20,
        "G" | "GiB" => 1 << 30,
        "T" | "TiB" => 1 << 40,
        "kB" | "KB" => 1000,
        "MB" => 1_000_000,
        "GB" => 1_000_000_000,
        "TB" => 1_000_000_000_000,
        _ => return Err(bad()),
    };
    if let Ok(whole) = number.parse::<u64>() {
        return whole.checked_mul(scale).ok_or_else(bad);
    }
    let value: f64 = number.parse().ok().filter(|_| number.contains('.')).ok_or_else(bad)?;
    let bytes = value * scale as f64;
    if bytes < u64::MAX as f64 { Ok(bytes as u64) } else { Err(bad()) }
}

/// The maximum number of rejects in a commit.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum MaxRejects {
    /// At most this percentage of the items found.
    Percent(f64),
    /// At most this many rejects.
    Count(u64),
}

impl MaxRejects {
    /// Returns whether `rejected` of `found` items exceed the limit.
    pub fn exceeded(self, rejected: u64, found: u64) -> bool {
        match self {
            MaxRejects::Percent(p) => rejected as f64 > found as f64 * p / 100.0,
            MaxRejects::Count(n) => rejected > n,
        }
    }
}

impl Default for MaxRejects {
    fn default() -> Self {
        MaxRejects::Percent(10.0)
    }
}

impl fmt::Display for MaxRejects {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MaxRejects::Percent(p) => write!(f, "{p}%"),
            MaxRejects::Count(n) => write!(f, "{n}"),
        }
    }
}

impl FromStr for MaxRejects {
    type Err = Error;

    fn from_str(s: &str) -> Result<Self> {
        let parsed = match s.strip_suffix('%') {
            Some(p) => p.parse().ok().filter(|p| (0.0..=100.0).contains(p)).map(MaxRejects::Percent),
            None => s.parse().ok().map(MaxRejects::Count),
        };
        parsed.ok_or_else(|| {
            Error::usage(format!("{s:?} is not a reject limit"))
                .help("write a number, such as 100, or a percentage, such as 10%")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes() {
        for (text, bytes) in [
            ("4096", 4096),
            ("64k", 65_536),
            ("256MiB", 256 << 20),
            ("1GB", 1_000_000_000),
            ("1.5k", 1536),
            ("0", 0),
        ] {
            assert_eq!(parse_size(text).unwrap(), bytes, "{text}");
        }
        for bad in ["", "x", "12 parsecs", "-1", "99999999999999999999T", "1e3"] {
            assert!(parse_size(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn ten_percent_of_found_is_still_allowed() {
        let limit: MaxRejects = "10%".parse().unwrap();
        assert!(!limit.exceeded(1, 10));
        assert!(limit.exceeded(2, 10));
        assert!(!"3".parse::<MaxRejects>().unwrap().exceeded(3, 3));
        assert!("101%".parse::<MaxRejects>().is_err());
    }
}
