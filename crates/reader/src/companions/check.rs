//! Whether a companion belongs to the dataset that it is read with.

use std::collections::BTreeMap;
use std::path::Path;

use dsconvert_dataset::error::{Error, Result};
use dsconvert_dataset::manifest::{Binding, BoundSplit, ContentDigest, Manifest};
use dsconvert_dataset::numbers::plural;
use dsconvert_dataset::sample::Value;
use dsconvert_dataset::schema::KEY;
use dsconvert_dataset::storage::interrupt;

use xxhash_rust::xxh3::Xxh3;

use crate::{Dataset, Split};

/// Records between two checks for an interruption.
const CHECKED_RECORDS: usize = 4096;

/// Returns the digest of the schema and of the checksums of all records of `split`. Only the record index is read.
fn checksums(split: &Split) -> Result<String> {
    let schema =
        serde_json::to_vec(&split.manifest().schema).map_err(|e| Error::not_serialized("the schema", e))?;
    let mut digest = Xxh3::new();
    digest.update(&schema);
    for (at, checksum) in split.record_index()?.checksums(0..split.len())?.enumerate() {
        if at % CHECKED_RECORDS == 0 {
            interrupt::check()?;
        }
        digest.update(&checksum?.to_le_bytes());
    }
    Ok(format!("xxh3-128:{:032x}", digest.digest128()))
}

/// Returns whether all records of `base` are those that a companion is bound to, in other shards or another format.
fn has_same_records(base: &Dataset, binding: &Binding) -> Result<bool> {
    for split in base.splits() {
        let Some(bound) = binding.splits.get(split.name()) else { continue };
        if bound.checksums.is_none() || bound.checksums != Some(checksums(&split)?) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Returns what a companion records about `split`, if its fields are made from the fields `read` of it. All keys and these
/// fields are read.
///
/// # Errors
///
/// Fails if a record cannot be read, or a field does not exist.
pub fn bound_split(split: &Split, read: &[&str]) -> Result<BoundSplit> {
    let names: Vec<&str> = std::iter::once(KEY).chain(read.iter().copied()).collect();
    let mut digests: Vec<ContentDigest> = names.iter().map(|_| ContentDigest::default()).collect();
    for (at, record) in split.select(&names)?.iter().enumerate() {
        if at % CHECKED_RECORDS == 0 {
            interrupt::check()?;
        }
        let record = record?;
        digests.iter_mut().zip(record.values()).for_each(|(digest, value): (_, &Value)| digest.push(value));
    }
    let mut digests = digests.iter().map(ContentDigest::finish);
    let keys = digests.next().unwrap_or_default();
    let content: BTreeMap<String, String> = read.iter().map(|name| (*name).to_owned()).zip(digests).collect();
    let checksums = Some(checksums(split)?);
    Ok(BoundSplit { records: split.len(), keys, checksums, content })
}

/// Checks that `companion` was made for the records of `base`, which has no companions itself.
///
/// If the base is the same dataset, byte for byte, only the manifests are compared. If it was converted again, the checksums of
/// its records are compared, and only if they differ, its keys and the fields from which the companion was made are read once.
///
/// # Errors
///
/// [`ErrorKind::Usage`](dsconvert_dataset::error::ErrorKind) if it was not; the message has both values of what differs.
pub(in crate::companions) fn compare(base: &Dataset, companion: &Dataset, binding: &Binding) -> Result<()> {
    let (here, differs) = (base.manifest(), |what: String| differs(companion.path(), what));
    for (name, split) in &here.splits {
        let bound = binding.splits.get(name).map_or(0, |bound| bound.records);
        if bound != split.records {
            let (bound, here) = (plural(bound, "record"), plural(split.records, "record"));
            return Err(differs(format!(
                "it was made for {bound} in split {name:?}, and the dataset has {here}"
            )));
        }
    }
    if let Some((name, bound)) =
        binding.splits.iter().find(|(name, bound)| bound.records > 0 && !here.splits.contains_key(*name))
    {
        let bound = plural(bound.records, "record");
        return Err(differs(format!(
            "it was made for {bound} in split {name:?}, which the dataset does not have"
        )));
    }
    let added: Vec<_> = base.companions().iter().map(|other| other.manifest().digest.as_ref()).collect();
    let has_all = binding.companions.iter().all(|digest| added.contains(&Some(digest)));
    let is_same = has_all
        && match (&binding.manifest, &here.digest) {
            (None, None) => binding.fingerprint == here.fingerprint,
            (bound, here) => bound == here,
        };
    if is_same {
        return Ok(());
    }
    compare_tokens(here, binding).map_err(&differs)?;
    let read: Vec<&str> = binding.reads().collect();
    let missing = read.iter().find(|name| base.schema().index_of(name).is_none());
    if let Some(name) = missing {
        return Err(differs(format!("it was made from the field {name:?}, which the dataset does not have")));
    }
    if has_all && has_same_records(base, binding)? {
        return Ok(());
    }
    // The digests are the checksums, and without other ones, only these fields are read.
    for split in base.unverified().splits() {
        let Some(bound) = binding.splits.get(split.name()) else { continue };
        let found = bound_split(&split, &read)?;
        let content = read.iter().map(|name| {
            let of = |split: &BoundSplit| split.content.get(*name).cloned().unwrap_or_default();
            (format!("the content of {name:?}"), of(bound), of(&found))
        });
        let keys = ("the keys".to_owned(), bound.keys.clone(), found.keys.clone());
        for (what, bound, found) in std::iter::once(keys).chain(content) {
            if bound != found {
                let (name, made, fingerprint) = (split.name(), &binding.fingerprint, &here.fingerprint);
                return Err(differs(format!(
                    "it was made for other records: {what} in split {name:?} had the digest {bound}, and now has {found}; \
                     the dataset had the fingerprint {made}, and now has {fingerprint}"
                )));
            }
        }
    }
    Ok(())
}

/// Compares what says how token ids were made, for a message that says more than that they differ.
fn compare_tokens(here: &Manifest, binding: &Binding) -> Result<(), String> {
    let Some(bound) = &binding.tokenizer else { return Ok(()) };
    let found = here.tokenizer_sha256().unwrap_or("no file");
    if bound != found {
        return Err(format!(
            "it was made from token ids of the tokenizer with the SHA-256 {bound}, and those of the dataset are of {found}"
        ));
    }
    let (bound, found) = (&binding.template, Binding::template_of(here));
    if *bound != found {
        let shown = |template: &Option<String>| template.clone().unwrap_or_else(|| "none".to_owned());
        return Err(format!(
            "it was made from token ids of the chat template {}, and those of the dataset are of {}",
            shown(bound),
            shown(&found)
        ));
    }
    Ok(())
}

fn differs(companion: &Path, what: String) -> Error {
    Error::usage(format!("the companion does not belong to this dataset: {what}"))
        .at_path(companion)
        .of_option("add")
        .help("make the companion again for this dataset, with `dsconvert add-fields` or `dsconvert.add_fields`")
}

/// Checks that `companion` is one, is complete, and belongs to `base`.
///
/// # Errors
///
/// Same as [`compare`]; [`ErrorKind::Corrupt`](dsconvert_dataset::error::ErrorKind) if the manifest of the companion contradicts
/// itself.
pub(crate) fn check_companion(base: &Dataset, companion: &Dataset) -> Result<()> {
    let manifest = companion.manifest();
    let Some(binding) = &manifest.binding else {
        let what = "this dataset is no companion: its records do not belong to those of another dataset";
        return Err(Error::usage(what).at_path(companion.path()).of_option("add").help(
            "make one of it with `dsconvert add-fields` or `dsconvert.add_fields`, which joins the records by their keys",
        ));
    };
    for (name, bound) in &binding.splits {
        let records = manifest.splits.get(name).map_or(0, |split| split.records);
        if records != bound.records {
            let (records, bound) = (plural(records, "record"), plural(bound.records, "record"));
            let what = format!("the companion has {records} in split {name:?}, but is bound to {bound}");
            return Err(Error::corrupt(what).at_path(companion.path()));
        }
    }
    compare(base, companion, binding)
}
