//! `dsconvert images`

use std::path::PathBuf;

use super::Ending;
use super::common::{CommonArgs, parse};
use crate::error::{Error, Result};
use crate::pipeline::{ImagesJob, ImagesOptions};
use crate::source::labels::Layout;
use crate::transform::image::{DEFAULT_MAX_PIXELS, Encode, ImageOptions, Resize};

/// Arguments of `dsconvert images`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    common: CommonArgs,

    /// What folders mean: auto, labels (first level = class), splits (first level = split, second = class) or flat
    #[arg(long, value_name = "LAYOUT", default_value = "auto", help_heading = "Labels")]
    layout: String,

    /// File with one class name a line, in label order [default: sorted folder names]
    #[arg(long, value_name = "FILE", help_heading = "Labels")]
    classes: Option<PathBuf>,

    /// Size of the upright image: shorter:256, longer:512, exact:WxH, area:PIXELS or none; never enlarges
    #[arg(long, value_name = "RULE", default_value = "none", help_heading = "Pixels")]
    resize: String,

    /// Encoding: jpeg:QUALITY[:420|444], png, or keep
    #[arg(long, value_name = "ENCODING", default_value = "jpeg:90", help_heading = "Pixels")]
    encode: String,

    /// Reject images with more pixels than this, before anything is decoded
    #[arg(long, value_name = "N", default_value_t = DEFAULT_MAX_PIXELS, help_heading = "Pixels")]
    max_pixels: u64,
}

/// Runs it.
pub(super) fn exec(args: Args) -> Result<Ending> {
    let image = ImageOptions {
        resize: parse::<Resize>("--resize", &args.resize)?,
        encode: parse::<Encode>("--encode", &args.encode)?,
        max_pixels: args.max_pixels,
        ..ImageOptions::default()
    };
    let layout = parse::<Layout>("--layout", &args.layout)?;
    let classes = args.classes.map(|path| read_classes(&path)).transpose()?;
    let output = args.common.output()?;
    let follow_symlinks = args.common.follow_symlinks;
    args.common.exec(|sources| {
        ImagesJob::plan(ImagesOptions { sources, follow_symlinks, layout, classes, image, output })
    })
}

/// Class names, one a line; empty lines at the end are no classes.
fn read_classes(path: &std::path::Path) -> Result<Vec<String>> {
    let text = std::fs::read_to_string(path).map_err(|e| Error::io("read the classes", path, e))?;
    let names: Vec<String> = text.trim_end().lines().map(|line| line.trim().to_owned()).collect();
    match names.iter().position(String::is_empty) {
        Some(line) => Err(Error::usage(format!("--classes: line {} is empty", line + 1)).at_path(path)),
        None => Ok(names),
    }
}
