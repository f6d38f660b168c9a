#![doc = include_str!("../README.md")]
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

mod options;

pub use options::{ChatOptions, DateTime, FinalStop, HistoryThinking, NotRendered, TrainOn};
