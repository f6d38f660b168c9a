//! `dsconvert images`: its arguments and the job they describe.

use std::num::NonZeroU16;
use std::path::{Path, PathBuf};

use super::common::CommonArgs;
use super::conversion_command::ConversionCommand;
use super::values::{FILES_FROM_HELP, check_not_folder, check_resize_options, choice, parse, source};
use super::{Ending, signals};
use crate::error::{Error, Result};
use crate::options::{SourceSpec, check_local};
use crate::pipeline::{Dedup, ImageFields, ImageInput, ImagesJob, ImagesOptions, Sidecars};
use crate::source::encoding::to_utf8;
use crate::source::files_from::FilesFrom;
use crate::source::layout::FolderLayout;
use crate::source::metadata::{DEFAULT_PATH_FIELD, MetadataFile, parse_keep, parse_kept};
use crate::source::{read_file, without_bom};
use crate::transform::image::{Animated, Color, DEFAULT_MAX_PIXELS, Filter, Icc, ImageOptions, Rgb};

/// Value of `--metadata` that disables metadata files.
const NO_METADATA: &str = "none";

/// Arguments of `dsconvert images`.
#[derive(Debug, clap::Args)]
#[command(mut_arg("sources", |sources| sources.required(false).required_unless_present_any(["files_from", "metadata"])))]
pub(super) struct Args {
    #[command(flatten)]
    pub(super) common: CommonArgs,

    #[command(flatten)]
    input: InputArgs,

    #[command(flatten)]
    labels: LabelArgs,

    #[command(flatten)]
    pixels: PixelArgs,

    #[command(flatten)]
    selection: SelectionArgs,
}

/// How images are found, and which fields come with them.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Sources")]
struct InputArgs {
    /// Convert the files listed in FILE (or - for standard input), one path per line
    ///
    /// Records are in the order of the list. Paths are relative to SRC; without SRC, to the folder of FILE (for -, to the working
    /// directory).
    #[arg(long, value_name = "FILE|-")]
    files_from: Option<PathBuf>,

    /// Paths in --files-from end with a NUL byte, like the output of find -print0
    #[arg(short = '0', long, requires = "files_from")]
    null: bool,

    /// Convert the files listed in a csv, tsv, jsonl or parquet file, with its columns as fields
    ///
    /// Paths are relative to SRC; without SRC, to the folder of FILE. A column `label` is the class. `none` ignores metadata files
    /// next to the images [default: metadata.csv, .jsonl or .parquet in SRC or its folders, if there are any]
    #[arg(long, value_name = "FILE|none", conflicts_with = "files_from")]
    metadata: Option<PathBuf>,

    /// Column of --metadata with the paths [default: file_name]
    #[arg(long, value_name = "NAME", requires = "metadata")]
    path_field: Option<String>,

    /// Fields to keep, as name or name:type: columns of --metadata, Parquet or Arrow files, members of samples [default: all]
    ///
    /// Without a type, columns of parquet files keep their type; lists and objects of jsonl files become json; others are strings.
    /// In tar files with samples, a name is the part of a file name after its first dot; the default is all members of text,
    /// and name:binary keeps others. NEW=name renames a member, or a column of a Parquet or Arrow file with images.
    #[arg(long, value_name = "FIELDS")]
    keep_fields: Option<String>,

    /// Columns whose values become lists: all rows of an image become one record
    ///
    /// Use it for several captions per image, for example. The other columns must have the same value in all rows of an image.
    /// Without this option, every row becomes a record.
    #[arg(long, value_name = "NAME,…", value_delimiter = ',', conflicts_with = "files_from")]
    list_fields: Vec<String>,

    /// Images of samples in tar files and of rows in Parquet or Arrow files: auto, none or NAME,… such as seg.png
    ///
    /// An entry is [FIELD=]NAME[:mask|:image], where NAME is the part of a file name after its first dot, or a column (of
    /// lists: name[0]). The image that is not listed is the main image; image=NAME chooses another. A mask (the default for
    /// PNG members) keeps its values, and has the size of its image. auto: all images in the first samples and rows.
    #[arg(long, visible_alias = "image-field", value_name = "FIELDS", default_value = "auto")]
    image_fields: String,

    /// Files beside images that become fields, by extension: auto, none or EXT,… such as txt,caption
    ///
    /// a.jpg has the text of a.txt (or a.jpg.txt) in the field txt; a .json file holds JSON. Images without such a file have
    /// null. auto: .txt, .caption and .json, each if at least one image has such a file; none beside images of --files-from and
    /// --metadata FILE.
    #[arg(long, value_name = "auto|none|EXT,…", default_value = "auto")]
    sidecar: String,
}

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Labels")]
struct LabelArgs {
    /// Meaning of folder names
    ///
    /// auto: folders whose names contain the word of a split (train, val, test, ...), at any level, are splits, and the
    /// folders in them are classes; without splits, the first folders are classes; labels: the first level is the class;
    /// splits: the first level is the split, the second the class; flat: folders have no meaning.
    #[arg(long, value_name = "LAYOUT", value_parser = choice::<FolderLayout>(), default_value = "auto")]
    layout: FolderLayout,

    /// File with one class name per line, in label order [default: sorted folder names]
    #[arg(long, value_name = "FILE")]
    classes: Option<PathBuf>,
}

/// How images are decoded, resized and encoded. Sizes are those of the upright image.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Pixels")]
struct PixelArgs {
    /// Target size: shorter:N, longer:N, exact:WxH, area:PIXELS or none
    #[arg(long, value_name = "RULE", default_value = "none")]
    resize: String,

    /// Allow --resize to enlarge images
    #[arg(long)]
    enlarge: bool,

    /// Resampling filter of --resize [default: lanczos3]
    #[arg(long, value_name = "FILTER", value_parser = choice::<Filter>())]
    filter: Option<Filter>,

    /// Crop the resized image: center:WxH
    #[arg(long, value_name = "CROP")]
    crop: Option<String>,

    /// Pad the image to a canvas: WxH or WxH:COLOR (a name or #rrggbb)
    #[arg(long, value_name = "WxH:COLOR")]
    pad: Option<String>,

    /// Color channels of the output
    #[arg(long, value_name = "COLOR", value_parser = choice::<Color>(), default_value = "rgb")]
    color: Color,

    /// Background color for transparent pixels, if the output has no alpha [default: white]
    #[arg(long, value_name = "COLOR")]
    background: Option<String>,

    /// Embedded color profiles: convert pixels to sRGB, or ignore the profile
    #[arg(long, value_name = "POLICY", value_parser = choice::<Icc>(), default_value = "convert")]
    icc: Icc,

    /// Animated files: keep the first frame, or reject them
    #[arg(long, value_name = "POLICY", value_parser = choice::<Animated>(), default_value = "first")]
    animated: Animated,

    /// Encoding: jpeg:QUALITY[:420|444], png, webp:QUALITY, webp-lossless, raw or keep
    #[arg(long, value_name = "ENCODING", default_value = "jpeg:90")]
    encode: String,

    /// Store progressive JPEGs that would pass through unchanged as baseline JPEGs: same pixels, faster to decode
    #[arg(long)]
    baseline: bool,

    /// Add a restart marker after every N MCUs of stored JPEGs, for faster crops in training; try 4
    #[arg(long, value_name = "N")]
    restart_interval: Option<NonZeroU16>,

    /// Keep the metadata of files that pass through, and the EXIF block of files that are encoded again
    #[arg(long)]
    keep_metadata: bool,

    /// Convert damaged images as far as they can be decoded, and count them
    #[arg(long)]
    lenient: bool,

    /// Reject images with more pixels than this, without decoding them
    #[arg(long, value_name = "N", default_value_t = DEFAULT_MAX_PIXELS)]
    max_pixels: u64,
}

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Selection")]
struct SelectionArgs {
    /// Leave out images whose shorter side has fewer pixels
    #[arg(long, value_name = "PIXELS")]
    min_size: Option<u32>,

    /// Leave out images whose longer side is more than this many times the shorter
    #[arg(long, value_name = "RATIO")]
    max_aspect: Option<f64>,

    /// Leave out images with fewer pixels in total
    #[arg(long, value_name = "PIXELS")]
    min_pixels: Option<u64>,

    /// Leave out files with the same bytes as another file; the first record is kept
    #[arg(long, value_name = "BY", value_parser = choice::<Dedup>())]
    dedup: Option<Dedup>,
}

/// Runs `dsconvert images`.
pub(super) fn exec(args: Args) -> Result<Ending> {
    let classes = args.labels.classes.as_deref().map(read_classes).transpose()?;
    exec_with_classes(args, classes)
}

/// Runs `dsconvert images` with these names of classes.
pub(super) fn exec_with_classes(args: Args, classes: Option<Vec<String>>) -> Result<Ending> {
    let watch = signals::watch()?;
    let image = image_options(&args.pixels, &args.selection)?;
    if !args.common.is_repair() {
        args.pixels.check_effects(&image)?;
    }
    let output = args.common.output()?;
    let image_fields: ImageFields = parse("image_fields", &args.input.image_fields)?;
    let sidecars: Sidecars = parse("sidecar", &args.input.sidecar)?;
    let list_fields = args.input.list_fields.clone();
    // Columns of a named table are part of the input.
    let of_sources = args.input.metadata.as_deref().is_none_or(|path| path == Path::new(NO_METADATA));
    let keep_fields = args.input.keep_fields.as_deref().filter(|_| of_sources).map(parse_kept).transpose();
    let keep_fields = keep_fields.map_err(|e| e.of_option("keep_fields"))?;
    let (input, sources) = input(args.input, args.common.sources()?)?;
    let walked = input.walks();
    let mut inputs: Vec<_> = input.table_or_list().into_iter().collect();
    inputs.extend(args.labels.classes.map(|path| ("classes", path)));
    let plan = |sources| {
        ImagesJob::plan(ImagesOptions {
            sources,
            input,
            follow_symlinks: args.common.follow_symlinks,
            layout: args.labels.layout,
            classes,
            list_fields,
            image_fields,
            sidecars,
            keep_fields,
            image,
            dedup: args.selection.dedup,
            output,
        })
    };
    ConversionCommand { common: &args.common, watch: &watch, sources, walked, inputs, batches: None }
        .exec(plan)
}

/// Returns how files are found, and the sources: by default, the folder that names are relative to.
fn input(args: InputArgs, sources: Vec<SourceSpec>) -> Result<(ImageInput, Vec<SourceSpec>)> {
    let (input, folder) = if let Some(list) = args.files_from {
        check_local("files_from", &list)?;
        check_not_folder("files_from", &list, FILES_FROM_HELP)?;
        let from = FilesFrom { list, null: args.null };
        let folder = from.folder();
        (ImageInput::FilesFrom(from), folder)
    } else if let Some(path) = args.metadata {
        if path == Path::new(NO_METADATA) {
            return match args.path_field {
                _ if sources.is_empty() => {
                    Err(Error::usage("--metadata none names no images").help("name SRC"))
                }
                Some(_) => Err(Error::usage("--path-field chooses columns of --metadata")
                    .help("leave it out with --metadata none")),
                None => Ok((ImageInput::WalkOnly, sources)),
            };
        }
        check_local("metadata", &path)?;
        check_not_folder(
            "metadata",
            &path,
            "name a csv, tsv, jsonl or parquet file; a folder of images is SRC",
        )?;
        let keep = args.keep_fields.as_deref().map(parse_keep).transpose();
        let keep = keep.map_err(|e| e.of_option("keep_fields"))?;
        let path_field = args.path_field.unwrap_or_else(|| DEFAULT_PATH_FIELD.to_owned());
        let table = MetadataFile { path, path_field, keep };
        let folder = table.folder();
        (ImageInput::Metadata(table), folder)
    } else {
        return Ok((ImageInput::Walk, sources));
    };
    Ok((input, if sources.is_empty() { vec![source(&folder)?] } else { sources }))
}

impl PixelArgs {
    /// Rejects options that have no effect with the other `options`.
    fn check_effects(&self, options: &ImageOptions) -> Result<()> {
        check_resize_options(options.resize, self.enlarge, self.filter.is_some())?;
        if self.background.is_some() && options.color == Color::Rgba {
            return Err(Error::usage(
                "--background has no effect with --color rgba, which keeps transparency",
            )
            .help("leave it out; the color of the padding is that of `pad`"));
        }
        Ok(())
    }
}

fn image_options(pixels: &PixelArgs, selection: &SelectionArgs) -> Result<ImageOptions> {
    Ok(ImageOptions {
        resize: parse("resize", &pixels.resize)?,
        enlarge: pixels.enlarge,
        filter: pixels.filter.unwrap_or_default(),
        crop: pixels.crop.as_deref().map(|text| parse("crop", text)).transpose()?,
        pad: pixels.pad.as_deref().map(|text| parse("pad", text)).transpose()?,
        color: pixels.color,
        background: match &pixels.background {
            Some(text) => parse("background", text)?,
            None => Rgb::WHITE,
        },
        icc: pixels.icc,
        animated: pixels.animated,
        encode: parse("encode", &pixels.encode)?,
        baseline: pixels.baseline,
        restart_interval: pixels.restart_interval,
        keep_metadata: pixels.keep_metadata,
        lenient: pixels.lenient,
        max_pixels: pixels.max_pixels,
        min_size: selection.min_size,
        max_aspect: selection.max_aspect,
        min_pixels: selection.min_pixels,
    })
}

/// Reads class names, one per line. Trailing empty lines are ignored.
fn read_classes(path: &Path) -> Result<Vec<String>> {
    let help = "--classes takes a file with one class name per line";
    check_local("classes", path)?;
    check_not_folder("classes", path, help)?;
    let bytes = read_file(path).map_err(|e| e.help(help))?;
    let bytes = to_utf8(bytes, None).map_err(|reject| Error::usage(reject.message).at_path(path))?;
    let text = std::str::from_utf8(without_bom(&bytes))
        .map_err(|e| Error::usage("the list of classes is not UTF-8").at_path(path).caused_by(e))?;
    let names: Vec<String> = text.trim_end().lines().map(|line| line.trim().to_owned()).collect();
    match names.iter().position(String::is_empty) {
        None if names.is_empty() => {
            Err(Error::usage("--classes: the file names no class").at_path(path).help(help))
        }
        Some(line) => Err(Error::usage(format!("--classes: line {} is empty", line + 1)).at_path(path)),
        None => Ok(names),
    }
}
