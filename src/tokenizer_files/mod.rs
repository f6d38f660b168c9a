//! Finds a tokenizer by name: a file, a folder, a model in the Hugging Face Hub cache, or an encoding in the tiktoken
//! cache. Files of all types are converted to a `tokenizer.json`. Nothing is downloaded.

pub(crate) mod chat_template;
mod config;
mod hub;
pub(crate) mod processor;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};

use bytes::Bytes;
use dsconvert_tokens::{LoadError, TiktokenEncoding, is_rank_file, sentencepiece_to_json, tiktoken_to_json};
use sha2::{Digest, Sha256};

use self::hub::HubCache;
use crate::error::{Error, Result};
use crate::manifest::TOKENIZER_NAME;
use crate::reader::Dataset;
use crate::source::io::planned::read_file;
use crate::storage::{folder_of, hex, stat};
use crate::transform::text::{Tokenizer, TokenizerOptions, usage_error};

/// Accepted names, for help texts.
const NAMES: &str = "a tokenizer.json, a SentencePiece .model or a .tiktoken file, a folder that contains one, a model in the local Hugging \
                     Face cache (org/model), a tiktoken encoding in its cache (cl100k_base), or the word bytes";

/// File names in order of preference. A `tokenizer.json` next to one of the others was made from it.
const FILE_NAMES: [&str; 5] =
    ["tokenizer.json", "tokenizer.model", "spiece.model", "sentencepiece.bpe.model", "sentencepiece.model"];

/// Environment variables with the path of the tiktoken cache, in order of precedence.
const RANK_VARIABLES: [&str; 2] = ["TIKTOKEN_CACHE_DIR", "DATA_GYM_CACHE_DIR"];

/// Maximum size of a tokenizer in a dataset.
const MAX_TOKENIZER_BYTES: u64 = 256 << 20;

/// Names of files that are only parts of a tokenizer.
const PARTS: [&str; 9] = [
    "vocab.json",
    "merges.txt",
    "vocab.txt",
    "vocab.bpe",
    "encoder.json",
    "added_tokens.json",
    "special_tokens_map.json",
    "tokenizer_config.json",
    "config.json",
];

/// A tokenizer as the bytes of a `tokenizer.json`.
#[derive(Debug)]
pub struct TokenizerFile {
    /// Path of the file that was read.
    pub path: PathBuf,
    /// Content of the `tokenizer.json`: the file itself, or the result of its conversion.
    pub json: Vec<u8>,
}

impl TokenizerFile {
    /// Creates the tokenizer. The configuration files beside it determine the BOS and EOS tokens that `options` do not.
    ///
    /// # Errors
    ///
    /// If the tokenizer cannot be loaded, or if a configuration file is damaged and one of these tokens is added.
    pub fn load(self, options: TokenizerOptions) -> Result<Tokenizer> {
        let Self { path, json } = self;
        let needs_config =
            options.add_bos && options.bos_token.is_none() || options.add_eos && options.eos_token.is_none();
        let config = match config::tokens_beside(&path) {
            Err(error) if needs_config => return Err(error),
            config => config.unwrap_or_default(),
        };
        Tokenizer::from_json_and_config(json, options, &config).map_err(|e| usage_error(e).at_path(&path))
    }
}

/// Finds and reads the tokenizer called `name`.
///
/// # Errors
///
/// If no such tokenizer exists, the error lists the paths that were tried. If the file cannot be read or converted, the
/// help shows the command that converts it.
pub fn find(name: &str) -> Result<TokenizerFile> {
    find_in(name, &HubCache::of_process(), &RankCache::of_process())
}

fn find_in(name: &str, hub: &HubCache, ranks: &RankCache) -> Result<TokenizerFile> {
    let path = Path::new(name);
    if let Some(meta) = stat(path)? {
        return match meta.is_dir() {
            true => open(&find_in_folder(path)?, None),
            false => open(path, None),
        };
    }
    if let Some((encoding, path)) = name.split_once(':')
        && let Some(encoding) = TiktokenEncoding::named(encoding)
    {
        return open(Path::new(path), Some(encoding));
    }
    let mut tried = vec![path.to_path_buf()];
    if HubCache::is_model(name) && !is_file_name(path) {
        let folder = hub.folder(name);
        if hub::snapshot(&folder)?.is_some() {
            return open(&find_in_folder(&folder)?, None);
        }
        tried.push(folder);
    }
    if let Some(encoding) = TiktokenEncoding::named(name) {
        if let Some(file) = ranks.find(encoding)? {
            return open(&file, Some(encoding));
        }
        tried.push(ranks.file(encoding));
    }
    Err(missing(name, &tried))
}

fn missing(name: &str, tried: &[PathBuf]) -> Error {
    let tried: Vec<String> = tried.iter().map(|path| path.display().to_string()).collect();
    let help = match TiktokenEncoding::named(name) {
        Some(_) => format!(
            "nothing is downloaded; to fill the cache: python -c \"import tiktoken; tiktoken.get_encoding('{name}')\""
        ),
        None if HubCache::is_model(name) && name.contains('/') && !is_file_name(Path::new(name)) => {
            format!("nothing is downloaded; to fill the cache: {}", save_command(name))
        }
        None => format!("`tokenizer` takes {NAMES}"),
    };
    Error::usage(format!("there is no such tokenizer; looked for {}", tried.join(", "))).help(help)
}

/// Returns the command that saves the tokenizer of a model or a folder as a `tokenizer.json`.
fn save_command(name: &str) -> String {
    format!(
        "python -c \"from transformers import AutoTokenizer; AutoTokenizer.from_pretrained('{name}').save_pretrained('DIR')\", \
         then `tokenizer DIR`"
    )
}

/// Returns the tokenizer file in `folder`, which may also be the folder of a model in the Hugging Face Hub cache.
fn find_in_folder(folder: &Path) -> Result<PathBuf> {
    for name in FILE_NAMES {
        let path = folder.join(name);
        if stat(&path)?.is_some() {
            return Ok(path);
        }
    }
    // After the files: a training run may keep its checkpoints in a folder `snapshots`.
    if let Some(snapshot) = hub::snapshot(folder)? {
        return find_in_folder(&snapshot);
    }
    let mut files = hub::names_in(folder)?;
    files.sort_unstable();
    for extension in ["model", "tiktoken"] {
        let mut candidates = files.iter().filter(|name| has_extension(Path::new(name), extension));
        match (candidates.next(), candidates.next()) {
            (Some(one), None) => return Ok(folder.join(one)),
            (Some(one), Some(other)) => {
                return Err(Error::usage(format!("the folder has several tokenizers: {one}, {other}"))
                    .at_path(folder)
                    .help("name the file"));
            }
            _ => {}
        }
    }
    let parts: Vec<&str> = PARTS.into_iter().filter(|part| files.iter().any(|name| name == part)).collect();
    let tried = format!("{}, *.model, *.tiktoken", FILE_NAMES.join(", "));
    let (message, help) = match parts.is_empty() {
        true => ("the folder has no tokenizer".to_owned(), format!("looked for {tried}")),
        false => (
            format!("the folder has no complete tokenizer, only {}", parts.join(", ")),
            format!("looked for {tried}; to make one: {}", save_command(&folder.display().to_string())),
        ),
    };
    Err(Error::usage(message).at_path(folder).help(help))
}

/// Folder of the tiktoken cache, whose files are named after the SHA-1 of their URLs.
struct RankCache(PathBuf);

impl RankCache {
    /// Returns the cache for the environment variables of this process.
    fn of_process() -> Self {
        Self::in_folder(RANK_VARIABLES.iter().find_map(std::env::var_os).map(PathBuf::from))
    }

    /// Returns the cache in `folder`; the default cache if the path is missing or empty.
    fn in_folder(folder: Option<PathBuf>) -> Self {
        let given = folder.filter(|folder| !folder.as_os_str().is_empty());
        Self(given.unwrap_or_else(|| std::env::temp_dir().join("data-gym-cache")))
    }

    /// Returns the path of the file of an encoding, which may not exist.
    fn file(&self, encoding: &TiktokenEncoding) -> PathBuf {
        self.0.join(encoding.cache_name)
    }

    /// Returns the file of an encoding; `None` if it is not in the cache. Its bytes must be the published ones.
    fn find(&self, encoding: &TiktokenEncoding) -> Result<Option<PathBuf>> {
        let path = self.file(encoding);
        if stat(&path)?.is_none() {
            return Ok(None);
        }
        if hex(&Sha256::digest(read_file(&path)?)) != encoding.sha256 {
            return Err(Error::usage(format!("this is not the published file of {}", encoding.name))
                .at_path(path)
                .help(format!(
                    "remove it and fill the cache again: python -c \"import tiktoken; tiktoken.get_encoding('{}')\"; to use your \
                     own file, name it as {}:FILE",
                    encoding.name, encoding.name
                )));
        }
        Ok(Some(path))
    }
}

/// Reads the tokenizer in a file. `encoding` supplies the pattern and special tokens of a tiktoken file; `None` if the
/// file name identifies the encoding.
fn open(path: &Path, encoding: Option<&'static TiktokenEncoding>) -> Result<TokenizerFile> {
    let found = |json| TokenizerFile { path: path.to_path_buf(), json };
    let unusable = |error: LoadError| {
        let help = match error {
            LoadError::UnusableRanks(_) => {
                format!("{DOWNLOAD_AGAIN}, and check that the file is of this encoding")
            }
            _ => damaged_help(path),
        };
        usage_error(error).at_path(path).help(help)
    };
    let has_name = |name: &&str| path.file_name().is_some_and(|own| own == *name);
    if encoding.is_none()
        && let Some(name) = PARTS.iter().find(|name| has_name(name))
    {
        let help = save_command(&folder_of(path).display().to_string());
        return Err(Error::usage(format!("a {name} is only a part of a tokenizer")).at_path(path).help(help));
    }
    let bytes = read_file(path).map_err(|e| e.help(format!("`tokenizer` takes {NAMES}")))?;
    let is_ranks = is_rank_file(&bytes);
    if let Some(encoding) = encoding {
        return tiktoken_to_json(&bytes, encoding).map(found).map_err(unusable);
    }
    let stem = path.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
    if is_ranks || has_extension(path, "tiktoken") {
        let encoding = TiktokenEncoding::named(stem).ok_or_else(|| unknown_pattern(path))?;
        return tiktoken_to_json(&bytes, encoding).map(found).map_err(unusable);
    }
    if has_extension(path, "model") {
        return sentencepiece_to_json(&bytes).map(found).map_err(unusable);
    }
    Ok(found(bytes))
}

/// Reads the `tokenizer.json` of a dataset, which need not be the one that made its ids; `None` if it has none.
///
/// # Errors
///
/// If the file is too large or cannot be read.
pub(crate) fn stored_tokenizer(dataset: &Dataset) -> Result<Option<Bytes>> {
    let files = &dataset.manifest().files;
    let Some(file) = files.iter().find(|file| file.path == TOKENIZER_NAME) else { return Ok(None) };
    if file.bytes > MAX_TOKENIZER_BYTES {
        return Err(Error::corrupt(format!(
            "the tokenizer.json has {} bytes, more than {MAX_TOKENIZER_BYTES}",
            file.bytes
        )));
    }
    let blob = dataset.open_file(file)?;
    blob.read(0, blob.len()).map(Some)
}

/// Help for a file that may be damaged.
const DOWNLOAD_AGAIN: &str =
    "download the file again if it is incomplete or a Git LFS pointer (git lfs pull)";

/// Returns the help for a file that cannot be used.
fn damaged_help(path: &Path) -> String {
    let command = save_command(&folder_of(path).display().to_string());
    format!("{DOWNLOAD_AGAIN}; where transformers can load the folder: {command}")
}

/// Returns whether the name has the extension of a tokenizer file, and is therefore not the name of a model.
fn is_file_name(path: &Path) -> bool {
    ["json", "model", "tiktoken", "txt"].iter().any(|extension| has_extension(path, extension))
}

fn has_extension(path: &Path, extension: &str) -> bool {
    path.extension().is_some_and(|own| own.eq_ignore_ascii_case(extension))
}

/// Returns the error for a tiktoken file of an unknown encoding.
fn unknown_pattern(path: &Path) -> Error {
    let names: Vec<&str> = TiktokenEncoding::all().iter().map(|encoding| encoding.name).collect();
    Error::usage("a tiktoken file has no pre-tokenization pattern, and its name is not the name of a known encoding")
        .at_path(path)
        .help(format!(
            "name the encoding whose pattern and special tokens it uses, as in `tokenizer {}:{}` ({}); for any other encoding: python -c \"from \
             transformers.integrations.tiktoken import convert_tiktoken_to_fast; convert_tiktoken_to_fast(ENCODING, 'DIR')\"",
            names[0],
            path.display(),
            names.join(", "),
        ))
}
