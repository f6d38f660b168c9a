#![doc = include_str!("../README.md")]
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

// From the source of a template to the trained characters of a chat, each module using only those before it:
//
// * Values: `value` (with the marks of text), `budget` and `error`.
// * What Python does with values: `operators`, `slices`, `strings`, `string_methods`, `format`, `methods`, `attributes`,
//   `chars`, `dates`, and `runtime`, through which all of them charge the budget.
// * What Jinja2 and transformers add: `filters` (and tests), `functions`, and `args` for their arguments.
// * The language: `parse` makes the tree in `ast`, `scope` gives names their variables, `eval` runs it. `template` is the three
//   together, and `rendered` is their result.
// * Chats: `chat` reads one, `renderer` renders it, and `spans` and `parts` find what is trained, by the `options` and the `flags`
//   of messages. `reject` is why a chat is not rendered.

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
