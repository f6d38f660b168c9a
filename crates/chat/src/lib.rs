#![doc = include_str!("../README.md")]
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

mod args;
mod ast;
mod attributes;
mod budget;
mod chars;
mod chat;
mod dates;
mod error;
mod eval;
mod filters;
mod flags;
mod format;
mod functions;
mod methods;
mod operators;
mod options;
mod parse;
mod parts;
mod reject;
mod rendered;
mod renderer;
mod runtime;
mod scope;
mod slices;
mod spans;
mod string_methods;
mod strings;
mod template;
mod value;

pub use chat::sharegpt::sharegpt_role;
pub use error::{ErrorKind, TemplateError};
pub use options::{ChatOptions, DateTime, FinalStop, HistoryThinking, JoinParts, NotRendered, TrainOn};
pub use parts::TrainParts;
pub use reject::{ChatReject, ChatRejectCode};
pub use rendered::{Piece, RenderOptions, Rendered};
pub use renderer::{ChatPiece, ChatRenderer, RenderedChat, Source, render_pair};
pub use template::Template;
pub use value::{JsonError, Map, Source as SourceId, TEMPLATE, Text, Value};
