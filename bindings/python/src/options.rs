//! Options of samplers and loaders, which Python passes as one JSON object of the given ones.
//!
//! An option that is not given has the default of the library. An option of the wrong type, with an invalid value, or
//! that does not apply to the others is a usage error that names it.

use dsconvert::error::{Error, Result};
use dsconvert::packing::Packing;
use dsconvert::reader::batch::{
    BatchOptions, BatchSize, Boundaries, BucketBy, DEFAULT_BLOCK_RECORDS, DEFAULT_FIRST_BOUND,
    DEFAULT_GROUP_BLOCKS, DEFAULT_MAX_WASTE, DEFAULT_RATIO, DEFAULT_WINDOW_STEPS, PackOptions, Shuffle,
};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

/// Given options that are not yet taken.
#[derive(Debug)]
pub(crate) struct Given(Map<String, Value>);

impl Given {
    /// Parses the options in a JSON object.
    pub(crate) fn parse(json: &str) -> Result<Self> {
        serde_json::from_str(json).map(Self).map_err(|e| Error::usage("the options are no JSON").caused_by(e))
    }

    /// Takes the option `name`, if it was given.
    pub(crate) fn take<T: DeserializeOwned>(&mut self, name: &str) -> Result<Option<T>> {
        let Some(value) = self.0.remove(name) else { return Ok(None) };
        let said = value.to_string();
        let wrong = |e| Error::usage(format!("{name} cannot be {said}")).caused_by(e);
        serde_json::from_value(value).map(Some).map_err(wrong)
    }

    /// Returns whether the option `name` was given and not yet taken.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    /// Rejects the options `names`, which do not apply for the reason `why`.
    pub(crate) fn refuse(&self, names: &[&str], why: &str) -> Result<()> {
        match names.iter().find(|name| self.has(name)) {
            Some(name) => Err(Error::usage(format!("{name} does not apply: {why}"))),
            None => Ok(()),
        }
    }

    /// Rejects options that were not taken, and names the option that they belong to.
    pub(crate) fn finish(self) -> Result<()> {
        let Some(name) = self.0.keys().next() else { return Ok(()) };
        let why = match name.as_str() {
            "crop_scale" | "crop_ratio" => "it belongs to random_resized_crop",
            "max_waste" => "it belongs to bucket=\"length\"",
            "first_boundary" | "boundary_ratio" => "it belongs to bucket=\"geometric\"",
            "window_steps" => "it belongs to bucket=\"windows\"",
            "block_records" | "block_group" => "it belongs to shuffle=\"block\"",
            _ => "it belongs to a Loader",
        };
        Err(Error::usage(format!("{name} does not apply: {why}")))
    }
}

/// Parses the options of a batch plan.
pub(crate) fn batch_options(given: &mut Given) -> Result<BatchOptions> {
    let mut options = BatchOptions::new(size(given)?);
    match options.size {
        BatchSize::BatchSize(_) => {
            given.refuse(&["oversize"], "batch_size is no budget that a record could exceed")?
        }
        BatchSize::MaxTokensUnpadded(_) => given.refuse(
            &["pad_id", "pad_side", "pad_to_multiple_of"],
            "with max_tokens_unpadded, nothing is padded",
        )?,
        BatchSize::MaxTokens(_) => {}
    }
    if let Some(bucket) = bucket(given)? {
        options.bucket = bucket;
    }
    if let Some(shuffle) = shuffle(given)? {
        options.shuffle = shuffle;
    }
    if let Some(multiple) = given.take("pad_to_multiple_of")? {
        options.pad_to_multiple_of = multiple;
    }
    if let Some(longest_first) = given.take("longest_first")? {
        options.longest_first = longest_first;
    }
    if let Some(oversize) = given.take("oversize")? {
        options.oversize = oversize;
    }
    if let Some(last) = given.take("last")? {
        options.last = last;
    }
    Ok(options)
}

/// Options of batches that have one record per row.
const UNPACKED_OPTIONS: [&str; 11] = [
    "max_tokens",
    "max_tokens_unpadded",
    "bucket",
    "max_waste",
    "first_boundary",
    "boundary_ratio",
    "window_steps",
    "longest_first",
    "oversize",
    "pad_side",
    "pad_to_multiple_of",
];

/// Parses the options of a plan of packed rows of `seq_len` tokens.
pub(crate) fn pack_options(given: &mut Given, seq_len: u64) -> Result<PackOptions> {
    given.refuse(&UNPACKED_OPTIONS, "with seq_len, rows are packed")?;
    let Some(batch_size) = given.take("batch_size")? else {
        return Err(Error::usage("packed rows need batch_size, the number of rows of a batch"));
    };
    let mut options = PackOptions::new(seq_len, batch_size);
    if let Some(packing) = given.take::<Packing>("packing")? {
        options.packing = packing;
    }
    if let Some(window) = given.take("pack_window")? {
        if window == 0 {
            return Err(Error::usage("pack_window is 0: it is a number of documents, from 1"));
        }
        options.window = window;
    }
    if let Some(shuffle) = shuffle(given)? {
        options.shuffle = shuffle;
    }
    if let Some(last) = given.take("last")? {
        options.last = last;
    }
    Ok(options)
}

fn size(given: &mut Given) -> Result<BatchSize> {
    let sizes = [
        given.take("batch_size")?.map(BatchSize::BatchSize),
        given.take("max_tokens")?.map(BatchSize::MaxTokens),
        given.take("max_tokens_unpadded")?.map(BatchSize::MaxTokensUnpadded),
    ];
    match sizes {
        [Some(size), None, None] | [None, Some(size), None] | [None, None, Some(size)] => Ok(size),
        _ => Err(Error::usage("give one of batch_size, max_tokens and max_tokens_unpadded")),
    }
}

/// Parses `bucket`: `none`, `length`, `geometric`, `windows`, or a list of boundaries.
fn bucket(given: &mut Given) -> Result<Option<BucketBy>> {
    Ok(Some(match given.take::<Value>("bucket")? {
        None => match given.take("max_waste")? {
            Some(max_waste) => BucketBy::Length(Boundaries::Auto { max_waste }),
            None => return Ok(None),
        },
        Some(Value::String(name)) => match name.as_str() {
            "none" => BucketBy::None,
            "length" => {
                let max_waste = given.take("max_waste")?.unwrap_or(DEFAULT_MAX_WASTE);
                BucketBy::Length(Boundaries::Auto { max_waste })
            }
            "geometric" => BucketBy::Length(Boundaries::Geometric {
                first: given.take("first_boundary")?.unwrap_or(DEFAULT_FIRST_BOUND),
                ratio: given.take("boundary_ratio")?.unwrap_or(DEFAULT_RATIO),
            }),
            "windows" => {
                BucketBy::Windows { steps: given.take("window_steps")?.unwrap_or(DEFAULT_WINDOW_STEPS) }
            }
            other => {
                return Err(Error::usage(format!("there are no buckets by {other:?}")).help(
                    "bucket is \"none\", \"length\", \"geometric\", \"windows\" or a list of boundaries",
                ));
            }
        },
        Some(boundaries) => {
            let wrong = |e| Error::usage(format!("bucket cannot be {boundaries}")).caused_by(e);
            BucketBy::Length(Boundaries::Given(serde_json::from_value(boundaries.clone()).map_err(wrong)?))
        }
    }))
}

/// Parses `shuffle`: `true`, `false`, `full`, `none` or `block`.
fn shuffle(given: &mut Given) -> Result<Option<Shuffle>> {
    let Some(value) = given.take::<Value>("shuffle")? else { return Ok(None) };
    Ok(Some(match value {
        Value::Bool(true) => Shuffle::Full,
        Value::Bool(false) => Shuffle::None,
        Value::String(name) if name == "full" => Shuffle::Full,
        Value::String(name) if name == "none" => Shuffle::None,
        Value::String(name) if name == "block" => Shuffle::Block {
            records: given.take("block_records")?.unwrap_or(DEFAULT_BLOCK_RECORDS),
            group: given.take("block_group")?.unwrap_or(DEFAULT_GROUP_BLOCKS),
        },
        other => {
            return Err(Error::usage(format!("shuffle cannot be {other}"))
                .help("shuffle is true, false, \"full\", \"none\" or \"block\""));
        }
    }))
}
