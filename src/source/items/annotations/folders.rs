//! Folders with the annotations of each image in a file of its own: labels of YOLO, and XML of Pascal VOC.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::path::{Component, Path, PathBuf};

use xxhash_rust::xxh3::Xxh3;

use super::found::{FoundAnnotations, NamedClasses, OPTION, add_boxes, contradiction, shown};
use super::voc;
use super::voc::VocImage;
use super::yolo::{self, PolygonLines};
use super::yolo_configuration::{class_names, keypoint_shape};
use crate::error::{Error, Result};
use crate::numbers::plural;
use crate::options::SourceSpec;
use crate::printable::{printable, printable_path};
use crate::sample::Reject;
use crate::source::io::planned::read_file;
use crate::source::list::boxes::{BoxExtras, BoxList, ImageBoxes};
use crate::source::list::file_list::FileList;
use crate::source::list::source_file::SourceFile;
use crate::source::list::walk::list;
use crate::storage::stat;
use crate::warning::Warning;

/// Extensions of the files.
const TEXT: &str = "txt";
const XML: &str = "xml";
/// Names of folders of images, and of those of annotations beside them, by extension.
const PARALLEL: [(&str, &str, &str); 4] = [
    (TEXT, "images", "labels"),
    (XML, "JPEGImages", "Annotations"),
    (XML, "images", "annotations"),
    (XML, "images", "Annotations"),
];

/// A folder of annotations, which is the path at the position `at`.
pub(super) struct AnnotationFolder<'a> {
    at: usize,
    path: &'a Path,
    kind: FolderKind,
    /// Paths of files that may be annotations.
    listed: Vec<PathBuf>,
}

enum FolderKind {
    Yolo,
    /// With the parsed files of images, each with the ordinal of its image.
    Voc(Vec<(usize, PathBuf, Result<VocImage, Reject>)>, u128),
}

/// What the annotations in folders are added to.
pub(super) struct FolderResults<'a> {
    pub(super) found: &'a mut [FoundAnnotations],
    pub(super) images: &'a FileList,
    pub(super) sources: &'a [SourceSpec],
    pub(super) class_names: &'a [String],
    pub(super) paths: &'a [PathBuf],
    /// Absolute paths of the files that are read.
    pub(super) files: &'a mut HashSet<PathBuf>,
    pub(super) warnings: &'a mut Vec<Warning>,
}

impl<'a> AnnotationFolder<'a> {
    /// Examines a folder. The files of Pascal VOC are read, because they define the classes.
    ///
    /// # Errors
    ///
    /// Fails if the folder has annotations of both kinds.
    pub(super) fn open(at: usize, path: &'a Path, images: &FileList, sources: &[SourceSpec]) -> Result<Self> {
        let source = SourceSpec { label: String::new(), path: path.to_owned() };
        let is_file =
            |name: &str| extension_of(name).is_some_and(|extension| [TEXT, XML].contains(&extension));
        let listing = list(&[source], false, &is_file).map_err(|e| e.of_option(OPTION))?;
        let listed: Vec<PathBuf> = listing.files.iter().map(|file| path.join(&file.relative)).collect();
        let has = |wanted: &str| listed.iter().any(|path| path.extension().is_some_and(|e| e == wanted));
        let mut folder = Self { at, path, kind: FolderKind::Yolo, listed: Vec::new() };
        let mut xml = Vec::new();
        if has(XML) {
            for (ordinal, image) in images.iter().enumerate() {
                xml.extend(folder.file_of(&image, XML, sources)?.map(|path| (ordinal, path)));
            }
        }
        if !xml.is_empty() {
            let is_labeled = || -> Result<bool> {
                for image in images.iter() {
                    if folder.file_of(&image, TEXT, sources)?.is_some() {
                        return Ok(true);
                    }
                }
                Ok(false)
            };
            // Text files beside images are captions unless there are the names of YOLO.
            if class_names(path)?.is_some() && is_labeled()? {
                let what = "the folder has labels of YOLO and XML of Pascal VOC for the images";
                return Err(Error::usage(what)
                    .of_option(OPTION)
                    .at_path(path)
                    .help("give the folder of one of them, or move the other one"));
            }
            let mut hash = Xxh3::new();
            let mut parsed = Vec::with_capacity(xml.len());
            for (ordinal, path) in xml {
                let bytes = read_file(&path).map_err(|e| e.of_option(OPTION))?;
                let origin = images.get(ordinal).map(|image| image.origin).unwrap_or_default();
                add_content(&mut hash, &origin, &bytes);
                parsed.push((ordinal, path, voc::parse(bytes)));
            }
            folder.kind = FolderKind::Voc(parsed, hash.digest128());
        }
        folder.listed = listed;
        Ok(folder)
    }

    /// Returns whether the files are those of Pascal VOC.
    pub(super) fn is_voc(&self) -> bool {
        matches!(self.kind, FolderKind::Voc(..))
    }

    /// Adds the classes of the folder to those that are `known`, or checks that they are among `given` ones.
    ///
    /// # Errors
    ///
    /// Fails if there are no classes, or they contradict the known ones.
    pub(super) fn add_classes(&self, known: &mut NamedClasses, given: Option<&[String]>) -> Result<()> {
        match &self.kind {
            FolderKind::Yolo => self.add_yolo_classes(known, given),
            FolderKind::Voc(parsed, _) => {
                let images = parsed.iter().filter_map(|(_, _, image)| image.as_ref().ok());
                let names: BTreeSet<&str> =
                    images.flat_map(|image| &image.objects).map(|object| object.name.as_str()).collect();
                let (list, _) = known.get_or_insert_with(|| {
                    (given.map(<[String]>::to_vec).unwrap_or_default(), self.path.to_owned())
                });
                for name in names {
                    if list.iter().any(|class| class == name) {
                        continue;
                    }
                    if given.is_some() {
                        let what = format!(
                            "the class {:?} is not among `classes`: {}",
                            printable(name),
                            shown(list)
                        );
                        return Err(Error::usage(what)
                            .of_option(OPTION)
                            .at_path(self.path)
                            .help("list all classes, or leave out `classes`"));
                    }
                    list.push(name.to_owned());
                }
                match list.is_empty() {
                    false => Ok(()),
                    true => Err(Error::usage("no file in this folder has an object")
                        .of_option(OPTION)
                        .at_path(self.path)
                        .help("give the names of classes with `classes` if the images have no boxes")),
                }
            }
        }
    }

    fn add_yolo_classes(&self, known: &mut NamedClasses, given: Option<&[String]>) -> Result<()> {
        let names = match given {
            Some(classes) => classes.to_vec(),
            None => class_names(self.path)?.ok_or_else(|| {
                Error::usage("there are no class names for the labels in this folder")
                    .of_option(OPTION)
                    .at_path(self.path)
                    .help(
                        "put a data.yaml or classes.txt in it or beside it, or give the names with `classes`; COCO annotations \
                         are .json files, named one by one",
                    )
            })?,
        };
        match known {
            Some((known, from)) if *known != names => {
                let what = format!(
                    "its classes differ from those of {}: {} and {}",
                    printable_path(from),
                    shown(&names),
                    shown(known)
                );
                Err(contradiction(what, self.path))
            }
            Some(_) => Ok(()),
            None => {
                *known = Some((names, self.path.to_owned()));
                Ok(())
            }
        }
    }

    /// Adds the annotations of all images, and returns the hash of their content.
    ///
    /// # Errors
    ///
    /// Fails if no file belongs to an image, or an image has boxes elsewhere, too.
    pub(super) fn add_to(self, results: &mut FolderResults<'_>) -> Result<u128> {
        let Self { at, path, kind, listed } = self;
        let (content, extension) = match kind {
            FolderKind::Yolo => {
                let folder = Self { at, path, kind: FolderKind::Yolo, listed: Vec::new() };
                (folder.add_yolo(results)?, TEXT)
            }
            FolderKind::Voc(parsed, content) => {
                add_voc(parsed, at, results)?;
                (content, XML)
            }
        };
        results.warnings.extend(without_image(path, &listed, extension, results.files)?);
        Ok(content)
    }

    fn add_yolo(&self, results: &mut FolderResults<'_>) -> Result<u128> {
        let keypoints = keypoint_shape(self.path)?;
        let mut hash = Xxh3::new();
        let (mut read, mut polygons) = (0, PolygonLines::default());
        for (image, found) in results.images.iter().zip(results.found.iter_mut()) {
            let mut list = Ok(ImageBoxes::fractions(BoxList::default(), BoxExtras::default()));
            if let Some(path) = self.file_of(&image, TEXT, results.sources)? {
                let bytes = read_file(&path).map_err(|e| e.of_option(OPTION))?;
                add_content(&mut hash, &image.origin, &bytes);
                list = yolo::parse(bytes, results.class_names.len(), keypoints).map(|image| {
                    polygons.add(image.polygons);
                    image.boxes
                });
                results.files.insert(absolute(path));
                read += 1;
            }
            match list {
                Ok(boxes) => add_boxes(found, boxes, self.at, results.paths, &image.origin)?,
                Err(reject) => {
                    found.defect.get_or_insert(reject);
                }
            }
        }
        if read == 0 {
            return Err(Error::usage("no file in this folder is beside or parallel to an image")
                .of_option(OPTION)
                .at_path(self.path)
                .help(
                    "the labels of SRC/train/a.jpg are in train/a.txt (YOLO) or train/a.xml (Pascal VOC) of this folder; a \
                     folder named images in the path of an image may be labels in that of its labels, and JPEGImages may be \
                     Annotations; COCO annotations are .json files, named one by one",
                ));
        }
        if polygons.are_like_keypoints() {
            let lines = polygons.lines;
            let message = format!(
                "{}: {} of labels {} read as polygons, but could be boxes with keypoints; if they are, put kpt_shape into \
                 data.yaml",
                printable_path(self.path),
                plural(lines, "line"),
                if lines == 1 { "is" } else { "are" }
            );
            let warning = Warning::new("polygons-like-keypoints", message);
            results.warnings.push(warning.with("path", self.path).with("lines", lines));
        }
        Ok(hash.digest128())
    }

    /// Returns the path of the file with the annotations of an image, if there is one.
    fn file_of(
        &self,
        image: &SourceFile,
        extension: &str,
        sources: &[SourceSpec],
    ) -> Result<Option<PathBuf>> {
        let relative = match image.is_named() {
            true => PathBuf::from(image.name(sources)),
            false => image.relative.clone(),
        };
        for path in annotation_paths(self.path, &relative, extension) {
            if stat(&path)?.is_some_and(|meta| meta.is_file()) {
                return Ok(Some(path));
            }
        }
        Ok(None)
    }
}

/// Adds the objects of images.
fn add_voc(
    parsed: Vec<(usize, PathBuf, Result<VocImage, Reject>)>,
    at: usize,
    results: &mut FolderResults<'_>,
) -> Result<()> {
    let ordinals: HashMap<&str, u32> = results.class_names.iter().map(String::as_str).zip(0..).collect();
    for (ordinal, path, image) in parsed {
        results.files.insert(absolute(path));
        let Some(found) = results.found.get_mut(ordinal) else { continue };
        let VocImage { size, objects, extras } = match image {
            Ok(image) => image,
            Err(reject) => {
                found.defect.get_or_insert(reject);
                continue;
            }
        };
        let mut list = BoxList::default();
        for object in objects {
            let label = ordinals.get(object.name.as_str()).copied().unwrap_or_default();
            list.push(object.corners, label, object.difficult);
        }
        let origin = results.images.get(ordinal).map(|image| image.origin).unwrap_or_default();
        add_boxes(
            found,
            ImageBoxes { size, are_fractions: false, is_upright: false, list, extras },
            at,
            results.paths,
            &origin,
        )?;
    }
    Ok(())
}

/// Returns the warning about files among `listed` that look like annotations, but belong to no image.
fn without_image(
    folder: &Path,
    listed: &[PathBuf],
    extension: &str,
    read: &HashSet<PathBuf>,
) -> Result<Option<Warning>> {
    let mut without: Option<(u64, PathBuf)> = None;
    for path in listed {
        let is_other =
            path.extension().is_none_or(|own| own != extension) || read.contains(&absolute(path.clone()));
        if is_other {
            continue;
        }
        let bytes = read_file(path).map_err(|e| e.of_option(OPTION))?;
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let is_annotation = match extension {
            XML => voc::parse(bytes).is_ok(),
            _ => yolo::looks_like_labels(&name, &bytes),
        };
        if is_annotation {
            without.get_or_insert_with(|| (0, path.clone())).0 += 1;
        }
    }
    Ok(without.map(|(files, example)| {
        let message = format!(
            "{}: {} of annotations {} to no image, such as {}; they are paired by path and name",
            printable_path(folder),
            plural(files, "file"),
            if files == 1 { "belongs" } else { "belong" },
            printable_path(&example)
        );
        let warning = Warning::new("labels-without-image", message).with("path", folder);
        warning.with("files", files).with("example", example)
    }))
}

/// Returns the paths of the file of an image, in order of preference, below the folder of annotations.
fn annotation_paths(folder: &Path, image: &Path, extension: &str) -> Vec<PathBuf> {
    let path = image.with_extension(extension);
    let mut paths = vec![folder.join(&path)];
    let parts: Vec<Component<'_>> = path.components().collect();
    for (_, of_images, of_annotations) in PARALLEL.iter().filter(|(of, ..)| *of == extension) {
        let is_images = |part: &Component<'_>| part.as_os_str() == *of_images;
        if let Some(at) = parts[..parts.len().saturating_sub(1)].iter().rposition(is_images) {
            let (before, after): (PathBuf, PathBuf) =
                (parts[..at].iter().collect(), parts[at + 1..].iter().collect());
            paths.push(folder.join(before).join(of_annotations).join(&after));
            paths.push(folder.join(after));
        }
    }
    paths
}

fn add_content(hash: &mut Xxh3, origin: &str, bytes: &[u8]) {
    hash.update(origin.as_bytes());
    hash.update(&(bytes.len() as u64).to_le_bytes());
    hash.update(bytes);
}

fn absolute(path: PathBuf) -> PathBuf {
    std::path::absolute(&path).unwrap_or(path)
}

fn extension_of(name: &str) -> Option<&str> {
    name.rsplit_once('.').map(|(_, extension)| extension)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_beside_images_or_in_a_parallel_folder() {
        let paths = |image: &str| {
            let paths = annotation_paths(Path::new("d"), Path::new(image), TEXT);
            paths.iter().map(|path| path.to_string_lossy().into_owned()).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(paths("train/a.b.jpg"), "d/train/a.b.txt");
        assert_eq!(
            paths("x/images/train/a.jpg"),
            "d/x/images/train/a.txt d/x/labels/train/a.txt d/train/a.txt"
        );
        assert_eq!(paths("images"), "d/images.txt");
    }

    #[test]
    fn xml_is_beside_images_or_in_a_parallel_folder() {
        let paths = annotation_paths(Path::new("d"), Path::new("VOC2007/JPEGImages/1.jpg"), XML);
        let paths: Vec<_> = paths.iter().map(|path| path.to_string_lossy().into_owned()).collect();
        assert_eq!(paths, ["d/VOC2007/JPEGImages/1.xml", "d/VOC2007/Annotations/1.xml", "d/1.xml"]);
    }
}
