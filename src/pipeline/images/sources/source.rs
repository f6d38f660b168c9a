//! What the kinds of containers have in common. A container is a file that holds several images.

use std::sync::Arc;

use bytes::Bytes;

use crate::error::{Error, Result};
use crate::options::SourceSpec;
use crate::pipeline::images::image_fields::ImageRoles;
use crate::pipeline::job::Feed;
use crate::recipe::ImagesRecipe;
use crate::sample::{Reject, Value};
use crate::source::io::planned::PlannedFile;
use crate::source::items::metadata::labels::Labels;
use crate::source::list::boxes::ImageBoxes;
use crate::source::list::source_file::SourceFile;
use crate::writer::outcome::{MemberCount, Outcomes};

/// Source bytes per task, unless a single file, sample or row has more.
pub(in crate::pipeline::images) const TASK_BYTES: u64 = 1 << 20;
/// Bytes held per source byte: the byte itself, and about as much again for the records.
pub(in crate::pipeline::images) const BYTES_HELD_PER_BYTE: u64 = 2;

/// An image with its metadata.
pub struct ImageItem {
    pub(in crate::pipeline::images) origin: String,
    pub(in crate::pipeline::images) bytes: Bytes,
    pub(in crate::pipeline::images) label: Value,
    /// Values of the fields that only some datasets have.
    pub(in crate::pipeline::images) values: Vec<Value>,
    /// Additional images, one per field of [`ImageRoles`].
    pub(in crate::pipeline::images) further: Vec<Option<Bytes>>,
    /// Boxes whose place in the converted image is not yet known.
    pub(in crate::pipeline::images) boxes: Option<Box<ImageBoxes>>,
}

/// An item of a container, or another part of it.
pub enum SourceItem {
    Image(Box<ImageItem>),
    /// The origin of an item that an excluded dataset has.
    Excluded(String),
    /// The origin of an item or of a damaged part, and why it is rejected.
    Rejected(String, Reject),
    /// The type of a part that is not an item.
    Skipped(String),
}

/// What determines the items of a container besides its content.
pub struct ItemContext<'a> {
    pub(in crate::pipeline::images) roles: &'a ImageRoles,
    pub(in crate::pipeline::images) classes: &'a Labels,
    /// Returns whether an excluded dataset has a key.
    pub(in crate::pipeline::images) excludes: &'a dyn Fn(&str) -> bool,
}

/// A task with adjacent items of a container.
pub trait SourceTask: Send {
    /// Returns the container.
    fn file(&self) -> &SourceFile;

    /// Returns the bytes of the container that are attributed to the task.
    fn source_bytes(&self) -> u64;

    /// Returns the number of items, which include parts that are rejected.
    fn items(&self) -> u64;

    /// Returns the compressed member that starts in the task, if the container is read as a stream of such members.
    fn member(&self) -> Option<MemberCount> {
        None
    }

    /// Returns the next item, with the position of its first byte in the decompressed data. Adds its content to `out`, and
    /// counts what is left out of it.
    fn next(&mut self, context: &ItemContext<'_>, out: &mut Outcomes) -> Option<(u64, SourceItem)>;
}

/// The tasks of a container, in order.
pub(in crate::pipeline::images) type SourceFeed = Box<dyn Feed<Box<dyn SourceTask>>>;

/// A container that is to be read.
pub(in crate::pipeline::images) struct ContainerFile<'a> {
    pub(in crate::pipeline::images) file: Arc<SourceFile>,
    pub(in crate::pipeline::images) planned: PlannedFile,
    pub(in crate::pipeline::images) recipe: &'a ImagesRecipe,
}

/// A kind of containers, with what the search for images has found about them.
pub(in crate::pipeline::images) trait ImageSource {
    /// Returns whether `file` is a container of this kind, by its name.
    fn holds(&self, file: &SourceFile, sources: &[SourceSpec]) -> bool;

    /// Opens a container and returns its tasks.
    ///
    /// # Errors
    ///
    /// Fails if the file cannot be read. Damage is an item that is rejected.
    fn feed(&self, container: ContainerFile<'_>) -> Result<SourceFeed>;

    /// Returns whether `name` may be the name of an item: what follows the origin of the container in the origin of the item.
    fn may_name_item(&self, name: &str) -> bool;

    /// Returns what holds an additional image, for messages.
    fn place(&self) -> &'static str;

    /// Returns whether the images of an item show the same, so that an orientation applies to all of them.
    fn are_related(&self) -> bool;

    /// Returns whether an option may name what holds the label.
    fn has_label_field(&self) -> bool;

    /// Returns why there are no labels, and how there may be some. `fields` are the names of those that are kept.
    fn why_no_labels(&self, fields: &[String]) -> String;

    /// Returns whether a part of `file` can be read without what is before it.
    fn has_parts(&self, file: &SourceFile, sources: &[SourceSpec]) -> bool {
        let _ = (file, sources);
        false
    }

    /// Returns a task with the items that start in `range`.
    ///
    /// # Errors
    ///
    /// Fails if the file cannot be read, or has no parts.
    fn part(&self, container: ContainerFile<'_>, range: std::ops::Range<u64>) -> Result<Box<dyn SourceTask>> {
        let _ = (container, range);
        Err(Error::internal("a container without parts is read in parts"))
    }
}
