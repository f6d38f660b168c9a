//! Human-readable numbers and lists.

/// Number of names that [`listed`] shows.
const SHOWN_NAMES: usize = 4;

/// Joins the first four names, and appends how many more there are.
pub fn listed(names: impl ExactSizeIterator<Item = String>) -> String {
    let count = names.len();
    let mut text = names.take(SHOWN_NAMES).collect::<Vec<_>>().join(", ");
    if count > SHOWN_NAMES {
        text.push_str(&format!(" and {} more", count - SHOWN_NAMES));
    }
    text
}

/// Formats a number as `1,234,567`.
pub fn count(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (i, c) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(c);
    }
    out
}

/// Formats a count as `1 record` or `2 records`.
pub fn plural(n: u64, one: &str) -> String {
    format!("{} {one}{}", count(n), if n == 1 { "" } else { "s" })
}

/// Formats a size as `1.24 MiB`.
pub fn bytes(n: u64) -> String {
    let mut value = n as f64;
    for unit in ["bytes", "KiB", "MiB", "GiB", "TiB", "PiB"] {
        if value < 1000.0 || unit == "PiB" {
            return if unit == "bytes" {
                format!("{n} {unit}")
            } else {
                format!("{} {unit}", up_to_three_digits(value))
            };
        }
        value /= 1024.0;
    }
    format!("{n} bytes")
}

/// Formats an axis label: three significant digits, with `k`, `M`, `G`, `T` or `P` for powers of 1,000.
pub fn short(value: f64) -> String {
    let (mut value, sign) = (value.abs(), if value < 0.0 { "−" } else { "" });
    for unit in ["", "k", "M", "G", "T"] {
        if value < 999.5 {
            return format!("{sign}{}{unit}", up_to_three_digits(value));
        }
        value /= 1000.0;
    }
    format!("{sign}{value:.0}P")
}

/// Formats at most three significant digits, without trailing zeros after the decimal point: `0.0123`, `12.5`, `1234`.
/// Very small numbers have an exponent: `1e-9`.
pub fn up_to_three_digits(value: f64) -> String {
    let text = match value.abs() {
        v if v >= 99.95 || v == 0.0 => format!("{value:.0}"),
        v if v >= 9.995 => format!("{value:.1}"),
        v if v >= 0.9995 => format!("{value:.2}"),
        // Three digits have at most nine decimals.
        v if v >= 1e-7 => three_digits(value),
        _ => format!("{value:.2e}"),
    };
    let (digits, exponent) = text.find('e').map_or((text.as_str(), ""), |at| text.split_at(at));
    let digits = match digits.contains('.') {
        true => digits.trim_end_matches('0').trim_end_matches('.'),
        false => digits,
    };
    format!("{digits}{exponent}")
}

/// Formats exactly three significant digits, without an exponent: `0.0123`, `1.23`, `1234`.
pub fn three_digits(value: f64) -> String {
    // The exponent after rounding: 9.999 becomes 10.0.
    let exponent = format!("{value:.2e}").split_once('e').and_then(|(_, power)| power.parse::<i32>().ok());
    let decimals = (2 - exponent.unwrap_or(0)).clamp(0, 9) as usize;
    format!("{value:.decimals$}")
}

/// Formats a rate with three significant digits, and from 1,000 on as an integer: `0.233`, `12.3`, `26,983`.
pub fn rate(value: f64) -> String {
    match value {
        0.0 => "0".to_owned(),
        v if v >= 999.5 => count(v.round() as u64),
        v => three_digits(v),
    }
}

/// Formats the mean of integers with one decimal, and from 1,000 on as an integer: `12.3`, `187,500`.
pub fn mean(value: f64) -> String {
    if value < 999.95 { format!("{value:.1}") } else { count(value.round() as u64) }
}

/// Formats a share of a whole as `12.3%`. `0.0%` is exactly nothing and `100.0%` exactly everything; shares near them are
/// `<0.1%` and `>99.9%`.
pub fn share_of_whole(share: f64) -> String {
    match share {
        s if s > 0.0 && s < 0.0005 => "<0.1%".to_owned(),
        s if (0.9995..1.0).contains(&s) => ">99.9%".to_owned(),
        s => percent(s),
    }
}

/// Formats a share as `12.3%`.
pub fn percent(share: f64) -> String {
    format!("{:.1}%", share * 100.0)
}

/// Formats a share as `12%`, one below 10% as `1.2%`, and one that would be `0.0%` as `<0.1%`.
pub fn short_percent(share: f64) -> String {
    match share {
        share if share >= 0.0995 || share == 0.0 => format!("{:.0}%", share * 100.0),
        share if share >= 0.0005 => percent(share),
        _ => "<0.1%".to_owned(),
    }
}

/// Formats a duration as `250 ms`, `42 s`, `3.1 min` or `2.5 h`.
pub fn seconds(value: f64) -> String {
    match value {
        v if !v.is_finite() => "–".to_owned(),
        v if v < 0.001 => format!("{} µs", up_to_three_digits(v * 1e6)),
        v if v < 1.0 => format!("{} ms", up_to_three_digits(v * 1e3)),
        v if v < 120.0 => format!("{} s", up_to_three_digits(v)),
        v if v < 7200.0 => format!("{} min", up_to_three_digits(v / 60.0)),
        v => format!("{} h", up_to_three_digits(v / 3600.0)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_formatted_for_people() {
        assert_eq!([0, 12, 999, 1000, 1_234_567].map(count), ["0", "12", "999", "1,000", "1,234,567"]);
        assert_eq!([0, 1023, 1_000_000, 1 << 30].map(bytes), ["0 bytes", "0.999 KiB", "977 KiB", "1 GiB"]);
        assert_eq!([0.0, 0.25, 1500.0, 2e6, 12.5].map(short), ["0", "0.25", "1.5k", "2M", "12.5"]);
        assert_eq!(
            [0.0004, 0.25, 90.0, 600.0, 9000.0].map(seconds),
            ["400 µs", "250 ms", "90 s", "10 min", "2.5 h"]
        );
        assert_eq!(
            (percent(0.1234), plural(1, "record"), plural(0, "record")),
            ("12.3%".into(), "1 record".into(), "0 records".into())
        );
        assert_eq!(
            [0.0, 0.0001, 0.001, 1e-5, 0.0123].map(short),
            ["0", "0.0001", "0.001", "0.00001", "0.0123"]
        );
        assert_eq!([1e-9, 1.5e-300, 0.9996, 0.01].map(short), ["1e-9", "1.5e-300", "1", "0.01"]);
        let rates = [0.0, 0.233, 1.0, 12.34, 999.6, 26_983.4].map(rate);
        assert_eq!(rates, ["0", "0.233", "1.00", "12.3", "1,000", "26,983"]);
        assert_eq!([0.0, 12.34, 999.96, 187_500.0].map(mean), ["0.0", "12.3", "1,000", "187,500"]);
        let shares = [0.0, 1.0 / 3001.0, 0.5, 3000.0 / 3001.0, 1.0].map(share_of_whole);
        assert_eq!(shares, ["0.0%", "<0.1%", "50.0%", ">99.9%", "100.0%"]);
        assert_eq!([0.0, 0.5, 0.0123, 0.0001].map(short_percent), ["0%", "50%", "1.2%", "<0.1%"]);
        let digits = [0.0, 0.05, 0.051_234, 0.999_9, 1.035, 9.999, 12.34, 999.9, 1234.4].map(three_digits);
        assert_eq!(digits, ["0.00", "0.0500", "0.0512", "1.00", "1.03", "10.0", "12.3", "1000", "1234"]);
        assert_eq!(u64::MAX.to_string().len(), count(u64::MAX).replace(',', "").len());
    }
}
