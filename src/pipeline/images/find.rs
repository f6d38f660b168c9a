//! Search for images in the sources.

use std::collections::{BTreeSet, HashSet};

use super::companions::divide;
use super::found::{FoundContainers, FoundImages, images_among, is_damage};
use super::image_field_names::MemberField;
use super::image_fields::ImageRoles;
use super::options::{ImageInput, ImagesOptions};
use super::sidecars::{
    FileField, Paired, add_fields, pair, pair_listed, unread_beside_listed, unread_beside_named,
};
use super::sources::Containers;
use super::sources::examples::find::find_examples;
use super::sources::samples::Samples;
use super::sources::samples::fields::default_members;
use super::sources::samples::find::{expand_all, with_archives};
use super::sources::tables::Tables;
use super::sources::tables::find::{TableSearch, find_tables};
use crate::error::{Error, ErrorKind, Result};
use crate::numbers::plural;
use crate::options::SourceSpec;
use crate::pipeline::source_checks::check_origins;
use crate::printable::{printable, printable_path};
use crate::recipe::Sidecars;
use crate::sample::{RejectCode, Value};
use crate::schema::FieldType;
use crate::source::archive::ArchiveKind;
use crate::source::io::name::portable_name;
use crate::source::items::annotations::annotate;
use crate::source::items::box_fields::{BoxColumn, BoxScan, boxes_not_moved, is_box_column, source_side};
use crate::source::items::metadata::placed::{BESIDE_NAMES, list_beside};
use crate::source::items::metadata::rows::Metadata;
use crate::source::list::detail::Detail;
use crate::source::list::expand::is_image_name;
use crate::source::list::file_list::FileList;
use crate::source::list::listed_names::ListedNames;
use crate::source::list::listing::Listing;
use crate::source::list::source_file::SourceFile;
use crate::source::list::walk::list;
use crate::source::names::hub_configs::choose;
use crate::source::names::layout::FolderLayout;
use crate::transform::image::has_image_extension;
use crate::warning::Warning;

/// Returns whether the file is a metadata file that describes the images next to it.
fn is_metadata_file(file: &SourceFile) -> bool {
    let name = file.origin.rsplit('/').next().unwrap_or_default();
    !file.is_named() && BESIDE_NAMES.contains(&name)
}

/// Adds help to an error about metadata that was found by the walk: how to convert without it.
pub(super) fn metadata_help(error: Error) -> Error {
    // List fields are columns of the table that was found, so it is not unexpected.
    if error.kind() != ErrorKind::Usage || matches!(error.option(), Some("list_fields" | "label_field")) {
        return error;
    }
    error.help(
        "`metadata none` ignores metadata files beside images; `metadata FILE` with `path_field` and `keep_fields` \
         chooses columns",
    )
}

/// Finds the images in the sources.
pub(super) fn find(options: &ImagesOptions) -> Result<FoundImages> {
    if let Some(option) = options.describing().filter(|_| !options.input.walks()) {
        return Err(Error::usage(
            "it describes images that are found in folders, but a list or table names them",
        )
        .of_option(option)
        .help("leave out the list or table, or add its columns with the paths of masks and images"));
    }
    if let (Some(_), ImageInput::Metadata(_)) = (&options.recipe.config, &options.input) {
        return Err(Error::usage("a configuration is a set of files, but a table names them")
            .of_option("config")
            .help("leave out the table or `config`"));
    }
    match &options.input {
        ImageInput::Walk | ImageInput::WalkOnly => walk(options),
        ImageInput::FilesFrom(from) => {
            let (files, details) =
                from.list(one_folder(&options.sources)?, options.recipe.follow_symlinks, true)?;
            let files = files.into_iter().collect();
            FoundImages { files, details, ..FoundImages::default() }.with_listed_sidecars(options)
        }
        ImageInput::Metadata(table) => {
            let source = one_folder(&options.sources)?;
            let read = |archive: Option<&Listing>| {
                let listed = archive.map(|listing| ListedNames::new(&listing.files));
                let (follow, classes) = (options.recipe.follow_symlinks, options.recipe.classes.as_deref());
                let (label, lists) = (options.recipe.label_field.as_deref(), &options.recipe.list_fields);
                table.list(source, follow, classes, label, lists, listed)
            };
            let mut archive = listed_archive(options)?;
            let mut found = read(archive.as_ref())?;
            let is_missing = |detail: &Detail| {
                detail.defect.as_ref().is_some_and(|defect| defect.code == RejectCode::MissingFile)
            };
            // The files may be in archives in the folder.
            if archive.is_none() && !found.details.is_empty() && found.details.iter().all(is_missing) {
                let listing = list(&options.sources, options.recipe.follow_symlinks, &|_| true)?;
                archive = expand_all(&listing, options)?;
                if archive.is_some() {
                    found = read(archive.as_ref())?;
                }
            }
            let found = FoundImages::of(found).with_boxes(options)?;
            let found = FoundImages { tables: vec![table.path.clone()], ..found };
            match archive {
                Some(listing) => found.with_sidecars(&listing.files, options),
                None => found.with_listed_sidecars(options),
            }
        }
    }
}

/// Returns the images found by walking the sources.
fn walk(options: &ImagesOptions) -> Result<FoundImages> {
    let sources = &options.sources;
    let mut listing = list(sources, options.recipe.follow_symlinks, &|_| true)?;
    check_origins(&listing.files, sources)?;
    let mut warnings: Vec<Warning> = listing.unusable_keys().into_iter().collect();
    let config = choose(&mut listing, sources, options.recipe.config.as_deref(), &mut warnings)?;
    Ok(FoundImages { config, ..find_in(listing, options, warnings)? })
}

/// Returns the images in `listing`.
fn find_in(listing: Listing, options: &ImagesOptions, mut warnings: Vec<Warning>) -> Result<FoundImages> {
    let sources = &options.sources;
    let image_tables = match find_tables(&listing.files, options)? {
        TableSearch::Images(found) => Some(*found),
        TableSearch::None { damaged, others, warning } => {
            warnings.extend(warning);
            of_damaged_tables(damaged, others, &listing, sources, &mut warnings)
        }
    };
    let containers = match image_tables {
        Some(tables) => Some((tables, "Parquet or Arrow files")),
        None => find_examples(&listing.files, options)?.map(|found| (found, "TFRecord files")),
    };
    let (listing, samples) = match containers {
        Some(_) => (listing, None),
        None => with_archives(listing, options, &mut warnings)?,
    };
    let tars = listing.files.iter().any(|f| f.is_tar(sources));
    let in_archives = listing.files.iter().any(|f| f.member.is_some());
    if in_archives {
        check_origins(&listing.files, sources)?;
    }
    let mut tables: Vec<SourceFile> = listing.files.iter().filter(is_metadata_file).collect();
    if options.input == ImageInput::WalkOnly {
        tables.clear();
    } else if tars || containers.is_some() {
        let skipped = |table: SourceFile| {
            let path = table.path(sources);
            let name = printable_path(&path);
            let message = format!("{name}: metadata next to WebDataset, Parquet or Arrow files is not used");
            let warning = Warning::new("metadata-skipped", message).with("path", path);
            warning.remedy("metadata", "none", "leaves it out without a warning")
        };
        warnings.extend(tables.drain(..).map(skipped));
    }
    if let Some(option) = options.describing() {
        if containers.is_some() || tars {
            let what = "it describes files, but the sources are tar files of samples, tables of images, or TFRecord files";
            return Err(Error::usage(what)
                .of_option(option)
                .help("leave it out: members of samples and columns become fields"));
        }
        if let Some(table) = tables.first() {
            return Err(Error::usage("there is a table of metadata beside the images, too")
                .of_option(option)
                .at_path(table.path(sources))
                .help("ignore it with `metadata none`"));
        }
        return annotated(listing, options, warnings);
    }
    if let Some((found, what)) = containers {
        return of_containers(found, what, listing, warnings, sources);
    }
    if tables.is_empty() {
        let Listing { files, mut skipped, .. } = listing;
        // Without folders that could be classes, `--classes` names the classes of samples.
        let tar_files = Containers::Samples(Samples { members: Vec::new(), has_labels: false });
        let is_labeled = tars
            && options.recipe.layout != FolderLayout::Labels
            && images_among(&files, options, &tar_files).iter().all(|f| f.is_tar(sources));
        let class_names = options.recipe.classes.clone().filter(|_| is_labeled);
        let labels_in_samples = class_names.is_some();
        let (mut roles, mut members) = (ImageRoles::default(), Vec::new());
        if let Some(samples) = &samples {
            roles = samples.roles(options, &mut warnings)?;
            members = samples.members(options, labels_in_samples, &mut warnings)?;
        }
        let fields = members.iter().map(MemberField::field);
        let fields = fields.chain(roles.fields.iter().map(MemberField::field)).collect();
        let is_default = members == default_members(labels_in_samples);
        let described_members = if is_default { Vec::new() } else { members.clone() };
        let containers = match samples {
            Some(_) => Containers::Samples(Samples { members, has_labels: labels_in_samples }),
            None => Containers::None,
        };
        let found =
            FoundImages { fields, class_names, warnings, roles, containers, ..FoundImages::default() };
        let found = FoundImages { described_members, walked: true, files, ..found };
        let mut found = found.with_walked_sidecars(tars, options)?;
        if in_archives {
            // As in an archive without sidecars, names determine which files are images.
            let is_other = |file: &SourceFile| {
                file.member.is_some()
                    && file.of_field.is_none()
                    && !is_damage(file)
                    && !is_image_name(&file.name(sources))
            };
            found.files.iter().filter(is_other).for_each(|file| skipped.add(&file.origin));
            found.files = found.files.iter().filter(|file| !is_other(file)).collect();
        }
        return Ok(FoundImages { skipped, ..found });
    }
    let classes = options.recipe.classes.as_deref();
    let listed = in_archives.then(|| ListedNames::new(&listing.files));
    let named = list_beside(
        &tables,
        sources,
        options.recipe.follow_symlinks,
        classes,
        options.recipe.label_field.as_deref(),
        &options.recipe.list_fields,
        listed,
    )
    .map_err(metadata_help)?;
    let mut found = FoundImages::of(named).with_boxes(options)?.with_sidecars(&listing.files, options)?;
    // Damage to an archive is an item, which no row names.
    for damage in listing.files.iter().filter(is_damage) {
        found.files.push(&damage);
        found.details.push(Detail::default());
    }
    let origins: HashSet<String> = found.files.iter().map(|f| f.origin).collect();
    let in_no_row = |f: &SourceFile| !origins.contains(&f.origin);
    let images = images_among(&listing.files, options, &Containers::None);
    let mut left_out = images.iter().filter(|f| in_no_row(f));
    if let Some(first) = left_out.next() {
        let (images, example) = (1 + left_out.count() as u64, first.origin.clone());
        let message = format!(
            "{images} image{} left out, such as {:?}",
            match images {
                1 => " has no row in the metadata and is",
                _ => "s have no row in the metadata and are",
            },
            printable(&example)
        );
        let effect = "converts all images, without the fields of the metadata";
        let warning = Warning::new("images-without-row", message).with("images", images);
        warnings.push(warning.with("example", example).remedy("metadata", "none", effect));
    }
    let mut skipped = listing.skipped;
    listing.files.iter().filter(|f| in_no_row(f)).for_each(|f| skipped.add(&f.origin));
    let path = |table: &SourceFile| match table.is_named() {
        true => table.path(sources),
        false => sources[table.source as usize].path.join(&table.relative),
    };
    let tables = tables.iter().map(path).collect();
    found.warnings.extend(warnings);
    Ok(FoundImages { skipped, tables, metadata_by_walk: true, ..found })
}

/// Returns the images of `listing` with their annotations and companions. Names determine which files are images.
fn annotated(listing: Listing, options: &ImagesOptions, mut warnings: Vec<Warning>) -> Result<FoundImages> {
    let (sources, companions) = (&options.sources, &options.recipe.companion[..]);
    let divided = divide(&listing.files, companions, sources)?;
    let mut found = FoundImages::default();
    let mut label_files = HashSet::new();
    let mut details = vec![Detail::default(); divided.images.len()];
    if !options.annotations.is_empty() {
        let classes = options.recipe.classes.as_deref();
        let annotated = annotate(&options.annotations, &divided.images, sources, classes)?;
        warnings.extend(annotated.warnings);
        (details, label_files) = (annotated.details, annotated.files);
        found.fields = annotated.fields;
        found.box_classes = annotated.class_names;
        found.content = Some(annotated.content);
    }
    divided.accompany(&listing.files, companions, details, &mut found);
    warnings.append(&mut found.warnings);
    let is_label = |file: &SourceFile| {
        let path = file.path(sources);
        file.member.is_none() && label_files.contains(&std::path::absolute(&path).unwrap_or(path))
    };
    let others: FileList = match label_files.is_empty() {
        true => listing.files.clone(),
        false => listing.files.iter().filter(|file| !is_label(file)).collect(),
    };
    let mut found = found.with_sidecars(&others, options)?;
    let origins: HashSet<String> = found.files.iter().map(|file| file.origin).collect();
    let mut skipped = listing.skipped;
    for file in listing.files.iter() {
        if is_damage(&file) {
            found.files.push(&file);
            found.details.push(Detail::default());
        } else if !origins.contains(&file.origin) && !is_label(&file) {
            skipped.add(&file.origin);
        }
    }
    found.warnings.extend(warnings);
    Ok(FoundImages { skipped, ..found })
}

/// Decides about `damaged` Parquet files where no sound one has images. If there is nothing else to convert, they are
/// rejected, as they would be beside a sound one. Otherwise, a warning names them.
fn of_damaged_tables(
    mut damaged: Vec<SourceFile>,
    others: BTreeSet<usize>,
    listing: &Listing,
    sources: &[SourceSpec],
    warnings: &mut Vec<Warning>,
) -> Option<FoundContainers> {
    damaged.retain(|file| !is_metadata_file(file));
    let path = damaged.first()?.path(sources);
    let is_item = |f: &SourceFile| has_image_extension(&f.origin) || f.archive_kind(sources).is_some();
    if !listing.files.iter().any(|f| is_item(&f)) {
        let containers = Containers::Tables(Tables::default());
        return Some(FoundContainers {
            others,
            images: FoundImages { containers, ..FoundImages::default() },
        });
    }
    let name = printable_path(&path);
    let (others, verb) = match damaged.len() as u64 - 1 {
        0 => (String::new(), "is"),
        more => (format!(" and {}", plural(more, "more such file")), "are"),
    };
    let message = format!("{name}{others} {verb} damaged and skipped, and not counted as rejected");
    let warning = Warning::new("damaged-tables", message);
    warnings.push(warning.with("files", damaged.len()).with("path", path));
    None
}

/// Returns the result of a walk that found containers with images, which are `what`.
fn of_containers(
    found: FoundContainers,
    what: &str,
    listing: Listing,
    mut warnings: Vec<Warning>,
    sources: &[SourceSpec],
) -> Result<FoundImages> {
    let FoundContainers { mut images, others } = found;
    warnings.append(&mut images.warnings);
    let is_zip = |f: &SourceFile| f.archive_kind(sources) == Some(ArchiveKind::Zip);
    let is_other =
        |f: &SourceFile| f.is_tar(sources) || has_image_extension(&f.origin) || (f.is_named() && is_zip(f));
    if let Some(other) = listing.files.iter().find(is_other) {
        let origin = printable(&other.origin);
        let message = format!("some images are in {what} and others are not, such as {origin}");
        return Err(Error::usage(message).help("convert them separately"));
    }
    let mut skipped = listing.skipped;
    let mut files = FileList::default();
    for (at, file) in listing.files.iter().enumerate() {
        if others.contains(&at) || is_zip(&file) {
            skipped.add(&file.origin);
        } else {
            files.push(&file);
        }
    }
    Ok(FoundImages { walked: true, files, skipped, warnings, ..images })
}

impl FoundImages {
    fn of(metadata: Metadata) -> Self {
        let Metadata { files, details, mut fields, class_names, content, image_fields, below } = metadata;
        let files = files.into_iter().collect();
        // The size of the source beside boxes in its pixels; records have a size of their own.
        let has_boxes =
            fields.iter().any(|field| is_box_column(&field.name)) || BoxColumn::sides_in(&fields).is_some();
        for at in (0..fields.len()).filter(|_| has_boxes) {
            if let Some(name) =
                source_side(&fields[at].name).filter(|name| fields.iter().all(|f| f.name != *name))
            {
                fields[at].name = name.to_owned();
            }
        }
        let (ty, at) = (FieldType::Image, 0..image_fields.len());
        let image = |(name, member)| MemberField { name, member, ty };
        let image_fields: Vec<_> = image_fields.into_iter().map(image).collect();
        fields.extend(image_fields.iter().map(MemberField::field));
        let roles = ImageRoles { main: None, fields: image_fields };
        let file_fields = at.map(|at| FileField { ty, at }).collect();
        let warnings = below.into_iter().collect();
        let found = Self { files, details, fields, roles, file_fields, warnings, ..Self::default() };
        Self { class_names, content: Some(content), ..found }
    }

    /// Makes the boxes that a field of the rows holds fields of their own, which follow the image.
    fn with_boxes(mut self, options: &ImagesOptions) -> Result<Self> {
        let Some(column) = BoxColumn::find(&self.fields) else {
            let field = BoxColumn::sides_in(&self.fields);
            self.warnings.extend(field.map(|field| boxes_not_moved(&field)));
            return Ok(self);
        };
        let mut scan = BoxScan::default();
        let has_values = |detail: &&Detail| !detail.values.is_empty();
        self.details.iter().filter(has_values).for_each(|detail| scan.add(&column, &detail.values));
        if !scan.has_boxes(&column) {
            return Ok(self);
        }
        let Some(reader) = self.box_reader(column, &scan, None, options) else { return Ok(self) };
        for detail in self.details.iter_mut().filter(|detail| !detail.values.is_empty()) {
            match reader.read(&detail.values) {
                Ok(boxes) => detail.boxes = boxes.map(Box::new),
                Err(reject) => detail.defect = detail.defect.take().or(Some(Box::new(reject))),
            }
            let values = std::mem::take(&mut detail.values).into_vec();
            detail.values = reader.fields().iter().map(|_| Value::Null).chain(values).collect();
        }
        self.fields.splice(..0, reader.fields());
        Ok(self)
    }

    /// Adds the sidecars of the files that a walk found.
    fn with_walked_sidecars(self, has_samples: bool, options: &ImagesOptions) -> Result<Self> {
        let sources = &options.sources;
        let is_container = |file: SourceFile| file.is_tar(sources);
        if matches!(options.recipe.sidecar, Sidecars::Listed(_)) && self.files.iter().all(is_container) {
            return Err(Error::usage(
                "`sidecar` names files beside images, but all sources are tar files of samples",
            )
            .of_option("sidecar")
            .help("leave it out: the members of a sample become fields"));
        }
        let mut found = match pair(&self.files, None, sources, &options.recipe.sidecar, 0) {
            Some(paired) => self.with_paired(paired, has_samples)?,
            None => self,
        };
        if options.recipe.sidecar != Sidecars::None {
            found.warnings.extend(unread_beside_named(&found.files, sources)?);
        }
        Ok(found)
    }

    /// Adds the sidecars of files that rows name, which are in `listing`.
    fn with_sidecars(self, listing: &FileList, options: &ImagesOptions) -> Result<Self> {
        let named = Some((&self.files, &self.details[..]));
        match pair(listing, named, &options.sources, &options.recipe.sidecar, self.file_fields.len() as u32) {
            Some(paired) => self.with_paired(paired, false),
            None => Ok(self),
        }
    }

    /// Adds the sidecars of files that a list or rows name.
    fn with_listed_sidecars(mut self, options: &ImagesOptions) -> Result<Self> {
        let (source, follow) = (one_folder(&options.sources)?, options.recipe.follow_symlinks);
        match &options.recipe.sidecar {
            Sidecars::None => Ok(self),
            Sidecars::Auto => {
                self.warnings.extend(unread_beside_listed(&self.files, source, follow)?);
                Ok(self)
            }
            Sidecars::Listed(extensions) => {
                let first_field = self.file_fields.len() as u32;
                let paired =
                    pair_listed(&self.files, &self.details, source, follow, extensions, first_field)?;
                self.with_paired(paired, false)
            }
        }
    }

    fn with_paired(mut self, paired: Paired, has_samples: bool) -> Result<Self> {
        let Paired { files, details, sidecars } = paired;
        let added = add_fields(&sidecars, &mut self.fields, self.roles.fields.len(), has_samples)?;
        self.file_fields.extend(added);
        Ok(Self { files, details, sidecars, ..self })
    }
}

/// Returns the files in the archive that is the source of listed names; `None` if the source is a folder.
fn listed_archive(options: &ImagesOptions) -> Result<Option<Listing>> {
    let is_archive = |source: &SourceSpec| {
        source.path.file_name().is_some_and(|name| ArchiveKind::of_name(&portable_name(name)).is_some())
    };
    if !options.sources.iter().all(is_archive) {
        return Ok(None);
    }
    let listing = list(&options.sources, options.recipe.follow_symlinks, &|_| true)?;
    // A folder may have the name of an archive.
    if !listing.files.iter().all(|file| file.is_named()) {
        return Ok(None);
    }
    expand_all(&listing, options)
}

/// Returns the folder that names are relative to.
fn one_folder(sources: &[SourceSpec]) -> Result<&SourceSpec> {
    match sources {
        [one] => Ok(one),
        _ => Err(Error::usage(format!(
            "listed files are relative to one folder, but there are {} sources",
            sources.len()
        ))
        .help("give one SRC, or none")),
    }
}
