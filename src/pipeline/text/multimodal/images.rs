//! The images of one row: read, stored, and described by the fields of its record.

use bytes::Bytes;
use dsconvert_vision::{ImagePlan, Processor};
use dsconvert_writer::outcome::Outcomes;

use super::chat_images::{self, ChatImages};
use super::image_value::ImageValue;
use super::named_images::{self, NamedImages};
use super::stored_image::ImageStore;
use crate::error::Result;
use crate::pipeline::memory::MemoryPool;
use crate::pipeline::text::conversion::TextJob;
use crate::recipe::MultimodalRecipe;
use crate::sample::{ArrayValue, Reject, RejectCode, Value};
use crate::source::io::base64;
use crate::source::io::broken::Broken;
use crate::source::list::source_file::SourceFile;
use crate::transform::image::ImageScratch;

/// Converts the images of chats.
pub(in crate::pipeline::text) struct Multimodal {
    pub(in crate::pipeline::text) processor: Processor,
    store: ImageStore,
    /// The files that chats name; filled when the run is planned.
    pub(in crate::pipeline::text) named: NamedImages,
}

/// The images of a row as they are stored.
#[derive(Debug, Default)]
pub(in crate::pipeline::text) struct RowImages {
    files: Vec<Bytes>,
    plans: Vec<ImagePlan>,
}

impl Multimodal {
    /// Creates the converter of a recipe; `None` if chats have no images.
    ///
    /// # Errors
    ///
    /// If the processor is missing.
    pub(in crate::pipeline::text) fn new(recipe: &MultimodalRecipe) -> Result<Option<Self>> {
        if !recipe.is_given() {
            return Ok(None);
        }
        let (processor, store) = (recipe.processor()?.clone(), ImageStore::new(recipe.images)?);
        Ok(Some(Self { processor, store, named: NamedImages::default() }))
    }

    /// Finds the images of the chat `text`.
    ///
    /// # Errors
    ///
    /// A reject if they do not fit the messages.
    pub(in crate::pipeline::text) fn chat<'a>(&self, text: &'a str) -> Result<ChatImages<'a>, Reject> {
        chat_images::read(text, &self.processor)
    }

    /// Returns the bytes of the images of a row of `file`, as they are in the source. Calls `read` with each of them.
    ///
    /// # Errors
    ///
    /// [`Broken::Damaged`] if one is missing or not Base64; otherwise, if a file has changed or cannot be read.
    pub(in crate::pipeline::text) fn sources(
        &self,
        job: &TextJob,
        file: &SourceFile,
        values: Vec<ImageValue>,
        mut read: impl FnMut(&[u8], bool),
    ) -> Result<Vec<Bytes>, Broken> {
        let mut sources = Vec::with_capacity(values.len());
        for (at, value) in values.into_iter().enumerate() {
            let (bytes, is_file) = match value {
                ImageValue::Base64(text) => {
                    let wrong =
                        || Reject::new(RejectCode::InvalidValue, format!("images[{at}] is not Base64"));
                    (base64::decode(&text).ok_or_else(wrong)?, false)
                }
                ImageValue::Path(path) => {
                    let bytes = named_images::read(job, file, &path).map_err(|broken| match broken {
                        Broken::Damaged(reject) => {
                            let message = format!("images[{at}] {path:?}: {}", reject.message);
                            Reject::new(reject.code, message).into()
                        }
                        failed => failed,
                    })?;
                    (bytes, true)
                }
            };
            read(&bytes, is_file);
            sources.push(bytes.into());
        }
        Ok(sources)
    }

    /// Checks and stores the images `sources` of a row. Counts in `out` what is noteworthy.
    ///
    /// # Errors
    ///
    /// A reject if one of them cannot be decoded, or is refused by the processor.
    pub(in crate::pipeline::text) fn store(
        &self,
        sources: &[Bytes],
        scratch: &mut ImageScratch,
        memory: &MemoryPool,
        out: &mut Outcomes,
    ) -> Result<RowImages, Reject> {
        let mut row = RowImages::default();
        let mut counts = [0u64; 4];
        for (at, source) in sources.iter().enumerate() {
            let stored = self.store.store(source, &self.processor, scratch, memory);
            let stored = stored
                .map_err(|reject| Reject::new(reject.code, format!("images[{at}]: {}", reject.message)))?;
            match stored.fit {
                Some((samples, squared)) => {
                    counts[1] += 1;
                    counts[2] += samples;
                    counts[3] += squared;
                }
                None if !stored.is_unchanged => counts[0] += 1,
                None => {}
            }
            row.files.push(stored.bytes);
            row.plans.push(stored.plan);
        }
        let names = ["images_encoded_again", "images_fit", FIT_SAMPLES, FIT_SQUARED_ERROR];
        for (name, count) in names.into_iter().zip(counts).filter(|(_, count)| *count > 0) {
            out.count(name, count);
        }
        if !row.files.is_empty() {
            out.count("images_of_chats", row.files.len() as u64);
        }
        Ok(row)
    }
}

/// Notes with the number of samples of resized images, and the sum of their squared errors.
pub(crate) const FIT_SAMPLES: &str = "fit_samples";
pub(crate) const FIT_SQUARED_ERROR: &str = "fit_squared_error";

impl RowImages {
    /// Returns the files.
    pub(in crate::pipeline::text) fn files(&self) -> &[Bytes] {
        &self.files
    }

    /// Returns the number of tokens of each image.
    pub(in crate::pipeline::text) fn token_counts(&self) -> Vec<u32> {
        self.plans.iter().map(|plan| plan.tokens).collect()
    }

    /// Returns the number of patches of all images.
    pub(in crate::pipeline::text) fn patches(&self) -> u64 {
        self.plans.iter().map(|plan| u64::from(plan.patches)).sum()
    }

    /// Returns the values of the fields of images, in the order of the schema.
    ///
    /// # Errors
    ///
    /// A reject if there are too many patches.
    pub(in crate::pipeline::text) fn values(self) -> Result<[Value; 3], Reject> {
        let patches = self.patches();
        let too_many =
            || Reject::new(RejectCode::TooLarge, "the images have more patches than a record can count");
        u32::try_from(patches).map_err(|_| too_many())?;
        let mut grids = Vec::with_capacity(12 * self.plans.len());
        for size in self.plans.iter().flat_map(|plan| plan.grid) {
            let size = i32::try_from(size).map_err(|_| too_many())?;
            grids.extend_from_slice(&size.to_le_bytes());
        }
        let shape = [self.plans.len() as u32, 3];
        Ok([
            Value::Files(self.files),
            Value::Array(ArrayValue::new(shape, grids.into())),
            Value::UInt(patches),
        ])
    }
}
