//! Sidecars: files beside images that hold the values of fields, such as the caption `a.txt` of `a.jpg`.
//!
//! A file of a field follows its image in the list of files, with the ordinal of the field
//! ([`SourceFile::of_field`]). So it is part of the plan, and is read by the same task as its image.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use xxhash_rust::xxh3::xxh3_128_with_seed;

use crate::error::{Error, Result};
use crate::options::SourceSpec;
use crate::pipeline::plan::SidecarSummary;
use crate::printable::{printable, printable_path};
use crate::recipe::Sidecars;
use crate::sample::{Reject, RejectCode, Value};
use crate::schema::{Field, FieldType};
use crate::source::io::encoding::small_text;
use crate::source::items::json_line;
use crate::source::items::metadata::columns::is_built_in;
use crate::source::list::detail::Detail;
use crate::source::list::expand::is_image_name;
use crate::source::list::file_list::{FileList, NearbyFiles};
use crate::source::list::named_files::Resolver;
use crate::source::list::source_file::SourceFile;
use crate::storage::{ObjectUrl, stat};
use crate::warning::Warning;

/// Extensions of the sidecars that are found without an option.
const USUAL: [&str; 3] = ["txt", "caption", "json"];
/// The extension of sidecars with JSON values.
const JSON: &str = "json";
/// Number of listed images beside which unread sidecars are looked for.
const PROBED_IMAGES: usize = 16;

impl Sidecars {
    /// Returns the extensions of the files that may be sidecars.
    fn extensions(&self) -> Vec<String> {
        match self {
            Self::Auto => USUAL.map(str::to_owned).to_vec(),
            Self::None => Vec::new(),
            Self::Listed(extensions) => extensions.clone(),
        }
    }

    /// Returns whether a file is named like a sidecar.
    pub(super) fn may_be(&self, name: &str) -> bool {
        self.extensions().iter().any(|extension| without_extension(name.as_bytes(), extension).is_some())
    }
}

/// A field whose values are in files of their own.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct FileField {
    /// Text or JSON for a sidecar, otherwise an image.
    pub(super) ty: FieldType,
    /// Position of the value among the fields that only some datasets have; for an image, among the additional images.
    pub(super) at: usize,
}

impl SidecarSummary {
    fn new(extension: &str) -> Self {
        let field = extension.replace('.', "_");
        Self { field, extension: extension.to_owned(), ..Self::default() }
    }

    fn ty(&self) -> FieldType {
        if self.extension == JSON { FieldType::Json } else { FieldType::String }
    }

    fn count(&mut self, sidecar: Option<&SourceFile>) {
        match sidecar {
            Some(file) => {
                self.images += 1;
                self.empty += u64::from(file.bytes == 0);
            }
            None => self.missing += 1,
        }
    }
}

/// Adds the fields of `sidecars` before the `images` additional images, which are last. A field that samples in tar files
/// have, too, is shared if `is_shared`.
///
/// # Errors
///
/// Fails if another field has the name of a sidecar.
pub(super) fn add_fields(
    sidecars: &[SidecarSummary],
    fields: &mut Vec<Field>,
    images: usize,
    is_shared: bool,
) -> Result<Vec<FileField>> {
    let add = |sidecar: &SidecarSummary| {
        let ty = sidecar.ty();
        let same = fields.iter().position(|field| field.name == sidecar.field);
        let at = match same {
            Some(at) if is_shared && fields[at].ty == ty => at,
            None if !is_built_in(&sidecar.field) => {
                let at = fields.len() - images;
                fields.insert(at, Field::nullable(&sidecar.field, ty));
                at
            }
            _ => {
                let SidecarSummary { field, extension, .. } = sidecar;
                let what = format!(
                    "the files \".{extension}\" beside images and another field would both be {field:?}"
                );
                return Err(Error::usage(what)
                    .of_option("sidecar")
                    .help("leave that extension out of `sidecar`, or set `sidecar none`"));
            }
        };
        Ok(FileField { ty, at })
    };
    sidecars.iter().map(add).collect()
}

/// Returns `path` without `extension` and the dot before it; `None` if it ends otherwise.
fn without_extension<'a>(path: &'a [u8], extension: &str) -> Option<&'a [u8]> {
    let (rest, end) = path.split_at_checked(path.len().checked_sub(extension.len() + 1)?)?;
    let is_named = rest.last().is_some_and(|&byte| byte != b'/');
    (is_named && end[0] == b'.' && end[1..].eq_ignore_ascii_case(extension.as_bytes())).then_some(rest)
}

/// Returns `path` without the extension of its last component.
fn stem(path: &[u8]) -> &[u8] {
    let name = path.iter().rposition(|&byte| byte == b'/').map_or(0, |slash| slash + 1);
    let dot = path.iter().rposition(|&byte| byte == b'.').filter(|&dot| dot > name);
    &path[..dot.unwrap_or(path.len())]
}

/// The files of a listing that may be sidecars, by what their names have in common with those of images.
struct Candidates<'a> {
    sources: &'a [SourceSpec],
    extensions: Vec<String>,
    /// Hash and ordinal, sorted.
    by_hash: Vec<(u128, u32)>,
}

impl<'a> Candidates<'a> {
    fn of(listing: &FileList, sources: &'a [SourceSpec], extensions: Vec<String>) -> Self {
        let mut found = Self { sources, extensions, by_hash: Vec::new() };
        for (file, ordinal) in listing.iter().zip(0..) {
            if file.member.as_ref().is_some_and(|member| member.is_damage()) {
                continue;
            }
            let (path, seed) = found.path(&file);
            for (extension, number) in found.extensions.iter().zip(0..) {
                if let Some(rest) = without_extension(&path, extension) {
                    found.by_hash.push((hash(rest, seed, number), ordinal));
                }
            }
        }
        found.by_hash.sort_unstable();
        found
    }

    /// Returns the path of a file in its source, and a number for the source. Files that are sources themselves share one
    /// number.
    fn path(&self, file: &SourceFile) -> (Vec<u8>, u32) {
        match file.is_named() {
            true => (self.sources[file.source as usize].path.as_os_str().as_bytes().to_vec(), u32::MAX),
            false => (file.relative.as_os_str().as_bytes().to_vec(), file.source),
        }
    }

    /// Returns the ordinals of the sidecars of `image`, one per extension. `a.jpg.txt` is preferred to `a.txt`, because
    /// `a.png` may share that; among names that differ in case, lower case is preferred.
    fn of_image(&self, image: &SourceFile) -> Vec<Option<u32>> {
        let (path, seed) = self.path(image);
        let find = |rest: &[u8], number| {
            let wanted = hash(rest, seed, number);
            let end = self.by_hash.partition_point(|(hash, _)| *hash <= wanted);
            let last = end.checked_sub(1).and_then(|at| self.by_hash.get(at));
            last.filter(|(hash, _)| *hash == wanted).map(|(_, ordinal)| *ordinal)
        };
        let numbers = 0..self.extensions.len() as u32;
        numbers.map(|number| find(&path, number).or_else(|| find(stem(&path), number))).collect()
    }
}

fn hash(path: &[u8], source: u32, extension: u32) -> u128 {
    xxh3_128_with_seed(path, u64::from(source) << 32 | u64::from(extension))
}

/// Images with their sidecars.
#[derive(Default)]
pub(super) struct Paired {
    /// The files, each image with its sidecars after it.
    pub(super) files: FileList,
    /// One per file, or empty.
    pub(super) details: Vec<Detail>,
    pub(super) sidecars: Vec<SidecarSummary>,
}

impl Paired {
    /// Adds a sidecar of the last image.
    fn push(&mut self, sidecar: SourceFile, field: u32, is_detailed: bool) {
        self.files.push(&SourceFile { of_field: Some(field), ..sidecar });
        if is_detailed {
            self.details.push(Detail::default());
        }
    }
}

/// Finds the sidecars of images in `listing`. With `named`, the images are the files that rows name; otherwise, all files
/// that are images by name. The ordinals of the fields start at `first_field`. Returns `None` if there is no field.
pub(super) fn pair(
    listing: &FileList,
    named: Option<(&FileList, &[Detail])>,
    sources: &[SourceSpec],
    wanted: &Sidecars,
    first_field: u32,
) -> Option<Paired> {
    let candidates = Candidates::of(listing, sources, wanted.extensions());
    let is_listed = matches!(wanted, Sidecars::Listed(_));
    if candidates.by_hash.is_empty() && !is_listed {
        return None;
    }
    let is_image = |ordinal: usize, file: &SourceFile| match named {
        Some((_, details)) => {
            file.of_field.is_none() && details.get(ordinal).is_none_or(|detail| detail.defect.is_none())
        }
        None => is_image_name(&file.name(sources)),
    };
    let items = named.map_or(listing, |(files, _)| files);
    let mut used = vec![false; listing.len()];
    let mut is_field = vec![is_listed; candidates.extensions.len()];
    for (_, image) in items.iter().enumerate().filter(|(ordinal, file)| is_image(*ordinal, file)) {
        for (found, is_field) in candidates.of_image(&image).into_iter().zip(&mut is_field) {
            if let Some(ordinal) = found {
                used[ordinal as usize] = true;
                *is_field = true;
            }
        }
    }
    let fields = candidates.extensions.iter().zip(&is_field).filter(|(_, is_field)| **is_field);
    let mut sidecars: Vec<SidecarSummary> =
        fields.map(|(extension, _)| SidecarSummary::new(extension)).collect();
    if sidecars.is_empty() {
        return None;
    }
    let mut paired = Paired::default();
    let mut nearby = NearbyFiles::new(listing);
    for (ordinal, file) in items.iter().enumerate() {
        if named.is_none() && used[ordinal] {
            continue;
        }
        paired.files.push(&file);
        if let Some((_, details)) = named {
            paired.details.push(details.get(ordinal).cloned().unwrap_or_default());
        }
        if !is_image(ordinal, &file) {
            continue;
        }
        let found = candidates.of_image(&file).into_iter().zip(&is_field).filter(|(_, is_field)| **is_field);
        for (((found, _), summary), field) in found.zip(&mut sidecars).zip(first_field..) {
            let sidecar = found.and_then(|ordinal| nearby.get(ordinal as usize));
            summary.count(sidecar);
            if let Some(sidecar) = sidecar {
                paired.push(sidecar.clone(), field, named.is_some());
            }
        }
    }
    for (_, file) in listing.iter().enumerate().filter(|(ordinal, _)| !used[*ordinal]) {
        let name = file.name(sources);
        let is_of =
            |sidecar: &&mut SidecarSummary| without_extension(name.as_bytes(), &sidecar.extension).is_some();
        if let Some(sidecar) = sidecars.iter_mut().find(is_of) {
            sidecar.unpaired += 1;
            sidecar.example.get_or_insert_with(|| file.origin.clone());
        }
    }
    Some(Paired { sidecars, ..paired })
}

/// Finds the sidecars of the listed `files` of `source`, each by its name.
///
/// # Errors
///
/// Fails if a file cannot be examined.
pub(super) fn pair_listed(
    files: &FileList,
    details: &[Detail],
    source: &SourceSpec,
    follow_symlinks: bool,
    extensions: &[String],
    first_field: u32,
) -> Result<Paired> {
    let mut resolver = Resolver::new(source, follow_symlinks)?;
    let mut sidecars: Vec<SidecarSummary> = extensions.iter().map(|e| SidecarSummary::new(e)).collect();
    let mut paired = Paired::default();
    for (ordinal, file) in files.iter().enumerate() {
        let detail = details.get(ordinal).cloned().unwrap_or_default();
        let is_image = detail.defect.is_none() && file.of_field.is_none();
        paired.files.push(&file);
        paired.details.push(detail);
        for (summary, field) in sidecars.iter_mut().zip(first_field..).filter(|_| is_image) {
            let sidecar = find_beside(&mut resolver, &file.relative, &summary.extension)?;
            summary.count(sidecar.as_ref());
            if let Some(sidecar) = sidecar {
                paired.push(sidecar, field, true);
            }
        }
    }
    Ok(Paired { sidecars, ..paired })
}

/// Returns the sidecar of the image `relative` with this extension, in lower or upper case.
fn find_beside(resolver: &mut Resolver<'_>, relative: &Path, extension: &str) -> Result<Option<SourceFile>> {
    let path = relative.as_os_str().as_bytes();
    for rest in [path, stem(path)] {
        for extension in [extension, &extension.to_ascii_uppercase()] {
            let (file, defect) = resolver.resolve(&[rest, b".", extension.as_bytes()].concat())?;
            if defect.is_none() {
                return Ok(Some(file));
            }
        }
    }
    Ok(None)
}

/// Returns a warning if there are sidecars beside the first listed files, which are read only on request.
///
/// # Errors
///
/// Fails if a file cannot be examined.
pub(super) fn unread_beside_listed(
    files: &FileList,
    source: &SourceSpec,
    follow_symlinks: bool,
) -> Result<Option<Warning>> {
    if ObjectUrl::is_url(&source.path) {
        return Ok(None);
    }
    let mut resolver = Resolver::new(source, follow_symlinks)?;
    for file in files.iter().filter(|file| !file.is_named()).take(PROBED_IMAGES) {
        for extension in USUAL {
            if let Some(found) = find_beside(&mut resolver, &file.relative, extension)? {
                return Ok(Some(unread(&found.origin, Some(extension))));
            }
        }
    }
    Ok(None)
}

/// Returns a warning if there are sidecars beside the first images that are themselves sources, and these sidecars are not.
///
/// # Errors
///
/// Fails if a file cannot be examined.
pub(super) fn unread_beside_named(files: &FileList, sources: &[SourceSpec]) -> Result<Option<Warning>> {
    let is_image = |file: &SourceFile| file.is_named() && is_image_name(&file.name(sources));
    let paths = files.iter().filter(is_image).take(PROBED_IMAGES).map(|file| file.path(sources));
    for path in paths.filter(|path| !ObjectUrl::is_url(path)) {
        for extension in USUAL {
            let beside = path.with_extension(extension);
            if stat(&beside)?.is_some_and(|meta| meta.is_file()) && sources.iter().all(|s| s.path != beside) {
                return Ok(Some(unread(&printable_path(&beside), None)));
            }
        }
    }
    Ok(None)
}

/// Returns the warning about sidecars that are not read, such as `example`. The `extension` is given for sidecars beside listed images.
fn unread(example: &str, extension: Option<&str>) -> Warning {
    let name = printable(example);
    let message = match extension {
        None => format!(
            "files beside the images, such as {name:?}, are not read; name them, too, or the folder, to make them fields"
        ),
        Some(extension) => format!(
            "files beside the listed images, such as {name:?}, are not read; `sidecar {extension}` makes them the field {:?}",
            extension.replace('.', "_")
        ),
    };
    let mut warning = Warning::new("sidecars-unread", message);
    if extension.is_some() {
        warning = warning.remedy("sidecar", "EXT,…", "reads those with these extensions as fields");
    }
    let warning = warning.remedy("sidecar", "none", "leaves them out without a warning");
    warning.with("example", example).with("extension", extension)
}

/// Returns the value of a sidecar.
///
/// # Errors
///
/// Returns a reject if the bytes are not text, or not JSON. A file without bytes is an empty string, or null for JSON.
pub(super) fn value(file: &SourceFile, ty: FieldType, bytes: &Bytes) -> Result<Value, Reject> {
    let name = file.origin.rsplit('/').next().unwrap_or_default();
    let what = format!("the file {:?} beside the image", printable(name));
    let text = &*small_text(&what, bytes)?;
    if ty != FieldType::Json {
        return Ok(Value::Text(text.into()));
    }
    if text.trim().is_empty() {
        return Ok(Value::Null);
    }
    // Without interpreting it, because a number may be too large for Rust.
    match json_line::parse::<Box<RawValue>>(text) {
        Ok((_, json)) => Ok(Value::Text(json.trim().into())),
        Err(e) => Err(Reject::new(RejectCode::InvalidJson, format!("{what} is not JSON: {e}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extensions_are_parsed_and_formatted() {
        assert_eq!("auto".parse::<Sidecars>().unwrap(), Sidecars::Auto);
        assert_eq!("none".parse::<Sidecars>().unwrap(), Sidecars::None);
        let listed: Sidecars = ".TXT, wd14.txt".parse().unwrap();
        assert_eq!(listed, Sidecars::Listed(vec!["txt".to_owned(), "wd14.txt".to_owned()]));
        assert_eq!(listed.to_string().parse::<Sidecars>().unwrap(), listed);
        for wrong in ["", "txt,", "txt,TXT", "a/b", "jpg", ".avif"] {
            assert!(wrong.parse::<Sidecars>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn an_image_has_the_files_with_its_stem_or_its_whole_name() {
        let sources = [SourceSpec { label: "s".into(), path: "s".into() }];
        let names = [
            "E.JPG",
            "E.caption",
            "a.TXT",
            "a.jpg",
            "a.jpg.txt",
            "a.png",
            "a.txt",
            "b.c.png",
            "b.c.txt",
            "b.txt",
            "c.jpg",
            "d/.txt",
            "d/c.txt",
            "notes.txt",
        ];
        let listing: FileList = names
            .iter()
            .map(|name| SourceFile::for_test(name, &format!("s/{name}"), name.len() as u64))
            .collect();
        let paired = pair(&listing, None, &sources, &Sidecars::Auto, 0).unwrap();
        let order: Vec<(String, Option<u32>)> =
            paired.files.iter().map(|file| (file.origin[2..].to_owned(), file.of_field)).collect();
        let expected = [
            ("E.JPG", None),
            ("E.caption", Some(1)),
            ("a.TXT", None),
            ("a.jpg", None),
            ("a.jpg.txt", Some(0)),
            ("a.png", None),
            ("a.txt", Some(0)),
            ("b.c.png", None),
            ("b.c.txt", Some(0)),
            ("b.txt", None),
            ("c.jpg", None),
            ("d/.txt", None),
            ("d/c.txt", None),
            ("notes.txt", None),
        ];
        assert_eq!(order, expected.map(|(name, field)| (name.to_owned(), field)));
        let [txt, caption] = &paired.sidecars[..] else { panic!("{:?}", paired.sidecars) };
        assert_eq!((txt.images, txt.missing, txt.unpaired), (3, 2, 4));
        assert_eq!(txt.example.as_deref(), Some("s/a.TXT"));
        assert_eq!((caption.images, caption.missing, caption.unpaired), (1, 4, 0));
        // Nothing changes without sidecars.
        let listing: FileList = ["a.jpg", "annotations.json"]
            .map(|name| SourceFile::for_test(name, &format!("s/{name}"), 1))
            .into_iter()
            .collect();
        assert!(pair(&listing, None, &sources, &Sidecars::Auto, 0).is_none());
        assert!(pair(&listing, None, &sources, &Sidecars::None, 0).is_none());
        let listed = pair(&listing, None, &sources, &"json".parse().unwrap(), 0).unwrap();
        assert_eq!((listed.sidecars[0].missing, listed.sidecars[0].unpaired), (1, 1));
    }

    #[test]
    fn values_are_text_or_json() {
        let file = SourceFile::for_test("a.txt", "s/a.txt", 1);
        let of = |ty, bytes: &'static [u8]| value(&file, ty, &Bytes::from_static(bytes));
        assert_eq!(of(FieldType::String, b"\xef\xbb\xbfa cat\n"), Ok(Value::Text("a cat\n".into())));
        assert_eq!(of(FieldType::String, b"\xff\xfea\0\xe9\0"), Ok(Value::Text("aé".into())));
        assert_eq!(of(FieldType::Json, b"\xfe\xff\0[\0]"), Ok(Value::Text("[]".into())));
        assert_eq!(of(FieldType::String, b"\xff\xfea\0b").unwrap_err().code, RejectCode::InvalidUtf8);
        let reject = of(FieldType::String, b"\xff\xfe\0\0a\0\0\0").unwrap_err();
        assert!(reject.code == RejectCode::Unsupported && reject.message.contains("a.txt"), "{reject:?}");
        assert_eq!(of(FieldType::String, b""), Ok(Value::Text("".into())));
        assert_eq!(of(FieldType::Json, b" {\"a\": 1e999}\n"), Ok(Value::Text("{\"a\": 1e999}".into())));
        assert_eq!(of(FieldType::Json, b"\n"), Ok(Value::Null));
        assert_eq!(of(FieldType::Json, b"{").unwrap_err().code, RejectCode::InvalidJson);
        let reject = of(FieldType::String, b"caf\xe9").unwrap_err();
        assert!(reject.code == RejectCode::InvalidUtf8 && reject.message.contains("a.txt"), "{reject:?}");
    }
}
