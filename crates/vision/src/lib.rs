//! Image processors of vision-language models, without pixels: parameters, sizes, grids and numbers of tokens.

mod error;
mod family;
mod model_files;
mod plan;
mod processor;

pub use error::{Error, PlanError};
pub use family::{Family, known_classes};
pub use model_files::ModelFiles;
pub use plan::ImagePlan;
pub use processor::Processor;
