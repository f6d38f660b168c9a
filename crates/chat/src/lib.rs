#![doc = include_str!("../README.md")]
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

mod ast;
mod eval;
mod filters;
mod methods;
mod options;
mod parse;
mod scope;
mod template;
mod value;

pub use options::{ChatOptions, DateTime, FinalStop, HistoryThinking, NotRendered, TrainOn};
pub use template::{ErrorKind, Piece, RenderOptions, Rendered, Template, TemplateError};
pub use value::{JsonError, Map, Source, TEMPLATE, Text, Value};
