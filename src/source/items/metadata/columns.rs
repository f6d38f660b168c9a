//! Selection of the columns of a table, and their declared types.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::schema::{FieldType, HEIGHT, IMAGE, KEY, LABEL, ORIGIN, WIDTH};
use crate::source::table::columns::ColumnNames;
use crate::warning::{Warning, quoted};

/// Default of `--path-field`.
pub const DEFAULT_PATH_FIELD: &str = "file_name";
/// Types that can be declared for a column.
const DECLARED: [FieldType; 9] = [
    FieldType::String,
    FieldType::Json,
    FieldType::Bool,
    FieldType::Int32,
    FieldType::Int64,
    FieldType::UInt32,
    FieldType::UInt64,
    FieldType::Float32,
    FieldType::Float64,
];

/// Returns whether every image dataset has a field called `name`.
pub(crate) fn is_built_in(name: &str) -> bool {
    [KEY, IMAGE, WIDTH, HEIGHT, LABEL, ORIGIN].contains(&name)
}

/// A column that is kept in the records.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Keep {
    /// Name of the column.
    pub name: String,
    /// Declared type, if any.
    #[serde(rename = "type")]
    pub ty: Option<FieldType>,
}

impl fmt::Display for Keep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.name, TypeSuffix(self.ty))
    }
}

impl fmt::Display for KeptField {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.name.as_ref().map_or(String::new(), |name| format!("{name}="));
        write!(f, "{name}{}{}", self.member, TypeSuffix(self.ty))
    }
}

/// A declared type as in `name:type`; nothing if there is none.
struct TypeSuffix(Option<FieldType>);

impl fmt::Display for TypeSuffix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.map_or(Ok(()), |ty| write!(f, ":{}", ty.name()))
    }
}

/// Parses `name,name:type,…`. A name may contain colons.
///
/// # Errors
///
/// Returns an error if a name is empty or occurs twice, or a type does not exist.
pub fn parse_keep(text: &str) -> Result<Vec<Keep>> {
    let mut kept: Vec<Keep> = Vec::new();
    for part in text.split(',').map(str::trim) {
        let (name, ty) = match part.rsplit_once(':') {
            None => (part, None),
            Some((name, ty)) => {
                let found = DECLARED.into_iter().find(|t| t.name() == ty).ok_or_else(|| {
                    let known = DECLARED.map(FieldType::name).join(", ");
                    Error::usage(format!("unknown type of a field {ty:?}")).help(format!("types are {known}"))
                })?;
                (name, Some(found))
            }
        };
        if name.is_empty() || kept.iter().any(|k| k.name == name) {
            return Err(Error::usage(format!("the field {name:?} is empty or named twice"))
                .help("write the fields as name,name:type,…"));
        }
        kept.push(Keep { name: name.to_owned(), ty });
    }
    Ok(kept)
}

/// A member of tar samples, or a column of a Parquet file with images, that the user names.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeptField {
    /// Name of the field; `None` for the default.
    pub name: Option<String>,
    /// The part of a member's name after its first dot, or the name of a column.
    pub member: String,
    /// Declared type, if any.
    #[serde(rename = "type")]
    pub ty: Option<FieldType>,
}

/// Parses `[NAME=]MEMBER[:TYPE],…`.
///
/// # Errors
///
/// As [`parse_keep`].
pub fn parse_kept(text: &str) -> Result<Vec<KeptField>> {
    let mut kept: Vec<KeptField> = Vec::new();
    for part in text.split(',').map(str::trim) {
        let (rest, ty) = match part.rsplit_once(':') {
            Some((rest, "binary")) => (rest, Some(FieldType::Binary)),
            _ => {
                let [Keep { name, ty }] = &parse_keep(part)?[..] else { continue };
                (&part[..name.len()], *ty)
            }
        };
        let (name, member) = rest.split_once('=').map_or((None, rest), |(name, m)| (Some(name), m));
        if member.is_empty() || name == Some("") || kept.iter().any(|k| k.member == member) {
            return Err(Error::usage(format!("the field {member:?} is empty or named twice"))
                .help("write the fields as name,name:type,new_name=name,…"));
        }
        kept.push(KeptField { name: name.map(str::to_owned), member: member.to_owned(), ty });
    }
    Ok(kept)
}

/// How the path column is found.
pub(super) enum PathColumn<'a> {
    /// The column with this name.
    Named(&'a str),
    /// `file_name`, or the first column whose name ends with `_file_name`, or the first list of paths.
    Conventional,
}

/// The columns to read from a table.
pub(super) struct WantedMetadata<'a> {
    pub(super) path: PathColumn<'a>,
    /// The column with the classes; `None`: [`LABEL`], if there is one.
    pub(super) label: Option<&'a str>,
    pub(super) keep: Option<&'a [Keep]>,
    /// Columns whose values become lists.
    pub(super) lists: &'a [String],
}

/// Positions of these columns in a table.
pub(super) struct MetadataColumns {
    /// `None` if the paths are in a list, which is one of the kept columns.
    pub(super) path: Option<usize>,
    /// Name of the path column.
    pub(super) path_field: String,
    pub(super) label: Option<usize>,
    /// Ordinal, name and declared type of the kept columns, in the order of the fields.
    pub(super) kept: Vec<(usize, Keep)>,
}

impl WantedMetadata<'_> {
    /// Finds the columns among `names`.
    ///
    /// # Errors
    ///
    /// Returns an error if a requested column is missing or occurs twice.
    pub(super) fn among(&self, names: &[String]) -> Result<MetadataColumns> {
        let all = ColumnNames::new(names);
        let path_field = match self.path {
            PathColumn::Named(name) if name == DEFAULT_PATH_FIELD => conventional(names).unwrap_or(name),
            PathColumn::Named(name) => name,
            PathColumn::Conventional => conventional(names).ok_or_else(|| {
                Error::usage(format!(
                    "there is no column {DEFAULT_PATH_FIELD:?} with the paths of images; there are {}",
                    names.join(", ")
                ))
            })?,
        };
        let path = all.required(path_field, "path_field")?;
        let is_list = !matches!(self.path, PathColumn::Named(name) if name != DEFAULT_PATH_FIELD)
            && list_of_paths(path_field).is_some();
        let label = match self.label {
            Some(name) => Some(all.required(name, "label_field")?),
            None => all.at(LABEL)?,
        };
        if let (Some(at), Some(other)) = (label, all.at(LABEL)?)
            && at != other
        {
            return Err(Error::usage(format!("there is a column {LABEL:?} beside {:?}", names[at]))
                .of_option("label_field")
                .help("rename one of them: the class becomes the field label"));
        }
        if label == Some(path) && !is_list {
            return Err(Error::usage(format!("the column {path_field:?} holds the paths of the images"))
                .of_option("label_field")
                .help("name the column with the classes"));
        }
        let kept = match self.keep {
            Some(keep) => keep
                .iter()
                .map(|k| match all.required(&k.name, "keep_fields")? {
                    at if Some(at) == label => {
                        Err(Error::usage(format!("{:?} is the class of an image already", k.name))
                            .help("leave it out of `keep_fields`"))
                    }
                    at => Ok((at, k.clone())),
                })
                .chain(is_list.then(|| Ok((path, Keep { name: path_field.to_owned(), ty: None }))))
                .collect::<Result<Vec<_>>>()?,
            None => {
                let others = (0..names.len()).filter(|&at| (is_list || at != path) && Some(at) != label);
                others
                    .map(|at| {
                        all.at(&names[at])?;
                        Ok((at, Keep { name: names[at].clone(), ty: None }))
                    })
                    .collect::<Result<Vec<_>>>()?
            }
        };
        let path = (!is_list).then_some(path);
        let found = MetadataColumns { path, path_field: path_field.to_owned(), label, kept };
        self.lists.iter().try_for_each(|list| found.check_list(names, list))?;
        Ok(found)
    }
}

impl MetadataColumns {
    /// Refuses the list field `list` if its column among `names` has another use, or is left out.
    fn check_list(&self, names: &[String], list: &str) -> Result<()> {
        let Some(at) = names.iter().position(|name| name == list) else { return Ok(()) };
        let (what, help) = if Some(at) == self.label {
            let help = "leave it out of `list_fields`; to keep several labels of an image as a list, rename the column";
            (format!("the column {list:?} is the class, and an image has one class"), help)
        } else if Some(at) == self.path {
            let help = "leave it out of `list_fields`: the rows with one path form one record";
            (format!("the column {list:?} holds the paths of the images"), help)
        } else if self.kept.iter().all(|(kept, _)| *kept != at) {
            let help = "add it to `keep_fields`, or leave it out of `list_fields`";
            (format!("the column {list:?} is not in `keep_fields`"), help)
        } else {
            return Ok(());
        };
        Err(Error::usage(what).of_option("list_fields").help(help))
    }
}

/// Returns the column that holds the paths of the images by convention, as in `ImageFolder` of Hugging Face `datasets`.
fn conventional(names: &[String]) -> Option<&str> {
    let named = || names.iter().map(String::as_str);
    named()
        .find(|name| *name == DEFAULT_PATH_FIELD)
        .or_else(|| named().find(|name| column_of_paths(name).is_some()))
        .or_else(|| named().find(|name| list_of_paths(name).is_some()))
}

/// Returns `mask` for the name `mask_file_name` of a column of paths.
pub(super) fn column_of_paths(name: &str) -> Option<&str> {
    name.strip_suffix("_file_name").filter(|field| !field.is_empty())
}

/// Returns the name of the images for the name of a column with lists of paths: `views` for `views_file_names`, and
/// `images` for `file_names`.
pub(super) fn list_of_paths(name: &str) -> Option<&str> {
    match name {
        "file_names" => Some("images"),
        _ => name.strip_suffix("_file_names").filter(|field| !field.is_empty()),
    }
}

/// Returns the warning about a field that should be kept, but that none of the examined rows or samples has.
pub(crate) fn field_not_seen(field: &str, examined: &str, there: &[String]) -> Warning {
    let message = format!("none of {examined} has the field {field:?}; they have {}", quoted(there));
    let warning = Warning::new("field-not-seen", message).with("field", field);
    warning.with("examined", examined).with("there", there)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_kept_with_their_types() {
        let keep = parse_keep("caption, n:int64,a:b:json").unwrap();
        let shown: Vec<_> = keep.iter().map(|k| (k.name.as_str(), k.ty)).collect();
        assert_eq!(shown, [("caption", None), ("n", Some(FieldType::Int64)), ("a:b", Some(FieldType::Json))]);
        for wrong in ["", "a,,b", "a,a:json", "a:label", "a:int", ":json"] {
            assert!(parse_keep(wrong).is_err(), "{wrong}");
            assert!(parse_kept(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn kept_members_have_names_and_binary_types() {
        let kept = parse_kept("caption, e=clip.npy:binary,n:int64").unwrap();
        let shown: Vec<_> = kept.iter().map(|k| (k.name.as_deref(), k.member.as_str(), k.ty)).collect();
        let binary = (Some("e"), "clip.npy", Some(FieldType::Binary));
        assert_eq!(shown, [(None, "caption", None), binary, (None, "n", Some(FieldType::Int64))]);
        for wrong in ["=a", "a=", "a,b=a", "x=:binary"] {
            assert!(parse_kept(wrong).is_err(), "{wrong}");
        }
    }
}
