//! Options: what templates see, and what is trained.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Value};

use crate::parts::TrainParts;

/// Options of a [`ChatRenderer`](crate::ChatRenderer).
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ChatOptions {
    /// Variables of the template by name: `bos_token`, `eos_token`, … Variables of a chat override them.
    pub special_tokens: Map<String, Value>,
    /// Further variables of the template by name, which override the special tokens.
    pub args: Map<String, Value>,
    /// The time that `strftime_now` formats. Without it, a template that calls `strftime_now` is an error.
    pub now: Option<DateTime>,
    /// The text to train on.
    pub train_on: TrainOn,
    /// The parts of these turns that are trained.
    pub train_parts: TrainParts,
    /// The token that ends the last turn, for templates that leave it open.
    pub final_stop: Option<FinalStop>,
    /// Reasoning of earlier turns, which many templates leave out.
    pub history_thinking: HistoryThinking,
    /// What happens to a chat of which the template leaves out a message.
    pub not_rendered: NotRendered,
    /// What is written between the text parts of a content where the template does not iterate over them. Without it, a chat
    /// with several parts is rejected there.
    pub join_parts: Option<JoinParts>,
    /// Texts of the added tokens of the tokenizer. One of them ends each turn.
    pub added_tokens: Vec<String>,
    /// Whether parts of contents may be images without values, `{"type": "image"}`, in whose place the template writes a token.
    pub images: bool,
}

/// The text to train on.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum TrainOn {
    /// The turns of the assistant.
    #[default]
    Assistant,
    /// The last turn of the assistant.
    Last,
    /// Everything.
    All,
    /// Nothing.
    None,
    /// The turns of messages with these roles.
    Roles(Vec<String>),
}

impl FromStr for TrainOn {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Ok(match text {
            "assistant" => Self::Assistant,
            "last" => Self::Last,
            "all" => Self::All,
            "none" => Self::None,
            roles if roles.split(',').any(|role| role.trim().is_empty()) => {
                return Err(
                    "use assistant, last, all, none or a list of roles such as user,assistant".to_owned()
                );
            }
            roles => Self::Roles(roles.split(',').map(|role| role.trim().to_owned()).collect()),
        })
    }
}

impl fmt::Display for TrainOn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Assistant => f.write_str("assistant"),
            Self::Last => f.write_str("last"),
            Self::All => f.write_str("all"),
            Self::None => f.write_str("none"),
            Self::Roles(roles) => f.write_str(&roles.join(",")),
        }
    }
}

/// The token that ends the last turn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FinalStop {
    /// This token is appended.
    Token(String),
    /// The turn stays open.
    None,
}

impl FromStr for FinalStop {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "" => Err("use a token of the tokenizer, or none".to_owned()),
            "none" => Ok(Self::None),
            token => Ok(Self::Token(token.to_owned())),
        }
    }
}

impl fmt::Display for FinalStop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Token(token) => f.write_str(token),
            Self::None => f.write_str("none"),
        }
    }
}

/// Reasoning of earlier turns.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum HistoryThinking {
    /// As the template decides.
    #[default]
    Template,
    /// Rendered, if the template can.
    Keep,
}

/// What happens to a chat of which the template leaves out content, reasoning or a tool call completely.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum NotRendered {
    /// It is rejected.
    #[default]
    Reject,
    /// It is rendered without the text.
    Allow,
}

/// What is written between text parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JoinParts {
    /// Nothing.
    Nothing,
    /// A newline.
    Newline,
}

impl JoinParts {
    pub(crate) fn separator(self) -> &'static str {
        match self {
            Self::Nothing => "",
            Self::Newline => "\n",
        }
    }
}

impl FromStr for JoinParts {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "" => Ok(Self::Nothing),
            "\n" | "\\n" => Ok(Self::Newline),
            _ => Err("use an empty text, or \\n".to_owned()),
        }
    }
}

impl fmt::Display for JoinParts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Nothing => "",
            Self::Newline => "\\n",
        })
    }
}

/// A date and a time of day, without a time zone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct DateTime {
    /// Year, 1 to 9999.
    pub year: u32,
    /// Month, from 1.
    pub month: u32,
    /// Day of the month, from 1.
    pub day: u32,
    /// Hour, 0 to 23.
    pub hour: u32,
    /// Minute.
    pub minute: u32,
    /// Second.
    pub second: u32,
}

impl DateTime {
    /// Returns the days of a month.
    pub(crate) fn days_in(year: u32, month: u32) -> u32 {
        match month {
            2 if (year.is_multiple_of(4) && !year.is_multiple_of(100)) || year.is_multiple_of(400) => 29,
            2 => 28,
            4 | 6 | 9 | 11 => 30,
            _ => 31,
        }
    }

    /// Returns the seconds since 1970, as if this were UTC.
    pub(crate) fn seconds(self) -> i64 {
        let years = i64::from(self.year) - 1;
        let leap_days = years / 4 - years / 100 + years / 400;
        let days_before_month: u32 = (1..self.month).map(|month| Self::days_in(self.year, month)).sum();
        let days = years * 365 + leap_days + i64::from(days_before_month) + i64::from(self.day) - 1 - 719_162;
        days * 86_400 + i64::from(self.hour) * 3600 + i64::from(self.minute) * 60 + i64::from(self.second)
    }
}

impl FromStr for DateTime {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text:?} is not a time; use YYYY-MM-DD or YYYY-MM-DDTHH:MM:SS");
        let (date, time) = text.split_once(['T', ' ']).unwrap_or((text, "00:00:00"));
        let numbers = |text: &str, separator, widths: [usize; 3]| -> Option<[u32; 3]> {
            let parts: Vec<&str> = text.split(separator).collect();
            let [a, b, c] = parts[..] else { return None };
            let part = |text: &str, width| {
                let is_number = text.len() == width && text.bytes().all(|byte| byte.is_ascii_digit());
                text.parse().ok().filter(|_| is_number)
            };
            Some([part(a, widths[0])?, part(b, widths[1])?, part(c, widths[2])?])
        };
        let [year, month, day] = numbers(date, '-', [4, 2, 2]).ok_or_else(wrong)?;
        let [hour, minute, second] = numbers(time, ':', [2, 2, 2]).ok_or_else(wrong)?;
        let is_date =
            year > 0 && (1..=12).contains(&month) && (1..=Self::days_in(year, month)).contains(&day);
        if !is_date || hour > 23 || minute > 59 || second > 59 {
            return Err(wrong());
        }
        Ok(Self { year, month, day, hour, minute, second })
    }
}

impl fmt::Display for DateTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { year, month, day, hour, minute, second } = self;
        write!(f, "{year:04}-{month:02}-{day:02}")?;
        match (hour, minute, second) {
            (0, 0, 0) => Ok(()),
            _ => write!(f, "T{hour:02}:{minute:02}:{second:02}"),
        }
    }
}

/// Writes values as their text.
macro_rules! as_text {
    ($($ty:ty),+) => {$(
        impl Serialize for $ty {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $ty {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
            }
        }
    )+};
}

as_text!(TrainOn, TrainParts, FinalStop, JoinParts, DateTime);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_written_as_they_are_read() {
        for text in ["assistant", "last", "all", "none", "user,assistant", "tool"] {
            assert_eq!(text.parse::<TrainOn>().unwrap().to_string(), text);
        }
        assert!("user,,tool".parse::<TrainOn>().is_err());
        for text in ["none", "<|im_end|>"] {
            assert_eq!(text.parse::<FinalStop>().unwrap().to_string(), text);
        }
        for text in ["", "\\n"] {
            assert_eq!(text.parse::<JoinParts>().unwrap().to_string(), text);
        }
        assert_eq!("\n".parse(), Ok(JoinParts::Newline));
        for text in ["2026-11-27", "2024-02-29T23:59:59"] {
            assert_eq!(text.parse::<DateTime>().unwrap().to_string(), text);
        }
        for wrong in [
            "",
            "2026-1-27",
            "2023-02-29",
            "2026-11-27T24:00:00",
            "0000-01-01",
            "2026-11-27T1:2:3",
            "+026-01-01",
        ] {
            assert!(wrong.parse::<DateTime>().is_err(), "{wrong}");
        }
    }
}
