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
    let Decimal { units, decimals } = Decimal::parse(number).ok_or_else(bad)?;
    u64::try_from(u128::from(units) * u128::from(scale) / 10u128.pow(decimals)).map_err(|_| bad())
}

/// A number with a few decimals, stored exactly: `units / 10^decimals`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Decimal {
    units: u64,
    /// At most [`MAX_DECIMALS`]; the last one is not 0.
    decimals: u32,
}

/// With more decimals, comparisons could overflow.
const MAX_DECIMALS: usize = 15;

impl Decimal {
    /// Parses a number; `None` for other text, and if it has too many digits.
    fn parse(text: &str) -> Option<Self> {
        let (whole, decimals) = text.split_once('.').unwrap_or((text, ""));
        let digits = || whole.bytes().chain(decimals.bytes());
        if digits().next().is_none() || !digits().all(|byte| byte.is_ascii_digit()) {
            return None;
        }
        let decimals = decimals.trim_end_matches('0');
        let units = format!("0{whole}{decimals}").parse().ok()?;
        (decimals.len() <= MAX_DECIMALS).then_some(Self { units, decimals: decimals.len() as u32 })
    }
}

impl fmt::Display for Decimal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scale = 10u64.pow(self.decimals);
        write!(f, "{}", self.units / scale)?;
        match self.decimals {
            0 => Ok(()),
            decimals => write!(f, ".{:0width$}", self.units % scale, width = decimals as usize),
        }
    }
}

/// The maximum number of rejects in a commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MaxRejects {
    /// At most this percentage of the items found, up to 100.
    Percent(Decimal),
    /// At most this many rejects.
    Count(u64),
}

impl MaxRejects {
    /// Returns whether `rejected` of `found` items exceed the limit.
    pub fn exceeded(self, rejected: u64, found: u64) -> bool {
        match self {
            MaxRejects::Percent(Decimal { units, decimals }) => {
                u128::from(rejected) * 100 * 10u128.pow(decimals) > u128::from(found) * u128::from(units)
            }
            MaxRejects::Count(n) => rejected > n,
        }
    }
}

impl Default for MaxRejects {
    fn default() -> Self {
        MaxRejects::Percent(Decimal { units: 10, decimals: 0 })
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
        let is_percentage = |p: &Decimal| p.units <= 100 * 10u64.pow(p.decimals);
        let parsed = match s.strip_suffix('%') {
            Some(p) => Decimal::parse(p).filter(is_percentage).map(MaxRejects::Percent),
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
            (".5k", 512),
            ("1.001kB", 1001),
            ("4.35kB", 4350),
            ("1.0000000000000000000k", 1024),
            ("0", 0),
        ] {
            assert_eq!(parse_size(text).unwrap(), bytes, "{text}");
        }
        for bad in
            ["", "x", "12 parsecs", "-1", "99999999999999999999T", "1e3", ".k", "1.2.3k", "16777216.0T"]
        {
            assert!(parse_size(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn ten_percent_of_found_is_still_allowed() {
        let limit: MaxRejects = "10%".parse().unwrap();
        assert!(!limit.exceeded(1, 10));
        assert!(limit.exceeded(2, 10));
        assert!(!"3".parse::<MaxRejects>().unwrap().exceeded(3, 3));
        for bad in ["101%", "100.1%", "-1%", "%", ".%", "1e1%", "nan%", "0.0000000000000001%"] {
            assert!(bad.parse::<MaxRejects>().is_err(), "{bad}");
        }
    }

    #[test]
    fn percentages_are_exact() {
        for (percentage, rejected, found) in
            [("9.2%", 69, 750), ("0.07%", 7, 10_000), ("33.3%", 333, 1000), ("100%", u64::MAX, u64::MAX)]
        {
            let limit: MaxRejects = percentage.parse().unwrap();
            assert_eq!(limit.to_string(), percentage);
            assert!(!limit.exceeded(rejected, found), "{percentage}");
            assert!(limit.exceeded(rejected, found - 1), "{percentage}");
        }
        let shown = |text: &str| text.parse::<MaxRejects>().unwrap().to_string();
        assert_eq!(
            [shown("09.20%"), shown(".05%"), shown("5.%"), shown("0%")],
            ["9.2%", "0.05%", "5%", "0%"]
        );
        assert_eq!(MaxRejects::default(), "10%".parse().unwrap());
    }
}
