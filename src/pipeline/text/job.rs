//! Plan of a conversion of text, and what a run needs of it.

use std::collections::BTreeSet;
use std::ops::Range;
use std::path::Path;
use std::sync::{Arc, Mutex};

use dsconvert_writer::outcome::Outcomes;
use dsconvert_writer::stage::Stages;
use dsconvert_writer::stop::Stop;
use dsconvert_writer::workers::Workers;

use super::conversion::{TextConversion, TextJob};
use super::convert::TextScratch;
use super::dedup;
use super::duplicates::DuplicatesFile;
use super::feed::{SectionFeed, TextTask};
use super::ids::TokenIds;
use super::multimodal::named_images::{self, NamedImages};
use super::options::{TextInput, TextOptions};
use super::pack::{Pack, PackDocuments};
use super::sources::{refusal, stdin};
use super::{field_check, label_check, plan, split_group};
use crate::error::{Error, ErrorKind, Result};
use crate::format::check_schema;
use crate::pipeline::exclude::OpenedExclusion;
use crate::pipeline::job::{Conversion, Converting, EngineUse, Feed, Job};
use crate::pipeline::job_file::{JobHeader, JobReader, JobWriter};
use crate::pipeline::memory::{MemoryPool, Shares};
use crate::pipeline::plan_summary::PlanSummary;
use crate::pipeline::shuffle::output_stages;
use crate::pipeline::source_checks::split_names;
use crate::recipe::TextRecipe;
use crate::sample::RejectCode;
use crate::schema::{CU_SEQLENS, Field, FieldType, Kind, PIECE_STARTS, Schema};
use crate::source::list::file_list::ChosenFiles;
use crate::source::names::layout::FolderLayout;
use crate::source::names::split_levels::SplitNames;
use crate::source::names::splits::Splits;
use crate::transform::text::{Tokenizer, id_width, usage_error};
use crate::warning::Warning;

/// Default of `--unit-bytes`: a minute for the slowest tokenizer on one core.
const UNIT_BYTES: u64 = 256 << 20;

impl Conversion for TextConversion {
    type Options = TextOptions;
    type Task = TextTask;
    type Scratch = TextScratch;
    type Duplicates = Option<DuplicatesFile>;

    fn plan(options: TextOptions) -> Result<TextJob> {
        let job = TextJob::of(options)?;
        refuse_damaged_ids(&job)?;
        label_check::check(&job)?;
        Ok(job)
    }

    fn write(&self, file: &mut JobWriter) -> Result<()> {
        file.line(&(&self.input, &self.recipe, &self.fields))?;
        file.list(&self.details)?;
        file.list(&self.sections)?;
        match &self.multimodal {
            Some(multimodal) => file.list(&multimodal.named.lines()),
            None => Ok(()),
        }
    }

    fn read(tokenizer_json: Option<Vec<u8>>, file: &mut JobReader) -> Result<Self> {
        let (input, recipe, fields): (_, TextRecipe, _) = file.line()?;
        let tokenizer =
            Tokenizer::stored(tokenizer_json, recipe.tokenization.clone()).map_err(usage_error)?;
        let (details, sections) = (file.list()?, file.list()?);
        let mut conversion = Self::new(input, recipe, tokenizer, details, sections, fields)?;
        if let Some(multimodal) = &mut conversion.multimodal {
            multimodal.named = NamedImages::of_lines(file.list()?);
        }
        Ok(conversion)
    }

    fn tokenizer_json(&self) -> Option<&[u8]> {
        self.tokenizer.json().filter(|_| !self.recipe.ids.without_tokenizer)
    }

    fn files_of(&self, unit: Range<usize>) -> BTreeSet<usize> {
        self.sections.get(unit).unwrap_or_default().iter().map(|section| section.file).collect()
    }

    fn duplicates(
        job: &TextJob,
        work: &Path,
        workers: &Workers,
        memory: &MemoryPool,
        stop: &Stop,
    ) -> Result<Option<DuplicatesFile>> {
        let is_wanted = job.conversion.recipe.dedup.is_some();
        is_wanted.then(|| dedup::find(job, work, workers, memory, stop)).transpose()
    }

    fn feed<'a>(
        job: &'a TextJob,
        duplicates: &'a Option<DuplicatesFile>,
        unit: u32,
        engine: EngineUse,
    ) -> Result<Box<dyn Feed<TextTask> + 'a>> {
        if engine == EngineUse::Reference && job.conversion.input == TextInput::Stdin {
            let message =
                "the fast and the reference engine disagreed, and standard input cannot be read again";
            return Err(Error::new(ErrorKind::NotCommitted, message).help("use `engine reference`"));
        }
        let sections = job.units[unit as usize].clone();
        let duplicates = duplicates.as_ref().map(|file| file.from(sections.start));
        Ok(Box::new(SectionFeed::new(job, sections, engine, duplicates)?))
    }

    fn scratch(job: &TextJob, memory: &Shares) -> TextScratch {
        TextScratch::new(&job.conversion.tokenizer, memory)
    }

    fn convert(
        job: &TextJob,
        task: TextTask,
        scratch: &mut TextScratch,
        out: &mut Outcomes,
    ) -> Result<Converting> {
        job.convert_documents(task, scratch, out)
    }

    fn stages(job: &TextJob, work: &Path) -> Stages {
        let recipe = &job.conversion.recipe;
        let pack = recipe.shape().pack.filter(|_| !recipe.ids.keep_packs);
        let schema = &job.header.schema;
        let pack = pack.map(|(length, packing)| Pack {
            length,
            packing,
            // The number of patches of a row is a number of 32 bits.
            patches: schema.holds_multimodal().then(|| recipe.pack_patches.unwrap_or(u32::MAX)),
            has_masks: schema.masks_field().is_some(),
        });
        output_stages(&job.header.output, work).and(pack.map(PackDocuments::new))
    }
}

impl TextJob {
    /// Lists the sources and divides them into units. What is read of the files is not judged.
    pub(super) fn of(options: TextOptions) -> Result<Self> {
        let options = options.checked()?;
        let exclude = OpenedExclusion::open(&options.exclude, Kind::Text, options.recipe.dedup.is_some())?;
        let described = options.described(exclude.fact())?;
        exclude.check(&described)?;
        let output = &options.recipe.output;
        let unit_bytes = output.unit_bytes.unwrap_or(UNIT_BYTES);
        let found = plan::find(&options, unit_bytes)?;
        let all = ChosenFiles::all(&found.listing.files);
        let (layout, names) = (options.recipe.layout, SplitNames::OfContainers);
        let (named_splits, mut warnings) = match layout == FolderLayout::Auto && !found.config.is_empty() {
            true => Splits::configured(&all, found.config, names)?,
            false => Splits::find(&all, layout, names)?,
        };
        let splits = split_names(output, &named_splits, "flat")?;
        if output.split.is_some() {
            warnings.clear();
        }
        split_group::check(&options.recipe, &found.fields)?;
        let kept = options.recipe.keep_fields.len();
        let mut extra = found.fields.get(..kept).unwrap_or_default().to_vec();
        if options.recipe.pack.is_some() {
            extra.extend(PACK_FIELDS.map(|name| Field::required(name, FieldType::IdsU32)));
        }
        let ids = TokenIds::new(&options.recipe, &options.tokenizer)?;
        let width = ids.map_or_else(|| id_width(&options.tokenizer), |ids| ids.width);
        let chat = &options.recipe.chat;
        let schema = match options.recipe.has_masks() {
            _ if chat.chosen_field.is_some() => Schema::pairs(width, extra)?,
            _ if chat.prompt_only => Schema::prompts(extra)?,
            _ if chat.label_field.is_some() => Schema::unpaired(width, extra)?,
            true if options.recipe.multimodal.is_given() => {
                Schema::text(width, extra)?.with_assistant_masks()?.with_images()?
            }
            true => Schema::text(width, extra)?.with_assistant_masks()?,
            false => Schema::text(width, extra)?,
        };
        let schema = match options.recipe.ids.weights_field {
            Some(_) => schema.with_token_weights()?,
            None => schema,
        };
        check_schema(output.format, &Arc::new(schema.clone()))?;
        let mut read_stdin = match (&options.input, &found.details[..]) {
            (TextInput::Stdin, [detail]) => Some(stdin(detail.kind, options.recipe.encoding)?),
            _ => None,
        };
        warnings.extend(found.listing.unusable_keys());
        warnings.extend(found.warnings);
        warnings.extend(field_check::check(
            &options,
            &found.listing.files,
            &found.sources,
            &found.details,
            read_stdin.as_mut(),
        )?);
        warnings.extend(ids_unchecked(&options.recipe));
        let info = serde_json::to_value(options.tokenizer.info())
            .map_err(|e| Error::not_serialized("the description of the tokenizer", e))?;
        let header = JobHeader {
            options: described,
            output: output.clone(),
            sources: found.sources,
            walked: options.input == TextInput::Walk,
            follow_symlinks: options.recipe.follow_symlinks,
            skipped: found.listing.skipped,
            unit_bytes,
            unit_pieces: plan::UNIT_SECTIONS as u64,
            tokenizer: (!options.recipe.ids.without_tokenizer).then_some(info),
            splits,
            exclude: exclude.stored(),
            ..JobHeader::new(schema)
        };
        let split_files = output.split.is_none().then(|| named_splits.count(all.iter()));
        let TextOptions { sources: _, input, tokenizer, exclude: _, recipe } = options;
        let dedup = recipe.dedup.is_some();
        let conversion = TextConversion {
            stdin: Mutex::new(read_stdin),
            ..TextConversion::new(input, recipe, tokenizer, found.details, found.sections, found.fields)?
        };
        let documents = conversion.details.iter().all(|file| conversion.is_document(file));
        let summary = PlanSummary {
            items: documents.then_some(found.listing.files.len() as u64),
            split_files,
            fields: conversion.fields.iter().take(kept).map(|field| field.name.clone()).collect(),
            vision: conversion.recipe.multimodal.vision.clone(),
            dedup,
            exclude: exclude.summary(),
            warnings,
            ..PlanSummary::default()
        };
        let mut job = Job::new(header, found.listing.files, found.units, named_splits, summary, conversion);
        named_images::plan_files(&mut job)?;
        Ok(job)
    }
}

/// Refuses damaged files of ids: an index that contradicts its file says nothing about any document.
fn refuse_damaged_ids(job: &TextJob) -> Result<()> {
    let mut files = job.conversion.details.iter().enumerate();
    let damaged = files.find_map(|(ordinal, file)| {
        let defect = file.defect.as_ref().filter(|defect| defect.code == RejectCode::Corrupt)?;
        file.kind.format.is_ids().then_some((ordinal, defect))
    });
    let Some((ordinal, defect)) = damaged else { return Ok(()) };
    Err(refusal(&job.file(ordinal)?.path(&job.header.sources), defect))
}

/// Fields of the rows of `--pack`, which mark the boundaries of their documents.
const PACK_FIELDS: [&str; 2] = [CU_SEQLENS, PIECE_STARTS];

/// Returns the warning about ids that nothing bounds.
fn ids_unchecked(recipe: &TextRecipe) -> Option<Warning> {
    let is_bounded = !recipe.ids.without_tokenizer || recipe.ids.vocab_size.is_some();
    let message =
        "without a tokenizer, no id is too large, and nothing tells whether the ids are those of a model";
    (!is_bounded).then(|| {
        Warning::new("ids-unchecked", message).remedy("vocab_size", "N", "rejects ids that are not below N")
    })
}
