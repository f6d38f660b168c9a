//! The error type of the crate.

use std::fmt;

/// An invalid option or load trace.
///
/// Options in the message and in the suggestion are in backquotes, so that a command can replace them with its flags.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Error {
    /// The option at fault, such as `load_ms` or `workers`.
    pub option: &'static str,
    /// The message without the option name. It names the value and the limit.
    pub message: String,
    /// A suggestion that fixes the error.
    pub help: Option<String>,
}

impl Error {
    pub(crate) fn new(option: &'static str, message: impl Into<String>) -> Self {
        Self { option, message: message.into(), help: None }
    }

    pub(crate) fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.option, self.message)
    }
}

impl std::error::Error for Error {}
