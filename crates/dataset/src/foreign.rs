//! Data of other tools, recognized by content, so that a message names the tool and the way to convert what it holds.
//!
//! Only what the first bytes of a few files show is used; nothing is read that dsconvert would have to understand.

use std::path::{Path, PathBuf};

use crate::error::{Error, Result};
use crate::storage::{Access, Blob, ObjectUrl, list_dir, stat};

/// Bytes of a file that are examined.
const HEAD_BYTES: u64 = 64 << 10;
/// Entries of a folder that are examined, and levels of folders.
const MAX_ENTRIES: usize = 256;
const MAX_LEVELS: usize = 3;

/// First bytes of Megatron's index.
const MEGATRON_MAGIC: &[u8] = b"MMIDIDX\0\0";
/// First numbers of the files of llm.c, with ids of 16 and of 32 bits.
const LLMC_MAGIC: [u32; 2] = [20_240_520, 20_240_801];

/// A format of another tool.
#[derive(Debug, PartialEq, Eq)]
pub struct ForeignFormat {
    /// What it is, as in "this is NAME".
    pub name: &'static str,
    /// How to convert what it holds.
    pub remedy: &'static str,
}

/// What is examined.
struct Probe<'a> {
    path: &'a Path,
    /// Its first bytes; of a folder, those of the file that describes it.
    head: &'a [u8],
    /// Length of the file.
    bytes: u64,
}

/// Returns whether what is examined has a format.
type IsFormat = fn(&Probe<'_>) -> bool;

/// The formats of folders: what they are, the file that describes them, and how it is recognized.
static FOLDERS: [(ForeignFormat, &str, IsFormat); 3] =
    [(MDS, "index.json", is_mds), (LITDATA, "index.json", is_litdata), (TFDS, "features.json", is_tfds)];
/// The formats of files.
static FILES: [(ForeignFormat, IsFormat); 5] = [
    (TFRECORD, is_tfrecord),
    (BETON, is_beton),
    (MEGATRON, is_megatron),
    (LLMC, is_llmc),
    (NANOGPT, is_nanogpt),
];

const MDS: ForeignFormat = ForeignFormat {
    name: "a dataset of MosaicML Streaming (MDS)",
    remedy: "convert the data that it was made from; or write the samples of `streaming.StreamingDataset(local=…)` as \
             files, or as lines of a .jsonl file, and convert these",
};
const LITDATA: ForeignFormat = ForeignFormat {
    name: "a dataset of LitData",
    remedy: "convert the data that it was made from; or write the samples of `litdata.StreamingDataset(…)` as files, or as \
             lines of a .jsonl file, and convert these",
};
const TFRECORD: ForeignFormat = ForeignFormat {
    name: "a TFRecord file of TensorFlow",
    remedy: "`dsconvert images` converts images in its examples; convert text from the data that it was made from, or write \
             the examples of `tf.data.TFRecordDataset(…)`, or of `tfds.load(…)`, as lines of a .jsonl file, and convert these",
};
const TFDS: ForeignFormat =
    ForeignFormat { name: "a dataset of TensorFlow Datasets (TFRecord files)", remedy: TFRECORD.remedy };
const BETON: ForeignFormat = ForeignFormat {
    name: "a .beton file of FFCV",
    remedy: "convert the images that it was made from: its own are already resized",
};
const MEGATRON: ForeignFormat = ForeignFormat {
    name: "an indexed dataset of Megatron-LM (.bin and .idx): token ids, not text",
    remedy: "name the .idx file, and add `ids_field ids` to store its ids as they are; \
             `dsconvert export DATASET --to megatron` writes such files again",
};
const LLMC: ForeignFormat = ForeignFormat {
    name: "a file of token ids of llm.c, not text",
    remedy: "convert the text that it was made from, with the same tokenizer; `dsconvert export DATASET --to tokens \
             --layout llmc` writes such files again",
};
const NANOGPT: ForeignFormat = ForeignFormat {
    name: "a flat file of token ids, as nanoGPT has them, not text",
    remedy: "convert the text that it was made from, with the same tokenizer; `dsconvert export DATASET --to tokens` writes \
             such files again",
};
const HUB: ForeignFormat = ForeignFormat {
    name: "a dataset of the Hugging Face Hub",
    remedy: "download it, then convert the folder",
};

/// Data of another tool at a path.
#[derive(Debug)]
pub struct Foreign {
    /// The file or folder.
    pub path: PathBuf,
    /// Its format.
    pub format: &'static ForeignFormat,
}

impl ForeignFormat {
    /// Returns whether a conversion of images reads it: it has TFRecord files, whose examples may be images.
    pub fn may_hold_images(&self) -> bool {
        [&TFRECORD, &TFDS].contains(&self)
    }
}

impl Foreign {
    /// Recognizes the file or folder `path`. What cannot be read is not recognized.
    pub fn of(path: &Path) -> Option<Self> {
        if ObjectUrl::is_url(path) {
            return None;
        }
        let is_dir = stat(path).ok().flatten()?.is_dir();
        let format = if is_dir { of_folder(path) } else { of_file(path) }?;
        Some(Self { path: path.to_owned(), format })
    }

    /// Recognizes `path`, or else one of the first entries in it.
    pub fn within(path: &Path) -> Option<Self> {
        find(path, MAX_LEVELS, &mut { MAX_ENTRIES })
    }

    /// Returns what it is, as in "PATH is a dataset of LitData".
    pub fn what(&self) -> String {
        format!("this is {}", self.format.name)
    }

    /// Returns the error of a command that reads something else.
    pub fn error(&self) -> Error {
        Error::usage(self.what()).at_path(&self.path).help(self.format.remedy)
    }
}

/// Refuses the first of `paths` that is data of another tool, unless it `is_read`.
///
/// # Errors
///
/// [`ErrorKind::Usage`](crate::error::ErrorKind) with the name of the tool and the way.
pub fn refuse<'a>(
    paths: impl IntoIterator<Item = &'a Path>,
    is_read: impl Fn(&ForeignFormat) -> bool,
) -> Result<()> {
    let foreign = |path| Foreign::of(path).filter(|foreign| !is_read(foreign.format));
    match paths.into_iter().find_map(foreign) {
        Some(foreign) => Err(foreign.error()),
        None => Ok(()),
    }
}

/// Returns the way to convert a dataset of the Hugging Face Hub, if `path` is the name of one: a URL, or two words that
/// name no file.
pub fn hub_remedy(path: &Path) -> Option<String> {
    let text = path.to_str()?;
    let name = match text.strip_prefix("hf://") {
        Some(rest) => {
            let mut parts = rest.strip_prefix("datasets/").unwrap_or(rest).split('/');
            let owner = parts.next()?;
            // Datasets without an owner have one part; a revision may follow the name.
            let name = parts.next().and_then(|name| name.split('@').next());
            name.map_or_else(|| owner.to_owned(), |name| format!("{owner}/{name}"))
        }
        None => text.to_owned(),
    };
    let is_word = |word: &str| {
        word.starts_with(|c: char| c.is_ascii_alphanumeric())
            && word.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c))
    };
    let parts = name.split('/').count();
    let is_name = name.split('/').all(is_word) && (parts == 2 || (parts == 1 && text.starts_with("hf://")));
    let folder = name.rsplit('/').next().unwrap_or_default();
    let what = if text.starts_with("hf://") { "this is" } else { "for" };
    is_name.then(|| {
        format!(
            "{what} {}: {}: `hf download {name} --repo-type dataset --local-dir {folder}`",
            HUB.name, HUB.remedy
        )
    })
}

fn find(path: &Path, levels: usize, left: &mut usize) -> Option<Foreign> {
    if *left == 0 {
        return None;
    }
    *left -= 1;
    if let Some(found) = Foreign::of(path) {
        return Some(found);
    }
    if levels == 0 || !stat(path).ok().flatten()?.is_dir() {
        return None;
    }
    let mut entries: Vec<PathBuf> = list_dir(path).ok()?.into_iter().map(|entry| entry.path).collect();
    entries.sort();
    entries.iter().find_map(|entry| find(entry, levels - 1, left))
}

fn of_folder(path: &Path) -> Option<&'static ForeignFormat> {
    let is = |name: &str, is: fn(&Probe<'_>) -> bool| {
        head(&path.join(name)).is_some_and(|(head, bytes)| is(&Probe { path, head: &head, bytes }))
    };
    FOLDERS.iter().find(|(_, name, by)| is(name, *by)).map(|(format, ..)| format)
}

fn of_file(path: &Path) -> Option<&'static ForeignFormat> {
    let (head, bytes) = head(path)?;
    let probe = Probe { path, head: &head, bytes };
    let own = FILES.iter().find(|(_, is)| is(&probe)).map(|(format, _)| format);
    // A shard alone is not enough: other files beside an index may be images or text.
    let is_shard = || matches!(extension(path).as_str(), "bin" | "mds" | "zstd");
    own.or_else(|| path.parent().filter(|_| is_shard()).and_then(of_folder))
}

/// Returns the first bytes of a file, and its length.
fn head(path: &Path) -> Option<(Vec<u8>, u64)> {
    if !stat(path).ok().flatten()?.is_file() {
        return None;
    }
    let blob = Blob::open(path, Access::Read, None).ok()?;
    let head = blob.read(0, blob.len().min(HEAD_BYTES)).ok()?;
    Some((head.to_vec(), blob.len()))
}

fn extension(path: &Path) -> String {
    path.extension().map(|extension| extension.to_string_lossy().to_ascii_lowercase()).unwrap_or_default()
}

impl Probe<'_> {
    fn has(&self, words: &[&str]) -> bool {
        let head = String::from_utf8_lossy(self.head);
        head.trim_start().starts_with('{') && words.iter().all(|word| head.contains(word))
    }

    fn u32_at(&self, at: usize) -> Option<u32> {
        Some(u32::from_le_bytes(*self.head.get(at..)?.first_chunk()?))
    }

    fn u64_at(&self, at: usize) -> Option<u64> {
        Some(u64::from_le_bytes(*self.head.get(at..)?.first_chunk()?))
    }
}

/// `index.json` lists shards with the bytes of their raw data.
fn is_mds(index: &Probe<'_>) -> bool {
    index.has(&["\"shards\"", "\"raw_data\"", "\"basename\""])
}

/// `index.json` lists chunks with their sizes.
fn is_litdata(index: &Probe<'_>) -> bool {
    index.has(&["\"chunks\"", "\"chunk_bytes\"", "\"chunk_size\""])
}

/// `features.json` names the Python classes of the features.
fn is_tfds(features: &Probe<'_>) -> bool {
    features.has(&["\"pythonClassName\"", "tensorflow_datasets"])
}

/// Returns the CRC-32C of `bytes` as TFRecord files store it.
pub fn masked_crc32c(bytes: &[u8]) -> u32 {
    crc32c::crc32c(bytes).rotate_right(15).wrapping_add(0xa282_ead8)
}

/// The length of the first record is followed by its masked CRC-32C.
fn is_tfrecord(file: &Probe<'_>) -> bool {
    let (Some(length), Some(stored)) = (file.head.first_chunk::<8>(), file.u32_at(8)) else { return false };
    stored == masked_crc32c(length)
        && u64::from_le_bytes(*length).checked_add(16).is_some_and(|end| end <= file.bytes)
}

/// Version, number of fields, size of a page, number of samples, and the offset of the allocation table.
fn is_beton(file: &Probe<'_>) -> bool {
    let (Some(first), Some(page), Some(table)) = (file.u32_at(0), file.u32_at(4), file.u64_at(16)) else {
        return false;
    };
    let (version, fields) = (first & 0xffff, first >> 16);
    matches!(version, 1..=2)
        && matches!(fields, 1..=64)
        && page.is_power_of_two()
        && page >= 1 << 12
        && (24..=file.bytes).contains(&table)
}

/// The index, or the ids beside it.
fn is_megatron(file: &Probe<'_>) -> bool {
    let is_index = |path: &Path| head(path).is_some_and(|(head, _)| head.starts_with(MEGATRON_MAGIC));
    file.head.starts_with(MEGATRON_MAGIC)
        || (extension(file.path) == "bin" && is_index(&file.path.with_extension("idx")))
}

fn is_llmc(file: &Probe<'_>) -> bool {
    file.u32_at(0).is_some_and(|magic| LLMC_MAGIC.contains(&magic)) && file.bytes >= 1024
}

/// No header: a `.bin` with the name of a split, of whole numbers of 16 bits, and no text.
fn is_nanogpt(file: &Probe<'_>) -> bool {
    let stem = file.path.file_stem().unwrap_or_default().to_string_lossy().to_ascii_lowercase();
    let of_split = ["train", "val", "test"].iter().any(|split| stem.contains(split));
    let is_zip = file.head.starts_with(b"PK");
    extension(file.path) == "bin"
        && of_split
        && file.bytes.is_multiple_of(2)
        && !is_zip
        && is_binary(file.head)
}

/// Returns whether the first bytes of a file are not text.
fn is_binary(head: &[u8]) -> bool {
    // The last character may be cut off.
    let is_utf8 = std::str::from_utf8(head).map_or_else(|e| e.error_len().is_none(), |_| true);
    !is_utf8 || head.contains(&0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One example of each format, as its own writer makes it.
    fn examples(dir: &Path) -> Vec<(&'static str, &'static str)> {
        let write = |name: &str, bytes: &[u8]| {
            let path = dir.join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, bytes).unwrap();
        };
        let mds = br#"{"shards": [{"column_encodings": ["str"], "column_names": ["text"], "column_sizes": [null],
            "compression": null, "format": "mds", "hashes": [], "raw_data": {"basename": "shard.00000.mds",
            "bytes": 99, "hashes": {}}, "samples": 3, "size_limit": 67108864, "version": 2, "zip_data": null}],
            "version": 2}"#;
        write("mds/index.json", mds);
        write("mds/shard.00000.mds", &[1, 0, 0, 0, 9]);
        let litdata =
            br#"{"chunks": [{"chunk_bytes": 80, "chunk_size": 4, "dim": null, "filename": "chunk-0-0.bin"}],
            "config": {"chunk_bytes": 64000000, "data_format": ["int"]}}"#;
        write("lit/index.json", litdata);
        write("lit/chunk-0-0.bin", &[4, 0, 0, 0, 24]);
        let length = 5u64.to_le_bytes();
        let crc = crc32c::crc32c(&length);
        let masked = crc.rotate_right(15).wrapping_add(0xa282_ead8);
        let record = [&length[..], &masked.to_le_bytes(), b"\x0a\x03abc", &[0; 4]].concat();
        let features =
            br#"{"pythonClassName": "tensorflow_datasets.core.features.features_dict.FeaturesDict"}"#;
        write("tfds/features.json", features);
        write("tfds/label.labels.txt", b"cat\n");
        write("tf/train.tfrecord-00000-of-00001", &record);
        // Version 2, two fields, pages of 8 MiB, 3 samples, the table at byte 4096.
        let header = [&[2, 0, 2, 0, 0, 0, 128, 0][..], &3u64.to_le_bytes(), &4096u64.to_le_bytes()].concat();
        write("x.beton", &[header, vec![0; 5000]].concat());
        write("mega/a_text_document.idx", &[MEGATRON_MAGIC, &[1, 0, 0, 0, 0, 0, 0, 0, 8]].concat());
        write("mega/a_text_document.bin", &[7, 1, 9, 0]);
        write("llmc.bin", &[&20_240_520u32.to_le_bytes()[..], &[0; 1020], &[5, 0]].concat());
        write("gpt/val.bin", &[5, 0, 200, 255]);
        vec![
            ("mds", "MosaicML Streaming"),
            ("mds/shard.00000.mds", "MosaicML Streaming"),
            ("lit", "LitData"),
            ("lit/chunk-0-0.bin", "LitData"),
            ("tfds", "TensorFlow Datasets"),
            ("tf/train.tfrecord-00000-of-00001", "TFRecord"),
            ("x.beton", "FFCV"),
            ("mega/a_text_document.idx", "Megatron-LM"),
            ("mega/a_text_document.bin", "Megatron-LM"),
            ("llmc.bin", "llm.c"),
            ("gpt/val.bin", "nanoGPT"),
        ]
    }

    #[test]
    fn data_of_other_tools_is_recognized_by_its_content() {
        let dir = tempfile::tempdir().unwrap();
        for (path, tool) in examples(dir.path()) {
            let is_examples = ["TFRecord", "TensorFlow Datasets"].contains(&tool);
            assert_eq!(
                refuse([&*dir.path().join(path)], ForeignFormat::may_hold_images).is_ok(),
                is_examples
            );
            let error = refuse([&*dir.path().join(path)], |_| false).unwrap_err();
            assert!(error.to_string().contains(tool) && error.remedy().is_some(), "{path}: {error}");
            // In folders above it, too, but only on request.
            let wrapped = tempfile::tempdir().unwrap();
            let place = wrapped.path().join("a/b");
            std::fs::create_dir_all(&place).unwrap();
            if let Some(name) = dir.path().join(path).file_name().filter(|_| !path.contains('/')) {
                std::fs::rename(dir.path().join(path), place.join(name)).unwrap();
                assert!(Foreign::of(wrapped.path()).is_none());
                assert!(Foreign::within(wrapped.path()).unwrap().what().contains(tool));
                std::fs::rename(place.join(name), dir.path().join(path)).unwrap();
            }
        }
    }

    #[test]
    fn other_files_are_not_taken_for_those_of_tools() {
        let dir = tempfile::tempdir().unwrap();
        for (name, bytes) in [
            ("index.json", &b"{\"shards\": [], \"pages\": 3}"[..]),
            ("train.bin", b"text in a file of another name"),
            ("model-train.bin", b"PK\x03\x04\0\0"),
            ("data.bin", &[0, 1, 2, 3]),
            ("train.txt", &[0, 255]),
            ("empty.bin", b""),
            ("a.idx", b"MMID"),
        ] {
            std::fs::write(dir.path().join(name), bytes).unwrap();
        }
        assert!(Foreign::within(dir.path()).is_none(), "{:?}", Foreign::within(dir.path()));
        assert!(Foreign::of(&dir.path().join("missing")).is_none());
    }

    #[test]
    fn names_of_the_hub_are_downloaded_first() {
        let remedy = |text: &str| hub_remedy(Path::new(text));
        for (text, name) in [
            ("org/name", "org/name"),
            ("hf://datasets/org/name", "org/name"),
            ("hf://datasets/org/name@main/data/x.parquet", "org/name"),
            ("hf://datasets/squad", "squad"),
        ] {
            let found = remedy(text).unwrap();
            assert!(found.contains(&format!("`hf download {name} --repo-type dataset")), "{found}");
        }
        for text in ["name", "a/b/c", "../photos", "./a", "/a", "s3://a/b", "org/na*me", "a b/c", "hf://"] {
            assert_eq!(remedy(text), None, "{text}");
        }
    }
}
