//! `dsconvert inspect`: what is in a dataset or shard, is it whole, show me.

mod describe;
mod record;
mod report;
mod verify;

pub(super) use describe::print_histogram;
pub(super) use report::inside;

use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use super::{Ending, print};
use crate::error::{Error, ErrorKind, Result};
use crate::options::default_threads;
use crate::reader::{Dataset, Record, ShardFile, Split, describe as describe_path};
use crate::storage::{Access, stat};

/// Arguments of `dsconvert inspect`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Directory of a dataset, or one shard
    #[arg(value_name = "PATH")]
    path: PathBuf,

    /// Split to show records of [default: train, or the first one; a report shows all]
    #[arg(long, value_name = "NAME")]
    split: Option<String>,

    /// Show the first N records
    #[arg(long, value_name = "N", conflicts_with_all = ["record", "verify"])]
    head: Option<u64>,

    /// Show record number I, counted from 0
    #[arg(long, value_name = "I", conflicts_with = "verify")]
    record: Option<u64>,

    /// With --record: write the image, or the token ids as a JSON list, to FILE
    #[arg(long, value_name = "FILE", requires = "record")]
    extract: Option<PathBuf>,

    /// Check every checksum, decode every record, compare indexes and counts; exit status 3 when something is wrong
    #[arg(long)]
    verify: bool,

    /// Print JSON
    #[arg(long)]
    json: bool,

    /// Threads of --verify [default: the cores of this machine]
    #[arg(long, value_name = "N")]
    threads: Option<usize>,

    /// Read files instead of mapping them: safe when another process may cut them short
    #[arg(long)]
    no_mmap: bool,

    #[command(flatten)]
    report: report::ReportArgs,
}

/// Standard output, with errors that name it.
type Out = BufWriter<io::StdoutLock<'static>>;

fn print_error(e: io::Error) -> Error {
    print::failed(e)
}

/// Prints `value` as indented JSON.
fn print_json(out: &mut Out, value: &impl serde::Serialize) -> Result<()> {
    serde_json::to_writer_pretty(&mut *out, value).map_err(|e| print_error(e.into()))?;
    writeln!(out).map_err(print_error)
}

/// Runs it.
pub(super) fn exec(args: &Args) -> Result<Ending> {
    crate::options::check_local("PATH", &args.path)?;
    let access = if args.no_mmap { Access::Read } else { Access::Map };
    let mut out = BufWriter::new(io::stdout().lock());
    let ending = if args.verify {
        verify::exec(&args.path, access, args.threads.unwrap_or_else(default_threads), args.json, &mut out)?
    } else if let Some(wanted) = args.record {
        show_record(args, access, wanted, &mut out)?;
        Ending::Fine
    } else if let Some(head) = args.head {
        show_head(args, access, head, &mut out)?;
        Ending::Fine
    } else if args.report.is_asked_for() {
        report::exec(args, access, &mut out)?;
        Ending::Fine
    } else {
        let description = describe_path(&args.path, access)?;
        if args.json {
            print_json(&mut out, &description)?;
        } else {
            describe::print(&args.path, &description, &mut out).map_err(print_error)?;
        }
        Ending::Fine
    };
    out.flush().map_err(print_error)?;
    Ok(ending)
}

/// Whether `path` is a shard rather than a dataset.
fn is_shard(path: &Path) -> Result<bool> {
    Ok(is_file(path)? && path.file_name().is_none_or(|name| name != crate::manifest::MANIFEST_NAME))
}

fn is_file(path: &Path) -> Result<bool> {
    Ok(stat(path)?.is_some_and(|meta| meta.is_file()))
}

/// The dataset at `path`, which may also name its manifest.
fn open_dataset(path: &Path, access: Access) -> Result<Dataset> {
    let dir = if is_file(path)? { path.parent().unwrap_or(path) } else { path };
    crate::reader::OpenOptions::new().access(access).open(dir)
}

/// The split that was asked for, else `train`, else the first.
fn split_of(dataset: &Dataset, name: Option<&str>) -> Result<Split> {
    let named = name.or_else(|| dataset.manifest().splits.contains_key("train").then_some("train"));
    match named {
        Some(name) => dataset.split(name),
        None => dataset.splits().next().ok_or_else(|| Error::corrupt("the dataset has no split")),
    }
}

fn show_record(args: &Args, access: Access, wanted: u64, out: &mut Out) -> Result<()> {
    let record = if is_shard(&args.path)? {
        let shard = ShardFile::open(&args.path, access)?;
        let found = shard.records()?.nth(usize::try_from(wanted).unwrap_or(usize::MAX));
        found.ok_or_else(|| {
            Error::new(ErrorKind::OutOfRange, "the shard has fewer records")
                .at_path(&args.path)
                .at_row(wanted)
        })??
    } else {
        split_of(&open_dataset(&args.path, access)?, args.split.as_deref())?.get(wanted)?
    };
    if let Some(file) = &args.extract {
        record::extract(&record, file)?;
    }
    show(&record, args.json, out)
}

fn show_head(args: &Args, access: Access, head: u64, out: &mut Out) -> Result<()> {
    let most = usize::try_from(head).unwrap_or(usize::MAX);
    if is_shard(&args.path)? {
        let shard = ShardFile::open(&args.path, access)?;
        return shard.records()?.take(most).try_for_each(|record| show(&record?, args.json, out));
    }
    let split = split_of(&open_dataset(&args.path, access)?, args.split.as_deref())?;
    split.iter().take(most).try_for_each(|record| show(&record?, args.json, out))
}

fn show(record: &Record, json: bool, out: &mut Out) -> Result<()> {
    if json {
        let line = record::to_json(record);
        writeln!(out, "{line}").map_err(print_error)
    } else {
        record::print(record, out).map_err(print_error)
    }
}
