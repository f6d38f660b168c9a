//! `--mixture`: predicts what an epoch of a mixture holds, from the indexes of the datasets.

use std::io::Write;
use std::path::Path;

use clap::builder::PossibleValuesParser;
use serde_json::{Value, json};

use super::{Args, Out, open_dataset, print_error, print_json, with_status};
use crate::cli::mixture::mixed_split;
use crate::cli::table::table;
use crate::cli::text::DEFAULT_REPORT_BATCH;
use crate::cli::values::names;
use crate::error::{Error, Result};
use crate::numbers::{count, plural, share_of_whole};
use crate::packing::Packing;
use crate::printable::printable;
use crate::reader::batch::{
    BatchOptions, BatchSize, Batching, Boundaries, BucketBy, Last, MAX_MICRO_BATCHES, Oversize, PackOptions,
};
use crate::reader::loader::{Loader, LoaderOptions};
use crate::reader::{Delivered, Exhausted, Mix, Mixture, MixturePrediction, RecordSource, Split};
use crate::storage::Access;

const MIXES: [&str; 2] = ["record", "batch"];
const PACKINGS: [&str; 2] = ["concat", "best_fit"];
const BUCKETS: [(&str, BucketBy); 4] = [
    ("none", BucketBy::None),
    ("length", BucketBy::Length(Boundaries::AUTO)),
    ("geometric", BucketBy::Length(Boundaries::GEOMETRIC)),
    ("windows", BucketBy::WINDOWS),
];
const OVERSIZES: [&str; 4] = ["error", "drop", "alone", "truncate"];
const LASTS: [&str; 4] = ["short", "drop", "pad", "wrap"];

/// Arguments for the batches of a mixture, as in `dsconvert.Loader`.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Batches of a mixture")]
pub(super) struct BatchArgs {
    /// Records, or packed rows, of a micro-batch [default: 32, unless there is a budget]
    #[arg(long, value_name = "N", requires = "mixture")]
    batch_size: Option<u64>,

    /// Budget of a micro-batch in tokens, with padding
    #[arg(long, value_name = "N", requires = "mixture", conflicts_with = "batch_size")]
    max_tokens: Option<u64>,

    /// Budget of a micro-batch in tokens, without padding
    #[arg(long, value_name = "N", requires = "mixture", conflicts_with_all = ["batch_size", "max_tokens"])]
    max_tokens_unpadded: Option<u64>,

    /// Pack documents into rows of N tokens
    #[arg(long, value_name = "N", requires = "mixture", conflicts_with_all = ["max_tokens", "max_tokens_unpadded"])]
    seq_len: Option<u64>,

    /// How documents are packed [default: best_fit]
    #[arg(long, value_name = "NAME", requires = "seq_len", value_parser = names::<Packing>(&PACKINGS))]
    packing: Option<Packing>,

    /// Records that share a micro-batch [default: length with a budget, else none]
    #[arg(
        long,
        value_name = "NAME",
        requires = "mixture",
        conflicts_with = "seq_len",
        value_parser = PossibleValuesParser::new(BUCKETS.map(|(name, _)| name))
    )]
    bucket: Option<String>,

    /// What is drawn from a dataset at once [default: batch with buckets, else record]
    #[arg(long, value_name = "NAME", requires = "mixture", value_parser = names::<Mix>(&MIXES))]
    mix: Option<Mix>,

    /// What happens to records that exceed the budget [default: error]
    #[arg(
        long,
        value_name = "NAME",
        requires = "mixture",
        conflicts_with_all = ["batch_size", "seq_len"],
        value_parser = names::<Oversize>(&OVERSIZES)
    )]
    oversize: Option<Oversize>,

    /// What happens to the records that do not fill the last micro-batch of a pass [default: short]
    #[arg(long, value_name = "NAME", requires = "mixture", value_parser = names::<Last>(&LASTS))]
    last: Option<Last>,

    /// Round the width of micro-batches up to a multiple of N [default: 1]
    #[arg(long, value_name = "N", requires = "mixture", conflicts_with = "seq_len")]
    pad_to_multiple_of: Option<u64>,

    /// Micro-batches of a global step, over all ranks [default: 1]
    #[arg(long, value_name = "N", requires = "mixture", value_parser = clap::value_parser!(u64).range(1..=MAX_MICRO_BATCHES))]
    micro_batches: Option<u64>,
}

impl BatchArgs {
    fn batching(&self) -> Batching {
        let batch_size = self.batch_size.unwrap_or(DEFAULT_REPORT_BATCH);
        if let Some(seq_len) = self.seq_len {
            let defaults = PackOptions::new(seq_len, batch_size);
            return Batching::Packed(PackOptions {
                packing: self.packing.unwrap_or(defaults.packing),
                last: self.last.unwrap_or(defaults.last),
                ..defaults
            });
        }
        let size = match (self.max_tokens, self.max_tokens_unpadded) {
            (Some(tokens), _) => BatchSize::MaxTokens(tokens),
            (None, Some(tokens)) => BatchSize::MaxTokensUnpadded(tokens),
            (None, None) => BatchSize::BatchSize(batch_size),
        };
        let defaults = BatchOptions::new(size);
        let bucket = BUCKETS.into_iter().find(|(name, _)| self.bucket.as_deref() == Some(*name));
        Batching::Records(BatchOptions {
            bucket: bucket.map_or(defaults.bucket, |(_, bucket)| bucket),
            oversize: self.oversize.unwrap_or(defaults.oversize),
            last: self.last.unwrap_or(defaults.last),
            pad_to_multiple_of: self.pad_to_multiple_of.unwrap_or(defaults.pad_to_multiple_of),
            ..defaults
        })
    }
}

/// Predicts what an epoch holds, and prints it.
pub(super) fn exec(args: &Args, access: Access, out: &mut Out) -> Result<()> {
    let splits = args.paths.iter().map(|path| {
        let split =
            open_dataset(path, access).and_then(|dataset| mixed_split(&dataset, args.split.as_deref()));
        Ok((path.as_path(), split.map_err(|error| with_status(error, path))?))
    });
    let splits = splits.collect::<Result<Vec<(&Path, Split)>>>()?;
    // Without a length of an epoch, the question is how far the datasets reach.
    let exhausted = args.mixture.exhausted().unwrap_or(Exhausted::FirstExhausted);
    let mixture = args.mixture.mix(splits, args.batches.mix, exhausted)?;
    let options = LoaderOptions {
        seed: args.report.seed(),
        micro_batches: args.batches.micro_batches,
        threads: 0,
        ..LoaderOptions::new(args.batches.batching())
    };
    let micro_batches = options.micro_batches.unwrap_or(1);
    let source = std::sync::Arc::new(mixture.clone()) as std::sync::Arc<dyn RecordSource>;
    let predicted = Loader::new(source, options)?
        .predict()?
        .ok_or_else(|| Error::internal("a mixture is not taken as one"))?;
    match args.json {
        true => print_json(out, &as_json(args, &mixture, &predicted, micro_batches)?),
        false => write!(out, "{}", as_text(&mixture, &predicted, micro_batches)).map_err(print_error),
    }
}

fn as_json(
    args: &Args,
    mixture: &Mixture,
    predicted: &MixturePrediction,
    micro_batches: u64,
) -> Result<Value> {
    let amounts = |delivered: &Delivered| {
        json!({
            "rows": delivered.rows,
            "tokens": delivered.tokens,
            "padded_tokens": delivered.padded_tokens,
            "padding": delivered.padding(),
        })
    };
    let sources = mixture.sources().zip(&predicted.sources).map(|((_, source), found)| {
        let mut of_source = json!({
            "name": found.totals.name,
            "records": source.lengths().records(),
            "requested": found.totals.requested,
            "realized": found.totals.realized,
            "epochs": found.totals.epochs,
        });
        merge(&mut of_source, amounts(&found.delivered));
        of_source
    });
    let sources: Vec<Value> = sources.collect();
    let options = mixture.options();
    let mut all = json!({
        "unit": serde_json::to_value(options.unit).map_err(|e| Error::not_serialized("the unit", e))?,
        "exhausted": serde_json::to_value(options.exhausted).map_err(|e| Error::not_serialized("the options", e))?,
        "seed": args.report.seed(),
        "micro_batches": micro_batches,
        "steps": predicted.steps,
        "batches": predicted.batches,
    });
    merge(&mut all, amounts(&predicted.delivered()));
    merge(&mut all, json!({ "sources": sources }));
    Ok(all)
}

/// Appends the members of `more` to those of `object`.
fn merge(object: &mut Value, more: Value) {
    if let (Value::Object(object), Value::Object(more)) = (object, more) {
        object.extend(more);
    }
}

fn as_text(mixture: &Mixture, predicted: &MixturePrediction, micro_batches: u64) -> String {
    let end = match mixture.options().exhausted {
        Exhausted::Never => "datasets are repeated",
        Exhausted::FirstExhausted => "until the first dataset ends",
        Exhausted::AllExhausted => "until the last dataset ends",
    };
    let is_text = mixture.schema().holds_token_ids();
    let steps = match micro_batches {
        1 => plural(predicted.steps, "step"),
        _ => format!("{} of {} micro-batches", plural(predicted.steps, "step"), count(micro_batches)),
    };
    let unit = mixture.schema().length_unit().name();
    let mut header = vec!["dataset", "requested", "realized", "passes", "rows", unit];
    header.extend(is_text.then_some("padding"));
    let mut rows: Vec<Vec<String>> = vec![header.into_iter().map(str::to_owned).collect()];
    let amounts = |delivered: &Delivered| {
        let mut cells = vec![count(delivered.rows), count(delivered.tokens)];
        cells.extend(is_text.then(|| share_of_whole(delivered.padding())));
        cells
    };
    for found in &predicted.sources {
        let totals = &found.totals;
        let mut row = vec![
            printable(&totals.name).into_owned(),
            share_of_whole(totals.requested),
            share_of_whole(totals.realized),
            format!("{:.2}", totals.epochs),
        ];
        row.extend(amounts(&found.delivered));
        rows.push(row);
    }
    let mut total = vec!["total".to_owned(), String::new(), String::new(), String::new()];
    total.extend(amounts(&predicted.delivered()));
    rows.push(total);
    format!("an epoch of {steps}, {end}\n{}", table(&rows, 1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::values::named;

    #[test]
    fn all_values_are_those_of_the_reader() {
        assert!(MIXES.iter().all(|text| named::<Mix>(text).is_ok()));
        assert!(PACKINGS.iter().all(|text| named::<Packing>(text).is_ok()));
        assert!(OVERSIZES.iter().all(|text| named::<Oversize>(text).is_ok()));
        assert!(LASTS.iter().all(|text| named::<Last>(text).is_ok()));
    }
}
