//! Assignment of records to splits by hash of the key.
//!
//! The 64-bit hashes are divided into one range per split, and the seeded XXH3-64 of a key selects its range. The split
//! depends only on the key and the seed: adding files never moves an existing record to another split.

use std::fmt;
use std::str::FromStr;

use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::serde_as_text;
use super::split_words::split_named;
use crate::error::{Error, Result};
use crate::index::check_split_name;

/// Maximum number of digits after the decimal point. Fractions are exact decimals.
const DIGITS: usize = 9;
const ONE: u64 = 10u64.pow(DIGITS as u32);

/// Named splits with fractions that add up to one. As in names of folders, `val` is another name of `validation`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SplitSpec {
    /// Names and fractions as parsed, so that equal splits have equal descriptions.
    text: String,
    /// Name and exclusive upper bound of the hash; the last split takes the rest.
    parts: Vec<(String, u64)>,
}

impl SplitSpec {
    /// Returns the split names in the order given.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.parts.iter().map(|(name, _)| name.as_str())
    }

    /// Returns the ordinal of the split that `key` belongs to.
    pub fn split_of(&self, key: &str, seed: u64) -> usize {
        let hash = xxh3_64_with_seed(key.as_bytes(), seed);
        let last = self.parts.len() - 1;
        self.parts[..last].iter().position(|&(_, below)| hash < below).unwrap_or(last)
    }
}

impl FromStr for SplitSpec {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let bad = |why: String| {
            Error::usage(format!("{text:?}: {why}"))
                .of_option("split")
                .help("write splits such as train=0.9,validation=0.1, whose fractions add up to 1")
        };
        let mut parts: Vec<(String, u64)> = Vec::new();
        let mut texts = Vec::new();
        let mut sum = 0u64;
        for part in text.split(',') {
            let (name, fraction) =
                part.split_once('=').ok_or_else(|| bad(format!("{part:?} is not NAME=FRACTION")))?;
            let (given, fraction) = (name.trim(), fraction.trim());
            check_split_name(given).map_err(|e| {
                let help = e.remedy().unwrap_or_default().to_owned();
                bad(e.to_string()).help(help)
            })?;
            let name = split_named(given).unwrap_or(given);
            if parts.iter().any(|(n, _)| n == name) {
                let as_given = if name == given { String::new() } else { format!(", also as {given:?}") };
                return Err(bad(format!("the split {name:?} is named twice{as_given}")));
            }
            texts.push(format!("{name}={fraction}"));
            sum += parse_fraction(fraction).ok_or_else(|| {
                bad(format!("{fraction:?} is not a fraction between 0 and 1 with up to {DIGITS} digits"))
            })?;
            // Exact: the product fits into 128 bits.
            let below = (u128::from(sum) << 64) / u128::from(ONE);
            parts.push((name.to_owned(), u64::try_from(below).unwrap_or(u64::MAX)));
        }
        if sum != ONE {
            let total = format!("{}.{:09}", sum / ONE, sum % ONE);
            let total = total.trim_end_matches('0').trim_end_matches('.');
            return Err(bad(format!("the fractions add up to {total}, not to 1")));
        }
        Ok(Self { text: texts.join(","), parts })
    }
}

/// Parses a fraction into billionths: `0.25` → 250,000,000. Integers, unlike floats, make 0.1 + 0.2 + 0.7 exactly one.
fn parse_fraction(text: &str) -> Option<u64> {
    let (whole, digits) = text.split_once('.').unwrap_or((text, ""));
    let all_digits = |s: &str| s.bytes().all(|b| b.is_ascii_digit());
    if !(all_digits(whole) && all_digits(digits)) || whole.len() + digits.len() == 0 || digits.len() > DIGITS
    {
        return None;
    }
    let whole: u64 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
    let digits: u64 = format!("{digits:0<DIGITS$}").parse().ok()?;
    whole.checked_mul(ONE)?.checked_add(digits).filter(|&f| f <= ONE)
}

impl fmt::Display for SplitSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

serde_as_text!(SplitSpec);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fractions_are_exact_and_must_add_up() {
        "train=0.7,validation=0.1,test=0.2".parse::<SplitSpec>().unwrap();
        "a=1".parse::<SplitSpec>().unwrap();
        for bad in [
            "",
            "train",
            "train=0.9",
            "a=0.5,a=0.5",
            "val=0.5,validation=0.5",
            "eval=0.5,test=0.5",
            "a=0.9,b=0.2",
            "a=-1,b=2",
            "a=0.5x,b=.5",
            "a b=1",
            "a=.",
            "../x=1",
        ] {
            assert!(bad.parse::<SplitSpec>().is_err(), "{bad}");
        }
    }

    #[test]
    fn an_invalid_name_has_a_remedy_about_names() {
        let error = "hold.out=0.1,train=0.9".parse::<SplitSpec>().unwrap_err();
        assert!(
            error.to_string().contains("hold.out") && error.remedy().unwrap().contains("letters"),
            "{error}"
        );
    }

    #[test]
    fn well_known_names_are_those_of_folders() {
        let spec = |text: &str| text.parse::<SplitSpec>().unwrap();
        assert_eq!(spec("Train=0.8, val=0.1,eval=0.1"), spec("train=0.8,validation=0.1,test=0.1"));
        assert_eq!(spec("dev=.5,held-out=.5").to_string(), "validation=.5,held-out=.5");
        let twice = "val=0.5,dev=0.5".parse::<SplitSpec>().unwrap_err().to_string();
        assert!(twice.contains("\"validation\" is named twice, also as \"dev\""), "{twice}");
    }

    #[test]
    fn splits_have_the_requested_fractions() {
        let spec: SplitSpec = "a=0.8,b=0.2,c=0".parse().unwrap();
        let mut counts = [0; 3];
        for i in 0..10_000 {
            counts[spec.split_of(&format!("k{i}"), 1)] += 1;
        }
        assert!((7_800..8_200).contains(&counts[0]) && counts[2] == 0, "{counts:?}");
    }

    /// The split of a key is guaranteed to be stable, so the expected value of this test must never change.
    #[test]
    fn the_split_of_a_key_never_changes() {
        let spec: SplitSpec = "a=0.5,b=0.5".parse().unwrap();
        let found: String =
            (0..16).map(|i| if spec.split_of(&format!("k{i}"), 7) == 0 { 'a' } else { 'b' }).collect();
        assert_eq!(found, "ababbbbbabababaa");
    }
}
