//! What was found about images, and how contradictions between annotations are reported.

use std::path::{Path, PathBuf};

use crate::error::{Error, Result};
use crate::printable::{printable, printable_path};
use crate::sample::Reject;
use crate::source::list::boxes::ImageBoxes;

/// The option that names annotations.
pub(super) const OPTION: &str = "annotations";

/// What was found about one image.
#[derive(Debug, Default)]
pub(super) struct FoundAnnotations {
    /// The boxes, and the position of the path that they come from.
    pub(super) boxes: Option<(usize, ImageBoxes)>,
    pub(super) captions: Option<Vec<String>>,
    pub(super) defect: Option<Reject>,
}

/// The class names, and the path that they come from.
pub(super) type NamedClasses = Option<(Vec<String>, PathBuf)>;

pub(super) fn add_boxes(
    found: &mut FoundAnnotations,
    boxes: ImageBoxes,
    at: usize,
    paths: &[PathBuf],
    name: &str,
) -> Result<()> {
    if let Some((other, _)) = &found.boxes {
        let other = paths.get(*other).map(|path| printable_path(path)).unwrap_or_default();
        let what = format!("the image {:?} has boxes here and in {other}", printable(name));
        let path = paths.get(at).map_or(Path::new(""), PathBuf::as_path);
        return Err(contradiction(what, path));
    }
    found.boxes = Some((at, boxes));
    Ok(())
}

/// Returns the first names, for messages.
pub(super) fn shown(names: &[String]) -> String {
    let more = if names.len() > 5 { format!(", … ({} in all)", names.len()) } else { String::new() };
    let names: Vec<String> = names.iter().take(5).map(|name| format!("{:?}", printable(name))).collect();
    format!("{}{more}", names.join(", "))
}

pub(super) fn contradiction(what: String, path: &Path) -> Error {
    Error::usage(what)
        .of_option(OPTION)
        .at_path(path)
        .help("the annotations contradict each other: leave out or correct one of them")
}
