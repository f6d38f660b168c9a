//! The options of a conversion of images.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Value};

use super::{Companion, Recipe, RecordedInput, unexpected_value};
use crate::error::{Error, Result};
use crate::options::{Input, OptionValue, OutputOptions, is_default, option_values, options, word_choice};
use crate::schema::{FieldType, IMAGE, Kind};
use crate::source::items::metadata::columns::{Keep, KeptField, is_built_in, parse_kept};
use crate::source::list::expand::is_image_name;
use crate::source::names::layout::FolderLayout;
use crate::transform::image::ImageOptions;

options! {
    /// Every option of a conversion of images that affects the dataset.
    pub struct ImagesRecipe {
        "" {
            /// Follow symbolic links inside the sources
            [] follow_symlinks: bool = false, "";
        }
        "Sources" {
            /// Configuration of a repository of the Hugging Face Hub: the name of a set of files in its README.md
            ///
            /// A downloaded repository with several configurations is refused without it, unless one is the default. Splits are
            /// those of the configuration.
            [serde(skip_serializing_if = "is_default")]
            config: Option<String> = None, "NAME", conflicts = &["files_from"];

            /// Fields to keep, as name or name:type: columns of --metadata, Parquet or Arrow files, members of samples [default: all]
            ///
            /// Without a type, columns of parquet files keep their type; lists and objects of jsonl files become json; others are
            /// strings. In tar files with samples, a name is the part of a file name after its first dot; the default is all
            /// members of text, and name:binary keeps others. NEW=name renames a member, or a column of a Parquet or Arrow
            /// file with images.
            [serde(skip_serializing_if = "is_default")]
            keep_fields: Option<Vec<KeptField>> = None, "FIELDS";

            /// Columns whose values become lists: all rows of an image become one record
            ///
            /// Use it for several captions per image, for example. The other columns must have the same value in all rows of an
            /// image. Without this option, every row becomes a record.
            [serde(skip_serializing_if = "is_default")]
            list_fields: Vec<String> = Vec::new(), "NAME,…", conflicts = &["files_from"];

            /// Images of samples in tar files and of rows in Parquet or Arrow files: auto, none or NAME,… such as seg.png
            ///
            /// An entry is [FIELD=]NAME[:mask|:image], where NAME is the part of a file name after its first dot, or a column (of
            /// lists: name[0]). The image that is not listed is the main image; image=NAME chooses another. A mask (the default for
            /// PNG members) keeps its values, and has the size of its image. auto: all images in the first samples and rows.
            [serde(skip_serializing_if = "is_default")]
            image_fields: ImageFields = ImageFields::default(), "FIELDS", alias = Some("image-field");

            /// Masks or images in files of their own that become fields of their image: NAME=PATTERN,… such as mask=masks/{stem}.png
            ///
            /// The pattern is a path in SRC, where {stem} is the name of the image without its extension, {stem%ENDING} also
            /// without this ending, {dir} its folder, and {subdir} its folder without the first component. PNG files are masks:
            /// they keep their values, and have the size of their image; :image or :mask after the pattern says otherwise. An
            /// image without the file is rejected, or has null with ? at the end.
            [serde(skip_serializing_if = "is_default")]
            companion: Vec<Companion> = Vec::new(), "NAME=PATTERN,…";

            /// Files beside images that become fields, by extension: auto, none or EXT,… such as txt,caption
            ///
            /// a.jpg has the text of a.txt (or a.jpg.txt) in the field txt; a .json file holds JSON. Images without such a file
            /// have null. auto: .txt, .caption and .json, each if at least one image has such a file; none beside images of
            /// --files-from and --metadata FILE.
            [serde(skip_serializing_if = "is_default")]
            sidecar: Sidecars = Sidecars::default(), "auto|none|EXT,…";
        }
        "Labels" {
            /// Meaning of folder names
            ///
            /// auto: folders whose names contain the word of a split (train, val, test, ...), at any level, are splits, and the
            /// folders in them are classes; without splits, the first folders are classes; labels: the first level is the class;
            /// splits: the first level is the split, the second the class; flat: folders have no meaning.
            [] layout: FolderLayout = FolderLayout::default(), "LAYOUT";

            /// Column with the classes in a table of --metadata, or in Parquet and Arrow files with images [default: label]
            [serde(skip_serializing_if = "is_default")]
            label_field: Option<String> = None, "NAME", conflicts = &["files_from"];
        }
        "Selection" {
            /// Leave out files with the same bytes as another file; the first record is kept
            [serde(skip_serializing_if = "is_default")]
            dedup: Option<Dedup> = None, "BY";

            /// Field whose value decides the split: records with the same value are in one split [default: the key]
            ///
            /// It is one of the fields of the records, such as a column of --metadata or a member of samples.
            [serde(skip_serializing_if = "is_default")]
            split_by: Option<String> = None, "NAME", requires = Some("split");
        }
        groups {
            /// How images are decoded, changed, filtered and encoded.
            image: ImageOptions;
            /// How the records are stored.
            output: OutputOptions;
        }
        values {
            /// Class names in label order, instead of the sorted folder names. The command line reads them from a file.
            [] classes: Option<Vec<String>> = None;
        }
    }
}

/// Fact: how the table of a dataset was read, if there was one.
const METADATA: &str = "metadata";
/// Fact: the hash of the annotations of a dataset, if there were some.
pub(crate) const ANNOTATIONS: &str = "annotations";

impl Recipe for ImagesRecipe {
    const KIND: Kind = Kind::Images;
    const FIRST: &'static [&'static str] = &[
        "layout",
        "classes",
        "follow_symlinks",
        "image",
        "output",
        "dedup",
        "image_fields",
        "companion",
        "sidecar",
        "keep_fields",
        "list_fields",
        "config",
        METADATA,
        ANNOTATIONS,
        super::text::FILES_FROM,
    ];
    const FACTS: &'static [&'static str] = &[METADATA, ANNOTATIONS, super::text::FILES_FROM, super::EXCLUDE];

    fn take_facts(&mut self, facts: Map<String, Value>) -> Result<RecordedInput> {
        // What `auto` did not find is absent. New files of these names beside the sources are not part of the dataset.
        if self.sidecar == Sidecars::Auto {
            self.sidecar = Sidecars::None;
        }
        if facts.contains_key(ANNOTATIONS) {
            return Ok(RecordedInput::Annotations);
        }
        let Some(table) = facts.get(METADATA) else {
            return Ok(match facts.contains_key(super::text::FILES_FROM) {
                true => RecordedInput::FilesFrom,
                false => RecordedInput::WalkOnly,
            });
        };
        // Tables beside the images are found again the same way.
        if table.get("beside_images").is_some() {
            return Ok(RecordedInput::Walk);
        }
        #[derive(Deserialize)]
        struct Table {
            path_field: String,
            keep_fields: Option<Vec<Keep>>,
        }
        let table = Table::deserialize(table).map_err(|e| unexpected_value(METADATA).caused_by(e))?;
        Ok(RecordedInput::Table { path_field: table.path_field, keep_fields: table.keep_fields })
    }
}

impl ImagesRecipe {
    /// Refuses values without a meaning.
    pub(crate) fn check(&self) -> Result<()> {
        if self.split_by.is_some() && self.output.split.is_none() {
            return Err(Error::usage("`split_by` applies only with `split`")
                .help("add `split`, such as train=0.9,validation=0.1, or leave out `split_by`"));
        }
        self.output.check()
    }
}

option_values! { Text: ImageFields, Sidecars; }

impl OptionValue for Vec<KeptField> {
    const INPUT: Input = Input::Text;

    fn parse(text: &str) -> Result<Self> {
        parse_kept(text)
    }

    fn text(&self) -> Option<String> {
        Some(self.iter().map(KeptField::to_string).collect::<Vec<_>>().join(","))
    }
}

/// Values that are found, or that the user lists.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum AutoList<T> {
    /// Those that are found.
    #[default]
    Auto,
    /// None.
    None,
    /// These.
    Listed(Vec<T>),
}

/// An item of an [`AutoList`].
pub trait ListItem: fmt::Display + Sized {
    /// Parses a list that is neither `auto` nor `none`.
    ///
    /// # Errors
    ///
    /// If the text is not a list of such items.
    fn parse_list(text: &str) -> Result<Vec<Self>>;
}

impl<T: ListItem> FromStr for AutoList<T> {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        match text {
            "auto" => Ok(Self::Auto),
            "none" => Ok(Self::None),
            _ => T::parse_list(text).map(Self::Listed),
        }
    }
}

impl<T: fmt::Display> fmt::Display for AutoList<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::None => f.write_str("none"),
            Self::Listed(items) => f.write_str(&items.iter().map(T::to_string).collect::<Vec<_>>().join(",")),
        }
    }
}

/// In JSON, a word is a string, and a list an array.
impl<T: fmt::Display + Serialize> Serialize for AutoList<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Listed(items) => serializer.collect_seq(items),
            word => serializer.collect_str(word),
        }
    }
}

impl<'de, T: ListItem + Deserialize<'de>> Deserialize<'de> for AutoList<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum WordOr<T> {
            Word(String),
            Listed(Vec<T>),
        }
        match WordOr::deserialize(deserializer)? {
            WordOr::Word(word) => word.parse().map_err(serde::de::Error::custom),
            WordOr::Listed(items) => Ok(Self::Listed(items)),
        }
    }
}

/// Images of samples in tar files, or of rows in tables. Those that are found: all images of the first samples, and all
/// image columns. None: only the main image, and samples with two images are rejected. Otherwise, these members or columns,
/// and the image that is not listed.
pub type ImageFields = AutoList<ListedImage>;

/// A member of samples, or a column such as `images[2]`, that the user names. The name of the main image is `image`, and the
/// type is an image or a mask.
pub type ListedImage = KeptField;

impl ListItem for ListedImage {
    fn parse_list(text: &str) -> Result<Vec<Self>> {
        let invalid = |what: String| {
            Error::usage(what).help(
                "expected auto, none or [FIELD=]NAME[:mask|:image],… where NAME is a column of a table, or the part of a \
                 member's name after its first dot, as in seg.png:mask,depth=depth.png,left.jpg",
            )
        };
        let mut listed: Vec<ListedImage> = Vec::new();
        for part in text.split(',') {
            let (rest, ty) = match part.rsplit_once(':') {
                None => (part, None),
                Some((rest, "mask")) => (rest, Some(FieldType::Mask)),
                Some((rest, "image")) => (rest, Some(FieldType::Image)),
                Some((_, other)) => {
                    return Err(invalid(format!("unknown type {other:?}; expected mask or image")));
                }
            };
            let (name, member) = rest.split_once('=').map_or((None, rest), |(name, m)| (Some(name), m));
            let member = member.trim_start_matches('.');
            if member.is_empty() || name == Some("") {
                return Err(invalid(format!("{part:?} has no member name")));
            }
            if let Some(name) = name.filter(|name| is_reserved(name) && *name != IMAGE) {
                return Err(invalid(format!("{name:?} is the name of another field; choose another FIELD")));
            }
            if name == Some(IMAGE) && ty == Some(FieldType::Mask) {
                return Err(invalid(format!("the main image {member:?} cannot be a mask")));
            }
            let is_same = |other: &ListedImage| {
                other.member.eq_ignore_ascii_case(member)
                    || (name == Some(IMAGE) && other.name.as_deref() == name)
            };
            if let Some(other) = listed.iter().find(|other| is_same(other)) {
                return Err(invalid(match other.member.eq_ignore_ascii_case(member) {
                    true => format!("{member:?} is listed twice"),
                    false => format!("both {:?} and {member:?} are the main image", other.member),
                }));
            }
            listed.push(ListedImage { name: name.map(str::to_owned), member: member.to_owned(), ty });
        }
        Ok(listed)
    }
}

/// The sidecars that are read, by extension in lower case and without a dot at the start. Those that are found: of the usual
/// extensions, those that at least one image has; of listed files, none.
pub type Sidecars = AutoList<String>;

/// An extension of sidecars.
impl ListItem for String {
    fn parse_list(text: &str) -> Result<Vec<Self>> {
        let mut extensions: Vec<String> = Vec::new();
        for part in text.split(',').map(str::trim) {
            let extension = part.trim_start_matches('.').to_ascii_lowercase();
            let invalid = if extension.is_empty() || extension.contains('/') {
                format!("{part:?} is not a file extension")
            } else if is_image_name(&format!("x.{extension}")) {
                format!("files with the extension {extension:?} are images themselves")
            } else if extensions.contains(&extension) {
                format!("{extension:?} is listed twice")
            } else {
                extensions.push(extension);
                continue;
            };
            return Err(
                Error::usage(invalid).help("expected auto, none or extensions, as in txt,caption,json")
            );
        }
        Ok(extensions)
    }
}

word_choice! {
    /// Criterion for duplicate items.
    #[derive(Serialize, Deserialize)]
    #[serde(rename_all = "lowercase")]
    Dedup, text => Error::usage(format!("unknown criterion for duplicates {text:?}")).help("use bytes");
    /// The file has the same bytes as another file.
    Bytes = "bytes",
}

/// Field names of samples from tar files.
const SAMPLE_NAMES: [&str; 3] = ["json", "txt", "cls"];

/// Returns whether samples from tar files have another field called `name`.
pub(crate) fn is_reserved(name: &str) -> bool {
    is_built_in(name) || SAMPLE_NAMES.contains(&name)
}
