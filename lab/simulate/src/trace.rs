//! Measured load times and their text format.

use std::sync::Arc;

use crate::distribution::{MAX_TIME_NS, ns_from_ms, round_ns};
use crate::error::Error;

/// Maximum number of load times in a trace.
const MAX_TRACE: usize = 10_000_000;

/// Measured load times. Batch *k* takes entry *k* modulo the length.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoadTrace(Arc<[u64]>);

impl LoadTrace {
    /// Creates a trace of load times in nanoseconds.
    ///
    /// # Errors
    ///
    /// If `ns` is empty, or a time is 0 or more than an hour.
    pub fn new(ns: impl Into<Arc<[u64]>>) -> Result<Self, Error> {
        let trace = Self(ns.into());
        trace.check()?;
        Ok(trace)
    }

    /// Returns the times in nanoseconds.
    pub fn ns(&self) -> &[u64] {
        &self.0
    }

    pub(crate) fn check(&self) -> Result<(), Error> {
        if self.0.is_empty() {
            return Err(Error::new("load_trace", "has no load time"));
        }
        match self.0.iter().position(|&ns| ns == 0 || ns > MAX_TIME_NS) {
            Some(i) => Err(Error::new(
                "load_trace",
                format!("load time {} must be above 0 and at most one hour", i + 1),
            )),
            None => Ok(()),
        }
    }

    /// Returns the load time of `batch`.
    pub(crate) fn of_batch(&self, batch: usize) -> u64 {
        self.0.get(batch % self.0.len()).copied().unwrap_or(1)
    }

    /// Returns the same times multiplied by `factor`.
    pub(crate) fn scaled(&self, factor: f64) -> Self {
        Self(self.0.iter().map(|&ns| round_ns(ns as f64 * factor)).collect())
    }

    /// Parses a trace: one load time per line, in milliseconds, in batch order.
    ///
    /// A line is a number (`123.4`) or a JSON object with a number under `load_ms` or `ms`, as in a JSON Lines log
    /// (`{"batch": 7, "load_ms": 123.4}`). Blank lines and lines that start with `#` are skipped.
    ///
    /// ```
    /// use dsconvert_simulate::LoadTrace;
    ///
    /// let trace = LoadTrace::parse("# measured on Monday\n12.5\n{\"batch\": 1, \"load_ms\": 80}\n")?;
    /// assert_eq!(trace.ns(), [12_500_000, 80_000_000]);
    /// assert_eq!(LoadTrace::parse("12 ms").unwrap_err().message, "line 1: \"12 ms\" is not a number of milliseconds");
    /// # Ok::<(), dsconvert_simulate::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// If a line has another form, a time is not positive or is more than an hour, or there are no load times.
    pub fn parse(text: &str) -> Result<Self, Error> {
        let mut times = Vec::new();
        for (i, line) in text.lines().enumerate() {
            let line = line.trim_start_matches('\u{feff}').trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let number = if line.starts_with('{') { field(line) } else { Some(line) };
            let bad = |what: &str| {
                let shown: String = line.chars().take(60).collect();
                Error::new("load_trace", format!("line {}: {shown:?} {what}", i + 1))
                    .help("a line is a number of milliseconds, or a JSON object with the member \"load_ms\"")
            };
            let Some(ms) = number.and_then(parse_number) else {
                return Err(bad("is not a number of milliseconds"));
            };
            let ns = match ns_from_ms("load_trace", ms) {
                Ok(ns) if ns > 0 => ns,
                _ => {
                    return Err(bad(&format!("must be above 0 and at most {} ms", MAX_TIME_NS / 1_000_000)));
                }
            };
            if times.len() == MAX_TRACE {
                return Err(Error::new("load_trace", format!("has more than {MAX_TRACE} load times")));
            }
            times.push(ns);
        }
        Self::new(times)
    }
}

/// Parses a decimal number; `inf` and `nan` are rejected.
fn parse_number(text: &str) -> Option<f64> {
    let plain = text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'.' | b'e' | b'E' | b'+' | b'-'));
    text.parse().ok().filter(|_| plain)
}

/// Returns the raw value of the top-level member `load_ms`, or else `ms`, of a JSON object. Only as much of the
/// structure is checked as is needed to skip strings and nested values.
fn field(line: &str) -> Option<&str> {
    let inner = line.strip_prefix('{')?.strip_suffix('}')?;
    let mut fallback = None;
    for member in members(inner)? {
        let (name, value) = member;
        match name {
            "load_ms" => return Some(value),
            "ms" => fallback = Some(value),
            _ => {}
        }
    }
    fallback
}

/// Splits the members of an object into unquoted names and trimmed values.
fn members(inner: &str) -> Option<Vec<(&str, &str)>> {
    let (mut found, mut depth, mut in_string, mut escaped) = (Vec::new(), 0_i32, false, false);
    let mut start = 0;
    let mut colon = None;
    let mut push = |start: usize, colon: Option<usize>, end: usize| -> Option<()> {
        let colon = colon?;
        let name = inner[start..colon].trim().strip_prefix('"')?.strip_suffix('"')?;
        found.push((name, inner[colon + 1..end].trim()));
        Some(())
    };
    for (i, byte) in inner.bytes().enumerate() {
        if in_string {
            match byte {
                _ if escaped => escaped = false,
                b'\\' => escaped = true,
                b'"' => in_string = false,
                _ => {}
            }
            continue;
        }
        match byte {
            b'"' => in_string = true,
            b'{' | b'[' => depth += 1,
            b'}' | b']' => depth -= 1,
            b':' if depth == 0 && colon.is_none() => colon = Some(i),
            b',' if depth == 0 => {
                push(start, colon, i)?;
                (start, colon) = (i + 1, None);
            }
            _ => {}
        }
    }
    if in_string || depth != 0 {
        return None;
    }
    if !inner[start..].trim().is_empty() {
        push(start, colon, inner.len())?;
    }
    Some(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn numbers_and_json_lines() {
        let text = "\u{feff}1\r\n\r\n# comment\n 2.5 \n1e3\n{\"ms\":4}\n{\"a\":{\"ms\":9},\"s\":\"x,\\\"ms\\\":1\",\"load_ms\":5,\"ms\":7}";
        let trace = LoadTrace::parse(text).unwrap();
        assert_eq!(trace.ns(), [1_000_000, 2_500_000, 1_000_000_000, 4_000_000, 5_000_000]);
    }

    #[test]
    fn malformed_traces_name_the_line() {
        for (text, message) in [
            ("", "has no load time"),
            ("# nothing\n", "has no load time"),
            ("1\nx\n", "line 2: \"x\" is not a number"),
            ("1\n2,5\n", "line 2"),
            ("0\n", "line 1: \"0\" must be above 0"),
            ("-3\n", "line 1"),
            ("nan\n", "line 1"),
            ("inf\n", "line 1"),
            ("1e300\n", "line 1"),
            ("5000000\n", "at most 3600000 ms"),
            ("{\"load_ms\": \"5\"}\n", "line 1"),
            ("{\"other\": 5}\n", "line 1"),
            ("{\"load_ms\": 5\n", "line 1"),
            ("[5]\n", "line 1"),
            ("<script>\u{1b}\n", "<script>\\u{1b}"),
        ] {
            let error = LoadTrace::parse(text).unwrap_err();
            assert_eq!(error.option, "load_trace");
            assert!(error.message.contains(message), "{text:?}: {}", error.message);
        }
    }

    proptest! {
        #[test]
        fn arbitrary_text_never_causes_a_panic(text in "\\PC{0,80}") {
            let _ = LoadTrace::parse(&text);
            let _ = LoadTrace::parse(&format!("{{{text}}}"));
        }

        #[test]
        fn traces_round_trip(times in proptest::collection::vec(1_u64..3_600_000_000, 1..50)) {
            let text: String = times.iter().map(|us| format!("{}\n", *us as f64 / 1e3)).collect();
            let expected: Vec<u64> = times.iter().map(|us| us * 1_000).collect();
            prop_assert_eq!(LoadTrace::parse(&text).unwrap().ns().to_vec(), expected);
        }
    }
}
