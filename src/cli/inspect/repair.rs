//! `dsconvert inspect --verify --repair`: runs the recipe in the manifest of a dataset again, on its sources.

use std::path::{Path, PathBuf};

use crate::cli::flags::with_flags;
use crate::cli::{Ending, images, text, values};
use crate::error::{Error, ErrorKind, Result};
use crate::manifest::{Manifest, TOKENIZER_NAME};
use crate::options::SourceSpec;
use crate::printable::shell_word;
use crate::recipe::{ImagesRecipe, Recorded, RecordedInput, TextRecipe};
use crate::schema::Kind;
use crate::storage::{hash_file, stat};

/// What a repair runs.
enum Repair {
    Images(Box<Recorded<ImagesRecipe>>),
    /// With the `tokenizer.json` of the dataset; `None` for bytes.
    Text(Box<Recorded<TextRecipe>>, Option<PathBuf>),
}

/// Repairs the dataset in `dir` from `sources`, which must be unchanged.
///
/// # Errors
///
/// Those of the conversion that made the dataset; [`ErrorKind::Unsupported`] if the manifest does not record it completely.
pub(super) fn exec(dir: &Path, sources: &[PathBuf], threads: Option<usize>) -> Result<Ending> {
    let repair = Repair::of(dir, &Manifest::read(dir)?)?;
    let sources: Vec<SourceSpec> = sources.iter().map(|text| values::source(text)).collect::<Result<_>>()?;
    match repair {
        Repair::Images(recorded) => images::repair(*recorded, dir, sources, threads),
        Repair::Text(recorded, tokenizer) => {
            text::repair(*recorded, tokenizer.as_deref(), dir, sources, threads)
        }
    }
}

/// Says how to repair the dataset in `dir`, which was named as `path`.
pub(super) fn advice(path: &Path, dir: &Path, manifest: &Manifest) -> String {
    match Repair::of(dir, manifest) {
        Ok(_) => {
            let path = shell_word(path);
            format!("to repair it from its sources: dsconvert inspect {path} --verify --repair SRC…")
        }
        Err(error) => match error.remedy() {
            Some(help) => format!("{error}; {}", with_flags(help)),
            None => error.to_string(),
        },
    }
}

impl Repair {
    /// Returns what repairs the dataset in `dir` with the given `manifest`.
    fn of(dir: &Path, manifest: &Manifest) -> Result<Self> {
        if manifest.binding.is_some() {
            return Err(Error::new(
                ErrorKind::Unsupported,
                "the dataset cannot be repaired: its fields were added to the records of another one, from a table or by a program",
            )
            .help("add them again, with `overwrite`"));
        }
        let unreadable = |error: Error| cannot_reconstruct(&error.to_string());
        let (repair, input, exclude) = match manifest.kind() {
            Kind::Images => {
                let recorded = Recorded::<ImagesRecipe>::of(manifest).map_err(unreadable)?;
                let (input, exclude) = (recorded.input.clone(), recorded.exclude.len());
                (Self::Images(Box::new(recorded)), input, exclude)
            }
            Kind::Text => {
                let recorded = Recorded::<TextRecipe>::of(manifest).map_err(unreadable)?;
                let tokenizer =
                    manifest.tokenizer_sha256().map(|sha256| tokenizer_of(dir, sha256)).transpose()?;
                let (input, exclude) = (recorded.input.clone(), recorded.exclude.len());
                (Self::Text(Box::new(recorded), tokenizer), input, exclude)
            }
            Kind::Records => {
                let what = "the dataset cannot be repaired: a program wrote its records";
                return Err(Error::new(ErrorKind::Unsupported, what).help("run that program again"));
            }
        };
        if exclude > 0 {
            return Err(cannot_reconstruct("it was made without the items of other datasets (`exclude`)"));
        }
        let made = match input {
            RecordedInput::Walk | RecordedInput::WalkOnly => return Ok(repair),
            RecordedInput::FilesFrom => "from a list of files",
            RecordedInput::Table { .. } => "from a table",
            RecordedInput::Annotations => "with annotations",
            RecordedInput::Stdin => {
                return Err(Error::new(
                    ErrorKind::Unsupported,
                    "the dataset cannot be repaired, because it was made from standard input",
                )
                .help("standard input cannot be read again: convert again with --overwrite"));
            }
        };
        Err(cannot_reconstruct(&format!("it was made {made}, which it does not contain")))
    }
}

/// Returns the path of the `tokenizer.json` of the dataset in `dir`, which must have the given hash.
fn tokenizer_of(dir: &Path, sha256: &str) -> Result<PathBuf> {
    let path = dir.join(TOKENIZER_NAME);
    match stat(&path)? {
        Some(_) if hash_file(&path)?.sha256 == sha256 => Ok(path),
        Some(_) => Err(cannot_reconstruct(&format!("its {TOKENIZER_NAME} is damaged"))),
        None => Err(cannot_reconstruct(&format!("its {TOKENIZER_NAME} is missing"))),
    }
}

fn cannot_reconstruct(why: &str) -> Error {
    Error::new(
        ErrorKind::Unsupported,
        format!("the dataset cannot be repaired from its manifest alone: {why}"),
    )
    .help("run the command that made the dataset again, with --resume=repair")
}
