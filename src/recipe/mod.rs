//! The recipe of a conversion: every option that affects the dataset, in one struct per kind of conversion.
//!
//! The command line sets a recipe through its definitions, and `--like` and `inspect --recipe` show it with them. Its
//! serde form is the member `options` of a manifest and of stored jobs. Where planning replaces an option by what
//! it finds, such as the fields of samples, the manifest has a recipe with these values; facts that are not options, such
//! as the hash of the tokenizer, are added to it.

mod chat;
mod companion;
mod ids;
mod images;
mod multimodal;
mod preference;
mod text;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

pub use self::chat::{Alpaca, ChatRecipe, ChatTemplateSource, PairBos, SpecialInContent, TemplateArgs};
pub(crate) use self::chat::{DEFAULT_TEMPLATE, TOOL_TEMPLATE};
pub use self::companion::{Companion, PathPattern};
pub use self::ids::{Eod, IdsRecipe};
pub(crate) use self::images::{ANNOTATIONS, is_reserved};
pub use self::images::{AutoList, Dedup, ImageFields, ImagesRecipe, ListItem, ListedImage, Sidecars};
pub use self::multimodal::{MultimodalRecipe, StoredImages};
pub use self::preference::Seam;
pub use self::text::{
    DEFAULT_MAX_DOCUMENT_BYTES, DEFAULT_TEXT_FIELD, InvalidUtf8, LengthRange, MAX_PACK_TOKENS, Overflow,
    TextDedup, TextRecipe, TextShape,
};
use crate::error::{Error, ErrorKind, Result};
use crate::manifest::Manifest;
use crate::options::Defined;
use crate::schema::Kind;
use crate::source::items::metadata::columns::Keep;

/// Fact: the fingerprints of the datasets whose items were left out. Also the name of the option that names them.
pub(crate) const EXCLUDE: &str = "exclude";

/// Every option of one kind of conversion that affects the dataset.
pub trait Recipe: Defined + Default + Clone + PartialEq + Serialize + DeserializeOwned + 'static {
    /// The kind of conversion.
    const KIND: Kind;
    /// The order of the options, and of the facts among them, in the manifests of the first datasets: fingerprints depend
    /// on it. Later options follow in the order of their definition, so nothing is ever added here.
    const FIRST: &'static [&'static str];

    /// Separates the facts in the options of a manifest from those of the recipe, and returns how files were found.
    fn take_facts(&mut self, facts: Map<String, Value>) -> Result<RecordedInput>;

    /// Names of the members of a manifest's options that are facts or have another form than in the recipe.
    const FACTS: &'static [&'static str];
}

/// How the files of a dataset were found, as its manifest records it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RecordedInput {
    /// The sources were walked.
    Walk,
    /// The sources were walked, and no metadata file beside the images named them.
    WalkOnly,
    /// A list named the files.
    FilesFrom,
    /// The rows of a table named the files.
    Table {
        /// Name of the path column.
        path_field: String,
        /// Columns that became fields; `None`: all.
        keep_fields: Option<Vec<Keep>>,
    },
    /// The sources were walked, and the images had annotations.
    Annotations,
    /// The source was standard input.
    Stdin,
}

/// The recipe of an existing dataset.
#[derive(Debug, Clone, PartialEq)]
pub struct Recorded<R> {
    /// Its options, with what planning found in place of `auto`.
    pub recipe: R,
    /// How its files were found.
    pub input: RecordedInput,
    /// Fingerprints of the datasets whose items were left out.
    pub exclude: Vec<String>,
}

impl<R: Recipe> Recorded<R> {
    /// Reads the recipe of the dataset with this manifest.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Usage`] if the dataset is of another kind; [`ErrorKind::Unsupported`] if this build does not have one of
    /// its options, or cannot read a value.
    pub fn of(manifest: &Manifest) -> Result<Self> {
        if manifest.kind() != R::KIND {
            let (found, wanted) = (manifest.kind().name(), R::KIND.name());
            let error = Error::usage(format!("the dataset holds {found}, not {wanted}"));
            return Err(match manifest.kind() {
                Kind::Records => error.help("a program wrote it, and no command makes such a dataset"),
                _ => error.help(format!("convert with `dsconvert {found}`")),
            });
        }
        let Value::Object(options) = &manifest.options else {
            return Err(Error::new(ErrorKind::Unsupported, "the options in the manifest are not an object"));
        };
        let exclude = manifest.options[EXCLUDE].as_array().into_iter().flatten();
        let exclude = exclude.filter_map(Value::as_str).map(str::to_owned).collect();
        let is_fact = |name: &str| R::FACTS.contains(&name);
        let (facts, options): (Map<_, _>, Map<_, _>) =
            options.clone().into_iter().partition(|(name, _)| is_fact(name));
        let mut recipe: R = read(options)?;
        let input = recipe.take_facts(facts)?;
        Ok(Self { recipe, input, exclude })
    }
}

/// Reads options; an error names the first one that cannot be read.
fn read<R: DeserializeOwned>(options: Map<String, Value>) -> Result<R> {
    let parse = |options: Value| serde_json::from_value::<R>(options);
    parse(Value::Object(options.clone())).map_err(|error| {
        let of_group = |(group, members): (&String, &Value)| -> Vec<(String, Value)> {
            let inside = |(name, value): (&String, &Value)| {
                (name.clone(), serde_json::json!({ group: { name: value } }))
            };
            match members {
                Value::Object(members) => members.iter().map(inside).collect(),
                value => vec![(group.clone(), serde_json::json!({ group: value }))],
            }
        };
        let wrong = options
            .iter()
            .flat_map(of_group)
            .find_map(|(name, alone)| parse(alone).err().map(|error| (name, error)));
        let (name, error) = wrong.unwrap_or_else(|| (String::new(), error));
        match error.to_string().starts_with("unknown field") {
            true => {
                not_recorded(format!("it was made with the option {name:?}, which this build does not have"))
            }
            false => unexpected_value(&name).caused_by(error),
        }
    })
}

fn unexpected_value(option: &str) -> Error {
    not_recorded(format!("the manifest has an unexpected value of the option {option:?}"))
}

/// Returns the error for a recipe that the manifest does not have completely.
fn not_recorded(why: String) -> Error {
    Error::new(ErrorKind::Unsupported, why)
}

/// Returns the options as the manifest has them: those of `recipe`, and `facts`.
pub(crate) fn described<R: Recipe>(recipe: &R, facts: Vec<(&'static str, Value)>) -> Result<Value> {
    let recipe = serde_json::to_value(recipe).map_err(|e| Error::not_serialized("the options", e))?;
    let Value::Object(mut all) = recipe else { return Err(Error::internal("a recipe is not an object")) };
    all.extend(facts.into_iter().map(|(name, value)| (name.to_owned(), value)));
    let mut ordered = Map::new();
    for name in R::FIRST {
        // Keeps the order of the rest.
        ordered.extend(all.shift_remove_entry(*name));
    }
    ordered.append(&mut all);
    Ok(Value::Object(ordered))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::{Definition, Input};

    /// Another value of each option than the default, by name. A new option needs one here.
    const OTHER: &[(&str, &str)] = &[
        ("add_bos", "true"),
        ("add_eos", "true"),
        ("add_special_tokens", "true"),
        ("allow_nul", "true"),
        ("allow_unknown_markers", "true"),
        ("animated", "reject"),
        ("background", "#102030"),
        ("baseline", "true"),
        ("bos_token", "<s>"),
        ("buckets", "area:64x64,step:8,max-ratio:2"),
        ("color", "gray"),
        ("companion", "mask=masks/{stem}.png:mask"),
        ("config", "main"),
        ("completion_field", "answer"),
        ("crop", "center:24x32"),
        ("documents", "separator:\\n--\\n"),
        ("encode", "jpeg:80:444"),
        ("encoding", "shift_jis"),
        ("engine", "reference"),
        ("enlarge", "true"),
        ("eos_token", "</s>"),
        ("filter", "box"),
        ("final_stop", "<|end|>"),
        ("filter_length", "4:9"),
        ("follow_symlinks", "true"),
        ("format", "arrow"),
        ("history_thinking", "keep"),
        ("eod", "strip:</s>"),
        ("icc", "drop"),
        ("ids_field", "input_ids"),
        ("keep_packs", "true"),
        ("labels_field", "labels"),
        ("mask_field", "completion_mask,assistant_masks"),
        ("trim_padding", "true"),
        ("vocab_size", "50304"),
        ("weights_field", "weights"),
        ("image_arg", "max_pixels=1003520"),
        ("image_fields", "image=rgb.png,seg=seg.png:mask"),
        ("images", "fit"),
        ("images_field", "pictures"),
        ("input_format", "jsonl.gz"),
        ("invalid_utf8", "replace"),
        ("join_parts", "\\n"),
        ("keep_fields", "n=a:int64,b"),
        ("key_field", "id"),
        ("label_field", "class"),
        ("layout", "flat"),
        ("lenient", "true"),
        ("list_fields", "caption,tag"),
        ("keep_metadata", "true"),
        ("alpaca", "pair"),
        ("pair_bos", "none"),
        ("system_field", "persona"),
        ("max_aspect", "2.5"),
        ("max_document_bytes", "3MiB"),
        ("max_length", "16"),
        ("max_pixels", "1000"),
        ("max_reference_bytes", "2MiB"),
        ("messages_field", "chat"),
        ("min_bucket", "3"),
        ("min_pixels", "10"),
        ("min_size", "4"),
        ("normalize", "nfkc"),
        ("not_rendered", "allow"),
        ("now", "2026-11-27T12:00:00"),
        ("overflow", "split:4"),
        ("pack", "512"),
        ("packing", "concat"),
        ("pack_patches", "4096"),
        ("pad", "40x40:#808080"),
        ("prompt_field", "question"),
        ("chosen_field", "better"),
        ("rejected_field", "worse"),
        ("label_field", "good"),
        ("seam", "error"),
        ("prompt_only", "true"),
        ("resize", "exact:30x40"),
        ("restart_interval", "4"),
        ("seed", "7"),
        ("shard_bytes", "8KiB"),
        ("shard_records", "3"),
        ("shuffle", "true"),
        ("sidecar", "txt,caption"),
        ("special_in_content", "text,assistant=error"),
        ("special_in_text", "parse"),
        ("split", "train=0.5,test=0.5"),
        ("split_by", "author"),
        ("template_arg", "a=1,b=\"x,y\""),
        ("template_name", "rag"),
        ("text_field", "body"),
        ("tools_field", "functions"),
        ("train_on", "last"),
        ("train_parts", "content,tool_calls"),
        ("unit_bytes", "16KiB"),
        ("verify_ids", "all"),
    ];

    /// The other value of an option.
    fn other<R: Recipe>(option: &Definition<R>) -> &'static str {
        match (option.name, R::KIND) {
            ("dedup", Kind::Images) => "bytes",
            ("dedup", Kind::Text) => "exact",
            ("format", Kind::Text) => "parquet",
            (name, _) => OTHER.iter().find(|(other, _)| *other == name).expect(name).1,
        }
    }

    /// Sets each option alone and all together, and checks that nothing is lost in the text form, in JSON and in the
    /// options of a manifest.
    fn check<R: Recipe + std::fmt::Debug>(facts: Vec<(&'static str, Value)>) {
        let read = |options: &Value| -> R {
            let Value::Object(options) = options.clone() else { panic!("{options}") };
            let options = options.into_iter().filter(|(name, _)| !R::FACTS.contains(&name.as_str()));
            super::read(options.collect()).unwrap()
        };
        let survives = |recipe: &R| {
            let json = serde_json::to_string(recipe).unwrap();
            assert_eq!(serde_json::from_str::<R>(&json).unwrap(), *recipe, "{json}");
            let options = described(recipe, facts.clone()).unwrap();
            assert_eq!(read(&options), *recipe, "{options}");
            assert_eq!(described(&read(&options), facts.clone()).unwrap().to_string(), options.to_string());
        };
        let default = R::default();
        survives(&default);
        let mut all = default.clone();
        for option in R::definitions() {
            let (mut one, text) = (default.clone(), other(&option));
            option.set(&mut one, text).unwrap();
            assert_ne!(one, default, "{}", option.name);
            assert_eq!(option.get(&one).as_deref(), Some(text), "{}", option.name);
            survives(&one);
            option.set(&mut all, text).unwrap();
            assert!(option.input == Input::Flag || !option.value.is_empty(), "{}", option.name);
            assert!(!option.help[0].trim().is_empty(), "{}", option.name);
        }
        survives(&all);
        for option in R::definitions() {
            assert_eq!(option.get(&all).as_deref(), Some(other(&option)), "{}", option.name);
        }
    }

    #[test]
    fn no_option_is_lost() {
        check::<TextRecipe>(vec![
            ("tokenizer", "bytes".into()),
            ("reference", Value::Null),
            ("stdin", true.into()),
        ]);
        check::<ImagesRecipe>(vec![("files_from", true.into())]);
        let classes = Some(vec!["b".to_owned(), "a".to_owned()]);
        let recipe = ImagesRecipe {
            classes,
            image_fields: ImageFields::None,
            sidecar: Sidecars::None,
            ..Default::default()
        };
        let json = serde_json::to_string(&recipe).unwrap();
        assert_eq!(serde_json::from_str::<ImagesRecipe>(&json).unwrap(), recipe);
    }

    #[test]
    fn the_order_in_manifests_never_changes() {
        let names =
            |options: &Value| options.as_object().unwrap().keys().cloned().collect::<Vec<_>>().join(" ");
        let facts = vec![("tokenizer", Value::Null), ("reference", Value::Null)];
        let text = TextRecipe { max_length: Some(4), dedup: Some(TextDedup::Exact), ..TextRecipe::default() };
        assert_eq!(
            names(&described(&text.complete(), facts).unwrap()),
            "text_field key_field max_document_bytes follow_symlinks tokenizer tokenization reference output max_length \
             overflow dedup"
        );
        let images = ImagesRecipe { dedup: Some(Dedup::Bytes), ..ImagesRecipe::default() };
        assert_eq!(
            names(&described(&images, vec![("metadata", Value::Null)]).unwrap()),
            "layout classes follow_symlinks image output dedup metadata"
        );
    }

    #[test]
    fn options_of_other_versions_are_named() {
        let read =
            |json: &str| read::<ImagesRecipe>(serde_json::from_str(json).unwrap()).unwrap_err().to_string();
        assert!(
            read(r#"{"layout": "flat", "sharpen": 3}"#).contains("the option \"sharpen\", which this build")
        );
        assert!(
            read(r#"{"image": {"lenient": true, "sharpen": 3}}"#).contains("\"sharpen\", which this build")
        );
        assert!(
            read(r#"{"image": {"resize": "twice"}}"#)
                .contains("an unexpected value of the option \"resize\"")
        );
    }

    /// The manifests of all versions can be read, and describe themselves.
    #[test]
    fn the_options_of_golden_datasets_are_unchanged() {
        let golden = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/golden");
        let mut count = 0;
        for version in ["v1", "v2", "v3"] {
            for entry in std::fs::read_dir(golden.join(version)).unwrap() {
                let path = entry.unwrap().path().join(crate::manifest::MANIFEST_NAME);
                let Ok(json) = std::fs::read(path) else { continue };
                let manifest: Manifest = serde_json::from_slice(&json).unwrap();
                if manifest.options.as_object().unwrap().is_empty() {
                    // Made by `DatasetWriter`, without a recipe.
                    continue;
                }
                let again = match manifest.kind() {
                    Kind::Images => {
                        let mut recorded = Recorded::<ImagesRecipe>::of(&manifest).unwrap();
                        assert_eq!(recorded.input, RecordedInput::WalkOnly);
                        assert_eq!(recorded.recipe.sidecar, Sidecars::None);
                        recorded.recipe.sidecar = Sidecars::Auto;
                        described(&recorded.recipe, Vec::new())
                    }
                    Kind::Text => {
                        let recorded = Recorded::<TextRecipe>::of(&manifest).unwrap();
                        let facts =
                            ["tokenizer", "reference"].map(|name| (name, manifest.options[name].clone()));
                        described(&recorded.recipe, facts.into())
                    }
                    Kind::Records => continue,
                };
                assert_eq!(again.unwrap().to_string(), manifest.options.to_string());
                count += 1;
            }
        }
        assert_eq!(count, 32);
    }
}
