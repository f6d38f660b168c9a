//! Formats numbers, percentages and times for people.

/// Formats a share as a percentage with one decimal.
pub(crate) fn percent(share: f64) -> String {
    format!("{:.1}%", share * 100.0)
}

/// Formats a number with three significant digits (four decimals below 1), without trailing zeros.
pub(crate) fn number(x: f64) -> String {
    let digits = if x >= 100.0 {
        0
    } else if x >= 10.0 {
        1
    } else if x >= 1.0 {
        2
    } else {
        4
    };
    let text = format!("{x:.digits$}");
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

/// Formats a number of batches with its noun.
pub(crate) fn batches(count: u64) -> String {
    if count == 1 { "1 batch".to_owned() } else { format!("{count} batches") }
}

/// Formats the length of a run in s, or in µs if that is too short for four decimals.
pub(crate) fn duration(ns: u64) -> String {
    if ns < 1_000_000 { time(ns as f64) } else { format!("{} s", number(ns as f64 / 1e9)) }
}

/// Formats a time in s, ms or µs, depending on its magnitude.
pub(crate) fn time(ns: f64) -> String {
    if ns >= 1e9 {
        format!("{} s", number(ns / 1e9))
    } else if ns >= 1e6 {
        format!("{} ms", number(ns / 1e6))
    } else {
        format!("{} µs", number(ns / 1e3))
    }
}
