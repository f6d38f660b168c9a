//! `dsconvert inspect`: describes, verifies and repairs datasets, shows their records, and predicts mixtures.

mod card;
mod describe;
mod ids;
mod masks;
mod mixture;
mod record;
mod records;
mod repair;
mod report;
mod verify;

use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use dsconvert_tokens::pattern_of_older_ids;

use super::flags::shown;
use super::mixture::MixtureArgs;
use super::output_file::is_stdout;
use super::print::failed as print_error;
use super::{Ending, print, values};
use crate::error::{Error, ErrorKind, Result};
use crate::manifest::{MANIFEST_NAME, Manifest};
use crate::pipeline::status;
use crate::printable::{printable, shell_word};
use crate::reader::{Dataset, Description, Split, describe as describe_path};
use crate::storage::{Access, ObjectUrl, folder_of, lstat, stat};
use crate::tokenizer_files::stored_tokenizer;

/// Arguments of `dsconvert inspect`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Directory or URL of a dataset, or a shard file; with --mixture, several datasets
    #[arg(value_name = "PATH", required = true)]
    paths: Vec<PathBuf>,

    /// Split of the records to show [default: train, or the first split with records; in pages and plots, the first 12 splits;
    /// of a mixture: train, or the only one]
    #[arg(long, value_name = "NAME")]
    split: Option<String>,

    /// Show the first N records
    #[arg(long, value_name = "N", conflicts_with_all = ["record", "sample", "verify"])]
    head: Option<u64>,

    /// Show N random records, chosen by --seed
    #[arg(long, value_name = "N", conflicts_with_all = ["record", "verify"])]
    sample: Option<u64>,

    /// Show record number I, counted from 0
    #[arg(long, value_name = "I", conflicts_with = "verify")]
    record: Option<u64>,

    /// Show decoded text instead of token ids, with the names of special tokens
    ///
    /// The text is decoded with the tokenizer stored in the dataset, or with --tokenizer. Without --head, --sample or --record,
    /// the first 5 records are shown.
    #[arg(long, conflicts_with = "verify")]
    text: bool,

    /// With --record: write the image, or the token ids as a JSON list, to FILE
    #[arg(long, value_name = "FILE", requires = "record")]
    extract: Option<PathBuf>,

    /// Check every byte; exit with status 3 if anything is damaged
    ///
    /// Checks all checksums, decodes every record, and compares indexes and counts with the records. Rows of token ids of another
    /// program, whose field --ids-field names, and its files of Megatron are checked for what a conversion would reject, repeated
    /// documents and padding; with --tokenizer, also for doubled BOS tokens and shifted masks.
    #[arg(long)]
    verify: bool,

    /// With --verify: regenerate damaged files from the sources, byte for byte
    ///
    /// The options are read from the manifest, and the units of damaged shards are converted again. It is an error if the
    /// sources have changed or a regenerated file differs.
    #[arg(long, value_name = "SRC", num_args = 1.., requires = "verify", conflicts_with = "json")]
    repair: Option<Vec<PathBuf>>,

    /// Write a dataset card (README.md), so that the Hugging Face Hub and load_dataset can open the dataset
    ///
    /// The card lists configs, features, splits and sizes, and has a placeholder for the license. Shards must be parquet or arrow.
    #[arg(long, conflicts_with_all = ["head", "sample", "record", "text", "verify", "json"])]
    card: bool,

    /// Print the command that makes this dataset from its sources, with placeholders for what the dataset does not contain
    ///
    /// Every option that differs from its default is part of the command, so the same sources give the same fingerprint.
    /// `dsconvert images --like PATH` and `text --like PATH` use the options without printing them.
    #[arg(long, conflicts_with_all = ["head", "sample", "record", "text", "verify", "card", "json"])]
    recipe: bool,

    /// Print the result as JSON
    #[arg(long)]
    json: bool,

    /// Number of threads for --verify and --repair [default: number of cores]
    #[arg(long, value_name = "N", requires = "verify")]
    threads: Option<usize>,

    /// Read files instead of memory-mapping them, in case another process truncates one
    #[arg(long)]
    no_mmap: bool,

    #[command(flatten)]
    report: report::ReportArgs,

    #[command(flatten)]
    ids: ids::IdsArgs,

    #[command(flatten)]
    mixture: MixtureArgs,

    #[command(flatten)]
    batches: mixture::BatchArgs,
}

impl Args {
    /// Returns the path of the dataset or shard; of a mixture, the path of the first dataset.
    fn path(&self) -> &Path {
        self.paths.first().map_or(Path::new(""), PathBuf::as_path)
    }

    /// Refuses options that do not apply to a mixture.
    fn check_mixture(&self) -> Result<()> {
        self.mixture.check_several(&self.paths)?;
        let others = [
            ("head", self.head.is_some()),
            ("sample", self.sample.is_some()),
            ("record", self.record.is_some()),
            ("text", self.text),
            ("verify", self.verify),
            ("card", self.card),
            ("recipe", self.recipe),
        ];
        let others = others.into_iter().filter(|(_, is_given)| *is_given).map(|(option, _)| option);
        match others.chain(self.report.requested()).next().filter(|_| self.mixture.is_given()) {
            Some(option) => Err(Error::usage(format!("`mixture` does not apply with `{option}`"))
                .help("inspect one dataset at a time, or leave out the option")),
            None => Ok(()),
        }
    }

    fn shows_records(&self) -> bool {
        self.head.is_some() || self.record.is_some() || self.sample.is_some() || self.text
    }
}

/// Buffered standard output, or nothing if it is taken by a file; [`print_error`] wraps its errors.
type Out = BufWriter<Box<dyn Write>>;

/// Prints `value` as indented JSON.
fn print_json(out: &mut Out, value: &impl serde::Serialize) -> Result<()> {
    serde_json::to_writer_pretty(&mut *out, value).map_err(|e| print_error(e.into()))?;
    writeln!(out).map_err(print_error)
}

/// Runs `dsconvert inspect`.
pub(super) fn exec(args: &Args) -> Result<Ending> {
    inspect(args).map_err(|error| with_status(error, args.path()))
}

/// Suggests `dsconvert status` if there is no dataset at `path` yet, but a plan of one.
fn with_status(error: Error, path: &Path) -> Error {
    let is_missing = !error.is_unavailable() && matches!(lstat(&path.join(MANIFEST_NAME)), Ok(None));
    let has_plan = error.kind() == ErrorKind::Io && is_missing && status(path, None).is_ok();
    if !has_plan {
        return error;
    }
    let command = format!("dsconvert status {}", shell_word(path));
    error.help(format!(
        "a conversion into this directory has not finished; what remains to be done: {command}"
    ))
}

fn inspect(args: &Args) -> Result<Ending> {
    args.check_mixture()?;
    if args.card {
        crate::options::check_local("PATH", args.path())?;
    }
    let is_mixture = args.mixture.is_given();
    args.ids.check_used(args.verify, args.path())?;
    let checks_ids = args.verify && args.ids.applies_to(args.path())?;
    args.report.check_used(args.text || checks_ids, args.sample.is_some() || is_mixture)?;
    if args.split.is_some() && !args.shows_records() && !args.report.is_requested() && !is_mixture {
        return Err(Error::usage("`split` selects the records to show, and none are shown")
            .help("add `head`, `sample`, `record`, `text` or `html`"));
    }
    let access = if args.no_mmap { Access::Read } else { Access::Map };
    let is_taken = args.report.takes_stdout() || args.extract.as_deref().is_some_and(is_stdout);
    let stdout: Box<dyn Write> = if is_taken { Box::new(io::sink()) } else { Box::new(io::stdout().lock()) };
    let mut out = BufWriter::new(stdout);
    let mut ending = Ending::Success;
    if checks_ids {
        ending = ids::verify(args, values::threads(args.threads)?, &mut out)?;
    } else if args.verify {
        ending = verify_and_repair(args, access, &mut out)?;
    } else if args.card {
        card::exec(args.path(), access, &mut out)?;
    } else if args.recipe {
        let dataset = open_dataset(args.path(), access)?;
        let command = super::recipe::command_line(dir_of(args.path())?, dataset.manifest())?;
        out.write_all(command.as_bytes()).map_err(print_error)?;
    } else if args.report.is_requested() {
        report::exec(args, access, &mut out)?;
    } else if is_mixture {
        mixture::exec(args, access, &mut out)?;
    } else if args.shows_records() {
        records::exec(args, access, &mut out)?;
    } else {
        let description = describe_path(args.path(), access)?;
        if matches!(description, Description::Dataset(_)) {
            warn_of_older_ids(&open_dataset(args.path(), access)?);
        }
        let counted = describe::Counted::of(args.path(), &description, access)?;
        if args.json {
            let mut json = counted.classes.describe(&description)?;
            counted.buckets.add_to(&mut json);
            print_json(&mut out, &json)?;
        } else {
            let text = describe::text(args.path(), &description, &counted);
            out.write_all(text.as_bytes()).map_err(print_error)?;
        }
    }
    print::unless_closed(out.flush().map_err(print_error))?;
    Ok(ending)
}

/// Verifies and, with `--repair`, regenerates damaged files and verifies again.
fn verify_and_repair(args: &Args, access: Access, out: &mut Out) -> Result<Ending> {
    let threads = values::threads(args.threads)?;
    let Some(sources) = &args.repair else {
        let verified = verify::exec(args.path(), access, threads, args.json, out);
        return verified.map_err(|error| with_ids(with_repair(error, args.path()), args.path()));
    };
    if ObjectUrl::is_url(args.path()) {
        return Err(Error::usage("a dataset in object storage cannot be repaired")
            .at_path(args.path())
            .help("convert its sources to another prefix"));
    }
    if is_shard(args.path())? {
        return Err(Error::usage("a single shard cannot be repaired")
            .at_path(args.path())
            .help("name the directory of its dataset"));
    }
    for source in sources {
        let path = values::source(source)?.path;
        if !ObjectUrl::is_url(&path) && stat(&path)?.is_none() {
            return Err(Error::usage("there is no such source").of_option("repair").at_path(path));
        }
    }
    match verify::exec(args.path(), access, threads, false, out) {
        // If files only could not be read, there is nothing to repair.
        Ok(ending @ (Ending::Success | Ending::NotVerified)) => return Ok(ending),
        Ok(_) => {}
        // Without its shard table, a dataset cannot even be opened.
        Err(error) if is_damage(&error, dir_of(args.path())?) => {
            let printed = writeln!(out, "{}", printable(&shown(&error)));
            print::unless_closed(printed.map_err(print_error))?;
        }
        Err(error) => return Err(error),
    }
    print::unless_closed(out.flush().map_err(print_error))?;
    repair::exec(dir_of(args.path())?, sources, args.threads)?;
    verify::exec(args.path(), access, threads, false, out)
}

/// Says how to check token ids of another program if `path` is neither a dataset nor a shard.
fn with_ids(error: Error, path: &Path) -> Error {
    let is_missing = error.is_unavailable() || !matches!(stat(path), Ok(Some(_)));
    let is_dataset =
        is_missing || dir_of(path).is_ok_and(|dir| !matches!(lstat(&dir.join(MANIFEST_NAME)), Ok(None)));
    if is_dataset {
        return error;
    }
    let ids = "to check lists of token ids of another program, name their field: `ids_field input_ids`";
    let others = error.remedy().map_or_else(String::new, |remedy| format!("{remedy}; "));
    error.help(others + ids)
}

/// Says how to repair the dataset at `path` if `error` is damage that keeps it from being opened.
fn with_repair(error: Error, path: &Path) -> Error {
    let Ok(dir) = dir_of(path) else { return error };
    match Manifest::read(dir) {
        Ok(manifest) if is_damage(&error, dir) => error.help(repair::advice(path, dir, &manifest)),
        _ => error,
    }
}

/// Returns whether a file that the dataset in `dir` needs is damaged, missing or no regular file.
fn is_damage(error: &Error, dir: &Path) -> bool {
    let is_no_file = |path: &Path| {
        path.starts_with(dir) && lstat(path).is_ok_and(|meta| meta.is_none_or(|meta| !meta.is_file()))
    };
    match error.kind() {
        ErrorKind::Corrupt => true,
        ErrorKind::Io => {
            matches!(lstat(&dir.join(MANIFEST_NAME)), Ok(Some(_)))
                && error.place().path.as_deref().is_some_and(is_no_file)
        }
        _ => false,
    }
}

/// Returns whether `path` is a shard rather than a dataset.
fn is_shard(path: &Path) -> Result<bool> {
    Ok(is_file(path)? && path.file_name().is_none_or(|name| name != MANIFEST_NAME))
}

fn is_file(path: &Path) -> Result<bool> {
    Ok(stat(path)?.is_some_and(|meta| meta.is_file()))
}

/// Returns the directory of the dataset at `path`, which may be the path of its manifest.
fn dir_of(path: &Path) -> Result<&Path> {
    Ok(if is_file(path)? { folder_of(path) } else { path })
}

/// Opens the dataset at `path`, which may be the path of its manifest.
fn open_dataset(path: &Path, access: Access) -> Result<Dataset> {
    let dir = dir_of(path)?;
    crate::reader::OpenOptions::new().access(access).open(dir)
}

/// First version of manifests whose writer runs regular expressions like the published package.
const EQUAL_IDS_VERSION: u32 = 3;

/// Warns if the dataset may have other ids than the published package gives, because an older version wrote it. A file
/// that cannot be read is not reported here.
fn warn_of_older_ids(dataset: &Dataset) {
    if dataset.manifest().manifest_version >= EQUAL_IDS_VERSION {
        return;
    }
    let json = stored_tokenizer(dataset).ok().flatten();
    if let Some(pattern) = json.and_then(|json| pattern_of_older_ids(&json)) {
        print::warning(format!(
            "an older dsconvert wrote this dataset; with the regular expression {} of its tokenizer, some ids may differ from those of the \
             Python package `tokenizers`; to be sure, convert the sources again",
            printable(&format!("{pattern:?}"))
        ));
    }
}

/// Returns the split `name`, by default `train` or the first split, preferring splits with records.
fn split_of(dataset: &Dataset, name: Option<&str>) -> Result<Split> {
    if let Some(name) = name {
        return dataset.split(name);
    }
    let rank = |split: &Split| (split.is_empty(), split.name() != "train");
    dataset.splits().min_by_key(rank).ok_or_else(|| Error::corrupt("the dataset has no splits"))
}
