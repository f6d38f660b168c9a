//! Image processors of vision-language models: parameters, sizes, grids and numbers of tokens, positions of tokens, and the
//! order of the values of an image in patches. Decoding and resizing are left to others.

mod error;
mod family;
mod model_files;
mod patches;
mod plan;
mod positions;
mod processor;

pub use error::{Error, PlanError};
pub use family::{Family, known_classes};
pub use model_files::ModelFiles;
pub use patches::{CHANNELS, PatchLayout, normalized, unchanged};
pub use plan::ImagePlan;
pub use positions::{Grid, TokenMismatch, add_positions, tokens_of_grid};
pub use processor::Processor;
