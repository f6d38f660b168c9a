//! The chat templates of a model, in the files that `transformers` reads: `chat_template.jinja`,
//! `additional_chat_templates/NAME.jinja`, and the member `chat_template` of `chat_template.json` or
//! `tokenizer_config.json`. Its special tokens are members of `tokenizer_config.json` or `special_tokens_map.json`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

use super::hub::{self, HubCache};
use super::{config, has_extension};
use crate::error::{Error, Result};
use crate::manifest::MANIFEST_NAME;
use crate::reader::Dataset;
use crate::recipe::{ChatTemplateSource, DEFAULT_TEMPLATE, Recorded, TextRecipe};
use crate::source::io::planned::read_file;
use crate::storage::{folder_of, stat};

const TEMPLATE_FILE: &str = "chat_template.jinja";
const MORE_TEMPLATES: &str = "additional_chat_templates";
/// Files with the member `chat_template`; the first one that has it decides.
const JSON_FILES: [&str; 2] = ["chat_template.json", "tokenizer_config.json"];
/// Named special tokens, which `transformers` passes to templates.
const SPECIAL_TOKENS: [&str; 7] =
    ["bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"];
/// Maximum size of a template, in bytes.
const MAX_BYTES: usize = 4 << 20;

/// Finds the chat templates called `name`: a Jinja file, a JSON file, a folder, a dataset of chats, or a model in the local
/// Hugging Face cache. Without a name, those beside the tokenizer, if there are any. `tokenizer` is the path of the
/// tokenizer.
///
/// # Errors
///
/// If `name` has no template, or if a file is damaged.
pub(crate) fn find(name: Option<&str>, tokenizer: Option<&Path>) -> Result<Option<ChatTemplateSource>> {
    let beside = tokenizer.map(folder_of);
    let Some(name) = name else {
        let Some(folder) = beside else { return Ok(None) };
        return Ok(match templates_in(folder)? {
            Some(templates) => {
                Some(ChatTemplateSource { templates, special_tokens: special_tokens(&[folder])? })
            }
            None => None,
        });
    };
    let path = match stat(Path::new(name))? {
        Some(_) => PathBuf::from(name),
        None if HubCache::is_model(name) => hub::snapshot(&HubCache::of_process().folder(name))?
            .ok_or_else(|| not_found(Path::new(name), "there is no such file, folder or cached model"))?,
        None => return Err(not_found(Path::new(name), "there is no such file or folder")),
    };
    let is_folder = stat(&path)?.is_some_and(|meta| meta.is_dir());
    if is_folder && stat(&path.join(MANIFEST_NAME))?.is_some() {
        let recipe = Recorded::<TextRecipe>::of(Dataset::open(&path)?.manifest())?.recipe;
        let template = recipe.chat.chat_template;
        return template
            .map(Some)
            .ok_or_else(|| not_found(&path, "the dataset was made without a chat template"));
    }
    let (folder, templates) = match is_folder {
        true => {
            // The folder of a model in the cache.
            let folder = hub::snapshot(&path)?.unwrap_or(path);
            let templates = templates_in(&folder)?;
            (folder, templates)
        }
        false => (folder_of(&path).to_path_buf(), templates_of_file(&path)?),
    };
    let templates = templates.ok_or_else(|| not_found(Path::new(name), "there is no chat template"))?;
    let folders: Vec<&Path> = [&*folder].into_iter().chain(beside).collect();
    Ok(Some(ChatTemplateSource { templates, special_tokens: special_tokens(&folders)? }))
}

fn not_found(path: &Path, what: &str) -> Error {
    Error::usage(what).of_option("chat_template").at_path(path).help(
        "name a Jinja file, a tokenizer_config.json, or a folder with a chat_template.jinja or a tokenizer_config.json; to \
         save the template of a model: AutoTokenizer.from_pretrained(…).save_pretrained('DIR')",
    )
}

/// Returns the templates of a folder, as `transformers` chooses them: Jinja files replace those in JSON files.
fn templates_in(folder: &Path) -> Result<Option<BTreeMap<String, String>>> {
    let mut templates = BTreeMap::new();
    let file = folder.join(TEMPLATE_FILE);
    if stat(&file)?.is_some() {
        templates.insert(DEFAULT_TEMPLATE.to_owned(), template_text(&file)?);
    }
    let more = folder.join(MORE_TEMPLATES);
    if stat(&more)?.is_some_and(|meta| meta.is_dir()) {
        for name in hub::names_in(&more)? {
            if let Some(stem) = name.strip_suffix(".jinja") {
                templates.insert(stem.to_owned(), template_text(&more.join(&name))?);
            }
        }
    }
    for name in JSON_FILES {
        if templates.is_empty() {
            templates = templates_in_json(&folder.join(name))?.unwrap_or_default();
        }
    }
    Ok((!templates.is_empty()).then_some(templates))
}

fn templates_of_file(path: &Path) -> Result<Option<BTreeMap<String, String>>> {
    match has_extension(path, "json") {
        true => templates_in_json(path),
        false => Ok(Some(BTreeMap::from([(DEFAULT_TEMPLATE.to_owned(), template_text(path)?)]))),
    }
}

fn template_text(path: &Path) -> Result<String> {
    let unusable = |what: String| {
        Error::usage(what).of_option("chat_template").at_path(path).help("name a Jinja template in UTF-8")
    };
    let bytes = read_file(path)?;
    if bytes.len() > MAX_BYTES {
        return Err(unusable(format!("the file has more than {MAX_BYTES} bytes")));
    }
    String::from_utf8(bytes).map_err(|e| unusable(format!("the file is not UTF-8: {e}")))
}

/// Returns the templates in the member `chat_template` of a JSON file: one text, a list of objects with `name` and
/// `template`, or an object.
fn templates_in_json(path: &Path) -> Result<Option<BTreeMap<String, String>>> {
    let invalid = || {
        Error::usage("\"chat_template\" is neither a text, a list of objects with \"name\" and \"template\", nor an object of texts")
            .at_path(path)
            .help("repair the file, or name a Jinja file with `chat_template`")
    };
    let text = |value: &Value| value.as_str().map(str::to_owned).ok_or_else(invalid);
    Ok(Some(match config::object(path)?.as_ref().and_then(|config| config.get("chat_template")) {
        None | Some(Value::Null) => return Ok(None),
        Some(Value::String(template)) => BTreeMap::from([(DEFAULT_TEMPLATE.to_owned(), template.clone())]),
        Some(Value::Object(templates)) => templates
            .iter()
            .map(|(name, template)| Ok((name.clone(), text(template)?)))
            .collect::<Result<_>>()?,
        Some(Value::Array(templates)) => {
            let named = |entry: &Value| Some((text(entry.get("name")?), text(entry.get("template")?)));
            let entry = |entry| {
                let (name, template) = named(entry).ok_or_else(invalid)?;
                Ok((name?, template?))
            };
            templates.iter().map(entry).collect::<Result<_>>()?
        }
        Some(_) => return Err(invalid()),
    }))
}

/// Returns the special tokens that the configuration in the first of `folders` that has one names.
fn special_tokens(folders: &[&Path]) -> Result<Map<String, Value>> {
    for folder in folders {
        for file in config::FILES {
            let Some(config) = config::object(&folder.join(file))? else { continue };
            let token = |name: &str| {
                let value = config.get(name)?;
                let token = value.get("content").unwrap_or(value).as_str();
                // A name without a token is known to have none.
                Some((name.to_owned(), token.map_or(Value::Null, Value::from)))
            };
            let tokens: Map<_, _> = SPECIAL_TOKENS.into_iter().filter_map(token).collect();
            if !tokens.is_empty() {
                return Ok(tokens);
            }
        }
    }
    Ok(Map::new())
}

/// Completes the special tokens of `template` with those that options name, and refuses a template that prints one that is
/// unknown.
///
/// # Errors
///
/// [`ErrorKind::Usage`](crate::error::ErrorKind) if the template names `bos_token` or `eos_token`, which is unknown.
pub(crate) fn with_tokens(
    mut template: ChatTemplateSource,
    given: [(&'static str, Option<&str>); 2],
    is_argument: impl Fn(&str) -> bool,
) -> Result<ChatTemplateSource> {
    for (name, token) in given {
        if let Some(token) = token {
            template.special_tokens.insert(name.to_owned(), token.into());
        }
        let is_named = template.templates.values().any(|source| source.contains(name));
        if is_named && !template.special_tokens.contains_key(name) && !is_argument(name) {
            return Err(Error::usage(format!("the chat template prints {name}, which is unknown"))
                .of_option("chat_template")
                .help(format!("name it with `{name}`, or use a folder with a tokenizer_config.json")));
        }
    }
    // As in transformers, where tokens that a model does not have are undefined.
    template.special_tokens.retain(|_, token| !token.is_null());
    Ok(template)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use serde_json::json;

    use super::*;

    fn write(path: &Path, json: &Value) {
        fs::write(path, json.to_string()).unwrap();
    }

    #[test]
    fn files_are_read_as_transformers_does() {
        let dir = tempfile::tempdir().unwrap();
        let tokenizer = dir.path().join("tokenizer.json");
        assert_eq!(find(None, Some(&tokenizer)).unwrap(), None);
        let config = dir.path().join("tokenizer_config.json");
        write(
            &config,
            &json!({"bos_token": null, "eos_token": {"content": "</s>"}, "chat_template": "{{ 1 }}"}),
        );
        let found = find(None, Some(&tokenizer)).unwrap().unwrap();
        assert_eq!(found.templates["default"], "{{ 1 }}");
        assert_eq!(Value::from(found.special_tokens), json!({"bos_token": null, "eos_token": "</s>"}));
        let list = json!([{"name": "default", "template": "a"}, {"name": "tool_use", "template": "b"}]);
        write(&config, &json!({"chat_template": list}));
        let named = |name: &Path| find(name.to_str(), None).unwrap().unwrap().templates;
        let two =
            BTreeMap::from([("default".to_owned(), "a".to_owned()), ("tool_use".to_owned(), "b".to_owned())]);
        assert_eq!(named(&config), two);
        assert_eq!(named(dir.path()), two);
        fs::write(dir.path().join(TEMPLATE_FILE), "c").unwrap();
        fs::create_dir(dir.path().join(MORE_TEMPLATES)).unwrap();
        fs::write(dir.path().join(MORE_TEMPLATES).join("rag.jinja"), "d").unwrap();
        let files =
            BTreeMap::from([("default".to_owned(), "c".to_owned()), ("rag".to_owned(), "d".to_owned())]);
        assert_eq!(named(dir.path()), files);
        for wrong in [json!({"chat_template": 5}), json!({"chat_template": [{"name": "x"}]}), json!([1])] {
            write(&config, &wrong);
            assert!(find(config.to_str(), None).is_err(), "{wrong}");
        }
        write(&config, &json!({"eos_token": "x"}));
        assert!(find(config.to_str(), None).unwrap_err().to_string().contains("no chat template"));
        assert!(find(Some("does/not/exist.jinja"), None).is_err());
    }

    #[test]
    fn a_template_never_prints_an_unknown_token_as_nothing() {
        let template = |tokens: &Value| ChatTemplateSource {
            templates: BTreeMap::from([("default".to_owned(), "{{ bos_token }}x".to_owned())]),
            special_tokens: tokens.as_object().unwrap().clone(),
        };
        let complete = |tokens: &Value, bos| {
            with_tokens(template(tokens), [("bos_token", bos), ("eos_token", None)], |_| false)
                .map(|template| Value::from(template.special_tokens))
        };
        assert!(complete(&json!({}), None).unwrap_err().to_string().contains("prints bos_token"));
        assert_eq!(complete(&json!({}), Some("<s>")).unwrap(), json!({"bos_token": "<s>"}));
        assert_eq!(complete(&json!({"bos_token": null}), None).unwrap(), json!({}));
        assert_eq!(complete(&json!({"bos_token": "a"}), Some("b")).unwrap(), json!({"bos_token": "b"}));
    }
}
