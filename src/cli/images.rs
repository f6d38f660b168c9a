//! `dsconvert images`: its arguments and the job they describe.

use std::path::{Path, PathBuf};

use super::common::{CommonArgs, ListArgs, RunArgs, check_seed, note_list};
use super::conversion_command::ConversionCommand;
use super::recipe::{Given, Like};
use super::values::{check_not_folder, check_resize_options, source};
use super::{Ending, print, signals};
use crate::error::{Error, Result};
use crate::options::{OptionValue, SourceSpec, check_local};
use crate::pipeline::{ImageInput, ImagesJob, ImagesOptions, Stop};
use crate::printable::printable_path;
use crate::recipe::{ImagesRecipe, Recorded, RecordedInput, Sidecars};
use crate::schema::Schema;
use crate::source::io::encoding::{to_utf8, without_bom};
use crate::source::io::planned::read_file;
use crate::source::items::metadata::columns::{DEFAULT_PATH_FIELD, parse_keep};
use crate::source::items::metadata::placed::MetadataFile;
use crate::transform::image::{Color, Resize};

/// Value of `--metadata` that disables metadata files.
const NO_METADATA: &str = "none";

/// Arguments of `dsconvert images`.
#[derive(Debug, clap::Args)]
#[command(mut_arg("sources", |sources| sources.required(false).required_unless_present_any(["files_from", "metadata"])))]
pub(super) struct Args {
    #[command(flatten)]
    common: CommonArgs,

    #[command(flatten)]
    input: InputArgs,

    #[command(flatten)]
    given: Given<ImagesRecipe>,

    /// File with one class name per line, in label order [default: sorted folder names]
    #[arg(long, value_name = "FILE", help_heading = "Labels")]
    classes: Option<PathBuf>,

    #[command(flatten)]
    pub(super) run: RunArgs,
}

/// How images are found.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Sources")]
struct InputArgs {
    #[command(flatten)]
    list: ListArgs,

    /// Convert the files listed in a csv, tsv, jsonl or parquet file, with its columns as fields
    ///
    /// Paths are relative to SRC; without SRC, to the folder of FILE. A column `label` is the class. `none` ignores metadata files
    /// next to the images [default: metadata.csv, .jsonl or .parquet in SRC or its folders, if there are any]
    #[arg(long, value_name = "FILE|none", conflicts_with = "files_from")]
    metadata: Option<PathBuf>,

    /// Boxes or captions of the images: a COCO .json file, or a folder of YOLO labels or Pascal VOC XML; may be given several times
    ///
    /// COCO files name the images relative to their own folder or to SRC. The labels of SRC/a/b.jpg are in a/b.txt of a folder of
    /// labels, or where `images` in the path is replaced by `labels`; the XML is in a/b.xml, or where `JPEGImages` is replaced by
    /// `Annotations`. Boxes become the fields boxes, labels and iscrowd or difficult, and follow the image when it is turned,
    /// resized, cropped and padded; captions become the field captions.
    #[arg(long, value_name = "FILE|DIR", conflicts_with = "files_from")]
    annotations: Vec<PathBuf>,

    /// Column of --metadata with the paths [default: file_name]
    #[arg(long, value_name = "NAME", requires = "metadata")]
    path_field: Option<String>,
}

/// Runs `dsconvert images`.
pub(super) fn exec(args: Args) -> Result<Ending> {
    let stop = signals::watch()?;
    let Args { common, input, given, classes: classes_file, run } = args;
    let is_quiet = run.verbosity.is_quiet();
    let classes = classes_file.as_deref().map(read_classes).transpose()?;
    let like = common.like.as_deref().map(Like::open).transpose()?;
    let mut recipe = given.recipe(like.as_ref(), is_quiet)?;
    let schema = like.as_ref().map(|like| &like.dataset.manifest().schema);
    // Classes of boxes are not those of folders.
    let is_used = |schema: &&Schema| schema.boxes_field().is_none() || !input.annotations.is_empty();
    let known = schema.filter(is_used).map(|schema| &schema.class_names).filter(|names| !names.is_empty());
    if let (Some(given), Some(known)) = (&classes, known.filter(|_| !is_quiet))
        && given != known
    {
        print::warning(
            "the classes are those of --classes, not of --like: the labels of the two datasets differ",
        );
    }
    recipe.classes = classes.or_else(|| known.cloned()).or(recipe.classes);
    if !run.is_repair() {
        check_effects(&recipe, &given)?;
    }
    if let (Some(like), false) = (&like, is_quiet) {
        notes(&input, &given, &recipe, &like.recorded.input, &printable_path(like.path));
        common.note_exclude(like);
    }
    if !input.annotations.is_empty()
        && input.metadata.as_deref().is_some_and(|path| path != Path::new(NO_METADATA))
    {
        return Err(Error::usage("--annotations and --metadata FILE both describe the images")
            .help("give one of them"));
    }
    let annotations = input.annotations.clone();
    let recorded = like.map(|like| like.recorded.input);
    let (input, sources) = input.sources(&recipe, &given, recorded, common.sources()?)?;
    if let ImageInput::Metadata(_) = input {
        recipe.keep_fields = None;
    }
    let classes = classes_file.map(|path| ("classes", path));
    let named = annotations.iter().map(|path| ("annotations", path.clone()));
    let inputs = input.table_or_list().into_iter().chain(classes).chain(named).collect();
    let options = ImagesOptions { sources, input, annotations, exclude: common.exclude, recipe };
    convert(options, common.out.as_deref(), &run, inputs, &stop)
}

/// Repairs the dataset in `dir` from `sources`.
pub(super) fn repair(
    recorded: Recorded<ImagesRecipe>,
    dir: &Path,
    sources: Vec<SourceSpec>,
    threads: Option<usize>,
) -> Result<Ending> {
    let input = match recorded.input {
        RecordedInput::WalkOnly => ImageInput::WalkOnly,
        _ => ImageInput::Walk,
    };
    let (annotations, exclude) = (Vec::new(), Vec::new());
    let options = ImagesOptions { sources, input, annotations, exclude, recipe: recorded.recipe };
    let stop = signals::watch()?;
    convert(options, Some(dir), &RunArgs::repair(threads), Vec::new(), &stop)
}

/// Plans, then previews, stores or runs the conversion. `inputs` are files that options name.
fn convert(
    options: ImagesOptions,
    out: Option<&Path>,
    run: &RunArgs,
    inputs: Vec<(&'static str, PathBuf)>,
    stop: &Stop,
) -> Result<Ending> {
    let searched = if options.input.walks() { options.sources.clone() } else { Vec::new() };
    let excluded = options.exclude.clone();
    let command = ConversionCommand { out, run, stop, searched, inputs, excluded, batches: None };
    command.exec(|| ImagesJob::plan(options))
}

/// Says what is not taken over from the dataset of `--like`, whose files were found by `input`.
fn notes(
    args: &InputArgs,
    given: &Given<ImagesRecipe>,
    recipe: &ImagesRecipe,
    input: &RecordedInput,
    dataset: &str,
) {
    if args.list.files_from.is_none() && args.metadata.is_none() {
        match input {
            RecordedInput::Table { .. } => print::note(format!(
                "{dataset} was made from a table, which it does not contain: the sources are walked; give a table with \
                 --metadata"
            )),
            RecordedInput::Annotations if args.annotations.is_empty() => print::note(format!(
                "{dataset} was made with annotations, which it does not contain: give those of these images with --annotations"
            )),
            RecordedInput::FilesFrom => note_list(dataset),
            _ => {}
        }
    }
    let tables = args.metadata.is_none() && *input == RecordedInput::WalkOnly;
    let sidecars = recipe.sidecar == Sidecars::None && !given.has("sidecar");
    let unread = match (tables, sidecars) {
        (true, true) => {
            "metadata files and other files beside the images are not read: {} has no fields from them"
        }
        (true, false) => "metadata files beside the images are not read: {} has no fields from them",
        (false, true) => "files beside the images are not read, except metadata: {} has no fields from them",
        (false, false) => "",
    };
    if !unread.is_empty() {
        print::note(unread.replace("{}", dataset));
    }
    if recipe.classes.is_some() && args.metadata.is_none() {
        print::note(format!("the classes are those of {dataset}, in its order"));
    }
}

impl InputArgs {
    /// Returns how files are found, and the sources: by default, the folder that names are relative to. `recorded` is how
    /// the files of the dataset of `--like` were found.
    fn sources(
        self,
        recipe: &ImagesRecipe,
        given: &Given<ImagesRecipe>,
        recorded: Option<RecordedInput>,
        sources: Vec<SourceSpec>,
    ) -> Result<(ImageInput, Vec<SourceSpec>)> {
        let (input, folder) = if let Some(from) = self.list.list()? {
            let folder = from.folder();
            (ImageInput::FilesFrom(from), folder)
        } else if let Some(path) = self.metadata {
            if path == Path::new(NO_METADATA) {
                return match self.path_field {
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
            let (path_field, keep) = match recorded {
                Some(RecordedInput::Table { path_field, keep_fields }) => (Some(path_field), keep_fields),
                _ => (None, None),
            };
            // Columns of a named table are part of the input.
            let listed = recipe.keep_fields.as_ref().filter(|_| given.has("keep_fields"));
            let listed = listed.and_then(OptionValue::text).map(|text| parse_keep(&text)).transpose();
            let keep = listed.map_err(|e| e.of_option("keep_fields"))?.or(keep);
            let path_field = self.path_field.or(path_field).unwrap_or_else(|| DEFAULT_PATH_FIELD.to_owned());
            let table = MetadataFile { path, path_field, keep };
            let folder = table.folder();
            (ImageInput::Metadata(table), folder)
        } else {
            let input = match recorded {
                Some(RecordedInput::WalkOnly) => ImageInput::WalkOnly,
                _ => ImageInput::Walk,
            };
            return Ok((input, sources));
        };
        Ok((input, if sources.is_empty() { vec![source(&folder)?] } else { sources }))
    }
}

/// Rejects options of the command line that have no effect with the others.
fn check_effects(recipe: &ImagesRecipe, given: &Given<ImagesRecipe>) -> Result<()> {
    let is_resized = recipe.image.resize != Resize::None || recipe.image.buckets.is_some();
    check_resize_options(is_resized, given.has("enlarge"), given.has("filter"))?;
    if given.has("background") && recipe.image.color == Color::Rgba {
        return Err(Error::usage("--background has no effect with --color rgba, which keeps transparency")
            .help("leave it out; `pad` sets the color of the padding"));
    }
    check_seed(&recipe.output, given.has("seed"))
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
