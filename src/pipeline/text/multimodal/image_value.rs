//! Values of images in JSON: paths, bytes as Base64, and data URIs.

use serde_json::value::RawValue;

use super::chat_images::Members;
use crate::sample::{Reject, RejectCode};

/// Longest path, in bytes. A longer text is Base64.
const MAX_PATH_BYTES: usize = 4096;

/// An image as a row has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::pipeline::text) enum ImageValue {
    /// A path, relative to the folder of the file.
    Path(String),
    /// Base64.
    Base64(String),
}

/// Returns the values in a field: one, or a list.
pub(super) fn listed_values(field: &RawValue) -> Result<Vec<ImageValue>, Reject> {
    let json = field.get();
    if json.starts_with('[') {
        let items: Vec<Option<&RawValue>> = serde_json::from_str(json).map_err(|_| wrong())?;
        let read = |item: Option<&RawValue>| match item.map(|item| value_of("image", item)) {
            Some(Ok(Some(value))) => Ok(value),
            Some(Err(reject)) => Err(reject),
            _ => Err(Reject::new(RejectCode::InvalidValue, "an image of the list is null or empty")),
        };
        return items.into_iter().map(read).collect();
    }
    // Tables without nested types have a list as text.
    if json.starts_with("\"[")
        && let Ok(text) = serde_json::from_str::<String>(json)
        && let Ok(list) = serde_json::from_str::<Box<RawValue>>(&text)
        && list.get().starts_with('[')
    {
        return listed_values(&list);
    }
    Ok(value_of("image", field)?.into_iter().collect())
}

/// Returns the value of the member `name`; `None` if it is null or empty.
pub(super) fn value_of(name: &str, value: &RawValue) -> Result<Option<ImageValue>, Reject> {
    let json = value.get();
    if json == "null" {
        return Ok(None);
    }
    if json.starts_with('"') {
        let text: String = serde_json::from_str(json).map_err(|_| wrong())?;
        return match (text.is_empty(), name) {
            (true, _) => Ok(None),
            (false, "base64" | "bytes" | "data") => base64(text).map(Some),
            _ => of_text(text).map(Some),
        };
    }
    let members: Members<'_> = serde_json::from_str(json).map_err(|_| wrong())?;
    // Bytes win over a path, which may be only a name.
    for name in ["bytes", "base64", "data", "path", "url", "image", "image_url"] {
        if let Some(value) = members.get(name)
            && value.get().starts_with('"')
            && let Some(value) = value_of(name, value)?
        {
            return Ok(Some(value));
        }
    }
    Err(wrong())
}

fn of_text(text: String) -> Result<ImageValue, Reject> {
    if let Some(path) = text.strip_prefix("file://") {
        return Ok(ImageValue::Path(path.to_owned()));
    }
    if text.starts_with("data:") || text.len() > MAX_PATH_BYTES {
        return base64(text);
    }
    let is_scheme = |scheme: &str| {
        !scheme.is_empty()
            && scheme.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.'))
    };
    match text.split_once("://") {
        Some((scheme, _)) if is_scheme(scheme) => {
            let message = format!(
                "images are not downloaded; {scheme}:// is not read: save the image as a file, and name it"
            );
            Err(Reject::new(RejectCode::Unsupported, message))
        }
        _ => Ok(ImageValue::Path(text)),
    }
}

/// Returns Base64, which may be in a data URI.
fn base64(text: String) -> Result<ImageValue, Reject> {
    match text.strip_prefix("data:") {
        None => Ok(ImageValue::Base64(text)),
        Some(rest) => match rest.split_once(',') {
            Some((head, data)) if head.ends_with(";base64") => Ok(ImageValue::Base64(data.to_owned())),
            _ => Err(Reject::new(RejectCode::Unsupported, "a data URI of an image is not Base64")),
        },
    }
}

fn wrong() -> Reject {
    Reject::new(
        RejectCode::WrongType,
        "the value of an image is neither a path, bytes nor an object with one of them",
    )
}
