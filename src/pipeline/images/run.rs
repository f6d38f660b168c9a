//! Runs of a planned conversion of images.

use super::convert::ImageConversion;
use super::job::ImagesJob;
use crate::error::Result;
use crate::options::RunOptions;
use crate::pipeline::plan::PlanSummary;
use crate::pipeline::predict::Prediction;
use crate::pipeline::progress::Progress;
use crate::pipeline::run::{Job, Outcome, check_start, run, store_plan};
use crate::pipeline::stop::{Continuation, Stop};
use crate::schema::{Kind, LABEL};

impl Job for ImagesJob {
    fn summary(&self) -> PlanSummary {
        PlanSummary {
            kind: Kind::Images.name(),
            files: self.files.len() as u64,
            items: (!self.files.iter().any(|f| self.is_container(&f))).then(|| self.items().count() as u64),
            bytes: self.files.bytes(),
            skipped: self.skipped.clone(),
            units: self.units.len() as u32,
            splits: self.splits.clone(),
            split_by: self.options.recipe.output.split.is_none().then_some(self.folders.splits.by),
            split_folders: self.folders.splits.folders.clone(),
            split_files: self.split_files.clone(),
            classes: self.schema.index_of(LABEL).map(|_| self.schema.class_names.clone()),
            metadata: self.tables.clone(),
            fields: {
                let all = self.schema.fields.iter().rev().take(self.extra_fields).rev();
                let fields = all.take(self.extra_fields - self.image_fields.len());
                fields.map(|field| field.name.clone()).collect()
            },
            sidecars: self.sidecars.clone(),
            image_fields: self.image_fields.iter().map(|f| format!("{} ({})", f.name, f.ty.name())).collect(),
            main_image: self.main_image.clone(),
            left_out: self.left_out.clone(),
            dedup: self.options.recipe.dedup.is_some(),
            warnings: self.folders.warnings.clone(),
        }
    }

    fn run(&self, options: &RunOptions, progress: &Progress, stop: &Stop) -> Result<Outcome> {
        stop.start_writing(Continuation::Resume);
        run(self, &ImageConversion::new(self, options)?, options, progress, stop)
    }

    fn store(&self, options: &RunOptions, progress: &Progress, stop: &Stop) -> Result<u32> {
        store_plan(self, &ImageConversion::new(self, options)?, options, progress, stop)
    }

    fn check_start(&self, run: &RunOptions) -> Result<()> {
        check_start(self, run)
    }

    fn predict(&self, sample: u64, run: &RunOptions, stop: &Stop) -> Result<Prediction> {
        self.prediction(sample, run, stop)
    }
}
