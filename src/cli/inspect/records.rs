//! `--head`, `--record`, `--sample` and `--text`: selects and shows records.

use std::io::Write;

use super::masks::DecodedText;
use super::{Args, Out, is_shard, open_dataset, print_error, record, split_of};
use crate::cli::flags::with_flags;
use crate::cli::print;
use crate::error::{Error, ErrorKind, Result};
use crate::reader::{Dataset, Record, ShardFile};
use crate::report::Vocabulary;
use crate::sampling::seeded;
use crate::storage::Access;

/// Number of records that `--text` shows by default.
const SHOWN_TEXTS: u64 = 5;
/// Maximum number of characters of a decoded document to print.
const SHOWN_TEXT: usize = 2000;
/// The same for a single record that marks what is trained on: a conversation is of interest up to its end.
const SHOWN_CHAT: usize = 100_000;

/// Shows the requested records.
pub(super) fn exec(args: &Args, access: Access, out: &mut Out) -> Result<()> {
    if is_shard(args.path())? {
        return of_shard(args, access, out);
    }
    let dataset = open_dataset(args.path(), access)?;
    let vocabulary = match (args.text, dataset.schema().masks_field().is_some() && !args.json) {
        (true, _) => Some(vocabulary(args, &dataset)?),
        (false, true) => Vocabulary::of(&dataset, None)?
            .map_err(|why| print::note(with_flags(&format!("ids are shown, because {why}"))))
            .ok(),
        (false, false) => None,
    };
    let split = split_of(&dataset, args.split.as_deref())?;
    let printer = RecordPrinter { args, vocabulary };
    if let Some(ordinal) = args.record {
        let record = split.get(ordinal)?;
        if let Some(file) = &args.extract {
            record::extract(&record, file, dataset.path())?;
        }
        return printer.record(&record, out);
    }
    if let Some(count) = args.sample {
        let chosen = seeded(split.len(), count, args.report.seed());
        return chosen.into_iter().try_for_each(|ordinal| printer.record(&split.get(ordinal)?, out));
    }
    split.iter().take(printer.limit()).try_for_each(|record| printer.record(&record?, out))
}

/// Shows records of a single shard, in order and without a tokenizer.
fn of_shard(args: &Args, access: Access, out: &mut Out) -> Result<()> {
    if args.text {
        let needed = match args.report.tokenizer()? {
            None => "--text needs the tokenizer, which a shard does not contain",
            Some(_) => {
                "--text compares the tokenizer with the manifest of the dataset, which a shard does not contain"
            }
        };
        return Err(Error::usage(needed).at_path(args.path()).help("name the directory of the dataset"));
    }
    if args.split.is_some() {
        let error = Error::usage("a shard has no splits").of_option("split").at_path(args.path());
        return Err(error.help("name the directory of the dataset"));
    }
    let shard = ShardFile::open(args.path(), access)?;
    let printer = RecordPrinter { args, vocabulary: None };
    if let Some(count) = args.sample {
        let records = shard.records()?.count() as u64;
        let chosen = seeded(records, count, args.report.seed());
        let mut chosen = chosen.into_iter().peekable();
        for record in shard.records()? {
            let record = record?;
            if chosen.next_if_eq(&record.ordinal()).is_some() {
                printer.record(&record, out)?;
            }
        }
        return Ok(());
    }
    let Some(wanted) = args.record else {
        return shard.records()?.take(printer.limit()).try_for_each(|record| printer.record(&record?, out));
    };
    let found = shard.records()?.nth(usize::try_from(wanted).unwrap_or(usize::MAX));
    let record = found.ok_or_else(|| {
        Error::new(ErrorKind::OutOfRange, "the shard has fewer records").at_path(args.path()).at_row(wanted)
    })??;
    if let Some(file) = &args.extract {
        record::extract(&record, file, args.path())?;
    }
    printer.record(&record, out)
}

/// Returns the vocabulary for decoding the ids of the dataset.
fn vocabulary(args: &Args, dataset: &Dataset) -> Result<Vocabulary> {
    let manifest = dataset.manifest();
    if manifest.tokenizer.is_none() {
        let why = match manifest.schema.holds_token_ids() {
            true => "--text needs a tokenizer, and these ids were converted without one",
            false => "--text decodes token ids, and this dataset has none",
        };
        return Err(Error::usage(why).at_path(dataset.path()));
    }
    let given = args.report.tokenizer()?;
    Vocabulary::of(dataset, given.as_deref())?.map_err(|why| {
        Error::new(ErrorKind::Corrupt, format!("the ids cannot be decoded: {why}")).at_path(dataset.path())
    })
}

/// How records are shown.
struct RecordPrinter<'a> {
    args: &'a Args,
    /// Present with `--text`.
    vocabulary: Option<Vocabulary>,
}

impl RecordPrinter<'_> {
    /// Returns the maximum number of records to show in order.
    fn limit(&self) -> usize {
        usize::try_from(self.args.head.unwrap_or(SHOWN_TEXTS)).unwrap_or(usize::MAX)
    }

    fn record(&self, record: &Record, out: &mut Out) -> Result<()> {
        let is_chat = self.args.record.is_some() && record.schema().masks_field().is_some();
        let limit = if is_chat { SHOWN_CHAT } else { SHOWN_TEXT };
        let vocabulary = self.vocabulary.as_ref();
        if self.args.json {
            let ids = || record.input_ids().into_iter().flat_map(|ids| ids.iter());
            let text = vocabulary.map(|vocabulary| vocabulary.text(ids()));
            writeln!(out, "{}", record::to_json(record, text.as_deref())).map_err(print_error)
        } else {
            let text = vocabulary.map(|vocabulary| DecodedText::of(record, vocabulary, limit));
            record::print(record, text.as_ref(), out).map_err(print_error)
        }
    }
}
