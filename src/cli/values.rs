//! Parsers that turn the text of options and arguments into library values.

use std::path::{Path, PathBuf};

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use serde::de::{DeserializeOwned, IntoDeserializer};

use crate::error::{Error, Result};
use crate::options::{Input, MAX_THREADS, OptionValue, SourceSpec, default_threads};
use crate::source::list::{braces, globs};
use crate::storage::{ObjectUrl, stat};

/// Rejects a folder as the value of `option`, which takes a file.
pub(super) fn check_not_folder(option: &'static str, path: &Path, help: &str) -> Result<()> {
    if stat(path)?.is_some_and(|meta| meta.is_dir()) {
        return Err(Error::usage("this is a folder, not a file").of_option(option).at_path(path).help(help));
    }
    Ok(())
}

/// Parses the value of `option`.
pub(super) fn parse<T: std::str::FromStr<Err = Error>>(option: &'static str, text: &str) -> Result<T> {
    text.parse().map_err(|e: Error| e.of_option(option))
}

/// Returns the words that an option takes, each with its help if it has one; none if it takes other values.
pub(super) fn possible_values(input: Input) -> Vec<PossibleValue> {
    match input {
        Input::Words(words) => words.iter().map(PossibleValue::from).collect(),
        Input::DescribedWords(words) => {
            words.iter().map(|(word, help)| PossibleValue::new(*word).help(*help)).collect()
        }
        _ => Vec::new(),
    }
}

/// Returns the parser of an option that takes words.
pub(super) fn words<T: OptionValue + Clone + Send + Sync + 'static>() -> impl TypedValueParser<Value = T> {
    PossibleValuesParser::new(possible_values(T::INPUT)).try_map(|word| T::parse(&word))
}

/// Returns the parser of an option of the reader, whose values have these `names`.
pub(super) fn names<T: DeserializeOwned + Clone + Send + Sync + 'static>(
    names: &'static [&'static str],
) -> impl TypedValueParser<Value = T> {
    PossibleValuesParser::new(names).try_map(|name| named(&name))
}

/// Returns the value of an option of the reader with this name.
pub(super) fn named<T: DeserializeOwned>(name: &str) -> Result<T, serde::de::value::Error> {
    T::deserialize(name.into_deserializer())
}

/// Rejects options of a resize without one: whether images may be enlarged, and a filter.
pub(super) fn check_resize_options(is_resized: bool, enlarge: bool, has_filter: bool) -> Result<()> {
    let options = [("--enlarge", enlarge), ("--filter", has_filter)];
    match options.into_iter().find(|(_, is_given)| *is_given) {
        Some((option, _)) if !is_resized => {
            Err(Error::usage(format!("{option} applies only to --resize, and no image is resized"))
                .help("add a size, such as --resize shorter:256, or leave it out"))
        }
        _ => Ok(()),
    }
}

/// Returns the value of `--threads`, by default the number of cores of this machine.
pub(super) fn threads(given: Option<usize>) -> Result<usize> {
    match given {
        Some(0) => Err(Error::usage("--threads 0: at least one thread is needed")),
        Some(many) if many > MAX_THREADS => {
            Err(Error::usage(format!("--threads {many}: at most {MAX_THREADS} threads are possible")))
        }
        given => Ok(given.unwrap_or_else(default_threads)),
    }
}

/// Parses `PATH` or `LABEL=PATH`. A path may be the URL of an object or prefix.
///
/// As folders may have names such as `year=2024`, the text is a path if there is a `/` before the `=`, or if a file has
/// the whole text or its first component as its name.
pub(super) fn source(text: &Path) -> Result<SourceSpec> {
    source_of("SRC", text)
}

/// Parses a source that is the value of `option`.
pub(super) fn source_of(option: &'static str, text: &Path) -> Result<SourceSpec> {
    let is_url = ObjectUrl::parse(text).map_err(|e| e.of_option(option))?.is_some();
    if !is_url
        && let Some((label, path)) = text.to_str().and_then(|t| t.split_once('='))
        && !label.contains('/')
        && !is_path(text)?
    {
        if label.is_empty() || label.contains('#') {
            return Err(Error::usage(format!("{label:?} is not a valid label of a source"))
                .help("a label must not be empty or contain / or #"));
        }
        if path.is_empty() {
            return Err(Error::usage(format!("the source {label:?} has no path"))
                .of_option(option)
                .help(format!("write {label}=PATH")));
        }
        ObjectUrl::parse(Path::new(path)).map_err(|e| e.of_option(option))?;
        return Ok(SourceSpec { label: label.to_owned(), path: path.into() });
    }
    if ["verify", "repair"].iter().any(|word| text == Path::new(word)) && stat(text)?.is_none() {
        let word = text.display();
        return Err(Error::usage("there is no such source")
            .at_path(text)
            .help(format!("for the value of --resume, write --resume={word}")));
    }
    // `.` and `..` have no file name.
    let named = match text.file_name() {
        Some(_) => text.to_owned(),
        None if stat(text)?.is_none() => PathBuf::new(),
        None => text.canonicalize().map_err(|e| Error::io("resolve the path", text, e))?,
    };
    let label = named.file_name().map_or_else(|| "root".to_owned(), crate::source::io::name::portable_name);
    Ok(SourceSpec { label, path: text.to_owned() })
}

/// Returns whether there is a file with the name `text`, or with the name of its first component, which may be a pattern.
fn is_path(text: &Path) -> Result<bool> {
    let first = SourceSpec { label: String::new(), path: text.iter().take(1).collect() };
    // An invalid range is an error of the source, whatever its label.
    let all = braces::expand(&[first]).unwrap_or_default();
    let is_present = |found: Result<bool>, one: &SourceSpec| Ok(found? || globs::is_present(&one.path)?);
    Ok(stat(text)?.is_some() || all.iter().fold(Ok(false), is_present)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_has_its_name_or_a_given_label() {
        let label = |text: &str| source(Path::new(text)).unwrap().label;
        assert_eq!(label("a/photos"), "photos");
        assert_eq!(label("a/photos/"), "photos");
        assert_eq!(label("mine=a/photos"), "mine");
        assert_eq!(label("mine=Cargo.toml"), "mine");
        assert_eq!(label("a/b=c"), "b=c");
        assert_eq!(label("./year=2024/x"), "x");
        assert!(source(Path::new("=a")).is_err() && source(Path::new("a#=b")).is_err());
        assert!(!label(".").is_empty());
    }

    #[test]
    fn a_source_may_be_in_object_storage_with_or_without_a_label() {
        for (text, label, path) in [
            ("s3://bucket/a/photos/", "photos", "s3://bucket/a/photos/"),
            ("gs://bucket", "bucket", "gs://bucket"),
            ("s3://bucket/day=1/x=2", "x=2", "s3://bucket/day=1/x=2"),
            ("train=az://bucket/x", "train", "az://bucket/x"),
            ("https://host/a/x.jsonl.zst", "x.jsonl.zst", "https://host/a/x.jsonl.zst"),
        ] {
            let found = source(Path::new(text)).unwrap();
            assert_eq!((found.label.as_str(), found.path.as_path()), (label, Path::new(path)));
        }
        for url in ["ftp://host/x", "train=ftp://host/x", "https://host/x?key=secret", "s3://me:secret@b/x"] {
            let message = source(Path::new(url)).unwrap_err().to_string();
            assert!(message.contains("SRC") && !message.contains("secret"), "{message}");
        }
        assert!(source(Path::new("a/b://c")).is_ok());
    }
}
