//! `--html`, `--plot` and `--contact-sheet`: reports about a dataset.

use std::io::Write;
use std::path::{Path, PathBuf};

use super::{Args, Out, is_shard, open_dataset, print_error, split_of};
use crate::cli::flags::with_flags;
use crate::cli::output_file::{check_output, is_same_file, is_stdout, write_output};
use crate::cli::print;
use crate::error::{Error, Result};
use crate::numbers::plural;
use crate::options::check_local;
use crate::printable::printable_path;
use crate::report::{DatasetReport, ReportOptions, contact_sheet, page_html, plots_svg, run_reports};
use crate::source::io::planned::read_file;
use crate::storage::{Access, stat};
use crate::tokenizer_files;
use crate::transform::text::BYTES;

/// Arguments for the files of a report, and for what it shows.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Reports")]
pub(super) struct ReportArgs {
    /// Write a self-contained HTML page with counts, plots and examples
    #[arg(long, value_name = "FILE", conflicts_with_all = ["head", "record", "sample", "text", "card", "verify", "json"])]
    html: Option<PathBuf>,

    /// Write a contact sheet of up to 96 images as PNG
    #[arg(long, value_name = "FILE.png", conflicts_with_all = ["head", "record", "sample", "text", "card", "verify", "json"])]
    contact_sheet: Option<PathBuf>,

    /// Write the plots as SVG: sizes of images, or lengths and padding of text
    #[arg(long, value_name = "FILE.svg", conflicts_with_all = ["head", "record", "sample", "text", "card", "verify", "json"])]
    plot: Option<PathBuf>,

    /// With --html: also show the run report FILE; may be repeated, and FILE may be a folder
    ///
    /// Run reports are written with --report of images, text, run and merge. Several reports are shown as one table of parts.
    /// All *.json files of a folder are read.
    #[arg(long, value_name = "FILE", requires = "html")]
    report: Vec<PathBuf>,

    /// With --html or --text: the tokenizer of the ids, as for dsconvert text, if the dataset does not contain it; with --verify: that
    /// of ids of another program
    #[arg(long, value_name = "FILE")]
    tokenizer: Option<PathBuf>,

    /// Seed for --sample, for the order of --mixture, and for the examples of --html and --contact-sheet [default: 0]
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
}

impl ReportArgs {
    /// Returns whether a report is requested.
    pub(super) fn is_requested(&self) -> bool {
        self.requested().is_some()
    }

    /// Returns the option of the first requested file.
    pub(super) fn requested(&self) -> Option<&'static str> {
        self.files().next().map(|(option, _)| option)
    }

    pub(super) fn seed(&self) -> u64 {
        self.seed.unwrap_or_default()
    }

    /// Returns whether one of the files is standard output.
    pub(super) fn takes_stdout(&self) -> bool {
        self.files().any(|(_, file)| is_stdout(file))
    }

    /// Returns the `tokenizer.json` bytes of `--tokenizer`.
    pub(super) fn tokenizer(&self) -> Result<Option<Vec<u8>>> {
        self.tokenizer.as_deref().map(read_tokenizer).transpose()
    }

    /// Returns the value of `--tokenizer`.
    pub(super) fn tokenizer_name(&self) -> Option<&Path> {
        self.tokenizer.as_deref()
    }

    /// Rejects `--tokenizer` if nothing is decoded, and `--seed` if nothing is sampled.
    pub(super) fn check_used(&self, text: bool, sample: bool) -> Result<()> {
        if self.tokenizer.is_some() && self.html.is_none() && !text {
            return Err(Error::usage(
                "--tokenizer applies only to --html and --text, which decode ids, and to --verify of ids of another program",
            ));
        }
        if self.seed.is_some() && self.html.is_none() && self.contact_sheet.is_none() && !sample {
            return Err(Error::usage(
                "--seed applies only to --sample, --html, --contact-sheet and --mixture",
            ));
        }
        Ok(())
    }

    /// Returns the files to write, with their flags.
    fn files(&self) -> impl Iterator<Item = (&'static str, &Path)> {
        [("html", &self.html), ("contact_sheet", &self.contact_sheet), ("plot", &self.plot)]
            .into_iter()
            .filter_map(|(option, path)| Some((option, path.as_deref()?)))
    }

    /// Rejects files that would overwrite each other or a file that is read, and files inside the dataset.
    fn check(&self, dataset: &Path) -> Result<()> {
        let files: Vec<(&'static str, &Path)> = self.files().collect();
        for (at, (option, path)) in files.iter().enumerate() {
            let same = files.iter().skip(at + 1).find(|other| is_same_file(other.1, path));
            if let Some((other, _)) = same {
                return Err(
                    Error::usage(format!("`{option}` and `{other}` name the same file")).at_path(*path)
                );
            }
            let reports = self.report.iter().map(|path| ("report", path));
            for (other, read) in reports.chain(self.tokenizer.iter().map(|path| ("tokenizer", path))) {
                if is_same_file(read, path) {
                    return Err(Error::usage(format!("`{option}` would overwrite the file of `{other}`"))
                        .at_path(*path));
                }
            }
            check_output(option, path, Some(dataset))?;
        }
        Ok(())
    }
}

/// Gathers the report and writes the requested files.
pub(super) fn exec(args: &Args, access: Access, out: &mut Out) -> Result<()> {
    let wanted = &args.report;
    if is_shard(args.path())? {
        return Err(Error::usage("a report needs a dataset, and this is a single shard")
            .at_path(args.path())
            .help("name the directory of the dataset"));
    }
    let dataset = open_dataset(args.path(), access)?;
    wanted.check(dataset.path())?;
    let runs = run_reports(&wanted.report)?;
    if wanted.tokenizer.is_some() && dataset.manifest().tokenizer.is_none() {
        return Err(Error::usage("--tokenizer decodes token ids, and this dataset has none")
            .at_path(dataset.path())
            .help("leave out --tokenizer"));
    }
    let tokenizer = wanted.tokenizer()?;
    let mut write = |path: &Path, bytes: &[u8]| -> Result<()> {
        write_output(path, bytes)?;
        let size = indicatif::HumanBytes(bytes.len() as u64);
        // Printed at once, because a later file may fail.
        let printed = writeln!(out, "wrote {} ({size})", printable_path(path)).and_then(|()| out.flush());
        print::unless_closed(printed.map_err(print_error))
    };
    if wanted.html.is_some() || wanted.plot.is_some() {
        let full = wanted.html.is_some();
        let options = ReportOptions {
            seed: wanted.seed(),
            split: args.split.as_deref(),
            tokenizer: tokenizer.as_deref(),
            thumbnails: if full { ReportOptions::default().thumbnails } else { 0 },
            documents: if full { ReportOptions::default().documents } else { 0 },
            compact: false,
        };
        let report = DatasetReport::of(&dataset, &options)?;
        for problem in &report.problems.listed {
            print::warning(with_flags(problem));
        }
        if let Some(path) = &wanted.html {
            write(path, page_html(&report, &runs).as_bytes())?;
        }
        if let Some(path) = &wanted.plot {
            write(path, plots_svg(&report).as_bytes())?;
        }
    }
    if let Some(path) = &wanted.contact_sheet {
        let split = split_of(&dataset, args.split.as_deref())?;
        let (png, left_out) = contact_sheet(&dataset, &split, wanted.seed())?;
        if left_out > 0 {
            print::warning(format!("left out {} that cannot be shown", plural(left_out, "image")));
        }
        write(path, &png)?;
    }
    Ok(())
}

/// Reads the tokenizer with this path or name, and returns it as the bytes of a `tokenizer.json`.
fn read_tokenizer(path: &Path) -> Result<Vec<u8>> {
    check_local("tokenizer", path)?;
    match path.to_str() {
        Some(BYTES) if stat(path)?.is_none() => Err(Error::usage("datasets of bytes need no tokenizer")
            .of_option("tokenizer")
            .help("leave it out")),
        Some(name) => Ok(tokenizer_files::find(name)?.json),
        None => read_file(path),
    }
}
