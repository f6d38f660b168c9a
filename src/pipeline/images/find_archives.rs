//! Archives of image folders among the sources.

use std::path::PathBuf;

use super::image_fields::{ImageField, ImageFields, InspectedTar, inspect_tar};
use super::options::{ImageInput, ImagesOptions};
use crate::error::{Error, Result};
use crate::schema::Kind;
use crate::source::archive::{ArchiveKind, Archives, ExpandedListing, is_image_name};
use crate::source::file_list::FileList;
use crate::source::layout::FolderLayout;
use crate::source::listing::Listing;
use crate::source::metadata::BESIDE_NAMES;
use crate::source::source_file::SourceFile;
use crate::source::tar::first_nested;
use crate::source::warning::Warning;
use crate::transform::image::has_image_extension;

/// Expands the archives of a listing into their images. Returns it with the additional images of samples in tar files, if
/// these are read as WebDataset.
pub(super) fn with_archives(
    listing: Listing,
    options: &ImagesOptions,
    warnings: &mut Vec<Warning>,
) -> Result<(Listing, Vec<ImageField>)> {
    let tars = TarFiles::inspect(&listing.files, options)?;
    let is_image = |file: &SourceFile| has_image_extension(&file.origin);
    let archives = Archives {
        sources: &options.sources,
        follow_symlinks: options.follow_symlinks,
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
    let expanded = expanded.unwrap_or_else(|| ExpandedListing::unchanged(listing));
    let ExpandedListing { listing, left_out } = expanded;
    warnings.extend(left_out.map(|example| Warning::ArchivesSkipped { kind: Kind::Images, example }));
    // With images outside tar files, labels come from their folders.
    if let Some(path) = tars.classes_in
        && has_samples
        && options.classes.is_none()
        && !listing.files.iter().any(|file| is_image(&file))
    {
        warnings.push(Warning::TarClassesUnused { path });
    }
    Ok((listing, if has_samples { tars.image_fields } else { Vec::new() }))
}

/// Returns whether the name of a file in an archive is that of a table or a sidecar.
fn describes_images(name: &str, options: &ImagesOptions) -> bool {
    let is_table = options.input == ImageInput::Walk && BESIDE_NAMES.contains(&name);
    is_table || options.sidecars.may_be(name)
}

/// Expands all archives of a listing, whatever is in them. Returns `None` if there are none.
pub(super) fn expand_all(listing: &Listing, options: &ImagesOptions) -> Result<Option<ExpandedListing>> {
    let archives = Archives {
        sources: &options.sources,
        follow_symlinks: options.follow_symlinks,
        with_tars: true,
        is_item: &|_| false,
        wanted: &is_image_name,
        beside: &|name| options.sidecars.may_be(name),
    };
    archives.expand(listing)
}

/// The tar files of a listing, as far as its first one shows.
#[derive(Default)]
struct TarFiles {
    /// Additional images of samples.
    image_fields: Vec<ImageField>,
    /// Whether there are images, and they have no class, text or additional image of their own.
    has_bare_images: bool,
    /// Folder of an image, if the first tar file looks like an archive of image folders.
    folder: Option<String>,
    /// Path of the first tar file, if its samples have classes.
    classes_in: Option<PathBuf>,
}

impl TarFiles {
    fn inspect(files: &FileList, options: &ImagesOptions) -> Result<Self> {
        let Some(first) = files.iter().find(|file| file.is_tar(&options.sources)) else {
            return Ok(Self::default());
        };
        match &options.image_fields {
            ImageFields::Listed(fields) => Ok(Self { image_fields: fields.clone(), ..Self::default() }),
            ImageFields::None => Ok(Self::default()),
            ImageFields::Auto => {
                let planned = first.planned(&options.sources, options.follow_symlinks);
                let is_plain = first.archive_kind(&options.sources) == Some(ArchiveKind::Tar);
                if is_plain && let folder @ Some(_) = first_nested(&planned)? {
                    return Ok(Self { has_bare_images: true, folder, ..Self::default() });
                }
                let InspectedTar { fields, has_bare_images, folder, has_classes } = inspect_tar(&planned)?;
                let classes_in = has_classes.then(|| first.path(&options.sources));
                Ok(Self { image_fields: fields, has_bare_images, folder, classes_in })
            }
        }
    }

    /// Returns whether the tar files are archives of image folders, which must not be compressed.
    fn are_folders(
        &self,
        files: &FileList,
        options: &ImagesOptions,
        warnings: &mut Vec<Warning>,
    ) -> Result<bool> {
        let sources = &options.sources;
        // With images outside tar files, labels come from their folders.
        let needs_labels = options.layout == FolderLayout::Labels
            && self.has_bare_images
            && !files.iter().any(|file| has_image_extension(&file.origin));
        if options.layout == FolderLayout::Flat || !(self.folder.is_some() || needs_labels) {
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
        warnings.extend(self.folder.clone().map(|example| Warning::TarFoldersUnused { path, example }));
        Ok(false)
    }
}
