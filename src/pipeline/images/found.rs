//! The images found in the sources, and what their folders say about them.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::path::PathBuf;

use super::image_field_names::MemberField;
use super::image_fields::ImageRoles;
use super::options::ImagesOptions;
use super::sidecars::FileField;
use super::sources::Containers;
use crate::error::{Error, Result};
use crate::numbers::listed;
use crate::pipeline::plan::SidecarSummary;
use crate::schema::Field;
use crate::source::io::planned::begins_as_any_image;
use crate::source::items::box_fields::{
    BoxColumn, BoxForm, BoxScan, RowBoxesReader, boxes_moved, boxes_not_moved,
};
use crate::source::list::detail::Detail;
use crate::source::list::file_list::{ChosenFiles, FileList};
use crate::source::list::skipped::SkippedTypes;
use crate::source::list::source_file::SourceFile;
use crate::source::names::hub_configs::ConfigFiles;
use crate::source::names::image_names::{masks_beside, unused_lists};
use crate::source::names::labels::Folders;
use crate::source::names::layout::FolderLayout;
use crate::source::names::split_levels::SplitNames;
use crate::source::names::splits::Splits;
use crate::transform::image::has_image_extension;
use crate::warning::{Warning, quoted};

/// Maximum number of files per folder that are inspected if no file name in it identifies an image.
const SNIFFED_FILES: usize = 16;

/// The images found in the sources.
#[derive(Default)]
pub(super) struct FoundImages {
    pub(super) files: FileList,
    /// One per file, or empty.
    pub(super) details: Vec<Detail>,
    pub(super) skipped: SkippedTypes,
    /// Fields for which the details have values.
    pub(super) fields: Vec<Field>,
    /// Fields whose values are in files of their own, which follow those of their items.
    pub(super) file_fields: Vec<FileField>,
    pub(super) sidecars: Vec<SidecarSummary>,
    /// Images of samples and rows. The additional ones are the last of the fields.
    pub(super) roles: ImageRoles,
    /// The members or columns that become fields, as the manifest describes them; empty for the default.
    pub(super) described_members: Vec<MemberField>,
    /// The containers among the files.
    pub(super) containers: Containers,
    /// Columns of Parquet files that are left out.
    pub(super) left_out: Vec<String>,
    /// The classes of the labels in the details.
    pub(super) class_names: Option<Vec<String>>,
    /// The Parquet files in which classes occur, unless they declare the classes.
    pub(super) labeled: Vec<(SourceFile, u32)>,
    /// Whether labels in Parquet files are ordinals of classes rather than names.
    pub(super) labels_are_ordinals: bool,
    /// The classes of the boxes; empty if there are no boxes.
    pub(super) box_classes: Vec<String>,
    /// Hash of the metadata or of the annotations.
    pub(super) content: Option<u128>,
    /// Whether the files were found by walking the sources rather than named by a list or by rows.
    pub(super) walked: bool,
    /// Metadata files whose rows name the files.
    pub(super) tables: Vec<PathBuf>,
    /// Whether the metadata files were found by the walk rather than named.
    pub(super) metadata_by_walk: bool,
    /// The files of the splits, if the card of a repository lists them.
    pub(super) config: ConfigFiles,
    /// Decisions of the search that may not be intended.
    pub(super) warnings: Vec<Warning>,
}

impl FoundImages {
    /// Returns the reader of the boxes in a column of rows, whose categories may be `declared`, and adds their classes. Returns
    /// `None` with a warning if they cannot follow the image.
    pub(super) fn box_reader(
        &mut self,
        column: BoxColumn,
        scan: &BoxScan,
        declared: Option<Vec<String>>,
        options: &ImagesOptions,
    ) -> Option<RowBoxesReader> {
        let (field, layout) = (column.name.clone(), options.recipe.layout);
        // A dataset has one list of classes.
        let can_have_classes =
            self.class_names.is_none() && matches!(layout, FolderLayout::Auto | FolderLayout::Flat);
        let has_room = column.has_room(&self.fields);
        let classes = options.recipe.classes.as_deref();
        let reader = RowBoxesReader::of(column, scan, declared, classes)
            .filter(|reader| has_room && (can_have_classes || reader.class_names().is_empty()));
        self.warnings.push(match &reader {
            None => boxes_not_moved(&field),
            Some(reader) => boxes_moved(&field, reader.form() == BoxForm::Sizes),
        });
        self.box_classes = reader.as_ref().map(|reader| reader.class_names().to_vec()).unwrap_or_default();
        reader
    }

    /// Returns the files that may be items. Whether a file without the name of an image is one may depend on its
    /// content, which is read when it is converted.
    pub(super) fn items(&self, options: &ImagesOptions) -> ChosenFiles<'_> {
        match self.walked {
            true => images_among(&self.files, options, &self.containers).also(|file| file.of_field.is_none()),
            false => ChosenFiles::filtered(&self.files, |file| file.of_field.is_none()),
        }
    }

    /// Warns of folders that would be classes if no metadata described the images.
    fn warn_of_unused_folders(&self, folders: &mut Folders, images: &ChosenFiles<'_>) -> Result<()> {
        let would_be = folders.clone().with_classes(images, FolderLayout::Auto, None)?.class_names;
        if let Some(classes) = would_be.filter(|classes| classes.len() > 1) {
            let in_splits = folders.splits.are_folders();
            let message = format!(
                "the folders {} are not classes, because metadata describes the images",
                quoted(&classes)
            );
            let (layout, effect) = match in_splits {
                false => ("labels", "makes the folders classes"),
                true => ("splits", "makes the first-level folders splits and the folders in them classes"),
            };
            let warning = Warning::new("folder-classes-unused", message).with("folders", classes);
            folders.warnings.push(warning.with("in_splits", in_splits).remedy("layout", layout, effect));
        }
        Ok(())
    }

    /// Returns the warning about splits without a box, if others have boxes.
    fn splits_without_boxes(&self, folders: &Folders) -> Option<Warning> {
        let names = &folders.splits.names;
        let (mut images, mut boxed) = (vec![false; names.len()], vec![false; names.len()]);
        for (file, detail) in self.files.iter().zip(&self.details).filter(|(file, _)| file.of_field.is_none())
        {
            let split = folders.splits.of(&file);
            let has_boxes = detail.boxes.as_ref().is_some_and(|boxes| !boxes.list.boxes.is_empty());
            if let (Some(images), Some(boxed)) = (images.get_mut(split), boxed.get_mut(split)) {
                *images = true;
                *boxed |= has_boxes;
            }
        }
        let without = names.iter().zip(images).zip(boxed).filter(|((_, images), boxed)| *images && !boxed);
        let splits: Vec<String> = without.map(|((name, _), _)| name.clone()).collect();
        if splits.is_empty() {
            return None;
        }
        let message = format!(
            "no image in {} has a box, as if all were background; the annotations of these images may be elsewhere",
            listed(splits.iter().cloned())
        );
        Some(Warning::new("splits-without-boxes", message).with("splits", splits))
    }

    /// Interprets the folders of the `items`. Labels in metadata replace classes from folders. Metadata found by the walk
    /// does so even without labels, unless the options request folders.
    pub(super) fn folders(&self, items: &ChosenFiles<'_>, options: &ImagesOptions) -> Result<Folders> {
        let layout = options.recipe.layout;
        // A listed file without a safe path is not in a folder either.
        let placed = items.also(|f| self.walked || !f.is_named());
        let images = placed.also(|f| !self.containers.hold(f, &options.sources));
        let names = if images.is_empty() && !placed.is_empty() {
            SplitNames::OfContainers
        } else {
            SplitNames::OfImages
        };
        let mut folders = match layout == FolderLayout::Auto && !self.config.is_empty() {
            true => Folders::of_splits(Splits::configured(&placed, self.config.clone(), names)?),
            false => Folders::of(&placed, layout, names)?,
        };
        if !self.box_classes.is_empty() {
            if layout == FolderLayout::Labels {
                return Err(Error::usage(
                    "the annotations have classes, but `layout labels` takes classes from folders",
                )
                .help("leave out `layout`: a dataset has one list of classes"));
            }
            if options.recipe.output.split.is_none() {
                folders.warnings.extend(self.splits_without_boxes(&folders));
            }
            if self.metadata_by_walk {
                self.warn_of_unused_folders(&mut folders, &images)?;
            }
        } else if let Some(names) = &self.class_names {
            if layout == FolderLayout::Labels {
                let error =
                    Error::usage("the metadata has labels, but `layout labels` takes labels from folders");
                if self.containers.have_label_field() {
                    return Err(error.help("leave out `layout`"));
                }
                return Err(match self.metadata_by_walk {
                    true => error.help("leave out `layout`, or ignore the metadata with `metadata none`"),
                    false => error.help("leave out `layout`, or rename the column \"label\""),
                });
            }
            let of_rows = self.files.iter().zip(&self.details).filter_map(|(f, row)| Some((f, row.label?)));
            let of_tables = self.labeled.iter().cloned();
            let named = |(file, class): (SourceFile, u32)| Some((file, names.get(class as usize)?));
            folders.warn_of_labels(of_rows.chain(of_tables).filter_map(named));
        } else if !self.metadata_by_walk || options.recipe.classes.is_some() || layout != FolderLayout::Auto {
            folders = folders.with_classes(&images, layout, options.recipe.classes.clone())?;
        } else {
            self.warn_of_unused_folders(&mut folders, &images)?;
        }
        if self.walked && matches!(layout, FolderLayout::Auto | FolderLayout::Splits) {
            folders.warn_of_masks(&images);
        }
        if options.input.walks() && self.tables.is_empty() {
            folders.warnings.extend(masks_beside(&images));
        }
        if layout == FolderLayout::Auto && self.class_names.is_none() && options.recipe.classes.is_none() {
            folders.warn_of_parts(&images);
            folders.warn_of_nested(&images);
        }
        if self.walked && layout == FolderLayout::Auto {
            let (sources, follow, by) = (&options.sources, options.recipe.follow_symlinks, folders.splits.by);
            if options.recipe.output.split.is_none() {
                folders.warnings.extend(unused_lists(&self.files, &images, by, sources, follow));
            }
        }
        let is_fraction = |name: &&String| name.parse::<f64>().is_ok_and(|number| number.fract() != 0.0);
        if let (Some(names), None) = (&self.class_names, &options.recipe.classes)
            && names.iter().all(|name| name.parse::<f64>().is_ok())
            && let Some(example) = names.iter().find(is_fraction)
        {
            let classes = match names.len() {
                1 => "a class".to_owned(),
                more => format!("{more} classes"),
            };
            let message = format!(
                "the column \"label\" holds fractions, such as {example}, which become the names of {classes}"
            );
            let effect = "reads a table in which the column has another name, so that it becomes a field";
            folders.warnings.push(
                Warning::new("fraction-classes", message)
                    .with("classes", names.len())
                    .with("example", example)
                    .remedy("metadata", "FILE", effect),
            );
        }
        folders.warnings.extend(self.warnings.iter().cloned());
        Ok(folders)
    }
}

/// Returns the files that may be images or containers; other files do not affect splits and classes. In folders where no
/// file is named like an image, some files are inspected.
pub(super) fn images_among<'a>(
    files: &'a FileList,
    options: &ImagesOptions,
    containers: &Containers,
) -> ChosenFiles<'a> {
    let by_name = |f: &SourceFile| {
        let name = f.origin.rsplit('/').next().unwrap_or_default();
        has_image_extension(name) || containers.hold(f, &options.sources)
    };
    let planned = |file: &SourceFile| file.planned(&options.sources, options.recipe.follow_symlinks);
    let mut named = HashSet::new();
    for file in files.iter().filter(by_name) {
        if !named.contains(parent(&file)) {
            named.insert(parent(&file).to_owned());
        }
    }
    // Number of inspected files, and whether one of them is an image, by folder.
    let mut inspected: HashMap<String, (usize, bool)> = HashMap::new();
    ChosenFiles::filtered(files, |file| {
        if by_name(file) || named.contains(parent(file)) {
            return by_name(file);
        }
        if is_damage(file) {
            return false;
        }
        let (count, found) = inspected.entry(parent(file).to_owned()).or_default();
        if !*found && *count < SNIFFED_FILES {
            *count += 1;
            // An unreadable file is an error of the run, not of the plan.
            *found = begins_as_any_image(&planned(file)).unwrap_or(true);
        }
        // A folder with more files may have images among the uninspected ones.
        *found || *count == SNIFFED_FILES
    })
}

/// Returns whether this is not a file, but the part of an archive that cannot be read.
pub(super) fn is_damage(file: &SourceFile) -> bool {
    file.member.as_ref().is_some_and(|member| member.is_damage())
}

/// Returns the origin of the folder that contains `file`.
fn parent(file: &SourceFile) -> &str {
    file.origin.rsplit_once('/').map_or("", |(folder, _)| folder)
}

/// The containers in the sources.
pub(super) struct FoundContainers {
    /// What they contain, without the list of files. There are no images if all of them are damaged.
    pub(super) images: FoundImages,
    /// Ordinals of files of the same kind without images.
    pub(super) others: BTreeSet<usize>,
}
