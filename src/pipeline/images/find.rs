//! What the sources of images hold, and how the plan describes it.

use serde_json::json;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::tars::tar_fields;
use super::{ImagesOptions, Naming};
use crate::error::{Error, Result};
use crate::options::SourceSpec;
use crate::schema::Field;
use crate::source::labels::{Folders, Layout};
use crate::source::listing::Detail;
use crate::source::walk::{SourceFile, list};
use crate::source::webdataset::is_tar;

/// What the sources hold.
#[derive(Default)]
pub(super) struct Found {
    pub(super) files: Vec<SourceFile>,
    /// One per file, or none at all.
    pub(super) details: Vec<Detail>,
    pub(super) skipped: u64,
    /// Fields that the details have values for.
    pub(super) fields: Vec<Field>,
    /// The classes of the labels in the details.
    pub(super) class_names: Option<Vec<String>>,
    /// Hash of what says all this, beside names.
    pub(super) content: Option<u128>,
}

impl Found {
    /// What the folders mean. Labels of a table stand in for classes from folders.
    pub(super) fn folders(&self, options: &ImagesOptions) -> Result<Folders> {
        // What has no safe path stands in no folder either, and what stands around a tar file is at most a split.
        let walked = self.details.is_empty();
        let images = self.files.iter().filter(|f| if walked { !is_tar(&f.origin) } else { !f.is_named() });
        if walked && self.files.iter().any(|f| is_tar(&f.origin)) {
            let all = Folders::of(&self.files, options.layout, None)?;
            if all.layout == Layout::Splits {
                return Ok(all);
            }
        }
        let placed = images;
        if self.class_names.is_none() {
            return Folders::of(placed, options.layout, options.classes.clone());
        }
        if options.layout == Layout::Labels {
            return Err(Error::usage(
                "the metadata has labels, and --layout labels asks for those of the folders",
            )
            .help("leave --layout out, or rename the column \"label\""));
        }
        let folders = Folders::of(placed.clone(), options.layout, None)?;
        let layout = if folders.layout == Layout::Splits { Layout::Splits } else { Layout::Flat };
        Folders::of(placed, layout, None)
    }
}

pub(super) fn find(options: &ImagesOptions) -> Result<Found> {
    match &options.naming {
        Naming::Walk => {
            let listing = list(&options.sources, options.follow_symlinks, &|_| true)?;
            crate::pipeline::check_origins(&listing.files, &options.sources)?;
            let tars = listing.files.iter().any(|f| is_tar(&f.origin));
            let fields = if tars { tar_fields() } else { Vec::new() };
            Ok(Found { files: listing.files, skipped: listing.skipped, fields, ..Found::default() })
        }
        Naming::FilesFrom(from) => {
            let (files, details) = from.list(one_folder(&options.sources)?, options.follow_symlinks)?;
            Ok(Found { files, details, ..Found::default() })
        }
        Naming::Metadata(table) => {
            let source = one_folder(&options.sources)?;
            let found = table.list(source, options.follow_symlinks, options.classes.as_deref())?;
            Ok(Found {
                files: found.files,
                details: found.details,
                skipped: 0,
                fields: found.fields,
                class_names: found.class_names,
                content: Some(found.content),
            })
        }
    }
}

/// The folder that names are relative to.
fn one_folder(sources: &[SourceSpec]) -> Result<&SourceSpec> {
    match sources {
        [one] => Ok(one),
        _ => Err(Error::usage(format!(
            "files that are named are relative to one folder, not to {}",
            sources.len()
        ))
        .help("name one SRC, or none")),
    }
}

/// Puts the files in an order that `seed` decides.
pub(super) fn shuffle(files: &mut Vec<SourceFile>, details: &mut Vec<Detail>, seed: u64) {
    let detailed = !details.is_empty();
    let missing = files.len() - details.len();
    let all = std::mem::take(details).into_iter().chain(std::iter::repeat_n(Detail::default(), missing));
    let mut pairs: Vec<_> = std::mem::take(files).into_iter().zip(all).collect();
    pairs.sort_by_cached_key(|(f, _)| (xxh3_64_with_seed(f.origin.as_bytes(), seed), f.origin.clone()));
    (*files, *details) = pairs.into_iter().unzip();
    if !detailed {
        details.clear();
    }
}

/// The semantic options, by the names of their flags.
pub(super) fn describe(options: &ImagesOptions, content: Option<u128>) -> Result<serde_json::Value> {
    let as_json = |value: serde_json::Result<serde_json::Value>| {
        value.map_err(|e| Error::usage("the options cannot be written as JSON").caused_by(e))
    };
    let mut described = json!({
        "layout": options.layout.to_string(),
        "classes": options.classes,
        "follow_symlinks": options.follow_symlinks,
        "image": as_json(serde_json::to_value(&options.image))?,
        "output": as_json(serde_json::to_value(&options.output))?,
    });
    if let Some(dedup) = options.dedup {
        described["dedup"] = as_json(serde_json::to_value(dedup))?;
    }
    match &options.naming {
        Naming::Walk => {}
        // What the list says stands in the plan, file by file.
        Naming::FilesFrom(_) => described["files_from"] = json!(true),
        Naming::Metadata(table) => {
            let keep = table
                .keep
                .as_ref()
                .map(|keep| keep.iter().map(|k| json!({ "name": k.name, "type": k.ty })).collect::<Vec<_>>());
            described["metadata"] = json!({
                "path_field": table.path_field,
                "keep_fields": keep,
                "content": content.map(|hash| format!("xxh3-128:{hash:032x}")),
            });
        }
    }
    Ok(described)
}
