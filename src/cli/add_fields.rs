//! `dsconvert add-fields`: adds the columns of a table to the records of a dataset.

use std::collections::BTreeMap;
use std::path::PathBuf;

use super::values::words;
use super::{Ending, print, signals};
use crate::add_fields::{AddOptions, AddOutput, Missing, NamedColumn, Pieces, add_fields, open_base};
use crate::error::{Error, Result};
use crate::format::Format;
use crate::manifest::{Alignment, BoundField};
use crate::numbers::plural;
use crate::options::{Existing, ResumeCheck};
use crate::printable::printable_path;
use crate::schema::KEY;

/// Arguments of `dsconvert add-fields`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Directory or URL of the dataset whose records get the fields; it is not changed
    #[arg(value_name = "DATASET")]
    base: PathBuf,

    /// Parquet or Arrow file, folder of such files, or dataset with the values
    #[arg(value_name = "TABLE")]
    table: PathBuf,

    /// Output directory or prefix in object storage; it must be empty or not exist
    #[arg(short, long, value_name = "DIR")]
    out: PathBuf,

    /// Column of the table with the keys of the records
    #[arg(long, value_name = "COLUMN", default_value = KEY)]
    on: String,

    /// Columns that become fields; NEW=COLUMN renames one [default: all others]
    #[arg(long, value_name = "NAME,…", value_delimiter = ',')]
    fields: Option<Vec<String>>,

    /// What happens if the table has no row for a record [default: error]
    #[arg(long, value_name = "WHAT", value_parser = words::<Missing>())]
    missing: Option<Missing>,

    /// What the keys of the table are, if documents were divided into several records (--overflow split)
    #[arg(long, value_name = "WHAT", value_parser = words::<Pieces>())]
    pieces: Option<Pieces>,

    /// Fields of DATASET that the values were computed from
    ///
    /// The result is bound to their content: it is refused for a dataset with the same keys and other images or tokens. Without
    /// it, only keys are compared.
    #[arg(long, value_name = "FIELD,…", value_delimiter = ',')]
    read: Vec<String>,

    /// Fields with one number per token: NAME=input_ids
    #[arg(long, value_name = "NAME=FIELD,…", value_delimiter = ',')]
    per: Vec<String>,

    /// With --per: whether the numbers belong to tokens as targets of the prediction (the default) or as its input:
    /// NAME=target, NAME=input
    #[arg(long, value_name = "NAME=WHAT,…", value_delimiter = ',')]
    aligned: Vec<String>,

    /// Fields with one number for all tokens of a record, which must not be cut: NAME=input_ids
    #[arg(long, value_name = "NAME=FIELD,…", value_delimiter = ',')]
    of: Vec<String>,

    /// Fields of images that a loader may mirror, with the field of the values for the mirrored image: NAME=TWIN
    #[arg(long, value_name = "NAME=TWIN,…", value_delimiter = ',')]
    flip: Vec<String>,

    /// Add the fields of this companion of DATASET, too, so that --read can name them; may be repeated
    #[arg(long, value_name = "DATASET")]
    add: Vec<PathBuf>,

    /// Format of the shards [default: arrow]
    #[arg(long, value_name = "FORMAT", value_parser = words::<Format>())]
    format: Option<Format>,

    /// Finish an interrupted run in this directory
    #[arg(long, conflicts_with = "overwrite")]
    resume: bool,

    /// Replace the dataset in the output directory
    #[arg(long)]
    overwrite: bool,

    /// Directory for temporary files [default: the system's temporary directory]
    #[arg(long, value_name = "DIR")]
    scratch: Option<PathBuf>,

    /// Print only errors
    #[arg(short, long)]
    pub(super) quiet: bool,
}

impl Args {
    fn options(&self) -> Result<AddOptions> {
        let named = |text: &String| match text.split_once('=') {
            Some((field, column)) => NamedColumn { field: field.to_owned(), column: column.to_owned() },
            None => NamedColumn { field: text.clone(), column: text.clone() },
        };
        let mut bound: BTreeMap<String, BoundField> = BTreeMap::new();
        let mut pairs =
            |option: &'static str, given: &[String], set: fn(&mut BoundField, &str) -> Result<()>| {
                for text in given {
                    let Some((name, value)) = text.split_once('=') else {
                        return Err(Error::usage(format!(
                            "{text:?} is no pair of two names, such as weights=input_ids"
                        ))
                        .of_option(option));
                    };
                    set(bound.entry(name.to_owned()).or_default(), value)
                        .map_err(|error| error.of_option(option))?;
                }
                Ok(())
            };
        pairs("per", &self.per, |bound, value| {
            bound.per = Some(value.to_owned());
            Ok(())
        })?;
        pairs("aligned", &self.aligned, |bound, value| {
            bound.aligned = match value {
                "target" => Alignment::Target,
                "input" => Alignment::Input,
                _ => {
                    return Err(
                        Error::usage(format!("unknown value {value:?}")).help("use one of target, input")
                    );
                }
            };
            Ok(())
        })?;
        pairs("of", &self.of, |bound, value| {
            bound.of = Some(value.to_owned());
            Ok(())
        })?;
        pairs("flip", &self.flip, |bound, value| {
            bound.flip = Some(value.to_owned());
            Ok(())
        })?;
        Ok(AddOptions {
            on: self.on.clone(),
            fields: self.fields.as_ref().map(|fields| fields.iter().map(named).collect()),
            missing: self.missing.unwrap_or_default(),
            pieces: self.pieces,
            read: self.read.clone(),
            bound,
            format: self.format.unwrap_or(Format::Arrow),
        })
    }
}

/// Runs `dsconvert add-fields`.
pub(super) fn exec(args: &Args) -> Result<Ending> {
    let stop = signals::watch()?;
    let options = args.options()?;
    let output = AddOutput {
        out: args.out.clone(),
        existing: match (args.resume, args.overwrite) {
            (true, _) => Existing::Resume(ResumeCheck::Sizes),
            (false, true) => Existing::Overwrite,
            (false, false) => Existing::Refuse,
        },
        scratch: args.scratch.clone(),
    };
    let base = open_base(&args.base, &args.add)?;
    let added = add_fields(&base, &args.table, &options, &output, &stop)?;
    if !args.quiet {
        let fields = added.fields.join(", ");
        let mut text = match added.was_complete {
            true => format!("the fields are there already: {fields}\n"),
            false => format!("added {fields} to {}\n", plural(added.records, "record")),
        };
        if added.missing > 0 {
            let have = if added.missing == 1 { "has" } else { "have" };
            text.push_str(&format!(
                "  {} {have} no row in the table: the fields are null\n",
                plural(added.missing, "record")
            ));
        }
        if added.surplus > 0 {
            text.push_str(&format!("  {} of the table belong to no record\n", plural(added.surplus, "row")));
        }
        let (base, out) = (printable_path(&args.base), printable_path(&args.out));
        text.push_str(&format!("to read both: dsconvert.open(\"{base}\", add=[\"{out}\"])\n"));
        print::summary(&text, "the dataset is committed");
    }
    Ok(Ending::Success)
}
