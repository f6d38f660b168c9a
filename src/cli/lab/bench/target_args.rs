//! Arguments of `bench` and `headspace` for how targets are read and batched.

use std::path::Path;
use std::sync::Arc;

use crate::cli::text;
use crate::cli::values::{check_resize_options, parse};
use crate::error::{Error, Result};
use crate::lab::{BenchBatchSize, BenchTarget, TargetKind, TargetOptions, find_target};
use crate::printable::printable_path;
use crate::transform::image::{ImageOptions, Resize};
use crate::transform::text::TokenizerOptions;

/// Default number of items per batch.
const DEFAULT_BATCH: u64 = 32;

/// How raw files are processed and batched.
#[derive(Debug, clap::Args)]
pub(in crate::cli) struct TargetArgs {
    /// Split of datasets to read [default: all]
    #[arg(long, value_name = "NAME")]
    split: Option<String>,

    /// Number of items per batch [default: 32]
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    batch_size: Option<u64>,

    /// Text: number of tokens per batch, including padding
    #[arg(long, value_name = "N", conflicts_with = "batch_size", allow_hyphen_values = true)]
    batch_tokens: Option<u64>,

    /// Raw images: target size, shorter:N, longer:N, exact:WxH, area:PIXELS or none [default: stored size, or the option of
    /// the compared dataset; the same applies to the options below]
    #[arg(long, value_name = "RULE", help_heading = "Raw images")]
    resize: Option<String>,

    /// Allow --resize to enlarge images
    #[arg(long, help_heading = "Raw images")]
    enlarge: bool,

    /// Resampling filter of --resize: lanczos3, catmullrom, bilinear or box
    #[arg(long, value_name = "FILTER", help_heading = "Raw images")]
    filter: Option<String>,

    /// Crop the resized image: center:WxH
    #[arg(long, value_name = "CROP", help_heading = "Raw images")]
    crop: Option<String>,

    /// Pad the image to a canvas: WxH or WxH:COLOR
    #[arg(long, value_name = "WxH:COLOR", help_heading = "Raw images")]
    pad: Option<String>,

    /// Tokenizer, as for dsconvert text [default: tokenizer of the compared dataset; without one, documents are only
    /// parsed]
    #[arg(short, long, value_name = "FILE", help_heading = "Raw text")]
    tokenizer: Option<String>,

    /// Add the beginning-of-sequence token before every document
    #[arg(long, requires = "tokenizer", help_heading = "Raw text")]
    add_bos: bool,

    /// Add the end-of-sequence token after every document
    #[arg(long, requires = "tokenizer", help_heading = "Raw text")]
    add_eos: bool,

    /// Field of .jsonl with the text [default: text]
    #[arg(long, value_name = "NAME", help_heading = "Raw text")]
    text_field: Option<String>,

    /// How .txt files are divided into documents: file, line, blank-line or separator:STRING [default: file]
    #[arg(long, value_name = "WHAT", help_heading = "Raw text")]
    documents: Option<String>,
}

impl TargetArgs {
    pub(in crate::cli) fn batch(&self) -> BenchBatchSize {
        let items = self.batch_size.unwrap_or(DEFAULT_BATCH);
        self.batch_tokens.map_or(BenchBatchSize::Items(items), BenchBatchSize::Tokens)
    }

    /// Finds the target `path` and, if given, the target `against`. If one of them is a dataset, options that are not
    /// given are those of its conversion, and apply to the other.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Usage`](crate::error::ErrorKind) if there is nothing to measure.
    pub(in crate::cli) fn find(&self, path: &Path, against: Option<&Path>) -> Result<Vec<BenchTarget>> {
        let target = |path, other| find_target(path, &self.options(other)?);
        let targets = match against {
            Some(against) => vec![target(path, Some(against))?, target(against, Some(path))?],
            None => vec![target(path, None)?],
        };
        self.check_used(&targets)?;
        Ok(targets)
    }

    /// Rejects options that apply to none of the targets.
    fn check_used(&self, targets: &[BenchTarget]) -> Result<()> {
        let images = [
            ("resize", self.resize.is_some()),
            ("enlarge", self.enlarge),
            ("filter", self.filter.is_some()),
            ("crop", self.crop.is_some()),
            ("pad", self.pad.is_some()),
        ];
        let text = [
            ("tokenizer", self.tokenizer.is_some()),
            ("text_field", self.text_field.is_some()),
            ("documents", self.documents.is_some()),
        ];
        let kinds: Vec<TargetKind> = targets.iter().map(|target| target.kind).collect();
        let groups = [
            ("datasets", kinds.iter().any(|kind| kind.is_dataset()), &[("split", self.split.is_some())][..]),
            (TargetKind::RawImages.describe(), kinds.contains(&TargetKind::RawImages), &images),
            (TargetKind::RawText.describe(), kinds.contains(&TargetKind::RawText), &text),
        ];
        for (applies_to, _, options) in groups.into_iter().filter(|(_, is_used, _)| !is_used) {
            let Some((option, _)) = options.iter().find(|(_, is_given)| *is_given) else { continue };
            let found = targets
                .iter()
                .map(|target| format!("{}: {}", printable_path(&target.path), target.kind.describe()));
            let found = found.collect::<Vec<_>>().join(", ");
            return Err(Error::usage(format!("applies only to {applies_to} ({found})")).of_option(option));
        }
        Ok(())
    }

    /// Returns the options of a target. Options that are not given are those of `like`, if it is a dataset.
    fn options(&self, like: Option<&Path>) -> Result<TargetOptions> {
        let tokenizer = self.tokenizer.as_deref().map(|name| {
            let options =
                TokenizerOptions { add_bos: self.add_bos, add_eos: self.add_eos, ..Default::default() };
            text::load(name, options).map(|loaded| loaded.tokenizer)
        });
        let options = TargetOptions {
            image: self.image()?,
            tokenizer: tokenizer.transpose()?.map(Arc::new),
            documents: self.documents.as_deref().map(|text| parse("documents", text)).transpose()?,
            text_field: self.text_field.clone(),
            split: self.split.clone(),
        };
        match like {
            Some(path) => options.like(path),
            None => Ok(options),
        }
    }

    /// Returns the pixel options, if any of them is given.
    fn image(&self) -> Result<Option<ImageOptions>> {
        let given = [&self.resize, &self.filter, &self.crop, &self.pad];
        if given.iter().all(|text| text.is_none()) && !self.enlarge {
            return Ok(None);
        }
        let defaults = ImageOptions::default();
        let resize = match &self.resize {
            Some(text) => parse("resize", text)?,
            None => defaults.resize,
        };
        check_resize_options(resize != Resize::None, self.enlarge, self.filter.is_some())?;
        Ok(Some(ImageOptions {
            resize,
            filter: match &self.filter {
                Some(text) => parse("filter", text)?,
                None => defaults.filter,
            },
            crop: self.crop.as_deref().map(|text| parse("crop", text)).transpose()?,
            pad: self.pad.as_deref().map(|text| parse("pad", text)).transpose()?,
            enlarge: self.enlarge,
            ..defaults
        }))
    }
}
