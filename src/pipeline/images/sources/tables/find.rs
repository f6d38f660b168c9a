//! Search for Parquet files with images in the sources.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::Tables;
use crate::error::{Error, Result};
use crate::pipeline::images::found::{FoundContainers, FoundImages};
use crate::pipeline::images::image_field_names::{MemberField, is_mask_name};
use crate::pipeline::images::image_fields::{
    ImageInspector, ImageLook, ImageRoles, begins_as_image, columns_left_out, main_image_chosen, main_rank,
    type_in_column,
};
use crate::pipeline::images::options::ImagesOptions;
use crate::pipeline::images::sources::Containers;
use crate::printable::printable_path;
use crate::recipe::{ImageFields, ListedImage};
use crate::schema::{FieldType, IMAGE};
use crate::source::io::broken::Broken;
use crate::source::items::box_fields::{BoxColumn, BoxScan, RowBoxesReader, boxes_not_moved};
use crate::source::items::image_table::{
    ImageCell, ImageColumn, ImageColumns, TableFile, TableImages, is_image_table,
};
use crate::source::items::metadata::columns::is_built_in;
use crate::source::items::metadata::labels::Labels;
use crate::source::list::file_list::FileList;
use crate::source::list::source_file::SourceFile;
use crate::source::table::missing_field::{quoted, suggestion};
use crate::warning::Warning;

/// Names of columns of image bytes, after those of main images.
const BYTES_NAMES: [&str; 8] =
    ["jpg", "jpeg", "png", "webp", "image_bytes", "img_bytes", "image_data", "bytes"];
/// Maximum number of fields that the lists of a column become.
const MAX_ITEMS: usize = 256;

/// Result of the search.
pub(in crate::pipeline::images) enum TableSearch {
    /// There are files with images. Damaged files are rejected with them.
    Images(Box<FoundContainers>),
    /// No file is known to contain images. Lists the damaged ones.
    None {
        damaged: Vec<SourceFile>,
        /// Ordinals of the sound ones.
        others: BTreeSet<usize>,
        /// A warning if some values of a column are images.
        warning: Option<Warning>,
    },
}

/// Inspects the Parquet files among `files`.
pub(in crate::pipeline::images) fn find_tables(
    files: &FileList,
    options: &ImagesOptions,
) -> Result<TableSearch> {
    let mut damaged = Vec::new();
    let mut first: Option<(SourceFile, ChosenColumns, Arc<ImageColumns>)> = None;
    let mut labels: BTreeMap<String, Vec<SourceFile>> = BTreeMap::new();
    let mut others = BTreeSet::new();
    let mut warning = None;
    let (mut scan, mut declared) = (BoxScan::default(), None);
    let (keep, label) = (options.recipe.keep_fields.as_deref(), options.recipe.label_field.as_deref());
    for (ordinal, file) in files.iter().enumerate().filter(|(_, file)| is_image_table(file, &options.sources))
    {
        let path = file.path(&options.sources);
        let at_path = |e: Error| e.at_path(&path);
        // Closed again before the next one is opened: there may be more files than a process can have open.
        let table = match TableFile::open(file.planned(&options.sources, options.recipe.follow_symlinks)) {
            Ok(table) => table,
            Err(Broken::Damaged(_)) => {
                damaged.push(file);
                continue;
            }
            Err(Broken::Failed(error)) => return Err(error),
        };
        let mut chosen = match &first {
            Some((_, chosen, _)) => chosen.clone(),
            None => match ChosenColumns::of(&table, &options.recipe.image_fields).map_err(at_path)? {
                Choice::Images(chosen) => *chosen,
                Choice::None { unsure } => {
                    if let (None, Some(column)) = (&warning, unsure) {
                        let message = format!(
                            "{}: only some of the first values in the column {column:?} are images, so the file is skipped",
                            printable_path(&path)
                        );
                        let unsure = Warning::new("image-column-unsure", message).with("path", path);
                        let effect = "reads the images of that column";
                        warning = Some(unsure.with("column", column).remedy("image_fields", "NAME", effect));
                    }
                    others.insert(ordinal);
                    continue;
                }
            },
        };
        let has_images = table.image_columns().iter().any(|column| column.has_images);
        for (column, max) in &mut chosen.items {
            *max = (*max).max(table.max_items(column)?);
        }
        let table = table.table(&chosen.images(), label, keep).map_err(at_path)?;
        let fits = match (&table, &first) {
            (Some(table), Some((_, _, columns))) => table.columns.fits(columns),
            (Some(_), None) => true,
            (None, _) if !has_images => {
                others.insert(ordinal);
                continue;
            }
            (None, _) => false,
        };
        if let Some((first, ..)) = first.as_ref().filter(|_| !fits) {
            let first = first.path(&options.sources);
            return Err(Error::usage(format!("the columns differ from those of {}", printable_path(&first)))
                .at_path(path)
                .help("convert files with different columns or classes separately"));
        }
        let Some(table) = table else { continue };
        if table.columns.declared_classes.is_none() {
            for label in table.labels()? {
                labels.entry(label).or_default().push(file.clone());
            }
        }
        if let Some(column) = BoxColumn::find(&table.columns.fields) {
            table.each_row(&column.used(), |values| scan.add(&column, values))?;
            declared = declared.or_else(|| table.declared_categories(&column.name));
        }
        first = Some(match first {
            Some((first, _, columns)) => (first, chosen, columns),
            None => (file, chosen, Arc::clone(&table.columns)),
        });
    }
    let Some((file, chosen, columns)) = first else {
        return Ok(TableSearch::None { damaged, others, warning });
    };
    let classes = classes(&labels, &columns, options)?;
    let ordinal = |label: &str| classes.as_ref().and_then(|classes| classes.ordinal(label).ok());
    let files_of = |(label, files): (String, Vec<SourceFile>)| Some((ordinal(&label)?, files));
    let of_class = |(class, files): (u32, Vec<SourceFile>)| files.into_iter().map(move |file| (file, class));
    let labeled = labels.into_iter().filter_map(files_of).flat_map(of_class).collect();
    let (table_images, roles) = chosen.all_images().map_err(|e| e.at_path(file.path(&options.sources)))?;
    let mut left_out = columns.left_out.clone();
    left_out.extend(chosen.left_out.into_iter().filter(|name| !columns.left_out.contains(name)));
    let kept = keep.unwrap_or_default().iter().zip(&columns.fields);
    let mut images = FoundImages {
        fields: columns.fields.iter().cloned().chain(roles.fields.iter().map(MemberField::field)).collect(),
        described_members: kept.map(MemberField::of_column).collect(),
        labels_are_ordinals: classes.as_ref().is_some_and(Labels::by_ordinal),
        labeled,
        class_names: classes.map(Labels::into_names),
        roles,
        left_out,
        warnings: chosen.warning.into_iter().collect(),
        ..FoundImages::default()
    };
    if let Some(field) = BoxColumn::sides_in(&columns.fields) {
        images.warnings.push(boxes_not_moved(&field));
    }
    let mut boxes = None;
    if let Some(column) = BoxColumn::find(&columns.fields).filter(|column| scan.has_boxes(column)) {
        boxes = images.box_reader(column, &scan, declared, options);
        let fields = boxes.iter().flat_map(RowBoxesReader::fields);
        images.fields.splice(..0, fields.collect::<Vec<_>>());
    }
    images.containers = Containers::Tables(Tables { images: Some(table_images), boxes });
    if !images.left_out.is_empty() {
        images.warnings.push(columns_left_out(&images.left_out));
    }
    Ok(TableSearch::Images(Box::new(FoundContainers { images, others })))
}

/// The columns of images in a table.
#[derive(Debug, Clone)]
struct ChosenColumns {
    main: ChosenColumn,
    further: Vec<ChosenColumn>,
    /// Columns of lists all of whose items become fields, with their maximum length.
    items: BTreeMap<String, usize>,
    left_out: Vec<String>,
    /// Whether the main column is described, because it does not follow from the schema alone.
    is_main_described: bool,
    warning: Option<Warning>,
}

/// A column of images, and what becomes of it.
#[derive(Debug, Clone)]
struct ChosenColumn {
    cell: ImageCell,
    /// The name that the user gave.
    name: Option<String>,
    ty: FieldType,
}

/// Result of the search for columns of images in one file.
enum Choice {
    Images(Box<ChosenColumns>),
    /// There are none. A column whose first values are partly images is named.
    None {
        unsure: Option<String>,
    },
}

/// A column of images with its inspected images.
struct InspectedColumn {
    column: ImageColumn,
    listed: Option<ListedImage>,
    /// The item that the user names, of a column of lists.
    item: Option<usize>,
    /// For each inspected row, the images of the column.
    looks: Vec<Vec<ImageLook>>,
    /// Number of inspected values, and of those that are images.
    values: usize,
    images: usize,
}

impl ChosenColumns {
    fn of(table: &TableFile, option: &ImageFields) -> Result<Choice> {
        let all = table.image_columns();
        let listed: &[ListedImage] = if let ImageFields::Listed(listed) = option { listed } else { &[] };
        let mut columns = listed_columns(&all, listed);
        if columns.len() < listed.len() {
            if columns.is_empty() && all.iter().all(|column| !column.has_images) {
                // The list may be about other files.
                return Ok(Choice::None { unsure: None });
            }
            let is_missing =
                |image: &&ListedImage| columns.iter().all(|column| column.listed.as_ref() != Some(image));
            let missing =
                listed.iter().find(is_missing).map(|image| image.member.as_str()).unwrap_or_default();
            let names: Vec<&str> = all.iter().map(|column| column.name.as_str()).collect();
            return Err(Error::usage(format!(
                "there is no column {missing:?} with images; those with images or bytes are {}",
                quoted(&names)
            ))
            .of_option("image_fields")
            .help(suggestion("image_fields", missing, &names)));
        }
        let has_sure = all.iter().any(|column| column.has_images) || !columns.is_empty();
        for column in all.iter().filter(|column| column.has_images || !has_sure) {
            if columns.iter().all(|listed| listed.column.at != column.at) {
                columns.push(InspectedColumn::new(column.clone(), None, None));
            }
        }
        let is_inspected = columns.len() > 1 || !has_sure;
        if is_inspected {
            inspect(table, &mut columns)?;
        }
        let mut left_out = Vec::new();
        let mut unsure = None;
        // Where only the content can show it, a column has images if all inspected values are images.
        let is_one = columns.len() == 1 && has_sure;
        columns.retain(|column| {
            let InspectedColumn { values, images, .. } = *column;
            let is_image = match (column.listed.is_some() || column.column.is_declared || is_one, has_sure) {
                (true, _) => true,
                (false, true) => images > 0 || values == 0,
                (false, false) => images > 0 && images == values,
            };
            if !is_image && has_sure {
                left_out.push(column.column.name.clone());
            } else if !is_image && images > 0 {
                unsure = Some(column.column.name.clone());
            }
            is_image
        });
        if columns.is_empty() {
            return Ok(Choice::None { unsure });
        }
        Ok(Choice::Images(Box::new(Self::among(columns, option, left_out))))
    }

    /// Chooses the main column among columns of images: the one that the user names `image`, otherwise one that the user does
    /// not list.
    fn among(mut columns: Vec<InspectedColumn>, option: &ImageFields, mut left_out: Vec<String>) -> Self {
        let is_named = |c: &InspectedColumn| {
            c.listed.as_ref().is_some_and(|listed| listed.name.as_deref() == Some(IMAGE))
        };
        let rank = |c: &InspectedColumn| {
            let name = &c.column.name;
            let as_bytes = || BYTES_NAMES.iter().position(|known| name.eq_ignore_ascii_case(known));
            let rank = main_rank(name);
            let known =
                (rank, if main_rank("") == rank { as_bytes().unwrap_or(BYTES_NAMES.len()) } else { 0 });
            // The first item of a list is before the others.
            (
                !is_named(c),
                c.listed.is_some(),
                known,
                is_mask_name(name),
                c.column.is_list,
                c.column.at,
                c.item,
            )
        };
        columns.sort_by_key(rank);
        let main = columns.remove(0);
        let is_known = |c: &InspectedColumn| {
            let name = &c.column.name;
            main_rank(name) < main_rank("")
                || BYTES_NAMES.iter().any(|known| name.eq_ignore_ascii_case(known))
        };
        let is_same_class = |c: &&InspectedColumn| {
            !is_mask_name(&c.column.name) && (!c.column.is_list || main.column.is_list)
        };
        let is_ambiguous = !is_named(&main)
            && !is_known(&main)
            && main.listed.is_none()
            && columns
                .iter()
                .any(|c| c.listed.is_none() && is_same_class(&c) && c.column.at != main.column.at);
        // Back to the order of the list, then of the columns.
        let order = |c: &InspectedColumn| match option {
            ImageFields::Listed(listed) => {
                listed.iter().position(|l| c.listed.as_ref() == Some(l)).unwrap_or(usize::MAX)
            }
            _ => c.column.at,
        };
        columns.sort_by_key(order);
        let is_kept = |c: &InspectedColumn| match option {
            ImageFields::Auto => true,
            ImageFields::None => false,
            ImageFields::Listed(_) => c.listed.is_some(),
        };
        let (further, dropped): (Vec<_>, Vec<_>) = columns.into_iter().partition(is_kept);
        left_out.extend(dropped.into_iter().map(|c| c.column.name));
        let with_items = |c: &&InspectedColumn| c.column.is_list && c.item.is_none();
        let has_items = |c: &&InspectedColumn| with_items(c) && (*option != ImageFields::None);
        let lists = further.iter().chain([&main]).filter(has_items);
        let items = lists.map(|c| (c.column.name.clone(), 0)).collect();
        let chosen = |c: &InspectedColumn| {
            let cell = ImageCell {
                column: c.column.name.clone(),
                item: c.column.is_list.then_some(c.item.unwrap_or(0)),
            };
            let name = c.listed.as_ref().and_then(|listed| listed.name.clone());
            let given = c.listed.as_ref().and_then(|listed| listed.ty);
            let of_rows = c.looks.iter().zip(&main.looks);
            let images = of_rows.flat_map(|(images, main)| images.iter().map(|image| (image, main.first())));
            ChosenColumn { cell, name, ty: given.unwrap_or_else(|| type_in_column(&c.column.name, images)) }
        };
        let further: Vec<ChosenColumn> = further.iter().map(chosen).collect();
        let is_main_described = !main.column.has_images;
        let warning = is_ambiguous.then(|| {
            let others = further.iter().map(|c| &c.cell.column).chain(&left_out).cloned();
            main_image_chosen(&main.column.name, &others.collect::<Vec<_>>())
        });
        Self { main: chosen(&main), further, items, left_out, is_main_described, warning }
    }

    /// Returns the images with one item of each list.
    fn images(&self) -> TableImages {
        TableImages {
            main: self.main.cell.clone(),
            further: self.further.iter().map(|column| column.cell.clone()).collect(),
            left_out: self.left_out.clone(),
        }
    }

    /// Returns the images with all items of lists, and their fields.
    ///
    /// # Errors
    ///
    /// Fails if lists are too long.
    fn all_images(&self) -> Result<(TableImages, ImageRoles)> {
        let mut images = TableImages { further: Vec::new(), ..self.images() };
        let mut fields = Vec::new();
        let mut add = |column: &ChosenColumn, item: Option<usize>| {
            let cell = ImageCell { item, ..column.cell.clone() };
            let name = match (&column.name, item) {
                (Some(name), Some(item)) if self.items.contains_key(&cell.column) => format!("{name}_{item}"),
                (Some(name), _) => name.clone(),
                (None, Some(item)) => format!("{}_{item}", cell.column),
                (None, None) if is_built_in(&cell.column) => format!("{}_{}", cell.column, column.ty.name()),
                (None, None) => cell.column.clone(),
            };
            fields.push(MemberField { name, member: member_of(&cell), ty: column.ty });
            images.further.push(cell);
        };
        let main_list = self.items.get_key_value(&self.main.cell.column);
        // The other items of the list with the main image come first.
        let of_main = main_list.map(|_| ChosenColumn { name: None, ..self.main.clone() });
        for column in of_main.iter().chain(&self.further) {
            let Some(&length) = self.items.get(&column.cell.column) else {
                add(column, column.cell.item);
                continue;
            };
            if length > MAX_ITEMS {
                let name = &column.cell.column;
                let what = format!(
                    "the column {name:?} has up to {length} images per row, more than the {MAX_ITEMS} fields that its \
                     lists can become"
                );
                return Err(Error::usage(what)
                    .of_option("image_fields")
                    .help(format!("name the images to keep: `image_fields {name}[0],{name}[1],…`")));
            }
            let start = usize::from(column.cell == self.main.cell);
            (start..length).for_each(|item| add(column, Some(item)));
        }
        let is_described = self.is_main_described || !fields.is_empty() || !self.left_out.is_empty();
        Ok((images, ImageRoles { main: is_described.then(|| member_of(&self.main.cell)), fields }))
    }
}

/// Returns how the option `image_fields` names an image.
fn member_of(cell: &ImageCell) -> String {
    match cell.item {
        Some(item) => format!("{}[{item}]", cell.column),
        None => cell.column.clone(),
    }
}

impl InspectedColumn {
    fn new(column: ImageColumn, listed: Option<ListedImage>, item: Option<usize>) -> Self {
        Self { column, listed, item, looks: Vec::new(), values: 0, images: 0 }
    }
}

/// Returns the columns that the user lists, as far as they exist.
fn listed_columns(all: &[ImageColumn], listed: &[ListedImage]) -> Vec<InspectedColumn> {
    let column_of = |image: &ListedImage| {
        let find = |name: &str| {
            let same = all.iter().find(|column| column.name == name);
            same.or_else(|| all.iter().find(|column| column.name.eq_ignore_ascii_case(name))).cloned()
        };
        let (column, item) = match find(&image.member) {
            Some(column) => (column, None),
            None => {
                let (name, item) = image.member.strip_suffix(']')?.rsplit_once('[')?;
                (find(name).filter(|column| column.is_list)?, Some(item.parse().ok()?))
            }
        };
        Some(InspectedColumn::new(column, Some(image.clone()), item))
    };
    listed.iter().filter_map(column_of).collect()
}

/// Inspects the first images of the columns.
fn inspect(table: &TableFile, columns: &mut [InspectedColumn]) -> Result<()> {
    let inspector = ImageInspector::new()?;
    let all: Vec<ImageColumn> = columns.iter().map(|c| c.column.clone()).collect();
    let mut distinct: Vec<&ImageColumn> = Vec::new();
    for column in &all {
        if !distinct.contains(&column) {
            distinct.push(column);
        }
    }
    for row in table.first_images(&distinct)? {
        for column in columns.iter_mut() {
            let at = distinct.iter().position(|other| **other == column.column);
            let images = at.and_then(|at| row.get(at)).map(Vec::as_slice).unwrap_or_default();
            column.values += images.len();
            column.images += images.iter().filter(|bytes| begins_as_image(bytes, "")).count();
            column.looks.push(images.iter().map(|bytes| inspector.look(bytes)).collect());
        }
    }
    Ok(())
}

/// Returns the classes: those of the option, else those declared by the files, else those of the distinct `labels`.
fn classes(
    labels: &BTreeMap<String, Vec<SourceFile>>,
    columns: &ImageColumns,
    options: &ImagesOptions,
) -> Result<Option<Labels>> {
    if !columns.has_labels() {
        return Ok(None);
    }
    let given = options.recipe.classes.as_deref();
    match (&columns.declared_classes, given) {
        (None, _) => Labels::of(labels.keys().map(String::as_str), given),
        (Some(_), Some(given)) => Labels::new(given.to_vec(), false),
        (Some(declared), None) => Labels::new(declared.clone(), false).map_err(|e| {
            e.help("the file declares it twice: rename one of them in its metadata, or name the classes with `classes`")
        }),
    }
    .map(Some)
}
