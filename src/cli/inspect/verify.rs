//! `dsconvert inspect --verify`: checks a dataset or a shard and prints the problems.

use std::io::Write;
use std::path::Path;
use std::sync::OnceLock;

use bytes::Bytes;
use indicatif::HumanBytes;
use serde_json::json;

use super::masks::MaskChecks;
use super::{Out, dir_of, is_shard, open_dataset, print_error, print_json, repair, warn_of_older_ids};
use crate::cli::flags::with_flags;
use crate::cli::summary::Lines;
use crate::cli::{Ending, print};
use crate::decode::{Mask, Size};
use crate::error::{Error, ErrorKind, Result, is_missing_feature};
use crate::numbers::plural;
use crate::printable::{printable, printable_path};
use crate::reader::{Dataset, Record, ShardFile, VerifyOptions, VerifyReport, verify};
use crate::sample::Value;
use crate::schema::{FieldType, IMAGE};
use crate::storage::Access;
use crate::transform::image::{Encode, ImageOptions, ImageOutcome, ImageScratch, ImageTransform, sniff};

/// Verifies the dataset or shard at `path`.
pub(super) fn exec(path: &Path, access: Access, threads: usize, json: bool, out: &mut Out) -> Result<Ending> {
    if is_shard(path)? {
        return verify_shard(path, access, json, out);
    }
    let dataset = open_dataset(path, access)?;
    warn_of_older_ids(&dataset);
    let transform = decoder()?;
    let storage = dataset.manifest().raw_channels().map_or(ImageStorage::Encoded, ImageStorage::Raw);
    let masks = MaskChecks::of(&dataset)?;
    let lacking = OnceLock::new();
    let decode = |record: &Record| {
        if let Some(masks) = &masks {
            masks.check(record);
        }
        check_images(record, &transform, storage, &lacking)
    };
    let options = VerifyOptions { threads, decode: Some(&decode), ..VerifyOptions::default() };
    let report = verify(&dataset, &options);
    refuse_lacking(path, &lacking)?;
    let warnings = masks.map(MaskChecks::warnings);
    if let Some(warnings) = warnings.as_ref().filter(|_| !json) {
        warnings.iter().for_each(|warning| print::warning(with_flags(warning)));
    }
    print::unless_closed(print_report(path, &dataset, &report, warnings, json, out))?;
    Ok(match (report.is_ok(), report.is_incomplete()) {
        (true, _) => Ending::Success,
        (false, true) => Ending::NotVerified,
        (false, false) => Ending::Damaged,
    })
}

fn print_report(
    path: &Path,
    dataset: &Dataset,
    report: &VerifyReport,
    warnings: Option<Vec<String>>,
    json: bool,
    out: &mut Out,
) -> Result<()> {
    if json {
        let problems: Vec<String> = report.problems.iter().map(ToString::to_string).collect();
        let mut object = json!({
            "ok": report.is_ok(),
            "damaged": !report.problems.is_empty() && !report.is_incomplete(),
            "files": report.files,
            "bytes": report.bytes,
            "records": report.records,
            "problems": problems,
            "more_problems": report.more_problems,
            "unlisted": report.unlisted,
            "more_unlisted": report.more_unlisted,
        });
        if let (Some(warnings), Some(members)) = (warnings, object.as_object_mut()) {
            members.insert("warnings".to_owned(), warnings.into());
        }
        return print_json(out, &object);
    }
    let mut lines = Lines::default();
    for problem in &report.problems {
        lines.add(printable(&problem.to_string()));
    }
    if report.more_problems > 0 {
        lines.add(format!("and {}", plural(report.more_problems, "more problem")));
    }
    for file in &report.unlisted {
        lines.add(format!("not part of this dataset: {}", printable(file)));
    }
    if report.more_unlisted > 0 {
        lines.add(format!("and {} not part of this dataset", plural(report.more_unlisted, "more file")));
    }
    if !report.problems.is_empty() {
        lines.add(match (report.is_incomplete(), dataset.is_remote()) {
            (true, true) => "verify the dataset again when its store can be read".to_owned(),
            (true, false) => "make its files readable, then verify it again".to_owned(),
            (false, true) => "to replace it: convert its sources to another prefix".to_owned(),
            (false, false) => repair::advice(path, dir_of(path)?, dataset.manifest()),
        });
    }
    let others = report.unlisted.len() as u64 + report.more_unlisted;
    let verdict = match report.problems.is_empty() {
        true if others == 0 => "intact".to_owned(),
        true => format!("intact, but {} in the directory", plural(others, "other file")),
        false if report.is_incomplete() => "NOT VERIFIED".to_owned(),
        false => "DAMAGED".to_owned(),
    };
    lines.add(format!(
        "{}: {verdict}; {} ({}) and {} checked",
        printable_path(path),
        plural(report.files, "file"),
        HumanBytes(report.bytes),
        plural(report.records, "record")
    ));
    out.write_all(lines.0.as_bytes()).map_err(print_error)
}

/// Verifies a single shard. A shard has no checksums, so this checks only that its records decode.
fn verify_shard(path: &Path, access: Access, json: bool, out: &mut Out) -> Result<Ending> {
    let transform = decoder()?;
    let lacking = OnceLock::new();
    let mut records = 0u64;
    let (mut problem, mut is_unavailable) = (None, false);
    for record in ShardFile::open(path, access)?.records()? {
        match record {
            Ok(record) => {
                if let Err(why) = check_images(&record, &transform, ImageStorage::Unknown, &lacking) {
                    problem = Some(format!("record {records}: {why}"));
                    break;
                }
                records += 1;
            }
            Err(e) => {
                is_unavailable = e.is_unavailable();
                problem = Some(e.to_string());
                break;
            }
        }
    }
    refuse_lacking(path, &lacking)?;
    let printed = if json {
        let problems: Vec<&String> = problem.iter().collect();
        let is_damaged = problem.is_some() && !is_unavailable;
        print_json(
            out,
            &json!({ "ok": problems.is_empty(), "damaged": is_damaged, "records": records, "problems": problems }),
        )
    } else {
        let verdict = match &problem {
            None => "every record decodes; only the dataset has checksums".to_owned(),
            Some(problem) if is_unavailable => format!("NOT VERIFIED: {problem}"),
            Some(problem) => format!("DAMAGED: {problem}"),
        };
        writeln!(out, "{}: {}; {verdict}", printable_path(path), plural(records, "record"))
            .map_err(print_error)
    };
    print::unless_closed(printed)?;
    Ok(match problem {
        None => Ending::Success,
        Some(_) if is_unavailable => Ending::NotVerified,
        Some(_) => Ending::Damaged,
    })
}

/// Refuses a dataset with images that this build cannot decode because it lacks a feature: they are not damaged.
fn refuse_lacking(path: &Path, lacking: &OnceLock<String>) -> Result<()> {
    match lacking.get() {
        None => Ok(()),
        Some(message) => Err(Error::new(ErrorKind::Unsupported, message).at_path(path)),
    }
}

/// Returns a transform that decodes every image, and keeps it as it is.
fn decoder() -> Result<ImageTransform> {
    ImageTransform::new(ImageOptions {
        encode: Encode::Keep,
        max_pixels: u64::MAX,
        ..ImageOptions::default()
    })
}

/// How the images of a dataset are stored.
#[derive(Debug, Clone, Copy)]
enum ImageStorage {
    Encoded,
    /// As samples, with this number of channels.
    Raw(u64),
    /// Only the options of the dataset say whether bytes of no known type are samples or a damaged image.
    Unknown,
}

/// Decodes the images and masks of a record, and compares the sizes of the main image and of masks with the fields.
/// Records without an image pass. The first message about a feature that the build lacks goes to `lacking`.
fn check_images(
    record: &Record,
    transform: &ImageTransform,
    storage: ImageStorage,
    lacking: &OnceLock<String>,
) -> Result<(), String> {
    let (Some(width), Some(height)) = (record.width(), record.height()) else { return Ok(()) };
    let size = Size::new(width, height);
    for (name, ty, value) in record.fields() {
        let Value::Bytes(bytes) = value else { continue };
        let what = match name {
            IMAGE => "the image".to_owned(),
            _ => format!("the {} {:?}", ty.name(), printable(name)),
        };
        match ty {
            FieldType::Mask => {
                Mask::read(bytes, size)
                    .map_err(|reject| format!("{what} does not decode: {}", reject.message))?;
            }
            FieldType::Image => {
                // Additional images have sizes of their own, unless they are samples.
                let has_size = name == IMAGE || matches!(storage, ImageStorage::Raw(_));
                check_image(&what, bytes, has_size.then_some(size), transform, storage, lacking)?;
            }
            _ => {}
        }
    }
    Ok(())
}

fn check_image(
    what: &str,
    bytes: &Bytes,
    size: Option<Size>,
    transform: &ImageTransform,
    storage: ImageStorage,
    lacking: &OnceLock<String>,
) -> Result<(), String> {
    match (storage, size) {
        (ImageStorage::Unknown, _) if sniff(bytes).is_none() => return Ok(()),
        (ImageStorage::Raw(channels), Some(size)) => {
            let expected = size.pixels().saturating_mul(channels);
            return match bytes.len() as u64 {
                found if found == expected => Ok(()),
                found => Err(format!("{what} has {found} samples, but its size needs {expected}")),
            };
        }
        _ => {}
    }
    match transform.convert(&Bytes::clone(bytes), &mut ImageScratch::new()) {
        Ok(ImageOutcome::Converted(found)) => match size {
            Some(size) if (found.width, found.height) != (size.width, size.height) => Err(format!(
                "{what} has {}×{} pixels, but its fields are {}×{}",
                found.width, found.height, size.width, size.height
            )),
            _ => Ok(()),
        },
        Ok(ImageOutcome::Filtered(_)) => Ok(()),
        Err(reject) if is_missing_feature(&reject.message) => {
            lacking.get_or_init(|| reject.message);
            Ok(())
        }
        Err(reject) => Err(format!("{what} does not decode: {}", reject.message)),
    }
}
