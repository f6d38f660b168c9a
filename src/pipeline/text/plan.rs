//! The files of the sources, and their division into sections and units.

use std::ops::Range;
use std::path::Path;

use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::options::{TextInput, TextOptions};
use super::sources::source::{Division, ExaminedFile, Extent, FileBeside, FileColumns, FilePlan};
use super::sources::{check_type, source_of};
use crate::error::{Error, Result};
use crate::foreign;
use crate::options::{SourceSpec, is_default};
use crate::pipeline::source_checks::check_origins;
use crate::sample::{Reject, RejectCode};
use crate::schema::{Field, FieldType, Kind};
use crate::source::archive::ArchiveKind;
use crate::source::io::broken::Broken;
use crate::source::items::text::columns::TextColumns;
use crate::source::items::text::kind::{Documents, FileKind, TextFormat};
use crate::source::list::expand::Archives;
use crate::source::list::file_list::NearbyFiles;
use crate::source::list::listing::Listing;
use crate::source::list::source_file::SourceFile;
use crate::source::list::walk::list;
use crate::source::list::{braces, globs};
use crate::source::names::hub_configs::{ConfigFiles, choose};
use crate::warning::Warning;

/// Source bytes of the sections that `--shuffle` reorders.
const SHUFFLE_SECTION_BYTES: u64 = 8 << 20;
/// Number of sections of chats that would be in a unit if they named no images, which are larger than the chats.
const IMAGE_SECTIONS: u64 = 256;
/// Smallest number of source bytes of these sections.
const MIN_SECTION_BYTES: u64 = 512;
/// Maximum number of files, or sections of divided files, per unit; stored as `unit_pieces`.
pub(super) const UNIT_SECTIONS: usize = 65_536;
/// Decorrelates the order of sections from the split hash, which has the same seed.
const SHUFFLE_SALT: u64 = 0x5348_5546_464c_4532;
/// Estimated bytes of text per compressed byte, used to group files into units.
const COMPRESSION_RATIO: u64 = 4;

/// The kind of a file, and what is known of its content.
#[derive(Serialize, Deserialize)]
pub(super) struct TextFile {
    pub(super) kind: FileKind,
    /// Why the file cannot be read, if already known.
    pub(super) defect: Option<Reject>,
    /// For Parquet and Arrow files: the positions of the columns.
    pub(super) columns: Option<TextColumns>,
    /// The file beside it that is read with it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) beside: Option<FileBeside>,
}

/// A section of a file: all of it, or adjacent lines or row groups.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct FileSection {
    pub(super) file: usize,
    pub(super) extent: Extent,
    /// Estimated bytes of text.
    pub(super) weight: u64,
    /// Bytes of the file attributed to the section.
    pub(super) source_bytes: u64,
    /// Bytes of the image files that its chats name.
    #[serde(default, skip_serializing_if = "is_default")]
    pub(super) image_bytes: u64,
}

impl FileSection {
    /// Returns an estimate of the bytes of the images of a block with these bytes of the file: twice the mean.
    pub(super) fn held_by_images(&self, block_bytes: u64) -> u64 {
        let share = block_bytes as f64 / self.source_bytes.max(1) as f64;
        (2.0 * share * self.image_bytes as f64) as u64
    }
}

/// The files of the sources, divided into sections and units.
pub(super) struct PlannedText {
    /// Sources after expansion of patterns and ranges.
    pub(super) sources: Vec<SourceSpec>,
    pub(super) listing: Listing,
    /// One per file.
    pub(super) details: Vec<TextFile>,
    /// Decisions of the search that may not be intended.
    pub(super) warnings: Vec<Warning>,
    /// The files of the splits, if the card of a repository lists them.
    pub(super) config: ConfigFiles,
    /// Fields to read beside the text ([`TextRecipe::read_fields`](crate::recipe::TextRecipe::read_fields)).
    pub(super) fields: Vec<Field>,
    /// In record order.
    pub(super) sections: Vec<FileSection>,
    /// Each unit is a range of `sections`.
    pub(super) units: Vec<Range<usize>>,
}

/// Lists the sources and divides them into units of about `unit_bytes`.
pub(super) fn find(options: &TextOptions, unit_bytes: u64) -> Result<PlannedText> {
    let ListedText { sources, listing, defects, warnings, config } = list_sources(options)?;
    let files = &listing.files;
    check_origins(files, &sources)?;
    let mut types: Vec<Option<FieldType>> = options.recipe.read_fields().iter().map(|k| k.ty).collect();
    let shuffle = options.recipe.output.shuffle;
    let section_bytes = match options.recipe.multimodal.is_given() {
        true => (unit_bytes / IMAGE_SECTIONS).max(MIN_SECTION_BYTES),
        false if shuffle => unit_bytes.min(SHUFFLE_SECTION_BYTES),
        false => unit_bytes,
    };
    let mut examiner = FileExaminer { options, section_bytes, types: &mut types, sections: Vec::new() };
    let mut details = Vec::new();
    let mut defects = defects.into_iter();
    for (ordinal, file) in files.iter().enumerate() {
        let path = file.path(&sources);
        let detail = examiner.examine(ordinal, &file, &sources, defects.next().flatten());
        details.push(detail.map_err(|e| if e.place().path.is_none() { e.at_path(path) } else { e })?);
    }
    let is_text = |file: &TextFile| source_of(file.kind.format).is_plain();
    if options.recipe.documents != Documents::File && !details.is_empty() && !details.iter().any(is_text) {
        let what = "`documents` divides plain text, but no source is plain text";
        return Err(Error::usage(what)
            .help("leave out `documents`: jsonl has one document per line, and a table one per row"));
    }
    if options.recipe.ids.is_given()
        && let Some(file) = details.iter().find(|file| !source_of(file.kind.format).may_hold_ids())
    {
        let what = format!("token ids are not read from {} files", file.kind);
        return Err(Error::usage(what).of_option("ids_field").help(
            "they are read from jsonl, json, parquet and arrow; name only such files, or leave out `ids_field`",
        ));
    }
    let has_encoding = |file: &TextFile| source_of(file.kind.format).has_encoding();
    if options.recipe.encoding.is_some() && !details.is_empty() && !details.iter().any(has_encoding) {
        let what =
            "`encoding` is for text, but all sources are Parquet or Arrow files, whose encoding is fixed";
        return Err(Error::usage(what).help("leave out `encoding`"));
    }
    let mut sections = examiner.sections;
    if shuffle {
        let seed = options.recipe.output.seed ^ SHUFFLE_SALT;
        let mut nearby = NearbyFiles::new(files);
        sections.sort_by_cached_key(|section| {
            let origin = nearby.get(section.file).map_or("", |file| &file.origin);
            let name = format!("{origin}#{}", section.extent.start());
            (xxh3_64_with_seed(name.as_bytes(), seed), name)
        });
    }
    let read = options.recipe.read_fields().into_iter().zip(types);
    let fields = read.map(|(k, ty)| Field::nullable(&k.name, ty.unwrap_or(FieldType::String))).collect();
    let units = group(&sections, unit_bytes);
    Ok(PlannedText { units, sources, listing, details, warnings, config, fields, sections })
}

/// The files of the sources, before they are divided.
#[derive(Default)]
struct ListedText {
    sources: Vec<SourceSpec>,
    listing: Listing,
    /// One per file if a list names the files, otherwise empty.
    defects: Vec<Option<Reject>>,
    /// Decisions of the search that may not be intended.
    warnings: Vec<Warning>,
    /// The files of the splits, if the card of a repository lists them.
    config: ConfigFiles,
}

fn list_sources(options: &TextOptions) -> Result<ListedText> {
    let has_ids = options.recipe.ids.is_given();
    let is_text = |name: &str| FileKind::of_name(name).is_some_and(|kind| has_ids || !kind.format.is_ids());
    let is_zip = |name: &str| ArchiveKind::of_name(name) == Some(ArchiveKind::Zip);
    let wanted = |name: &str| is_text(name) || is_zip(name);
    match &options.input {
        TextInput::Stdin => {
            let Some(source) = options.sources.first() else {
                return Err(Error::usage("there is no source"));
            };
            let (relative, origin) = (std::path::PathBuf::new(), source.label.clone());
            let files = std::iter::once(SourceFile::nothing(relative, origin)).collect();
            let listing = Listing { files, ..Listing::default() };
            Ok(ListedText { sources: options.sources.clone(), listing, ..ListedText::default() })
        }
        TextInput::FilesFrom(from) => {
            let [folder] = &options.sources[..] else {
                return Err(Error::usage("listed files are relative to one folder").help("give one SRC"));
            };
            let (files, details) = from.list(folder, options.recipe.follow_symlinks, false)?;
            let defects = details.into_iter().map(|d| d.defect.map(|defect| *defect)).collect();
            let listing = Listing { files: files.into_iter().collect(), ..Listing::default() };
            let sources = options.sources.clone();
            Ok(ListedText { sources, listing, defects, ..ListedText::default() })
        }
        TextInput::Walk => {
            // A file that matches a pattern counts as explicitly named, as if the shell had expanded the pattern.
            let named = |name: &str| {
                options.recipe.input_format.is_some() || FileKind::of_named(name).is_some() || is_zip(name)
            };
            let matches = globs::expand(&braces::expand(&options.sources)?, &named)?;
            let is_known = |path: &Path| {
                let name = path.file_name().unwrap_or_default().to_string_lossy();
                let kind = FileKind::of_named(&name).filter(|kind| has_ids || !kind.format.is_ids());
                options.recipe.input_format.is_none() && (kind.is_some() || is_zip(&name))
            };
            let paths = matches.sources.iter().map(|source| &*source.path);
            foreign::refuse(paths.filter(|path| !is_known(path)), |_| false)?;
            let mut listing = list(&matches.sources, options.recipe.follow_symlinks, &wanted)?;
            let mut warnings = Vec::new();
            let name = options.recipe.config.as_deref();
            let config = choose(&mut listing, &matches.sources, name, &mut warnings)?;
            let is_archive =
                |file: &SourceFile| file.archive_kind(&matches.sources) == Some(ArchiveKind::Zip);
            for file in listing.files.iter().filter(|file| file.is_named() && !is_archive(file)) {
                let path = file.path(&matches.sources);
                if kind_of(options, true, &path).is_none() {
                    return Err(Error::usage("unknown type of text file")
                        .at_path(path)
                        .help(
                            "to read it as plain text, add `input_format txt`; known types are .txt, .jsonl, .json, .csv and \
                             .tsv, also with .gz, .zst, .xz and .bz2, and .parquet, .arrow (.feather, .ipc) and .zip",
                        ));
                }
            }
            let archives = Archives {
                sources: &matches.sources,
                follow_symlinks: options.recipe.follow_symlinks,
                with_tars: false,
                is_item: &|file| !is_archive(file),
                wanted: &is_text,
                beside: &|_| false,
            };
            let mut listing = archives.expand(&listing)?.unwrap_or(listing);
            listing.skipped.extend(&matches.skipped);
            warnings.extend(listing.skipped_archives(Kind::Text));
            Ok(ListedText { sources: matches.sources, listing, defects: Vec::new(), warnings, config })
        }
    }
}

/// Returns the kind of a file: for explicitly named files, the kind in `--input-format` if given; otherwise by its name.
fn kind_of(options: &TextOptions, named: bool, path: &Path) -> Option<FileKind> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let of_name = if named { FileKind::of_named } else { FileKind::of_name };
    options.recipe.input_format.filter(|_| named).or_else(|| of_name(&name))
}

/// Examiner of files, which divides them into sections.
struct FileExaminer<'a> {
    options: &'a TextOptions,
    section_bytes: u64,
    /// Types of the kept fields, as far as they are known.
    types: &'a mut [Option<FieldType>],
    sections: Vec<FileSection>,
}

impl FileExaminer<'_> {
    fn examine(
        &mut self,
        ordinal: usize,
        file: &SourceFile,
        sources: &[SourceSpec],
        mut defect: Option<Reject>,
    ) -> Result<TextFile> {
        let path = &match file.member {
            None => file.path(sources),
            Some(_) => file.relative.clone(),
        };
        let named = file.is_named() || self.options.input != TextInput::Walk;
        let kind = kind_of(self.options, named, path);
        if kind.is_none() && defect.is_none() {
            defect = Some(Reject::new(RejectCode::UnknownType, "the name has no known text extension"));
        }
        let kind = kind.unwrap_or(FileKind { format: TextFormat::Text, compression: None });
        let mut detail = TextFile { kind, defect, columns: None, beside: None };
        if detail.defect.is_none() && self.options.input != TextInput::Stdin {
            let planned = file.planned(sources, self.options.recipe.follow_symlinks);
            let examined = ExaminedFile {
                file,
                sources,
                planned: &planned,
                recipe: &self.options.recipe,
                section_bytes: self.section_bytes,
            };
            match source_of(kind.format).plan(&examined) {
                Ok(FilePlan { columns, division, beside }) => {
                    detail.beside = beside;
                    if let Some(FileColumns { columns, types }) = columns {
                        self.check_types(types)?;
                        detail.columns = Some(columns);
                    }
                    match division {
                        Division::AtLineEnds if self.is_divisible(kind) && file.member.is_none() => {
                            self.divide_lines(ordinal, file.bytes);
                            return Ok(detail);
                        }
                        Division::Groups(groups) => {
                            let section = |(groups, weight, source_bytes)| {
                                let extent = Extent::Groups(groups);
                                FileSection { file: ordinal, extent, weight, source_bytes, image_bytes: 0 }
                            };
                            self.sections.extend(groups.into_iter().map(section));
                            return Ok(detail);
                        }
                        Division::AtLineEnds | Division::Whole => {}
                    }
                }
                Err(Broken::Damaged(reject)) => {
                    // A file that is still being written is not damaged.
                    planned.open()?.check_unchanged()?;
                    detail.defect = Some(reject);
                }
                Err(Broken::Failed(error)) => return Err(error),
            }
        }
        let weight = file.bytes.saturating_mul(kind.compression.map_or(1, |_| COMPRESSION_RATIO));
        let (extent, source_bytes) = (Extent::Whole, file.bytes);
        self.sections.push(FileSection { file: ordinal, extent, weight, source_bytes, image_bytes: 0 });
        Ok(detail)
    }

    /// Returns whether a file whose lines are independent can be divided at any line end.
    fn is_divisible(&self, kind: FileKind) -> bool {
        kind.compression.is_none() && self.options.recipe.encoding.is_none()
    }

    /// Compares the types of kept columns with those of the fields, and records those that were not yet known.
    fn check_types(&mut self, types: Vec<FieldType>) -> Result<()> {
        for ((known, found), keep) in self.types.iter_mut().zip(types).zip(self.options.recipe.read_fields())
        {
            let known = *known.get_or_insert(found);
            check_type(&keep.name, found, known)?;
        }
        Ok(())
    }

    fn divide_lines(&mut self, file: usize, file_bytes: u64) {
        let mut start = 0;
        while start < file_bytes {
            let end = (start + self.section_bytes).min(file_bytes);
            let bytes = end - start;
            let extent = Extent::Lines(start..end);
            self.sections.push(FileSection {
                file,
                extent,
                weight: bytes,
                source_bytes: bytes,
                image_bytes: 0,
            });
            start = end;
        }
    }
}

/// Groups adjacent sections into units.
pub(super) fn group(sections: &[FileSection], max_bytes: u64) -> Vec<Range<usize>> {
    let mut units = Vec::new();
    let (mut start, mut bytes) = (0, 0u64);
    for (i, section) in sections.iter().enumerate() {
        let weight = section.weight.saturating_add(section.image_bytes);
        if i > start && (bytes.saturating_add(weight) > max_bytes || i - start == UNIT_SECTIONS) {
            units.push(start..i);
            (start, bytes) = (i, 0);
        }
        bytes = bytes.saturating_add(weight);
    }
    if start < sections.len() {
        units.push(start..sections.len());
    }
    units
}
