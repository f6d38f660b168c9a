//! The configuration files of `transformers` beside a tokenizer, which name its BOS and EOS tokens.

use std::path::Path;

use dsconvert_tokens::{ConfigToken, ConfigTokens};
use serde_json::{Map, Value};

use super::FILE_NAMES;
use crate::error::{Error, Result};
use crate::source::io::planned::read_file;
use crate::storage::{folder_of, stat};

/// The configuration files; the first one that names a token decides.
pub(super) const FILES: [&str; 2] = ["tokenizer_config.json", "special_tokens_map.json"];
/// Maximum size of a configuration file.
const MAX_BYTES: u64 = 64 << 20;

/// Reads a configuration file; `None` if there is none.
///
/// # Errors
///
/// If it is not a JSON object.
pub(super) fn object(path: &Path) -> Result<Option<Map<String, Value>>> {
    let Some(meta) = stat(path)? else { return Ok(None) };
    if meta.len() > MAX_BYTES {
        return Err(invalid(path, &format!("the file has more than {MAX_BYTES} bytes")));
    }
    match serde_json::from_slice(&read_file(path)?) {
        Ok(Value::Object(object)) => Ok(Some(object)),
        Ok(_) => Err(invalid(path, "the file is not a JSON object")),
        Err(e) => Err(invalid(path, "the file is not JSON").caused_by(e)),
    }
}

fn invalid(path: &Path, problem: &str) -> Error {
    Error::usage(format!("{problem}, so its BOS and EOS tokens are unknown"))
        .at_path(path)
        .help("repair or remove the file, or name the tokens with `bos_token` and `eos_token`")
}

/// Returns the tokens that the files beside the tokenizer at `path` name. A tokenizer whose name is not the usual one may
/// not be the one that they describe, so nothing is read for it.
///
/// # Errors
///
/// If a file is not a JSON object with names of tokens.
pub(super) fn tokens_beside(path: &Path) -> Result<ConfigTokens> {
    let mut tokens = ConfigTokens::default();
    if !path.file_name().is_some_and(|name| FILE_NAMES.iter().any(|usual| name == *usual)) {
        return Ok(tokens);
    }
    for file in FILES {
        let path = folder_of(path).join(file);
        let Some(json) = object(&path)? else { continue };
        for (name, found) in [("bos_token", &mut tokens.bos), ("eos_token", &mut tokens.eos)] {
            let Some(value) = json.get(name) else { continue };
            let token = match value.get("content").unwrap_or(value) {
                Value::Null => None,
                Value::String(token) => Some(token.clone()),
                _ => {
                    let problem =
                        format!("{name:?} is neither a string, an object with \"content\", nor null");
                    return Err(invalid(&path, &problem));
                }
            };
            match (&mut *found, token) {
                (Some(ConfigToken { token: Some(first), contradiction, .. }), Some(token)) => {
                    if *first != token {
                        *contradiction = Some((file.to_owned(), token));
                    }
                }
                (Some(_), None) => {}
                (_, token) => {
                    *found = Some(ConfigToken { file: file.to_owned(), token, contradiction: None })
                }
            }
        }
    }
    Ok(tokens)
}
