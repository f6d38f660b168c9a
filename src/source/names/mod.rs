//! What the names of folders and files say: splits, classes, and what looks wrong about them.

pub mod doubtful_classes;
mod doubtful_splits;
mod folder_words;
pub mod hub_configs;
pub mod image_names;
pub mod labels;
pub mod layout;
pub mod split_levels;
pub mod splits;
mod yaml;
