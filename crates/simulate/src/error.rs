//! The error type of the crate.

use std::fmt;

/// An invalid option or load trace.
///
/// The message names the value and the limit; [`option`](Self::option) returns the name of the option. Options in the message and in the
/// suggestion are in backquotes, so that a command can replace them with its flags.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Error {
    option: &'static str,
    message: String,
    help: Option<String>,
}

impl Error {
    pub(crate) fn new(option: &'static str, message: impl Into<String>) -> Self {
        Self { option, message: message.into(), help: None }
    }

    pub(crate) fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }

    /// Returns the option at fault, such as `load_ms` or `workers`.
    pub fn option(&self) -> &'static str {
        self.option
    }

    /// Returns a suggestion that fixes the error.
    pub fn remedy(&self) -> Option<&str> {
        self.help.as_deref()
    }

    /// Returns the message without the option name.
    pub fn message(&self) -> &str {
        &self.message
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.option, self.message)
    }
}

impl std::error::Error for Error {}
