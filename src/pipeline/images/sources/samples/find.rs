//! Archives of image folders among the sources.

use std::path::PathBuf;

use super::fields::{InspectedTars, OTHER_TARS};
use crate::error::{Error, Result};
use crate::pipeline::images::image_field_names::MemberField;
use crate::pipeline::images::image_fields::{ImageRoles, roles_of_samples};
use crate::pipeline::images::options::{ImageInput, ImagesOptions};
use crate::printable::{printable, printable_path};
use crate::recipe::ImageFields;
use crate::schema::Kind;
use crate::source::archive::ArchiveKind;
use crate::source::archive::tar::directory::first_nested;
use crate::source::items::metadata::placed::BESIDE_NAMES;
use crate::source::list::expand::{Archives, is_image_name};
use crate::source::list::file_list::FileList;
use crate::source::list::listing::Listing;
use crate::source::list::source_file::SourceFile;
use crate::source::names::layout::FolderLayout;
use crate::transform::image::has_image_extension;
use crate::warning::Warning;

/// Expands the archives of a listing into their images. Returns it with what the samples of tar files show, if there are tar
/// files that are read as WebDataset.
pub(in crate::pipeline::images) fn with_archives(
    listing: Listing,
    options: &ImagesOptions,
    warnings: &mut Vec<Warning>,
) -> Result<(Listing, Option<TarFiles>)> {
    let mut tars = TarFiles::inspect(&listing.files, options)?;
    let is_image = |file: &SourceFile| has_image_extension(&file.origin);
    let archives = Archives {
        sources: &options.sources,
        follow_symlinks: options.recipe.follow_symlinks,
        with_tars: tars.are_folders(&listing.files, options, warnings)?,
        is_item: &is_image,
        wanted: &is_image_name,
        beside: &|name| describes_images(name, options),
    };
    let mut expanded = archives.expand(&listing)?;
    let has_samples = !archives.with_tars || expanded.is_none();
    if has_samples {
        let is_item = |file: &SourceFile| file.is_tar(&options.sources) || is_image(file);
        expanded = Archives { with_tars: false, is_item: &is_item, ..archives }.expand(&listing)?;
    }
    let mut listing = expanded.unwrap_or(listing);
    warnings.extend(listing.skipped_archives(Kind::Images));
    // With images outside tar files, labels come from their folders.
    if has_samples
        && tars.inspected.has_classes
        && options.recipe.classes.is_none()
        && !listing.files.iter().any(|file| is_image(&file))
        && let Some(path) = tars.first_path.clone()
    {
        let message = format!(
            "{}: the class of each sample (.cls) becomes the field \"cls\", and records have no label",
            printable_path(&path)
        );
        let effect = "makes it the label: a name or an ordinal in a list with one class per line";
        let warning = Warning::new("tar-classes-unused", message).with("path", path);
        warnings.push(warning.remedy("classes", "FILE", effect));
    }
    if !has_samples || tars.first_path.is_none() {
        return Ok((listing, None));
    }
    tars.inspect_others(&listing.files, options)?;
    Ok((listing, Some(tars)))
}

/// Returns whether a file in an archive is named like a table or a sidecar.
fn describes_images(name: &str, options: &ImagesOptions) -> bool {
    let is_table = options.input == ImageInput::Walk && BESIDE_NAMES.contains(&name);
    is_table || options.recipe.sidecar.may_be(name)
}

/// Expands all archives of a listing, whatever is in them. Returns `None` if there are none.
pub(in crate::pipeline::images) fn expand_all(
    listing: &Listing,
    options: &ImagesOptions,
) -> Result<Option<Listing>> {
    let archives = Archives {
        sources: &options.sources,
        follow_symlinks: options.recipe.follow_symlinks,
        with_tars: true,
        is_item: &|_| false,
        wanted: &is_image_name,
        beside: &|name| options.recipe.sidecar.may_be(name),
    };
    archives.expand(listing)
}

/// The tar files of a listing, as far as some of them show.
#[derive(Default)]
pub(in crate::pipeline::images) struct TarFiles {
    inspected: InspectedTars,
    /// Path of the first tar file.
    first_path: Option<PathBuf>,
    /// Folder of an image, if the first tar file contains tar files.
    nested_folder: Option<String>,
}

impl TarFiles {
    fn inspect(files: &FileList, options: &ImagesOptions) -> Result<Self> {
        let Some(first) = files.iter().find(|file| file.is_tar(&options.sources)) else {
            return Ok(Self::default());
        };
        let planned = first.planned(&options.sources, options.recipe.follow_symlinks);
        let mut tars = Self { first_path: Some(first.path(&options.sources)), ..Self::default() };
        let is_plain = first.archive_kind(&options.sources) == Some(ArchiveKind::Tar);
        if options.recipe.image_fields == ImageFields::Auto
            && is_plain
            && let folder @ Some(_) = first_nested(&planned)?
        {
            tars.nested_folder = folder;
        } else {
            tars.inspected.first(&planned)?;
        }
        Ok(tars)
    }

    /// Inspects some of the tar files after the first one, evenly spaced to the last one.
    fn inspect_others(&mut self, files: &FileList, options: &ImagesOptions) -> Result<()> {
        let is_tar = |file: &SourceFile| file.is_tar(&options.sources);
        let others = files.iter().filter(is_tar).count().saturating_sub(1);
        let count = others.min(OTHER_TARS);
        let mut wanted = (1..=count).map(|at| at * others / count).peekable();
        for (number, file) in files.iter().filter(is_tar).enumerate() {
            if wanted.next_if_eq(&number).is_some() {
                self.inspected.other(&file.planned(&options.sources, options.recipe.follow_symlinks))?;
            }
        }
        Ok(())
    }

    /// Returns the main image and the additional images of samples. Adds a warning if their names do not say which is which.
    ///
    /// # Errors
    ///
    /// Fails if the option names a member that is not an image, or two additional images would have the same name.
    pub(in crate::pipeline::images) fn roles(
        &self,
        options: &ImagesOptions,
        warnings: &mut Vec<Warning>,
    ) -> Result<ImageRoles> {
        match &options.recipe.image_fields {
            ImageFields::Listed(listed) => ImageRoles::of_members(listed),
            ImageFields::None => Ok(ImageRoles::default()),
            ImageFields::Auto => {
                let found = roles_of_samples(&self.inspected.images);
                let at_path = |e: Error| match &self.first_path {
                    Some(path) => e.at_path(path),
                    None => e,
                };
                let (roles, warning) = found.map_err(at_path)?;
                warnings.extend(warning);
                Ok(roles)
            }
        }
    }

    /// Returns the fields that other members of samples become. With `has_classes`, the class is the label.
    ///
    /// # Errors
    ///
    /// Fails if two fields would have the same name.
    pub(in crate::pipeline::images) fn members(
        &self,
        options: &ImagesOptions,
        has_classes: bool,
        warnings: &mut Vec<Warning>,
    ) -> Result<Vec<MemberField>> {
        self.inspected.fields(options.recipe.keep_fields.as_deref(), has_classes, warnings)
    }

    /// Returns whether the tar files are archives of image folders, which must not be compressed.
    fn are_folders(
        &self,
        files: &FileList,
        options: &ImagesOptions,
        warnings: &mut Vec<Warning>,
    ) -> Result<bool> {
        if options.recipe.image_fields != ImageFields::Auto || options.recipe.keep_fields.is_some() {
            return Ok(false);
        }
        let sources = &options.sources;
        let has_bare_images = self.inspected.has_bare_images || self.nested_folder.is_some();
        let folder = self.inspected.folder.as_ref().or(self.nested_folder.as_ref());
        // With images outside tar files, labels come from their folders.
        let needs_labels = options.recipe.layout == FolderLayout::Labels
            && has_bare_images
            && !files.iter().any(|file| has_image_extension(&file.origin));
        if options.recipe.layout == FolderLayout::Flat || !(folder.is_some() || needs_labels) {
            return Ok(false);
        }
        let is_compressed =
            |file: &SourceFile| file.is_tar(sources) && file.archive_kind(sources) != Some(ArchiveKind::Tar);
        let Some(compressed) = files.iter().find(is_compressed) else { return Ok(true) };
        let path = compressed.path(sources);
        if needs_labels {
            let error = Error::usage("`layout labels` cannot take labels from a compressed tar file");
            return Err(error.at_path(path).help(
                "decompress it with gzip -d or zstd -d, or make a zip archive; with `layout flat`, images have no labels",
            ));
        }
        warnings.extend(folder.map(|example| {
            let message = format!(
                "{} is compressed and read as WebDataset: its folders, such as {:?}, are neither classes nor splits; to use \
                 them, decompress it with gzip -d or zstd -d, or make a zip archive",
                printable_path(&path),
                printable(example)
            );
            let warning = Warning::new("tar-folders-unused", message).with("path", &path);
            let effect = "puts everything into train without a warning";
            warning.with("example", example).remedy("layout", "flat", effect)
        }));
        Ok(false)
    }
}
