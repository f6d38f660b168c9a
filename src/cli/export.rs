//! `dsconvert export`: writes the records of a dataset as files that other trainers read.

use std::path::{Path, PathBuf};
use std::time::Instant;

use indicatif::{HumanBytes, HumanDuration};

use super::flags::with_flags;
use super::mixture::{MixtureArgs, mixed_split};
use super::progress::with_progress;
use super::values::{threads, words};
use super::verbosity::Verbosity;
use super::{Ending, output_file, print, signals};
use crate::add_fields::open_base;
use crate::error::{Error, Result};
use crate::export::{
    Columns, EXPORT_NAME, EndOfDocument, ExportFormat, ExportInput, ExportOptions, Layout, export,
};
use crate::numbers::plural;
use crate::printable::printable_path;
use crate::reader::Dataset;
use crate::storage::ObjectUrl;

/// Arguments of `dsconvert export`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Directory or URL of a dataset; with --mixture, several datasets
    #[arg(value_name = "DATASET", required = true)]
    datasets: Vec<PathBuf>,

    /// Format of the files
    ///
    /// tokens: flat files of token ids, as nanoGPT, llm.c and OLMo read them; --layout says which. megatron: the .bin and .idx
    /// of Megatron-LM. megatron-bridge: packed rows with loss masks, in Parquet. webdataset: tar files of samples. hf: Parquet
    /// files and a card, for `datasets.load_dataset`.
    #[arg(long, value_name = "FORMAT", value_parser = words::<ExportFormat>())]
    to: ExportFormat,

    /// Output directory or prefix in object storage; it must be empty or not exist
    #[arg(short, long, value_name = "DIR")]
    out: PathBuf,

    /// Export only this split (repeatable) [default: all splits with records; of a mixture: train, or the only one]
    #[arg(long, value_name = "NAME")]
    split: Vec<String>,

    /// Export only these of the fields that the conversion kept (--keep-fields, --metadata, labels, further images)
    ///
    /// Keys, origins, lengths, images or token ids, and what divides or masks token ids, are always part of a record.
    #[arg(long, value_name = "NAME,…", value_delimiter = ',')]
    fields: Option<Vec<String>>,

    /// Export the fields of this companion of the dataset, too (`dsconvert add-fields`); may be repeated
    #[arg(long, value_name = "DATASET", conflicts_with = "mixture")]
    add: Vec<PathBuf>,

    /// Divide each split into N files, or groups of files, of about the same size [default: 1; webdataset: 1 GiB each; hf: 500 MB each]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    parts: Option<u64>,

    /// Layout of the format tokens [default: nanogpt]
    ///
    /// nanogpt: ids only, the end token after each document. llmc: a header, the end token before each document. olmo: ids
    /// only, the end token after each document, and a list of the documents in a .csv.gz.
    #[arg(long, value_name = "LAYOUT", value_parser = words::<Layout>())]
    layout: Option<Layout>,

    /// Columns in the format hf [default: stored; of prompts: nested]
    ///
    /// stored: all fields of the dataset, as they are stored. labels: input_ids, attention_mask and labels, which axolotl, LLaMA-Factory, TRL and
    /// Unsloth read as already tokenized; labels are -100 where a token is not trained on. loss-mask: input_ids, attention_mask
    /// and loss_mask, as SkyRL reads them. reward: chosen_ids and rejected_ids of pairs, each with its prompt, and margin, which the
    /// reward trainer of TRL reads. nested: all fields of prompts, with messages and other JSON as lists and structs, which GRPO in
    /// TRL and verl read.
    #[arg(long, value_name = "COLUMNS", value_parser = words::<Columns>())]
    columns: Option<Columns>,

    /// Token that separates documents, for formats of token ids: auto, none, or the string or id of a token [default: auto]
    ///
    /// auto is the EOS token of the tokenizer that is recorded in the dataset. The token is added only to documents that do not
    /// have it already.
    #[arg(long, value_name = "TOKEN")]
    eod: Option<String>,

    /// Finish an interrupted export into this directory
    #[arg(long)]
    resume: bool,

    /// Directory for files waiting to be uploaded, if --out is in object storage [default: the system's temporary directory]
    #[arg(long, value_name = "DIR")]
    scratch: Option<PathBuf>,

    /// Number of worker threads [default: number of cores]
    #[arg(short = 'j', long, value_name = "N")]
    threads: Option<usize>,

    /// Print only errors
    #[arg(short, long)]
    pub(super) quiet: bool,

    /// Seed of the order of a mixture [default: 0]
    #[arg(long, value_name = "N", requires = "mixture", help_heading = "Mixture")]
    seed: Option<u64>,

    #[command(flatten)]
    mixture: MixtureArgs,
}

impl Args {
    /// Opens what is exported.
    fn input(&self) -> Result<ExportInput> {
        self.mixture.check_several(&self.datasets)?;
        if !self.mixture.is_given() {
            let path = self.datasets.first().map_or(Path::new(""), PathBuf::as_path);
            let dataset = open_base(path, &self.add)?;
            return ExportInput::of(&dataset, &self.split, self.fields.as_deref());
        }
        if self.split.len() > 1 {
            return Err(Error::usage("`split` names one split of all datasets of a mixture")
                .help("export each split by itself, into its own directory"));
        }
        let open = |path: &PathBuf| {
            let dataset = Dataset::open(path)?;
            let split = mixed_split(&dataset, self.split.first().map(String::as_str))?;
            let split = ExportInput::select(&split, self.fields.as_deref())?;
            Ok((dataset, split))
        };
        let splits = self.datasets.iter().map(open).collect::<Result<Vec<_>>>()?;
        let named =
            self.datasets.iter().zip(&splits).map(|(path, (_, split))| (path.as_path(), split.clone()));
        // As in the reader, datasets are repeated unless an option says how an epoch ends.
        let exhausted = self.mixture.exhausted().unwrap_or_default();
        let mixture = self.mixture.mix(named.collect(), None, exhausted)?;
        let fields = self.fields.clone();
        Ok(ExportInput {
            fields,
            ..ExportInput::of_mixture(&mixture, &splits, self.seed.unwrap_or_default())?
        })
    }
}

/// Runs `dsconvert export`.
pub(super) fn exec(args: &Args) -> Result<Ending> {
    let started = Instant::now();
    let stop = signals::watch()?;
    let options = ExportOptions {
        format: args.to,
        layout: args.layout,
        columns: args.columns,
        eod: args.eod.as_deref().map(EndOfDocument::from),
        parts: args.parts,
        out: args.out.clone(),
        scratch: args.scratch.clone(),
        threads: threads(args.threads)?,
        resume: args.resume,
    };
    if !ObjectUrl::is_url(&args.out) {
        for path in &args.datasets {
            let dataset = (!ObjectUrl::is_url(path)).then_some(path.as_path());
            output_file::refuse_datasets(&args.out.join(EXPORT_NAME), dataset)
                .map_err(|e| e.of_option("out"))?;
        }
    }
    let input = args.input()?;
    let records: u64 = input.splits.iter().map(|split| split.source.lengths().records()).sum();
    let verbosity = if args.quiet { Verbosity::Quiet } else { Verbosity::Normal };
    let mut warn = |warning: String| {
        if !args.quiet {
            print::warning_between_redraws(&with_flags(&warning));
        }
    };
    let outcome = with_progress(Some(records), verbosity, &stop, |progress, stop| {
        export(&input, &options, &mut warn, progress, stop)
    })?;
    if !args.quiet {
        let bytes: u64 = outcome.files.iter().map(|file| file.bytes).sum();
        let what = format!(
            "{} in {} ({})",
            plural(outcome.records, "record"),
            plural(outcome.files.len() as u64, "file"),
            HumanBytes(bytes)
        );
        let text = match outcome.was_complete {
            true => format!("the export is complete already: {what}\n"),
            false => format!("exported {what} in {}\n", HumanDuration(started.elapsed())),
        };
        print::summary(&format!("{text}{}\n", listed_in(&args.out)), "the export is complete");
    }
    Ok(Ending::Success)
}

/// Says where the files are listed.
fn listed_in(out: &Path) -> String {
    format!("its files are listed in {}", printable_path(&out.join(EXPORT_NAME)))
}
