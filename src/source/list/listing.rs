//! What the sources contain.

use super::file_list::FileList;
use super::skipped::SkippedTypes;
use crate::printable::printable;
use crate::schema::Kind;
use crate::warning::Warning;

/// Files found in sources.
#[derive(Debug, Default)]
pub struct Listing {
    /// Files that pass the filter, in order: sources as given, files by path.
    pub files: FileList,
    /// Skipped files: excluded by the filter, hidden, links that are not followed, sockets and devices.
    pub skipped: SkippedTypes,
    /// URLs of objects that are skipped because their keys are not valid paths. They are also counted in `skipped`.
    pub unusable: Vec<String>,
    /// Origin of the first archive that was left out because of items beside archives.
    pub left_out: Option<String>,
}

impl Listing {
    /// Returns the warning about objects whose keys are not valid paths, if there are any.
    pub fn unusable_keys(&self) -> Option<Warning> {
        let (objects, example) = (self.unusable.len(), self.unusable.first()?);
        let what = match objects {
            1 => "object is left out because its key is not a valid path",
            _ => "objects are left out because their keys are not valid paths",
        };
        let message = format!("{objects} {what}, such as {}", printable(example));
        Some(Warning::new("keys-skipped", message).with("objects", objects).with("example", example))
    }

    /// Returns the warning about archives that were left out because of files of this `kind` beside them, if there are any.
    pub fn skipped_archives(&mut self, kind: Kind) -> Option<Warning> {
        let example = self.left_out.take()?;
        let what = match kind {
            Kind::Images => "archives next to images",
            Kind::Text => "zip archives next to text",
            Kind::Records => "archives",
        };
        let message = format!(
            "{what} are not read, such as {}; name one as a source to convert it",
            printable(&example)
        );
        Some(Warning::new("archives-skipped", message).with("kind", kind).with("example", example))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_that_are_no_paths_are_a_warning() {
        let warning = |keys: &[&str]| {
            let unusable = keys.iter().map(|key| format!("s3://bucket/{key}")).collect();
            Listing { unusable, ..Listing::default() }.unusable_keys()
        };
        assert_eq!(warning(&[]), None);
        for (keys, message, json) in [
            (
                &["a//b"][..],
                "1 object is left out because its key is not a valid path, such as s3://bucket/a//b",
                r#"{"code":"keys-skipped","objects":1,"example":"s3://bucket/a//b"}"#,
            ),
            (
                &["a\nb", "c/../d"],
                "2 objects are left out because their keys are not valid paths, such as s3://bucket/a\\nb",
                r#"{"code":"keys-skipped","objects":2,"example":"s3://bucket/a\nb"}"#,
            ),
        ] {
            let warning = warning(keys).unwrap();
            assert_eq!(warning.to_string(), message);
            assert_eq!(serde_json::to_string(&warning).unwrap(), json);
            assert!(warning.remedies.is_empty());
        }
    }
}
