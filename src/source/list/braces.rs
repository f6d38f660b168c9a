//! Numeric ranges in the names of sources: `train-{000..003}.tar` names four files.

use std::ffi::OsStr;

use crate::error::{Error, Result};
use crate::options::SourceSpec;
use crate::storage::stat;

/// Maximum number of files that one name may expand to.
const MAX_FILES: u64 = 1 << 20;

/// Replaces every source with ranges in its path by the sources it expands to, unless the path exists under exactly
/// that name. The label of a source is its path from the first component with a range. A label given by the user is
/// prepended.
///
/// # Errors
///
/// Returns an error if a range is empty or too long.
pub fn expand(sources: &[SourceSpec]) -> Result<Vec<SourceSpec>> {
    let mut all = Vec::new();
    for source in sources {
        let text = match source.path.to_str().filter(|t| range(t).is_some()) {
            Some(text) if stat(&source.path)?.is_none() => text,
            _ => {
                all.push(source.clone());
                continue;
            }
        };
        let has_default_label = source.path.file_name().is_some_and(|name| *name == *source.label);
        let has_range = |part: &OsStr| part.to_str().is_some_and(|part| range(part).is_some());
        let fixed = source.path.iter().take_while(|part| !has_range(part)).count();
        for path in paths(text)? {
            let path = std::path::PathBuf::from(path);
            let name = path
                .iter()
                .skip(fixed)
                .map(crate::source::io::name::portable_name)
                .collect::<Vec<_>>()
                .join("/");
            let label = if has_default_label { name } else { format!("{}/{name}", source.label) };
            all.push(SourceSpec { label, path });
        }
    }
    Ok(all)
}

/// Returns the first range in `text`: the text before it, both bounds, and the text after it.
fn range(text: &str) -> Option<(&str, &str, &str, &str)> {
    for (open, _) in text.match_indices('{') {
        let (inside, after) = text[open + 1..].split_once('}')?;
        if let Some((from, to)) = inside.split_once("..") {
            let digits = |t: &str| !t.is_empty() && t.bytes().all(|b| b.is_ascii_digit());
            if digits(from) && digits(to) {
                return Some((&text[..open], from, to, after));
            }
        }
    }
    None
}

/// Expands the ranges in `text`. The last range varies fastest. Numbers have at least as many digits as the lower
/// bound.
fn paths(text: &str) -> Result<Vec<String>> {
    let Some((before, from, to, after)) = range(text) else { return Ok(vec![text.to_owned()]) };
    let wrong = || {
        Error::usage(format!("invalid range of files {{{from}..{to}}}"))
            .help(format!("a range counts up, as in {{000..127}}, and covers at most {MAX_FILES} files"))
    };
    let (Ok(first), Ok(last)) = (from.parse::<u64>(), to.parse::<u64>()) else { return Err(wrong()) };
    let rest = paths(after)?;
    let count = last.checked_sub(first).and_then(|n| n.checked_add(1)).ok_or_else(wrong)?;
    if count.checked_mul(rest.len() as u64).is_none_or(|n| n > MAX_FILES) {
        return Err(wrong());
    }
    let width = from.len();
    let numbers = first..=last;
    Ok(numbers.flat_map(|n| rest.iter().map(move |r| format!("{before}{n:0width$}{r}"))).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_keep_leading_zeros() {
        assert_eq!(paths("a-{08..10}.tar").unwrap(), ["a-08.tar", "a-09.tar", "a-10.tar"]);
        assert_eq!(paths("{1..2}/{x}{0..1}").unwrap(), ["1/{x}0", "1/{x}1", "2/{x}0", "2/{x}1"]);
        assert_eq!(paths("plain{a..b}.tar").unwrap(), ["plain{a..b}.tar"]);
        for wrong in ["{2..1}", "{0..9999999}", "{0..9999}{0..9999}", "{0..99999999999999999999}"] {
            assert!(paths(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn labels_follow_the_files() {
        let expand = |label: &str, path: &str| {
            let spec = SourceSpec { label: label.into(), path: path.into() };
            expand(&[spec]).unwrap().into_iter().map(|s| s.label).collect::<Vec<_>>()
        };
        assert_eq!(expand("a-{0..1}.tar", "none/a-{0..1}.tar"), ["a-0.tar", "a-1.tar"]);
        assert_eq!(expand("mine", "none/a-{0..1}.tar"), ["mine/a-0.tar", "mine/a-1.tar"]);
        assert_eq!(expand("d.jsonl", "none/{0..1}/d.jsonl"), ["0/d.jsonl", "1/d.jsonl"]);
        assert_eq!(expand("mine", "none/{0..1}/d.jsonl"), ["mine/0/d.jsonl", "mine/1/d.jsonl"]);
    }
}
