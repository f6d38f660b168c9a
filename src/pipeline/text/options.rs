//! Options of a conversion of text: its recipe, and where the documents come from.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use serde_json::json;

use super::sources::source_of;
use crate::error::{Error, Result};
use crate::options::{OutputOptions, SourceSpec, check_sources};
use crate::recipe::{PairBos, TextRecipe, described};
use crate::source::list::files_from::FilesFrom;
use crate::transform::text::{SpecialToken, Tokenizer, TokenizerOptions};

/// Options of a conversion of text.
pub struct TextOptions {
    /// Files and folders. If files are named by a list, the one folder that the names are relative to.
    pub sources: Vec<SourceSpec>,
    /// How files are found.
    pub input: TextInput,
    /// The tokenizer. Its options replace those of the recipe.
    pub tokenizer: Tokenizer,
    /// Datasets whose items are left out: directories or URLs.
    pub exclude: Vec<PathBuf>,
    /// Everything else that affects the dataset.
    pub recipe: TextRecipe,
}

/// How the files of the sources are found.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum TextInput {
    /// The sources are walked.
    #[default]
    Walk,
    /// A list names the files.
    FilesFrom(FilesFrom),
    /// The only source is standard input.
    Stdin,
}

impl TextOptions {
    /// Creates options with the defaults of the command line.
    pub fn new(sources: Vec<SourceSpec>, tokenizer: Tokenizer, output: OutputOptions) -> Self {
        let recipe = TextRecipe { output, ..TextRecipe::default() };
        Self { sources, input: TextInput::Walk, tokenizer, exclude: Vec::new(), recipe }
    }

    /// Refuses options that contradict each other, and completes the recipe.
    pub(super) fn checked(mut self) -> Result<Self> {
        check_sources(&self.sources)?;
        self.recipe.check()?;
        self.recipe.chat.check_template()?;
        self.recipe.tokenization = self.tokenizer.options().clone();
        let has_no_list = self.recipe.chat.are_preferences() || self.recipe.chat.prompt_only;
        if has_no_list && self.recipe.dedup.is_some() && !self.exclude.is_empty() {
            return Err(Error::usage(
                "`exclude` with `dedup` compares single lists of ids, which preference data and prompts do not have",
            )
            .help("leave out `dedup`: items are then excluded by their keys"));
        }
        if self.recipe.chat.may_be_pairs() {
            // Files beside the tokenizer may name these tokens, and only the tokenizer.json is stored.
            let TokenizerOptions { bos_token, eos_token, .. } = &mut self.recipe.tokenization;
            let info = self.tokenizer.info();
            let named = |token: &Option<SpecialToken>| token.as_ref().map(|token| token.token.clone());
            if info.sha256.is_some() {
                *eos_token = eos_token.take().or_else(|| named(&info.eos));
                if self.recipe.chat.pair_bos == PairBos::Add {
                    *bos_token = bos_token.take().or_else(|| named(&info.bos));
                }
            }
        }
        self.recipe = self.recipe.complete();
        if self.input == TextInput::Stdin {
            match self.recipe.input_format.map(|kind| kind.format) {
                None => {
                    return Err(Error::usage(
                        "the format of standard input is unknown, because it has no file name",
                    )
                    .help("give it with `input_format`: jsonl, txt, csv.gz, …"));
                }
                Some(format) => source_of(format).check_stdin()?,
            }
            if self.recipe.multimodal.is_given() {
                return Err(Error::usage(
                    "`images_field` reads the sources twice, but standard input can only be read once",
                )
                .help("write it to a file first"));
            }
            if self.recipe.dedup.is_some() {
                return Err(Error::usage(
                    "`dedup` reads the sources twice, but standard input can only be read once",
                )
                .help("write it to a file first"));
            }
            if self.sources.len() != 1 {
                return Err(Error::usage("standard input cannot be combined with other sources")
                    .help("give - or files, not both"));
            }
        }
        Ok(self)
    }

    /// Returns the options as the manifest has them. `exclude` is the fact about excluded datasets.
    pub(super) fn described(
        &self,
        exclude: Option<(&'static str, serde_json::Value)>,
    ) -> Result<serde_json::Value> {
        let info = self.tokenizer.info();
        let reference =
            serde_json::to_value(&info.reference).map_err(|e| Error::not_serialized("the options", e))?;
        let mut facts = match self.recipe.ids.without_tokenizer {
            true => vec![("tokenizer", json!("none"))],
            false => {
                let name = info.sha256.as_deref().unwrap_or("bytes");
                vec![("tokenizer", json!(name)), ("reference", reference)]
            }
        };
        match self.input {
            TextInput::Walk => {}
            // The list itself is in the plan, file by file.
            TextInput::FilesFrom(_) => facts.push(("files_from", json!(true))),
            TextInput::Stdin => facts.push(("stdin", json!(true))),
        }
        facts.extend(exclude);
        described(&self.recipe, facts)
    }
}
