//! Dates as `strftime` writes them.

use crate::error::{Result, unsupported};
use crate::value::{Text, Value};

// Llama 3.2 writes "Today Date: 26 Jul 2024" with `strftime_now("%d %b %Y")`. transformers takes the local time of the
// machine; a dataset must not depend on it, so the caller gives the time, and names are English as in the C locale.
const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];

const DAYS: [&str; 7] = ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];

/// `strftime` of the UTC time `now`, in seconds since 1970, as in the C locale.
pub(crate) fn strftime(format: &Text, now: i64) -> Result<Value> {
    let (days, second) = (now.div_euclid(86_400), now.rem_euclid(86_400));
    // Days since the first of March of the year 0, so that the leap day is the last day of a year.
    // The date of a day count, after Howard Hinnant.
    let shifted = days + 719_468;
    // The calendar repeats after 400 years, which have 146,097 days.
    let era = shifted.div_euclid(146_097);
    let day_of_era = shifted.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    // Counted from March: five months in turn have 31, 30, 31, 30 and 31 days, 153 together.
    let month_index = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_index + 2) / 5 + 1;
    let month = if month_index < 10 { month_index + 3 } else { month_index - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    // `day_of_year` counts from the first of March.
    let yearday = if month > 2 { day_of_year + 60 + i64::from(leap) } else { day_of_year - 305 };
    // The first of January 1970 was a Thursday.
    let weekday = (days + 4).rem_euclid(7);
    let name =
        |names: &[&'static str], at: i64| names.get(usize::try_from(at).unwrap_or(0)).copied().unwrap_or("");
    let (month_name, weekday_name) = (name(&MONTHS, month - 1), name(&DAYS, weekday));
    let short = |name: &'static str| name.get(..3).unwrap_or(name);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    let hour12 = if hour % 12 == 0 { 12 } else { hour % 12 };
    let time = format!("{hour:02}:{minute:02}:{second:02}");
    let mut out = String::new();
    let mut chars = format.as_str().chars();
    while let Some(c) = chars.next() {
        if c != '%' {
            out.push(c);
            continue;
        }
        let mut code = chars.next();
        // `%-d`, an extension of glibc: without the zero or space before it.
        let unpadded = code == Some('-');
        if unpadded {
            code = chars.next();
        }
        let padded = |value: i64, text: String| if unpadded { value.to_string() } else { text };
        let two = |value: i64| padded(value, format!("{value:02}"));
        let text = match code {
            Some('Y') => year.to_string(),
            Some('y') => two(year.rem_euclid(100)),
            Some('m') => two(month),
            Some('d') => two(day),
            Some('e') => padded(day, format!("{day:2}")),
            Some('j') => padded(yearday, format!("{yearday:03}")),
            Some('H') => two(hour),
            Some('I') => two(hour12),
            Some('M') => two(minute),
            Some('S') => two(second),
            // Seconds are whole here.
            Some('f') => "000000".to_owned(),
            Some('p') => if hour < 12 { "AM" } else { "PM" }.to_owned(),
            Some('B') => month_name.to_owned(),
            Some('b' | 'h') => short(month_name).to_owned(),
            Some('A') => weekday_name.to_owned(),
            Some('a') => short(weekday_name).to_owned(),
            Some('w') => weekday.to_string(),
            Some('u') => if weekday == 0 { 7 } else { weekday }.to_string(),
            Some('F') => format!("{year}-{month:02}-{day:02}"),
            Some('T' | 'X') => time.clone(),
            Some('R') => format!("{hour:02}:{minute:02}"),
            Some('D' | 'x') => format!("{month:02}/{day:02}/{:02}", year.rem_euclid(100)),
            Some('c') => format!("{} {} {day:2} {time} {year}", short(weekday_name), short(month_name)),
            // `datetime.now()` of Python has no time zone, and writes nothing for these.
            Some('Z' | 'z') => String::new(),
            Some('n') => "\n".to_owned(),
            Some('t') => "\t".to_owned(),
            Some('%') => "%".to_owned(),
            // Python passes other codes to the C library, whose result depends on the platform.
            other => {
                let other = other.map(String::from).unwrap_or_default();
                return unsupported(format!("`%{other}` in the format of a date is not supported"));
            }
        };
        out.push_str(&text);
    }
    Ok(Value::str(out, format.first_mark().source))
}
