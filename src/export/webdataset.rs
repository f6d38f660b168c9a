//! WebDataset: tar files whose members with the same name up to the first dot are one sample.

use std::fmt::Write as _;
use std::io::Write;
use std::ops::Range;

use serde_json::{Map, Value as Json, json};

use super::output::StagedFiles;
use super::tokens::npy_header;
use super::{ExportInput, ExportOptions, ExportSplit, Exporter, Part, check_images, encoded_images, entry};
use crate::decode::sniff;
use crate::error::{Error, Result};
use crate::manifest::FileEntry;
use crate::reader::Record;
use crate::sample::{Numbers, Value};
use crate::schema::{DType, FieldType, INPUT_IDS, IdWidth, LABEL, Schema};
use crate::storage::NewFile;

/// Stored bytes of the records of a tar file, by default.
const PART_BYTES: u64 = 1 << 30;
/// Fields that are captions; the first that a dataset has becomes the member `.txt`.
const CAPTIONS: [&str; 3] = ["txt", "caption", "text"];
/// Zeros at the end of a tar file.
const END_BYTES: usize = 1024;

/// Tar files of samples.
pub(super) struct WebDataset {
    /// How each field is stored.
    members: Vec<Member>,
    class_names: Vec<String>,
}

/// How a field is stored in a sample.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Member {
    /// An image, with the extension of its type; the other images of a sample have the name of their field before it.
    Image(Option<String>),
    /// A file with this extension.
    File(String),
    /// A member of the `.json`.
    Json,
}

impl WebDataset {
    pub(super) fn new(input: &ExportInput, _: &ExportOptions) -> Result<Self> {
        if input.mixture.is_some() {
            return Err(Error::usage(
                "a mixture may repeat records, and samples of WebDataset have names of their own",
            )
            .of_option("to")
            .help("export each dataset by itself, and mix them when they are read: webdataset.RandomMix"));
        }
        encoded_images(input)?;
        let schema = input.schema()?;
        if let Some(field) = schema.fields.iter().find(|field| field.ty == FieldType::Images) {
            let what = format!("a sample of WebDataset has no place for the list of images {:?}", field.name);
            return Err(Error::usage(what)
                .of_option("to")
                .help("leave the field out with `fields`, or export with `to hf`"));
        }
        let members = members(schema);
        let mut names: Vec<String> = members.iter().filter_map(Member::name).map(str::to_lowercase).collect();
        names.sort();
        if let Some(pair) = names.windows(2).find(|pair| pair[0] == pair[1]) {
            // Readers ignore case.
            let what = format!("two fields become members of a sample with the extension .{}", pair[0]);
            return Err(Error::usage(what).help("convert again with another name for one of them"));
        }
        Ok(Self { members, class_names: schema.class_names.clone() })
    }

    /// Appends the members of a sample to `tar`, by extension.
    fn add(&self, record: &Record, tar: &mut tar::Builder<Vec<u8>>) -> Result<()> {
        let mut files: Vec<(String, Vec<u8>)> = Vec::with_capacity(4);
        let mut json = Map::new();
        for (member, (name, ty, value)) in self.members.iter().zip(record.fields()) {
            match (member, value) {
                (Member::Json, value) => drop(json.insert(name.to_owned(), json_of(ty, value)?)),
                (_, Value::Null) => {}
                (Member::Image(prefix), Value::Bytes(bytes)) => {
                    let extension = sniff(bytes).map_or("bin", |ty| ty.extension());
                    let extension = match prefix {
                        Some(prefix) => format!("{prefix}.{extension}"),
                        None => extension.to_owned(),
                    };
                    files.push((extension, bytes.to_vec()));
                }
                (Member::File(extension), value) => files.push((extension.clone(), file_of(ty, value)?)),
                (Member::Image(_), _) => {
                    return Err(Error::corrupt(format!("the field {name:?} holds no image")));
                }
            }
        }
        let json =
            serde_json::to_vec(&json).map_err(|e| Error::not_serialized("the fields of a record", e))?;
        files.push(("json".to_owned(), json));
        files.sort();
        let key = escaped(record.key().unwrap_or_default());
        for (extension, content) in files {
            let mut header = tar::Header::new_gnu();
            // Without a type, Python takes a file for a folder if the hundredth byte of its name is a slash.
            header.set_entry_type(tar::EntryType::Regular);
            header.set_size(content.len() as u64);
            header.set_mode(0o644);
            header.set_mtime(0);
            let appended = tar.append_data(&mut header, format!("{key}.{extension}"), content.as_slice());
            // Writing to memory; the key is escaped.
            appended.map_err(|e| Error::internal("cannot store a sample in a tar file").caused_by(e))?;
        }
        Ok(())
    }
}

impl Member {
    /// Returns the extension, as far as it is known.
    fn name(&self) -> Option<&str> {
        match self {
            Self::Image(None) => Some("image"),
            Self::Image(Some(name)) | Self::File(name) => Some(name),
            Self::Json => None,
        }
    }
}

/// Decides how each field is stored.
fn members(schema: &Schema) -> Vec<Member> {
    let is_text =
        |name: &&str| schema.fields.iter().any(|field| field.name == **name && field.ty == FieldType::String);
    let caption = CAPTIONS.iter().find(|name| is_text(name));
    let payload = schema.layout().payload;
    let member = |name: &str, ty: FieldType| match ty {
        FieldType::Image | FieldType::Mask if Some(name) == payload => Member::Image(None),
        FieldType::Image | FieldType::Mask => Member::Image(Some(extension(name))),
        FieldType::Label if name == LABEL => Member::File("cls".to_owned()),
        FieldType::IdsU16 | FieldType::IdsU32 if name == INPUT_IDS => Member::File("npy".to_owned()),
        FieldType::IdsU16 | FieldType::IdsU32 | FieldType::Flags => {
            Member::File(format!("{}.npy", extension(name)))
        }
        FieldType::Array(_) => Member::File(format!("{}.npy", extension(name))),
        FieldType::Binary => Member::File(format!("{}.bin", extension(name))),
        FieldType::String if Some(&name) == caption => Member::File("txt".to_owned()),
        _ => Member::Json,
    };
    schema.fields.iter().map(|field| member(&field.name, field.ty)).collect()
}

/// Returns the name of a field as part of an extension.
fn extension(name: &str) -> String {
    escaped(name).replace('/', "%2F")
}

/// Returns a key as the name of a sample. Its dots are percent-encoded, because an extension starts at the first dot, and so
/// is everything else that no name in a tar file has. `urllib.parse.unquote` returns the key.
fn escaped(key: &str) -> String {
    let mut name = String::with_capacity(key.len());
    let mut before = '/';
    for c in key.chars() {
        match c {
            // An absolute path or an empty component.
            '/' if before == '/' => name.push_str("%2F"),
            '.' | '%' | '\0'..='\x1f' | '\x7f' | '\\' => drop(write!(name, "%{:02X}", u32::from(c))),
            c => name.push(c),
        }
        before = c;
    }
    if name.ends_with('/') {
        name.pop();
        name.push_str("%2F");
    }
    // No sample may have an empty name.
    if name.is_empty() { "%".to_owned() } else { name }
}

/// Returns the content of a member: of lists of numbers, a `.npy` file.
fn file_of(ty: FieldType, value: &Value) -> Result<Vec<u8>> {
    Ok(match value {
        Value::Text(text) => text.as_bytes().to_vec(),
        Value::Int(number) => number.to_string().into_bytes(),
        Value::Ids(ids) => {
            let descr = if ids.width() == IdWidth::U16 { "<u2" } else { "<u4" };
            [npy_header(descr, &[ids.len()]).as_slice(), ids.as_bytes()].concat()
        }
        // 0 or 1 per token: int8, as in shards and in batches.
        Value::Bytes(flags) if ty == FieldType::Flags => {
            [npy_header("|i1", &[flags.len()]).as_slice(), flags].concat()
        }
        Value::Bytes(bytes) => bytes.to_vec(),
        Value::Array(array) => {
            let numbers =
                Numbers::of(ty, value).ok_or_else(|| Error::internal("an array of another type"))?;
            [npy_header(npy_type(numbers.dtype), &numbers.shape).as_slice(), array.as_bytes()].concat()
        }
        other => return Err(Error::corrupt(format!("a member of a sample cannot hold {other:?}"))),
    })
}

/// Returns the name of a type of numbers in a `.npy` file.
fn npy_type(dtype: DType) -> &'static str {
    match dtype.stored() {
        DType::Bool => "|b1",
        DType::UInt8 => "|u1",
        DType::Int8 => "|i1",
        DType::UInt16 | DType::BFloat16 => "<u2",
        DType::Int16 => "<i2",
        DType::UInt32 => "<u4",
        DType::Int32 => "<i4",
        DType::UInt64 => "<u8",
        DType::Int64 => "<i8",
        DType::Float16 => "<f2",
        DType::Float32 => "<f4",
        DType::Float64 => "<f8",
    }
}

/// Returns the number with the shortest text that is the same in 32 bits.
fn shortest(number: f32) -> Json {
    number.to_string().parse::<f64>().map_or(Json::Null, |number| json!(number))
}

/// Returns a value of the `.json`. Numbers that JSON lacks, such as NaN, become null.
fn json_of(ty: FieldType, value: &Value) -> Result<Json> {
    Ok(match value {
        Value::Null => Json::Null,
        Value::Bool(value) => json!(value),
        Value::Int(value) => json!(value),
        Value::UInt(value) => json!(value),
        Value::Float(value) if ty == FieldType::Float32 => shortest(*value as f32),
        Value::Float(value) => json!(value),
        Value::Text(text) if ty == FieldType::Json => serde_json::from_str(text.as_str())
            .map_err(|e| Error::corrupt("a JSON field does not hold JSON").caused_by(e))?,
        Value::Text(text) => json!(text.as_str()),
        Value::Texts(texts) => texts.iter().map(|text| json!(text.as_str())).collect(),
        // Such fields are refused.
        Value::Files(_) => Json::Null,
        Value::Bytes(_) | Value::Ids(_) | Value::Array(_) => match Numbers::of(ty, value) {
            Some(numbers) => numbers.to_json(),
            None => return Err(Error::internal("binary values are members of their own")),
        },
    })
}

impl Exporter for WebDataset {
    type Block = Vec<u8>;
    type Files = (String, NewFile);

    fn default_parts(&self, split: &ExportSplit) -> u64 {
        split.bytes.div_ceil(PART_BYTES)
    }

    fn described(&self) -> Json {
        match self.class_names.is_empty() {
            true => json!({}),
            false => json!({ "class_names": self.class_names }),
        }
    }

    fn encode(&self, split: &ExportSplit, records: Range<u64>) -> Result<Vec<u8>> {
        let ordinals: Vec<u64> = records.collect();
        let mut tar = tar::Builder::new(Vec::new());
        for record in split.source.get_many(&ordinals)? {
            let added = check_images(&record).and_then(|()| self.add(&record, &mut tar));
            added.map_err(|e| split.source.at_record(e, record.ordinal()))?;
        }
        // Without the end of a tar file.
        Ok(std::mem::take(tar.get_mut()))
    }

    fn create(&self, part: &Part<'_>, staged: &StagedFiles) -> Result<(String, NewFile)> {
        let name = format!("{}-{:06}.tar", part.split.name, part.number);
        let file = staged.create(&name)?;
        Ok((name, file))
    }

    fn append(&self, (_, file): &mut (String, NewFile), block: Vec<u8>) -> Result<()> {
        file.write_all(&block).map_err(|e| Error::io("write", file.path(), e))
    }

    fn close(&self, (name, mut file): (String, NewFile), _: &StagedFiles) -> Result<Vec<FileEntry>> {
        file.write_all(&[0; END_BYTES]).map_err(|e| Error::io("write", file.path(), e))?;
        Ok(vec![entry(name, file.commit()?)])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::Field;

    #[test]
    fn keys_have_no_dots_and_are_paths_inside_the_archive() {
        for (key, name) in [
            ("a/b.jpg", "a/b%2Ejpg"),
            ("../x", "%2E%2E/x"),
            ("/etc//x/", "%2Fetc/%2Fx%2F"),
            ("50%", "50%25"),
            ("a\nb\\", "a%0Ab%5C"),
            ("é 日", "é 日"),
            ("", "%"),
        ] {
            assert_eq!(escaped(key), name);
        }
    }

    #[test]
    fn fields_become_members() {
        let extra = vec![
            Field::nullable("caption", FieldType::String),
            Field::nullable("text", FieldType::String),
            Field::nullable("depth.map", FieldType::Image),
            Field::nullable("embedding", FieldType::Binary),
            Field::nullable("score", FieldType::Float32),
        ];
        let schema = Schema::images(Some(vec!["cat".into()]), extra).unwrap();
        let file = |name: &str| Member::File(name.to_owned());
        let image = |name: &str| Member::Image(Some(name.to_owned()));
        assert_eq!(
            members(&schema),
            [
                Member::Json,
                Member::Image(None),
                Member::Json,
                Member::Json,
                file("cls"),
                Member::Json,
                file("txt"),
                Member::Json,
                image("depth%2Emap"),
                file("embedding.bin"),
                Member::Json,
            ]
        );
        let masks = file_of(FieldType::Flags, &Value::Bytes(vec![0, 1].into())).unwrap();
        assert!(masks.starts_with(b"\x93NUMPY\x01\0") && masks.ends_with(b"\n\x00\x01"), "{masks:?}");
        assert_eq!(file_of(FieldType::Binary, &Value::Bytes(vec![0, 1].into())).unwrap(), [0, 1]);
        assert_eq!(json_of(FieldType::Float32, &Value::Float(f64::from(0.1f32))).unwrap(), json!(0.1));
        assert_eq!(json_of(FieldType::Float64, &Value::Float(f64::NAN)).unwrap(), Json::Null);
        assert_eq!(json_of(FieldType::Json, &Value::Text("[1]".into())).unwrap(), json!([1]));
    }
}
