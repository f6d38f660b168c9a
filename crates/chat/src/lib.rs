#![doc = include_str!("../README.md")]
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

mod args;
mod ast;
mod budget;
mod chars;
mod chat;
mod error;
mod eval;
mod filters;
mod flags;
mod methods;
mod options;
mod parse;
mod reject;
mod renderer;
mod scope;
mod spans;
mod template;
mod value;

pub use chat::sharegpt_role;
pub use error::{ErrorKind, TemplateError};
pub use options::{ChatOptions, DateTime, FinalStop, HistoryThinking, JoinParts, NotRendered, TrainOn};
pub use reject::{ChatReject, ChatRejectCode};
pub use renderer::{ChatPiece, ChatRenderer, RenderedChat, Source, render_pair};
pub use template::{Piece, RenderOptions, Rendered, Template};
pub use value::{JsonError, Map, Source as SourceId, TEMPLATE, Text, Value};
