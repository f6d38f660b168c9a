//! `TemplateError`: why a template cannot be compiled or rendered.

use std::fmt;

pub(crate) type Result<T> = std::result::Result<T, TemplateError>;

/// What kind of error a template makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// The template cannot be read.
    Syntax,
    /// A filter or a test is unknown.
    Unknown,
    /// An undefined value is used.
    Undefined,
    /// An operation or a call does not fit the types.
    Type,
    /// An operation does not fit the values.
    Value,
    /// The template calls `raise_exception`: it refuses this chat.
    Raised,
    /// The template takes too long, nests too deeply, or writes too much.
    Limit,
    /// The template writes the current time, and [`RenderOptions::now`](crate::RenderOptions::now) is not set.
    Now,
    /// Jinja2 can do this, but this crate cannot.
    Unsupported,
}

/// Why a template cannot be compiled or rendered.
#[derive(Clone, PartialEq, Eq)]
pub struct TemplateError(Box<Inner>);

// Boxed, because nearly every function of the evaluator returns a `Result`, and most of them succeed.
#[derive(Clone, PartialEq, Eq)]
struct Inner {
    kind: ErrorKind,
    line: u32,
    message: String,
}

impl TemplateError {
    pub(crate) fn of(kind: ErrorKind, message: impl Into<String>) -> TemplateError {
        TemplateError(Box::new(Inner { kind, line: 0, message: message.into() }))
    }

    /// Sets the line unless it is known.
    /// The innermost node with a line sets it, and all outer ones keep it.
    pub(crate) fn or_line(mut self, line: u32) -> TemplateError {
        if self.0.line == 0 {
            self.0.line = line;
        }
        self
    }

    /// What kind of error this is.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// The line of the template, starting at 1; 0 if the error is about the template as a whole.
    pub fn line(&self) -> u32 {
        self.0.line
    }

    /// What is wrong, without the line.
    pub fn message(&self) -> &str {
        &self.0.message
    }
}

impl fmt::Display for TemplateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.line == 0 {
            f.write_str(&self.0.message)
        } else if self.0.kind == ErrorKind::Raised {
            write!(f, "line {} of the chat template refuses the chat: {}", self.0.line, self.0.message)
        } else {
            write!(f, "line {} of the chat template: {}", self.0.line, self.0.message)
        }
    }
}

impl fmt::Debug for TemplateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self} ({:?})", self.0.kind)
    }
}

impl std::error::Error for TemplateError {}

pub(crate) fn error<T>(kind: ErrorKind, message: impl Into<String>) -> Result<T> {
    Err(TemplateError::of(kind, message))
}

pub(crate) fn type_error<T>(message: impl Into<String>) -> Result<T> {
    error(ErrorKind::Type, message)
}

/// The rule of this crate: what it cannot render as Jinja2 does is refused with a reason, and never approximated. A
/// chat that is rendered differently from inference would train the model on text that it never sees.
pub(crate) fn unsupported<T>(message: impl Into<String>) -> Result<T> {
    error(ErrorKind::Unsupported, message)
}

/// Integers themselves may be larger, since they can be printed and compared without arithmetic.
pub(crate) fn overflow<T>() -> Result<T> {
    unsupported("integers of more than 64 bits are not supported in arithmetic")
}

/// An error in the source of a template. Line 0 is the template as a whole.
pub(crate) fn fail<T>(line: u32, message: impl Into<String>) -> Result<T> {
    Err(TemplateError::of(ErrorKind::Syntax, message).or_line(line))
}
