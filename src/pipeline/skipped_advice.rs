//! Advice for sources in which nothing was found to convert, by the types of the skipped files.

use crate::schema::Kind;
use crate::source::io::compression::Compression;
use crate::source::items::text::kind::FileKind;
use crate::source::list::skipped::{LINK, SkippedTypes};

/// Advice for file types that `dsconvert images` does not read.
const ADVICE_FOR_IMAGES: &[(&[&str], &str)] = &[
    (&[".heic", ".heif"], "HEIC images cannot be decoded: convert them to JPEG or PNG first"),
    (&[".7z", ".rar"], "unpack archives first; zip and tar files are read as they are"),
    (
        &[".csv", ".tsv", ".jsonl", ".parquet"],
        "pass a table of image paths with `metadata`; text is converted by `dsconvert text`",
    ),
    (
        &[".parquet", ".arrow", ".feather", ".ipc"],
        "no column of these Parquet or Arrow files has images by declaration, structure, name or content: `image_fields NAME` \
         names one",
    ),
    (&[".txt", ".json"], "text is converted by `dsconvert text`"),
];

/// Advice for links, whatever is converted.
const ADVICE_FOR_LINKS: &str = "symbolic links are followed only with `follow_symlinks`";

/// The files beside the Arrow files of `Dataset.save_to_disk`.
const FILES_BESIDE_ARROW: &str = ".json";

/// Advice for file types that `dsconvert text` does not read.
const ADVICE_FOR_TEXT: &[(&[&str], &str)] = &[
    (
        &[".jpg", ".jpeg", ".png", ".webp", ".gif", ".bmp", ".tif", ".tiff"],
        "images are converted by `dsconvert images`",
    ),
    (
        &[".7z", ".rar", ".tar", ".tgz", ".tar.gz", ".tar.zst", ".tar.xz", ".tar.bz2"],
        "unpack archives first; zip archives are read as they are",
    ),
    (&[".zip"], "archives inside archives are not read: unpack the outer one"),
    (&[".pdf", ".docx", ".epub"], "extract the text of documents into .txt or .jsonl files first"),
];

/// Returns advice for these file types, if nothing else was found for a dataset of `kind`.
pub(super) fn advice(skipped: &SkippedTypes, kind: Kind) -> Option<String> {
    let table = match kind {
        Kind::Images => ADVICE_FOR_IMAGES,
        Kind::Text => ADVICE_FOR_TEXT,
        Kind::Records => &[],
    };
    let has = |ending: &str| skipped.counts().contains_key(ending);
    let applies = |types: &[&str]| {
        types.iter().any(|&ending| has(ending) && !(ending == FILES_BESIDE_ARROW && has(".arrow")))
    };
    let mut advice: Vec<String> =
        table.iter().filter(|(types, _)| applies(types)).map(|(_, advice)| (*advice).to_owned()).collect();
    if has(LINK) {
        advice.insert(0, ADVICE_FOR_LINKS.to_owned());
    }
    if kind == Kind::Text {
        match most_frequent(skipped, |stem| stem == ".json") {
            Some(ending) => advice.push(format!(
                "JSON files are read only when a pattern or a path names them: 'DIR/**/*{ending}'"
            )),
            None if advice.is_empty() => advice.extend(plain_text(skipped)),
            None => {}
        }
    }
    (!advice.is_empty()).then(|| advice.join("; "))
}

/// Returns advice for source code, markup and other plain text with a different extension.
fn plain_text(skipped: &SkippedTypes) -> Option<String> {
    // Files that are read without a pattern were skipped for another reason.
    let ending = most_frequent(skipped, |stem| FileKind::of_name(stem).is_none())?;
    let compression = Compression::of_name(ending).1.map_or("", Compression::extension);
    Some(format!(
        "files of other types are read only when a pattern names them: 'DIR/**/*{ending}' `input_format txt{compression}`"
    ))
}

/// Returns the most frequent extension of those that `has_stem` accepts without the extension of a compression format.
/// An extension that a shell would not take literally does not count.
fn most_frequent(skipped: &SkippedTypes, has_stem: impl Fn(&str) -> bool) -> Option<&str> {
    let is_plain = |ending: &str| {
        ending.starts_with('.')
            && ending.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-+".contains(&byte))
    };
    let endings = skipped
        .counts()
        .iter()
        .filter(|(ending, _)| is_plain(ending.as_str()) && has_stem(Compression::of_name(ending.as_str()).0));
    endings.max_by(|a, b| a.1.cmp(b.1).then(b.0.cmp(a.0))).map(|(ending, _)| ending.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn advice_covers_types_of_the_other_command_and_unsupported_types() {
        let advice = |kind, names: &[&str]| {
            let mut types = SkippedTypes::default();
            names.iter().for_each(|name| types.add(name));
            super::advice(&types, kind).unwrap_or_default()
        };
        let images = advice(Kind::Images, &["a.7z", "b.HEIC"]);
        assert!(images.contains("HEIC") && images.contains("unpack"), "{images}");
        assert!(advice(Kind::Text, &["a.jpg", "b.md"]).contains("dsconvert images"));
        assert!(advice(Kind::Text, &["b.md"]).contains("`input_format txt`"));
        let text = advice(Kind::Text, &["b.md", "c.rs.zst", "d.rs.zst", "Makefile"]);
        assert!(text.ends_with("'DIR/**/*.rs.zst' `input_format txt.zst`"), "{text}");
        let json = advice(Kind::Text, &["b.md", "c.md", "d.json.gz"]);
        assert!(json.ends_with("names them: 'DIR/**/*.json.gz'"), "{json}");
        let arrow = advice(Kind::Images, &["dataset_info.json", "data.arrow"]);
        assert!(arrow.contains("image_fields NAME") && !arrow.contains("dsconvert text"), "{arrow}");
        assert!(advice(Kind::Images, &["a.json"]).contains("dsconvert text"));
        assert_eq!(advice(Kind::Text, &["x.a'b"]), "");
        assert_eq!(advice(Kind::Text, &["Makefile"]), "");
        assert_eq!(advice(Kind::Images, &[]), "");
        assert!(advice(Kind::Text, &["a.tar.gz", "b.md"]).starts_with("unpack archives first"));
        assert_eq!(advice(Kind::Text, &["a.jsonl", "b.TXT.gz", "c.parquet"]), "");
        let mut links = SkippedTypes::default();
        links.add_link();
        assert_eq!(links.to_string(), "1 symbolic link");
        links.add_link();
        links.add_special();
        links.add(".socket");
        assert_eq!(links.to_string(), "2 symbolic links, 1 hidden, 1 special");
        for kind in [Kind::Images, Kind::Text] {
            assert_eq!(super::advice(&links, kind).unwrap(), ADVICE_FOR_LINKS);
        }
    }
}
