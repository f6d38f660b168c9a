//! Fuzz targets, and the possible results of a mutant.

mod dataset;
mod image;
mod shard;
mod source;
mod tables;
mod tokenizer;

use std::path::{Path, PathBuf};

use crate::Result;

/// All targets, in the order of the report.
pub(crate) const NAMES: [&str; 22] = [
    "image",
    "shard-parquet",
    "shard-arrow",
    "shard-msgpack",
    "shard-protobuf",
    "dataset-parquet",
    "dataset-arrow",
    "dataset-msgpack",
    "dataset-protobuf",
    "tokenizer",
    "source-text",
    "source-table",
    "source-tar",
    "source-tar-folders",
    "source-zip",
    "source-text-zip",
    "source-ids",
    "source-megatron",
    "source-pairs",
    "source-metadata",
    "source-annotations",
    "source-tfrecord",
];

/// A file to mutate.
pub(crate) struct Input {
    pub(crate) name: String,
    pub(crate) bytes: Vec<u8>,
}

/// Result of a mutant.
pub(crate) enum Verdict {
    /// Everything was read, and nothing is wrong.
    Accepted,
    /// An error, or a reject, was reported.
    Refused,
    /// The data that was read is not what was written.
    Wrong(String),
}

impl Verdict {
    fn of(refused: bool) -> Self {
        if refused { Verdict::Refused } else { Verdict::Accepted }
    }
}

/// Something that reads files.
pub(crate) trait Target {
    /// Returns the files to mutate.
    fn inputs(&self) -> &[Input];

    /// Reads `bytes` in place of the input with the ordinal `input`.
    fn check(&mut self, input: usize, bytes: &[u8]) -> Verdict;
}

/// Builds the target called `name`, which may use the empty directory `scratch`.
pub(crate) fn build(name: &str, scratch: &Path) -> Result<Box<dyn Target>> {
    Ok(match name.split_once('-').unwrap_or((name, "")) {
        ("image", _) => Box::new(image::Images::new()?),
        ("shard", format) => Box::new(shard::Shards::new(format.parse()?)?),
        ("dataset", format) => Box::new(dataset::Datasets::new(format.parse()?, scratch)?),
        ("tokenizer", _) => Box::new(tokenizer::Tokenizers::new()?),
        ("source", kind) => Box::new(source::Sources::new(kind, scratch)?),
        _ => return Err(format!("unknown target `{name}`").into()),
    })
}

/// Returns a path below the fixtures of the repository.
fn fixture(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures").join(path)
}

/// Reads the files below `dir`, in the order of their paths, which are relative to it.
fn files(dir: &Path) -> Result<Vec<Input>> {
    fn walk(root: &Path, dir: &Path, found: &mut Vec<Input>) -> Result<()> {
        let mut entries = std::fs::read_dir(dir)?.collect::<Result<Vec<_>, _>>()?;
        entries.sort_by_key(std::fs::DirEntry::file_name);
        for entry in entries {
            let path = entry.path();
            if path.is_dir() {
                walk(root, &path, found)?;
            } else {
                let name = path.strip_prefix(root)?.to_string_lossy().into_owned();
                found.push(Input { name, bytes: std::fs::read(path)? });
            }
        }
        Ok(())
    }
    let mut found = Vec::new();
    walk(dir, dir, &mut found)?;
    if found.is_empty() {
        return Err(format!("there are no files in {}", dir.display()).into());
    }
    Ok(found)
}
