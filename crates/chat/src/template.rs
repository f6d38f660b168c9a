//! A compiled template, and what it renders.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use crate::ast::Function;
use crate::eval::Evaluator;
use crate::value::{Source, Value};

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
    /// The template writes the current time, and [`RenderOptions::now`] is not set.
    Now,
    /// Jinja2 can do this, but this crate cannot.
    Unsupported,
}

/// Why a template cannot be compiled or rendered.
#[derive(Clone, PartialEq, Eq)]
pub struct TemplateError(Box<Inner>);

#[derive(Clone, PartialEq, Eq)]
struct Inner {
    kind: ErrorKind,
    line: u32,
    message: String,
}

impl TemplateError {
    pub(crate) fn new(line: u32, message: impl Into<String>) -> TemplateError {
        TemplateError(Box::new(Inner { kind: ErrorKind::Syntax, line, message: message.into() }))
    }

    pub(crate) fn of(kind: ErrorKind, message: impl Into<String>) -> TemplateError {
        TemplateError(Box::new(Inner { kind, line: 0, message: message.into() }))
    }

    /// Sets the line unless it is known.
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

/// How a template is rendered.
#[derive(Clone, Debug)]
pub struct RenderOptions {
    /// The time that `strftime_now` writes, in seconds since 1970, in UTC.
    pub now: Option<i64>,
    /// Steps after which rendering stops with an error. A step is about one operation, or 16 bytes of text.
    pub fuel: u64,
    /// The largest text, in bytes.
    pub max_output: usize,
}

impl Default for RenderOptions {
    fn default() -> RenderOptions {
        RenderOptions { now: None, fuel: 100_000_000, max_output: 1 << 30 }
    }
}

/// A run of characters from one source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// The byte after the run. It starts where the previous one ends.
    pub end: usize,
    /// Who wrote it.
    pub source: Source,
    /// The message in whose iteration of the outermost loop over messages the text was written or captured.
    pub turn: Option<u32>,
}

/// A rendered chat.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rendered {
    /// The text.
    pub text: String,
    /// Runs of characters, which cover the text. Neighbors differ.
    pub pieces: Vec<Piece>,
    /// The byte ranges of the `generation` blocks, in the order in which they ended.
    pub generation: Vec<Range<usize>>,
}

/// A compiled chat template. Threads can share it.
#[derive(Debug)]
pub struct Template {
    root: Function,
    generation: bool,
}

impl Template {
    /// Compiles the source of a template.
    pub fn compile(source: &str) -> Result<Template, TemplateError> {
        let body = crate::parse::parse(source)?;
        let generation = crate::scope::has_generation(&body);
        Ok(Template { root: crate::scope::resolve(body)?, generation })
    }

    /// Whether the template has `generation` blocks.
    pub fn has_generation_blocks(&self) -> bool {
        self.generation
    }

    /// The texts that the template writes itself: those outside of tags, and strings in expressions.
    pub fn literals(&self) -> Vec<&str> {
        let mut literals = Vec::new();
        crate::scope::literals(&self.root, &mut literals);
        literals
    }

    /// Renders the template with the variables `context`.
    pub fn render(
        &self,
        context: &[(Arc<str>, Value)],
        options: &RenderOptions,
    ) -> Result<Rendered, TemplateError> {
        Evaluator::render(&self.root, context, options)
    }
}
