//! Decisions of a plan that the user may not have intended.
//!
//! Warnings are for people and programs that run a conversion. They are not stored in the dataset.

use std::fmt;
use std::path::PathBuf;

use serde::Serialize;

use super::layout::SplitBy;
use crate::numbers::{listed, plural};
use crate::printable::{printable, printable_path};
use crate::schema::Kind;

/// A decision or an omission that may be unintended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "code", rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Warning {
    /// Folders or files are treated as splits although their names are unusual for splits.
    UnusualSplitNames {
        /// Pairs of name and split.
        names: Vec<(String, String)>,
    },
    /// Folders next to split folders, or sources next to those of splits, become further splits.
    StrayFolders {
        /// Names of the folders.
        folders: Vec<String>,
    },
    /// Some files name no split, while others do.
    UnassignedFiles {
        /// Criterion that determines the splits of the other files.
        by: SplitBy,
        /// Number of files.
        files: u64,
        /// Origin of the first of these files.
        example: String,
        /// The split they are assigned to.
        split: String,
    },
    /// Folders whose names contain words of splits are none, because of the folders next to them.
    SplitNamedFolders {
        /// Names of the folders.
        folders: Vec<String>,
        /// Some of the other folders at the same level.
        others: Vec<String>,
        /// Level of the folders, from 0.
        level: usize,
        /// Whether the folders are classes.
        are_classes: bool,
    },
    /// Names start or end with words of splits, but do not contain them as whole words.
    NearSplitNames {
        /// Some of the names.
        names: Vec<String>,
    },
    /// Folders name one split, and the files in them several.
    FileNamesUnused {
        /// Names of some of the files.
        examples: Vec<String>,
        /// The split of the folders.
        split: String,
    },
    /// The name of the only source contains the word of a split, but does not consist of it.
    SplitNamedSource {
        /// Label of the source.
        label: String,
        /// The split.
        split: String,
    },
    /// There are no class folders in the split folders, but several folders contain split folders.
    FoldersAboveSplits {
        /// Names of the folders.
        folders: Vec<String>,
    },
    /// Classes occur in only one split, although others have classes, too.
    ClassesOfOneSplit {
        /// Pairs of split and classes.
        classes: Vec<(String, Vec<String>)>,
        /// Whether the classes are folders.
        by_folder: bool,
    },
    /// The same folders are in all class folders, and may be the classes.
    EqualClassFolders {
        /// The classes.
        classes: Vec<String>,
        /// Names of the folders that are in all of them.
        folders: Vec<String>,
    },
    /// Classes have the names of folders that hold images of several classes.
    ContainerClasses {
        /// Names of the folders.
        folders: Vec<String>,
    },
    /// Images in folders that are called like folders of masks or annotations are items.
    MaskFolders {
        /// Names of the folders.
        folders: Vec<String>,
    },
    /// Images are named like masks or control images of others beside them, and are items.
    MasksBesideImages {
        /// The ends of their names, from the separator on: `-masklabel.png`.
        endings: Vec<String>,
        /// Origin of an image that has one.
        image: String,
        /// The value of the option that makes them fields.
        companion: String,
    },
    /// Classes are folders that are named like parts of one set, or like dates.
    PartClasses {
        /// Names of the folders.
        folders: Vec<String>,
        /// Whether they are dates.
        are_dates: bool,
        /// Whether there are folders in them.
        hold_folders: bool,
    },
    /// No class folder holds an image of its own, but several folders, which may be the classes.
    NestedClasses {
        /// The classes.
        classes: Vec<String>,
        /// One of the folders, with its class.
        example: String,
    },
    /// There are lists of the images of splits, which are not read, and nothing else determines splits.
    ListsUnused {
        /// Paths of the lists.
        lists: Vec<String>,
    },
    /// The default of several configurations of a repository of the Hugging Face Hub is converted.
    DefaultConfig {
        /// Its name.
        chosen: String,
        /// The names of the others.
        others: Vec<String>,
    },
    /// Rows name files that are not in the folder, but below it.
    NamesBelow {
        /// Path of the table.
        path: PathBuf,
        /// Number of rows.
        rows: u64,
        /// One of the names.
        name: String,
        /// Origin of its file.
        origin: String,
    },
    /// Class names are numbers and sorted as text.
    NumbersSortedAsText {
        /// A class.
        first: String,
        /// The next class, which is a smaller number.
        second: String,
    },
    /// Class names from a table are numbers that are not integers.
    FractionClasses {
        /// Number of classes.
        classes: u64,
        /// One of the classes.
        example: String,
    },
    /// Only some of the sources are named like splits, so none of them is treated as a split.
    MixedSourceLabels {
        /// Labels that name splits.
        splits: Vec<String>,
        /// Labels that do not.
        others: Vec<String>,
    },
    /// All items are assigned to one split, because the only source is named like it.
    SplitOfSource {
        /// Label of the source.
        label: String,
        /// The split.
        split: String,
    },
    /// A metadata file is not used, because it is in a folder with WebDataset, Parquet or Arrow files.
    MetadataSkipped {
        /// Path of the metadata file.
        path: PathBuf,
    },
    /// Images that a file of annotations lists are not among the sources.
    AnnotatedImagesMissing {
        /// Path of the file.
        path: PathBuf,
        /// Number of images.
        images: u64,
        /// Name of the first one.
        example: String,
    },
    /// Annotations belong to images that their file does not list.
    AnnotationsWithoutImage {
        /// Path of the file.
        path: PathBuf,
        /// Number of annotations.
        annotations: u64,
        /// The image id of the first one.
        example: String,
    },
    /// Images of the sources are in no file of annotations.
    ImagesNotAnnotated {
        /// Number of images.
        images: u64,
        /// Origin of the first one.
        example: String,
    },
    /// Files of annotations number the categories differently, or have different ones, so their names are joined.
    CategoriesRenumbered {
        /// Path of the first file that differs from those before it.
        path: PathBuf,
        /// Name of a category that has another id.
        category: String,
    },
    /// Annotations name images by paths that lead elsewhere, so only the last components are compared.
    NamesMatchedByLast {
        /// Path of the file.
        path: PathBuf,
        /// Number of images.
        images: u64,
        /// One of the names.
        example: String,
    },
    /// Files in a folder of annotations look like those of images, but belong to none.
    LabelsWithoutImage {
        /// Path of the folder.
        path: PathBuf,
        /// Number of files.
        files: u64,
        /// Path of the first one.
        example: PathBuf,
    },
    /// All polygons in a folder of labels could be boxes with keypoints inside them.
    PolygonsLikeKeypoints {
        /// Path of the folder.
        path: PathBuf,
        /// Number of polygons.
        lines: u64,
    },
    /// A field of rows has boxes in pixels of the source image, which do not follow the image, because their form is not known.
    BoxesNotMoved {
        /// Name of the field.
        field: String,
    },
    /// A field of rows has boxes, which become fields that follow the image.
    BoxesMoved {
        /// Name of the field.
        field: String,
        /// Whether the last two numbers of a box are its width and height, rather than a corner.
        are_sizes: bool,
    },
    /// There are boxes, but no image of some splits has one.
    SplitsWithoutBoxes {
        /// Names of the splits.
        splits: Vec<String>,
    },
    /// Files fit the pattern of a companion, but belong to no image.
    CompanionsUnpaired {
        /// Number of files.
        files: u64,
        /// Origin of the first one.
        example: String,
    },
    /// Damaged Parquet or Arrow files beside images or archives, which may contain images, are not read.
    DamagedTables {
        /// Number of the files.
        files: u64,
        /// Path of the first one.
        path: PathBuf,
    },
    /// Tar files look like archives of image folders, but are read as WebDataset because one of them is compressed.
    TarFoldersUnused {
        /// Path of the compressed tar file.
        path: PathBuf,
        /// One of the folders.
        example: String,
    },
    /// Samples of tar files have a class (`.cls`), which becomes a field but not a label, because the classes are not
    /// given.
    TarClassesUnused {
        /// Path of the first tar file.
        path: PathBuf,
    },
    /// Archives in a folder with images or text are not read, because these may have been unpacked from them.
    ArchivesSkipped {
        /// Kind of the files next to them.
        kind: Kind,
        /// One of the archives.
        example: String,
    },
    /// Objects are skipped because their keys are not valid paths: they have empty components, `..` or control
    /// characters.
    KeysSkipped {
        /// Number of objects.
        objects: u64,
        /// URL of the first of these objects.
        example: String,
    },
    /// Columns of files with images are left out, because no field can hold their type, because the user does not
    /// list these images, or because a field of every dataset has their name.
    ColumnsLeftOut {
        /// Names of the columns.
        columns: Vec<String>,
    },
    /// Samples or rows have several images, and no name says which one is the main image.
    MainImageChosen {
        /// The member or column that is the main image.
        main: String,
        /// The others.
        others: Vec<String>,
    },
    /// Some of the first values of a column in a file are images, and others are not. The file is skipped.
    ImageColumnUnsure {
        /// Path of the file.
        path: PathBuf,
        /// Name of the column.
        column: String,
    },
    /// Members of samples in tar files are left out, because they are neither images nor text.
    MembersLeftOut {
        /// The members.
        members: Vec<String>,
        /// The members that become fields.
        kept: Vec<String>,
    },
    /// Metadata files next to the images are used, and some images are in none of their rows.
    ImagesWithoutRow {
        /// Number of images.
        images: u64,
        /// Origin of the first of these images.
        example: String,
    },
    /// Metadata files next to the images are used, so the folders are not classes.
    FolderClassesUnused {
        /// Names of the folders.
        folders: Vec<String>,
        /// Whether the folders above them are splits.
        in_splits: bool,
    },
    /// There are sidecars beside listed images, or beside images that are sources, which are not read.
    SidecarsUnread {
        /// Origin or path of one of them.
        example: String,
        /// Its extension, if it is beside listed images.
        extension: Option<String>,
    },
    /// Class folders are named like `10_cat`, so that their numbers and names become fields.
    RepeatFolders {
        /// Name of one of the folders.
        example: String,
        /// Whether the folders above them are splits.
        in_splits: bool,
    },
    /// Rows of chats and pairs have fields that other trainers read, and that nothing reads here.
    FieldsUnread {
        /// Pairs of the name of a field and its meaning.
        fields: Vec<(String, String)>,
    },
    /// None of the inspected rows has a field that should be kept.
    FieldNotSeen {
        /// Name of the field.
        field: String,
        /// What was inspected: the first rows of files, or the files.
        examined: String,
        /// Fields that the rows have.
        there: Vec<String>,
    },
}

/// An option that changes the decision of a warning.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Remedy {
    /// Name of the option, with underscores.
    pub option: &'static str,
    /// Value to set.
    pub value: &'static str,
    /// Effect of that value.
    pub effect: &'static str,
}

const fn remedy(option: &'static str, value: &'static str, effect: &'static str) -> Remedy {
    Remedy { option, value, effect }
}

impl Warning {
    /// Returns the options that change the decision.
    pub fn remedies(&self) -> &'static [Remedy] {
        const FLAT: Remedy = remedy("layout", "flat", "puts everything into train");
        const SPLITS: Remedy = remedy("layout", "splits", "makes the folders splits");
        const LABELS: Remedy = remedy("layout", "labels", "makes the folders classes");
        const SPLITS_AND_LABELS: Remedy = remedy(
            "layout",
            "splits",
            "makes the first-level folders splits and the folders in them classes",
        );
        const SKIPPED: [Remedy; 1] = [remedy("metadata", "none", "leaves it out without a warning")];
        const UNREAD: [Remedy; 2] = [
            remedy("sidecar", "EXT,…", "reads those with these extensions as fields"),
            remedy("sidecar", "none", "leaves them out without a warning"),
        ];
        const ONLY_LABELS: [Remedy; 1] = [remedy("layout", "labels", "keeps the folders as classes only")];
        const ONLY_SPLITS: [Remedy; 1] =
            [remedy("layout", "splits", "keeps the folders in those of splits as classes only")];
        const IGNORED: [Remedy; 1] =
            [remedy("layout", "flat", "puts everything into train without a warning")];
        const CLASSES: Remedy = remedy(
            "classes",
            "FILE",
            "makes it the label: a name or an ordinal in a list with one class per line",
        );
        const UNUSED: Remedy =
            remedy("metadata", "none", "converts all images, without the fields of the metadata");
        const NO_CLASSES: [Remedy; 2] = [
            remedy("classes", "FILE", "rejects images of other classes than those in a list"),
            remedy("layout", "flat", "ignores all folders: no labels, everything in train"),
        ];
        const ONE_SPLIT: [Remedy; 2] =
            [NO_CLASSES[0], remedy("layout", "flat", "ignores all folders: everything in train")];
        const FIRST_LEVEL: Remedy = remedy(
            "layout",
            "labels",
            "makes the first-level folders classes, and puts everything into train",
        );
        const COMPANION: Remedy = remedy(
            "companion",
            "NAME=PATTERN,…",
            "makes them fields of the images that they belong to, as in mask=masks/{stem}.png",
        );
        const LISTED: Remedy = remedy("files_from", "FILE", "converts only the images in a list");
        const ORDER: Remedy = remedy("classes", "FILE", "sets the order: a list with one class per line");
        const RENAMED: Remedy = remedy(
            "metadata",
            "FILE",
            "reads a table in which the column has another name, so that it becomes a field",
        );
        const MAIN: Remedy = remedy(
            "image_fields",
            "image=NAME,…",
            "chooses the main image, and lists the others that become fields",
        );
        const KEPT: Remedy = remedy(
            "keep_fields",
            "NEW=NAME,…",
            "lists the columns that become fields, and gives them other names",
        );
        const IMAGE_COLUMN: Remedy = remedy("image_fields", "NAME", "reads the images of that column");
        const ALPACA: Remedy = remedy("alpaca", "chat", "reads instruction, input and output");
        match self {
            Self::FieldsUnread { fields } if fields.iter().any(|(name, _)| name == "input") => &[ALPACA],
            Self::MainImageChosen { .. } => &[MAIN],
            Self::ImageColumnUnsure { .. } => &[IMAGE_COLUMN],
            Self::ColumnsLeftOut { .. } => &[KEPT],
            Self::UnusualSplitNames { .. }
            | Self::StrayFolders { .. }
            | Self::UnassignedFiles { .. }
            | Self::FileNamesUnused { .. }
            | Self::SplitOfSource { .. } => &[FLAT],
            Self::SplitNamedFolders { level: 0, .. } | Self::NearSplitNames { .. } => &[SPLITS],
            Self::ClassesOfOneSplit { by_folder: true, .. } | Self::ContainerClasses { .. } => &NO_CLASSES,
            Self::ClassesOfOneSplit { by_folder: false, .. } => &ONE_SPLIT,
            Self::EqualClassFolders { .. } => &NO_CLASSES[1..],
            Self::FoldersAboveSplits { .. } => &[FIRST_LEVEL],
            Self::MaskFolders { .. } => {
                const MASKS: [Remedy; 2] = [COMPANION, LISTED];
                &MASKS
            }
            Self::ListsUnused { .. } => &[LISTED],
            Self::DefaultConfig { .. } => {
                const CONFIG: [Remedy; 1] = [remedy("config", "NAME", "chooses another one")];
                &CONFIG
            }
            Self::PartClasses { .. } | Self::NestedClasses { .. } => &NO_CLASSES[1..],
            Self::NumbersSortedAsText { .. } => &[ORDER],
            Self::FractionClasses { .. } => &[RENAMED],
            Self::MetadataSkipped { .. } => &SKIPPED,
            Self::ImagesWithoutRow { .. } => &[UNUSED],
            Self::TarFoldersUnused { .. } => &IGNORED,
            Self::TarClassesUnused { .. } => &[CLASSES],
            Self::FolderClassesUnused { in_splits: false, .. } => &[LABELS],
            Self::FolderClassesUnused { in_splits: true, .. } => &[SPLITS_AND_LABELS],
            Self::SidecarsUnread { extension: Some(_), .. } => &UNREAD,
            Self::SidecarsUnread { extension: None, .. } => &UNREAD[1..],
            Self::RepeatFolders { in_splits: false, .. } => &ONLY_LABELS,
            Self::RepeatFolders { in_splits: true, .. } => &ONLY_SPLITS,
            Self::SplitNamedFolders { .. }
            | Self::MixedSourceLabels { .. }
            | Self::SplitNamedSource { .. }
            | Self::MasksBesideImages { .. }
            | Self::NamesBelow { .. }
            | Self::FieldNotSeen { .. }
            | Self::FieldsUnread { .. }
            | Self::MembersLeftOut { .. }
            | Self::ArchivesSkipped { .. }
            | Self::AnnotatedImagesMissing { .. }
            | Self::AnnotationsWithoutImage { .. }
            | Self::ImagesNotAnnotated { .. }
            | Self::CategoriesRenumbered { .. }
            | Self::NamesMatchedByLast { .. }
            | Self::LabelsWithoutImage { .. }
            | Self::PolygonsLikeKeypoints { .. }
            | Self::SplitsWithoutBoxes { .. }
            | Self::BoxesNotMoved { .. }
            | Self::BoxesMoved { .. }
            | Self::CompanionsUnpaired { .. }
            | Self::DamagedTables { .. }
            | Self::KeysSkipped { .. } => &[],
        }
    }

    /// Returns the warning about the objects at `urls`, if there are any.
    pub(crate) fn of_keys(urls: &[String]) -> Option<Self> {
        let example = urls.first()?.clone();
        Some(Self::KeysSkipped { objects: urls.len() as u64, example })
    }
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnusualSplitNames { names } => {
                let pairs =
                    names.iter().map(|(name, split)| format!("{name:?} is read as the split {split}"));
                f.write_str(&listed(pairs))
            }
            Self::StrayFolders { folders } => {
                let names = quoted(folders);
                write!(f, "folders or sources next to those of splits become splits of their own: {names}")
            }
            Self::UnassignedFiles { by, files, example, split } => write!(
                f,
                "splits are determined {by}, but {files} of the files name none, such as {:?}: they are in {split}",
                printable(example)
            ),
            Self::SplitNamedFolders { folders, others, are_classes, .. } => {
                let (article, verb, splits) = match (folders.len(), are_classes) {
                    (1, true) => ("", "is a class, not a split", "it is"),
                    (1, false) => ("", "is not a split", "it is"),
                    (_, true) => ("s", "are classes, not splits", "they are"),
                    (_, false) => ("s", "are not splits", "they are"),
                };
                let folders = quoted(folders);
                write!(f, "the folder{article} {folders} {verb}")?;
                match others.is_empty() {
                    true => write!(f, ", because the names differ in more than the split"),
                    false => write!(f, ", because {splits} next to {}", quoted(others)),
                }?;
                write!(f, "; sources that are labeled as splits, such as train=DIR, always are")
            }
            Self::NearSplitNames { names } => write!(
                f,
                "{} are not splits, because the words train, test and so on are not separated from the rest; sources that \
                 are labeled as splits, such as train=DIR, always are",
                quoted(names)
            ),
            Self::FileNamesUnused { examples, split } => write!(
                f,
                "folders determine splits, so all files are in {split}, although the names of files such as {} denote \
                 other splits",
                quoted(examples)
            ),
            Self::SplitNamedSource { label, split } => write!(
                f,
                "everything is in train, although the source is called {label:?}; label it as {split}=PATH to make it the \
                 split {split}"
            ),
            Self::FoldersAboveSplits { folders } => {
                write!(
                    f,
                    "the folders {} are not classes, because they contain split folders",
                    quoted(folders)
                )
            }
            Self::ClassesOfOneSplit { classes, .. } => {
                let mut separator = "";
                for (split, classes) in classes {
                    let (noun, verb) =
                        if classes.len() == 1 { ("class", "occurs") } else { ("classes", "occur") };
                    write!(f, "{separator}the {noun} {} {verb} only in {split}", quoted(classes))?;
                    separator = ", ";
                }
                Ok(())
            }
            Self::EqualClassFolders { classes, folders } => {
                let (are, them) = if folders.len() == 1 { (" is", "a class") } else { ("s are", "classes") };
                write!(
                    f,
                    "the folders {} are the classes, although the same folder{are} in all of them: {}; to make the latter \
                     {them}, name the former as sources",
                    quoted(classes),
                    quoted(folders)
                )
            }
            Self::ContainerClasses { folders } => {
                let (noun, verb) = if folders.len() == 1 { ("", "is a class") } else { ("s", "are classes") };
                write!(
                    f,
                    "the folder{noun} {} {verb}, although named like a folder of any images",
                    quoted(folders)
                )
            }
            Self::MaskFolders { folders } => {
                let noun = if folders.len() == 1 { "" } else { "s" };
                write!(
                    f,
                    "the images in the folder{noun} {} are converted like all others, although named like masks or \
                     annotations; to leave them out, name the other folders as sources",
                    quoted(folders)
                )
            }
            Self::MasksBesideImages { endings, image, companion } => write!(
                f,
                "images whose names end with {} are converted like all others, although they are beside images with the same \
                 names, such as {:?}; to make them fields, use `companion {companion}` (with ? at the end of a pattern if some \
                 images have no such file)",
                quoted(endings),
                printable(image)
            ),
            Self::PartClasses { folders, are_dates, hold_folders } => {
                let like = if *are_dates { "dates" } else { "parts of one set" };
                let other = match hold_folders {
                    true => "to make the folders in them classes, name them as sources",
                    false => "`metadata FILE` takes labels from the column \"label\" of a table",
                };
                let names = quoted(folders);
                write!(f, "the folders {names} are classes, although they are named like {like}; {other}")
            }
            Self::NestedClasses { classes, example } => write!(
                f,
                "the folders {} are the classes, although all images are in folders in them, such as {example:?}; to make the \
                 latter classes, name the former as sources",
                quoted(classes)
            ),
            Self::ListsUnused { lists } => write!(
                f,
                "everything is in one split, and lists of images such as {} are not read",
                quoted(&lists.iter().map(|list| printable(list).into_owned()).collect::<Vec<_>>())
            ),
            Self::DefaultConfig { chosen, others } => write!(
                f,
                "of the configurations in README.md, the default, {chosen:?}, is converted, and its others are not: {}",
                quoted(others)
            ),
            Self::NamesBelow { path, rows, name, origin } => write!(
                f,
                "{}: {} {} no file in the folder of the paths, but a unique one below it, such as {:?}: {:?}",
                printable_path(path),
                plural(*rows, "row"),
                if *rows == 1 { "names" } else { "name" },
                printable(name),
                printable(origin)
            ),
            Self::NumbersSortedAsText { first, second } => write!(
                f,
                "class names are sorted as text, so {first:?} comes before {second:?}, and the label of a class is not \
                 its number"
            ),
            Self::FractionClasses { classes, example } => write!(
                f,
                "the column \"label\" holds fractions, such as {example}, which become the names of {}",
                if *classes == 1 { "a class".to_owned() } else { format!("{classes} classes") }
            ),
            Self::MixedSourceLabels { splits, others } => {
                let splits = quoted(splits);
                let why = match others.is_empty() {
                    true => format!("the names {splits} differ in more than the split"),
                    false => format!("only {splits} has the name of one, {} has not", quoted(others)),
                };
                write!(f, "the sources are not splits, because {why}; label them as train=PATH")
            }
            Self::SplitOfSource { label, split } => {
                write!(f, "everything is in the split {split}, because the source is called {label:?}")
            }
            Self::MetadataSkipped { path } => {
                write!(
                    f,
                    "{}: metadata next to WebDataset, Parquet or Arrow files is not used",
                    printable_path(path)
                )
            }
            Self::AnnotatedImagesMissing { path, images, example } => write!(
                f,
                "{}: {} that it lists {} not among the sources, such as {:?}",
                printable_path(path),
                plural(*images, "image"),
                if *images == 1 { "is" } else { "are" },
                printable(example)
            ),
            Self::AnnotationsWithoutImage { path, annotations, example } => write!(
                f,
                "{}: {} of images that it does not list {} left out, such as the image with the id {}",
                printable_path(path),
                plural(*annotations, "annotation"),
                if *annotations == 1 { "is" } else { "are" },
                printable(example)
            ),
            Self::ImagesNotAnnotated { images, example } => write!(
                f,
                "{} without annotations, such as {:?}: the fields of annotations are null there",
                plural(*images, "image"),
                printable(example)
            ),
            Self::CategoriesRenumbered { path, category } => write!(
                f,
                "{}: the ids of its categories differ from those of the files before it, such as that of {:?}: categories \
                 are joined by name",
                printable_path(path),
                printable(category)
            ),
            Self::NamesMatchedByLast { path, images, example } => write!(
                f,
                "{}: {} named by a path that leads elsewhere, such as {:?}, {} matched by the last part of the name",
                printable_path(path),
                plural(*images, "image"),
                printable(example),
                if *images == 1 { "is" } else { "are" }
            ),
            Self::LabelsWithoutImage { path, files, example } => write!(
                f,
                "{}: {} of annotations {} to no image, such as {}; they are paired by path and name",
                printable_path(path),
                plural(*files, "file"),
                if *files == 1 { "belongs" } else { "belong" },
                printable_path(example)
            ),
            Self::PolygonsLikeKeypoints { path, lines } => write!(
                f,
                "{}: {} of labels {} read as polygons, but could be boxes with keypoints; if they are, put kpt_shape into \
                 data.yaml",
                printable_path(path),
                plural(*lines, "line"),
                if *lines == 1 { "is" } else { "are" }
            ),
            Self::BoxesNotMoved { field } => write!(
                f,
                "the boxes in {field:?} stay in pixels of the source, while images are turned, resized and cropped; give \
                 them with `annotations` to move them"
            ),
            Self::BoxesMoved { field, are_sizes } => write!(
                f,
                "the boxes in {field:?} are read as {} and become the fields boxes and labels, which follow the image; \
                 {field:?} keeps the pixels of the source",
                if *are_sizes { "x, y, width, height" } else { "x1, y1, x2, y2" }
            ),
            Self::SplitsWithoutBoxes { splits } => write!(
                f,
                "no image in {} has a box, as if all were background; the annotations of these images may be elsewhere",
                listed(splits.iter().cloned())
            ),
            Self::CompanionsUnpaired { files, example } => write!(
                f,
                "{} that {} the pattern of a companion {} skipped, because no image has them, such as {:?}",
                plural(*files, "file"),
                if *files == 1 { "fits" } else { "fit" },
                if *files == 1 { "is" } else { "are" },
                printable(example)
            ),
            Self::DamagedTables { files, path } => {
                let path = printable_path(path);
                let (others, verb) = match files - 1 {
                    0 => (String::new(), "is"),
                    more => (format!(" and {}", plural(more, "more such file")), "are"),
                };
                write!(f, "{path}{others} {verb} damaged and skipped, and not counted as rejected")
            }
            Self::TarFoldersUnused { path, example } => write!(
                f,
                "{} is compressed and read as WebDataset: its folders, such as {:?}, are neither classes nor splits; to \
                 use them, decompress it with gzip -d or zstd -d, or make a zip archive",
                printable_path(path),
                printable(example)
            ),
            Self::TarClassesUnused { path } => write!(
                f,
                "{}: the class of each sample (.cls) becomes the field \"cls\", and records have no label",
                printable_path(path)
            ),
            Self::ArchivesSkipped { kind, example } => write!(
                f,
                "{} are not read, such as {}; name one as a source to convert it",
                match kind {
                    Kind::Images => "archives next to images",
                    Kind::Text => "zip archives next to text",
                },
                printable(example)
            ),
            Self::KeysSkipped { objects, example } => {
                let what = match objects {
                    1 => "object is left out because its key is not a valid path",
                    _ => "objects are left out because their keys are not valid paths",
                };
                write!(f, "{objects} {what}, such as {}", printable(example))
            }
            Self::ColumnsLeftOut { columns } => {
                let names = quoted(columns);
                write!(
                    f,
                    "these columns are left out, because of their type, because `image_fields` does not list them, or \
                     because dsconvert has a field of that name: {names}"
                )
            }
            Self::MainImageChosen { main, others } => {
                let others = quoted(others);
                write!(
                    f,
                    "{main:?} is the main image, because no image has a usual name; the others are {others}"
                )
            }
            Self::ImageColumnUnsure { path, column } => write!(
                f,
                "{}: only some of the first values in the column {column:?} are images, so the file is skipped",
                printable_path(path)
            ),
            Self::MembersLeftOut { members, kept } => {
                let names = quoted(members);
                let keep = kept.iter().chain(members.first()).cloned().collect::<Vec<_>>().join(",");
                write!(
                    f,
                    "members of samples that are neither images nor text are left out: {names}; list those that become \
                     fields, as in `keep_fields {keep}:binary`"
                )
            }
            Self::ImagesWithoutRow { images, example } => write!(
                f,
                "{images} image{} left out, such as {:?}",
                if *images == 1 {
                    " has no row in the metadata and is"
                } else {
                    "s have no row in the metadata and are"
                },
                printable(example)
            ),
            Self::FolderClassesUnused { folders, .. } => {
                let names = quoted(folders);
                write!(f, "the folders {names} are not classes, because metadata describes the images")
            }
            Self::SidecarsUnread { example, extension: None } => write!(
                f,
                "files beside the images, such as {:?}, are not read; name them, too, or the folder, to make them fields",
                printable(example)
            ),
            Self::SidecarsUnread { example, extension: Some(extension) } => write!(
                f,
                "files beside the listed images, such as {:?}, are not read; `sidecar {extension}` makes them the field {:?}",
                printable(example),
                extension.replace('.', "_")
            ),
            Self::RepeatFolders { example, .. } => write!(
                f,
                "the class folders are named like {example:?}: their numbers become the field \"repeats\", and their names \
                 the field \"concept\""
            ),
            Self::FieldsUnread { fields } => {
                let named = fields.iter().map(|(name, meaning)| format!("{name:?} ({meaning})"));
                let what = if fields.len() == 1 { "this field" } else { "these fields" };
                write!(f, "nothing reads {what} of the rows: {}", listed(named))
            }
            Self::FieldNotSeen { field, examined, there } => {
                let there = quoted(there);
                write!(f, "none of {examined} has the field {field:?}; they have {there}")
            }
        }
    }
}

fn quoted(names: &[String]) -> String {
    listed(names.iter().map(|name| format!("{name:?}")))
}
