use std::fmt;

/// An option or a trace that cannot be simulated.
///
/// The message names the value and the limit; [`option`](Self::option) names the field of [`Options`](crate::Options),
/// in kebab case, so that a command can turn it into its own flag.
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

    /// The option at fault, such as `load` or `workers`.
    pub fn option(&self) -> &'static str {
        self.option
    }

    /// What to do about it.
    pub fn remedy(&self) -> Option<&str> {
        self.help.as_deref()
    }

    /// The message without the name of the option.
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
