//! Boxes in the fields of tables: object detection as on the Hugging Face Hub (`objects`), and COCO in columns (`bbox`).
//!
//! Nothing says whether the last two numbers of such a box are its size or its other corner. All boxes of a dataset together
//! show it: a width is often smaller than a left side, a right side never is.

use serde::{Deserialize, Serialize};
use serde_json::Value as Json;

use super::metadata::labels::Labels;
use crate::sample::{Reject, Value};
use crate::schema::{BOX_CROWDS, BOX_LABELS, BOXES, Field, FieldType, HEIGHT, WIDTH};
use crate::source::list::boxes::{BoxExtras, BoxList, ImageBoxes};
use crate::source::table::typed_values::as_json;
use crate::warning::Warning;

/// Name of the field with the objects of an image.
const OBJECTS: &str = "objects";
/// Names of fields and members of boxes.
const BOX_NAMES: [&str; 3] = ["bbox", "bboxes", "boxes"];
/// Names of fields and members of categories. A field `label` is the class of the image.
const CATEGORY_NAMES: [&str; 6] =
    ["category", "categories", "category_id", "category_ids", "label", "labels"];
/// How many times more boxes must show one form than the other one.
const MAJORITY: u64 = 100;
/// Largest relative difference between a stated area and the area of the box.
const AREA_ERROR: f64 = 0.01;

/// Returns the name of the field for a column of a table that is called like a built-in field of every record: the size of the
/// source image beside its boxes.
pub fn source_side(name: &str) -> Option<&'static str> {
    match name {
        WIDTH => Some("source_width"),
        HEIGHT => Some("source_height"),
        _ => None,
    }
}

/// Returns whether a column of this name may hold boxes.
pub fn is_box_column(name: &str) -> bool {
    name == OBJECTS || BOX_NAMES.contains(&name)
}

/// What the last two numbers of a box are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum BoxForm {
    /// Width and height.
    Sizes,
    /// The bottom right corner.
    Corners,
}

/// Fields of a row that hold boxes. Numbers are positions among the values of the row.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BoxColumn {
    /// Name of the field.
    pub name: String,
    /// The field with the boxes, or with objects.
    at: (usize, FieldType),
    /// The field with the categories, unless they are in the objects.
    categories: Option<(usize, FieldType)>,
    /// The fields with the width and the height of the source image.
    size: Option<(usize, usize)>,
}

/// The boxes in a row.
#[derive(Debug, Default, PartialEq)]
struct RowBoxes {
    boxes: Vec<[f64; 4]>,
    categories: Option<Vec<String>>,
    areas: Option<Vec<f64>>,
    size: Option<(u32, u32)>,
}

/// What all rows say about a column of boxes.
#[derive(Debug, Default)]
pub struct BoxScan {
    boxes: u64,
    /// Number of boxes that show the form.
    sizes: u64,
    corners: u64,
    /// Number of rows whose values are not read as boxes.
    unreadable: u64,
    /// Number of rows with boxes and categories, and of those without categories.
    labeled: u64,
    unlabeled: u64,
    /// The categories as text.
    pub categories: std::collections::BTreeSet<String>,
}

/// The boxes of rows, which become fields of their own.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct RowBoxesReader {
    column: BoxColumn,
    form: BoxForm,
    /// `None` if boxes have no categories.
    labels: Option<Labels>,
}

impl BoxColumn {
    /// Returns the column of boxes among the `fields` of rows, if one has the name and type of one.
    pub fn find(fields: &[Field]) -> Option<Self> {
        let can_be = |ty: FieldType| matches!(ty, FieldType::Json | FieldType::String);
        let named = |name: &str| {
            let at = fields.iter().position(|field| field.name == name && can_be(field.ty))?;
            Some((at, fields[at].ty))
        };
        let number = |name: &str| {
            let is_number = |ty| {
                can_be(ty)
                    || matches!(
                        ty,
                        FieldType::Int32 | FieldType::Int64 | FieldType::UInt32 | FieldType::UInt64
                    )
            };
            let source = source_side(name).unwrap_or(name);
            fields
                .iter()
                .position(|field| [name, source].contains(&field.name.as_str()) && is_number(field.ty))
        };
        let any = |name: &str| {
            let at = fields.iter().position(|field| field.name == name)?;
            Some((at, fields[at].ty))
        };
        let size = number(WIDTH).zip(number(HEIGHT));
        let (name, at) = [OBJECTS].iter().chain(&BOX_NAMES).find_map(|name| Some((*name, named(name)?)))?;
        let categories = match name {
            OBJECTS => None,
            _ => CATEGORY_NAMES.iter().find_map(|name| any(name)),
        };
        Some(Self { name: name.to_owned(), at, categories, size })
    }

    /// Returns the names of fields that look like one side of a box each, which are not read as boxes.
    pub fn sides_in(fields: &[Field]) -> Option<String> {
        const SIDES: [[&str; 4]; 3] = [
            ["xmin", "ymin", "xmax", "ymax"],
            ["x_min", "y_min", "x_max", "y_max"],
            ["x1", "y1", "x2", "y2"],
        ];
        let has = |name: &&str| fields.iter().any(|field| field.name.eq_ignore_ascii_case(name));
        SIDES.iter().find(|sides| sides.iter().all(&has)).map(|sides| sides.join(", "))
    }

    /// Returns whether the fields that boxes become are free in `fields`.
    pub fn has_room(&self, fields: &[Field]) -> bool {
        fields.iter().all(|field| ![BOXES, BOX_LABELS, BOX_CROWDS].contains(&field.name.as_str()))
    }

    /// Returns the positions of the fields that are read, ascending.
    pub fn used(&self) -> Vec<usize> {
        let size = self.size.into_iter().flat_map(|(width, height)| [width, height]);
        let mut used: Vec<usize> = size.chain([self.at.0]).chain(self.categories.map(|(at, _)| at)).collect();
        used.sort_unstable();
        used.dedup();
        used
    }

    /// Returns the boxes of a row; `None` if it has none, and an error if they cannot be read.
    fn read(&self, values: &[Value]) -> Result<Option<RowBoxes>, ()> {
        let json = |(at, ty): (usize, FieldType)| match values.get(at) {
            None | Some(Value::Null) => Json::Null,
            Some(value) => match serde_json::from_str(&as_json(ty, value)) {
                // A cell of delimited text, or of a list of such cells.
                Ok(Json::String(text)) => serde_json::from_str(&text).unwrap_or(Json::String(text)),
                json => json.unwrap_or_default(),
            },
        };
        let side = |at: usize| match values.get(at)? {
            Value::Int(side) => u32::try_from(*side).ok(),
            Value::UInt(side) => u32::try_from(*side).ok(),
            Value::Text(text) => text
                .as_str()
                .trim()
                .parse::<f64>()
                .ok()
                .filter(|side| side.fract() == 0.0)
                .map(|side| side as u32),
            _ => None,
        };
        let mut row = RowBoxes::default();
        match json(self.at) {
            Json::Null => return Ok(None),
            Json::Object(members) => {
                let member = |names: &[&str]| names.iter().find_map(|name| members.get(*name));
                row.boxes = boxes_in(member(&BOX_NAMES).ok_or(())?).ok_or(())?;
                row.categories = member(&CATEGORY_NAMES).map(|list| texts_in(list).ok_or(())).transpose()?;
                row.areas = member(&["area", "areas"]).and_then(numbers_in);
            }
            Json::Array(objects) if objects.iter().any(Json::is_object) => {
                let (mut categories, mut areas) = (Vec::new(), Vec::new());
                for object in &objects {
                    let member = |names: &[&str]| names.iter().find_map(|name| object.get(*name));
                    let [one] = boxes_in(member(&BOX_NAMES).ok_or(())?).ok_or(())?[..] else {
                        return Err(());
                    };
                    row.boxes.push(one);
                    categories.extend(member(&CATEGORY_NAMES).and_then(text_in));
                    areas.extend(member(&["area"]).and_then(Json::as_f64));
                }
                row.categories = (!categories.is_empty()).then_some(categories);
                row.areas = (!areas.is_empty()).then_some(areas);
            }
            list => row.boxes = boxes_in(&list).ok_or(())?,
        }
        if let Some(field) = self.categories {
            row.categories = match json(field) {
                Json::Null => None,
                list => Some(texts_in(&list).ok_or(())?),
            };
        }
        let is_other = |count: usize| count != row.boxes.len();
        if row.categories.as_ref().is_some_and(|list| is_other(list.len())) {
            return Err(());
        }
        row.areas = row.areas.take().filter(|list| list.len() == row.boxes.len());
        row.size = self
            .size
            .and_then(|(width, height)| Some((side(width)?, side(height)?)))
            .filter(|(w, h)| *w > 0 && *h > 0);
        Ok(Some(row))
    }
}

impl BoxScan {
    /// Adds a row.
    pub fn add(&mut self, column: &BoxColumn, values: &[Value]) {
        let Ok(row) = column.read(values) else {
            self.unreadable += 1;
            return;
        };
        let Some(row) = row else { return };
        self.boxes += row.boxes.len() as u64;
        self.labeled += u64::from(!row.boxes.is_empty() && row.categories.is_some());
        self.unlabeled += u64::from(!row.boxes.is_empty() && row.categories.is_none());
        self.categories.extend(row.categories.into_iter().flatten());
        for (at, &[x, y, third, fourth]) in row.boxes.iter().enumerate() {
            let area = row.areas.as_ref().and_then(|areas| areas.get(at)).copied();
            let fits = |width: f64, height: f64| {
                area.is_some_and(|area| area > 0.0 && (width * height - area).abs() <= AREA_ERROR * area)
            };
            let (of_sizes, of_corners) = (fits(third, fourth), fits(third - x, fourth - y));
            // Within the image as corners, but not as sizes.
            let is_in = |right: f64, bottom: f64| {
                row.size.is_some_and(|(width, height)| {
                    right <= f64::from(width) + 1.0 && bottom <= f64::from(height) + 1.0
                })
            };
            let leaves = row.size.is_some() && is_in(third, fourth) && !is_in(x + third, y + fourth);
            let is_sized = third < x || fourth < y || (of_sizes && !of_corners);
            self.sizes += u64::from(is_sized);
            self.corners += u64::from(!is_sized && ((of_corners && !of_sizes) || leaves));
        }
    }

    /// Returns whether a column holds boxes, and is not only called so: it has boxes, or a value of another form although
    /// only boxes have its name.
    pub fn has_boxes(&self, column: &BoxColumn) -> bool {
        self.boxes > 0 || (self.unreadable > 0 && BOX_NAMES[..2].contains(&column.name.as_str()))
    }

    /// Returns the form of the boxes; `None` if their numbers do not show it, or some values cannot be read.
    pub fn form(&self) -> Option<BoxForm> {
        match (self.sizes, self.corners) {
            _ if self.unreadable > 0 || (self.labeled > 0 && self.unlabeled > 0) => None,
            (sizes @ 1.., corners) if sizes > corners * MAJORITY => Some(BoxForm::Sizes),
            (sizes, corners @ 1..) if corners > sizes * MAJORITY => Some(BoxForm::Corners),
            _ => None,
        }
    }
}

impl RowBoxesReader {
    /// Creates a reader of the boxes that `scan` found in `column`, whose categories are `declared` or in `classes`. Returns
    /// `None` if their form is not known, or a category is not a class.
    pub fn of(
        column: BoxColumn,
        scan: &BoxScan,
        declared: Option<Vec<String>>,
        classes: Option<&[String]>,
    ) -> Option<Self> {
        let form = scan.form()?;
        if scan.labeled == 0 {
            return Some(Self { column, form, labels: None });
        }
        let categories = || scan.categories.iter().map(String::as_str);
        let labels = match declared {
            Some(names) => Labels::new(names, categories().all(|text| text.parse::<i64>().is_ok())),
            None => Labels::of(categories(), classes),
        };
        let labels =
            labels.ok().filter(|labels| categories().all(|category| labels.ordinal(category).is_ok()))?;
        Some(Self { column, form, labels: Some(labels) })
    }

    /// Returns the fields of the boxes. They are the first of the fields of a record.
    pub fn fields(&self) -> Vec<Field> {
        let boxes = Field::nullable(BOXES, FieldType::Boxes);
        let labels = self.labels.as_ref().map(|_| Field::nullable(BOX_LABELS, FieldType::BoxLabels));
        std::iter::once(boxes).chain(labels).collect()
    }

    /// Returns what the last two numbers of a box are.
    pub fn form(&self) -> BoxForm {
        self.form
    }

    /// Returns the names of the classes; empty if boxes have none.
    pub fn class_names(&self) -> &[String] {
        self.labels.as_ref().map(Labels::names).unwrap_or_default()
    }

    /// Returns the boxes of a row, if it has a value for them.
    ///
    /// # Errors
    ///
    /// Rejects a row with an unknown category.
    pub fn read(&self, values: &[Value]) -> Result<Option<ImageBoxes>, Reject> {
        let Ok(Some(row)) = self.column.read(values) else { return Ok(None) };
        let mut list = BoxList::default();
        let categories = row.categories.unwrap_or_default();
        for (at, &[x, y, third, fourth]) in row.boxes.iter().enumerate() {
            let label = match (&self.labels, categories.get(at)) {
                (Some(labels), Some(category)) => labels.ordinal(category)?,
                _ => 0,
            };
            let (right, bottom) = match self.form {
                BoxForm::Sizes => (x + third, y + fourth),
                BoxForm::Corners => (third, fourth),
            };
            list.push([x, y, right, bottom].map(|number| number as f32), label, 0);
        }
        let extras = BoxExtras::default();
        Ok(Some(ImageBoxes { size: row.size, are_fractions: false, is_upright: true, list, extras }))
    }
}

/// Returns the boxes in a list of them, or a single box. Each may be text.
fn boxes_in(json: &Json) -> Option<Vec<[f64; 4]>> {
    let one = |json: &Json| -> Option<[f64; 4]> {
        let parsed: Json;
        let json = match json {
            Json::String(text) => {
                parsed = serde_json::from_str(text).ok()?;
                &parsed
            }
            json => json,
        };
        let [x, y, third, fourth] = json.as_array()?.as_slice() else { return None };
        Some([x.as_f64()?, y.as_f64()?, third.as_f64()?, fourth.as_f64()?])
    };
    match json {
        Json::Array(items) if items.iter().all(Json::is_number) && !items.is_empty() => {
            Some(vec![one(json)?])
        }
        Json::Array(items) => items.iter().map(one).collect(),
        Json::String(text) => boxes_in(&serde_json::from_str(text).ok().filter(Json::is_array)?),
        _ => None,
    }
}

fn text_in(json: &Json) -> Option<String> {
    match json {
        Json::String(text) => Some(text.clone()),
        Json::Number(number) => Some(number.to_string()),
        _ => None,
    }
}

fn texts_in(json: &Json) -> Option<Vec<String>> {
    match json {
        Json::Array(items) => items.iter().map(text_in).collect(),
        one => text_in(one).map(|text| vec![text]),
    }
}

fn numbers_in(json: &Json) -> Option<Vec<f64>> {
    json.as_array()?.iter().map(Json::as_f64).collect()
}

/// Returns the names of the categories of a column, as `datasets` declares them in its `feature`.
pub fn declared_categories(feature: &Json) -> Option<Vec<String>> {
    let member = match feature {
        Json::Object(members) => {
            let named = CATEGORY_NAMES.iter().find_map(|name| members.get(*name));
            match named {
                Some(category) => return names_below(category),
                None => members.get("feature")?,
            }
        }
        Json::Array(items) => items.first()?,
        _ => return None,
    };
    declared_categories(member)
}

fn names_below(feature: &Json) -> Option<Vec<String>> {
    match feature {
        Json::Object(members) => match members.get("names").and_then(Json::as_array) {
            Some(names) => names.iter().map(text_in).collect(),
            None => names_below(members.get("feature")?),
        },
        Json::Array(items) => names_below(items.first()?),
        _ => None,
    }
}

/// Returns the warning about boxes in a field of rows that do not follow the image, because their form is not known.
pub(crate) fn boxes_not_moved(field: &str) -> Warning {
    let message = format!(
        "the boxes in {field:?} stay in pixels of the source, while images are turned, resized and cropped; give them with \
         `annotations` to move them"
    );
    Warning::new("boxes-not-moved", message).with("field", field)
}

/// Returns the warning about boxes in a field of rows that follow the image. The last two numbers of a box may be its size.
pub(crate) fn boxes_moved(field: &str, are_sizes: bool) -> Warning {
    let message = format!(
        "the boxes in {field:?} are read as {} and become the fields boxes and labels, which follow the image; {field:?} keeps \
         the pixels of the source",
        if are_sizes { "x, y, width, height" } else { "x1, y1, x2, y2" }
    );
    Warning::new("boxes-moved", message).with("field", field).with("are_sizes", are_sizes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn column(ty: FieldType) -> BoxColumn {
        BoxColumn::find(&[Field::nullable("x", FieldType::Int64), Field::nullable("objects", ty)]).unwrap()
    }

    fn read(json: &str) -> Result<Option<RowBoxes>, ()> {
        column(FieldType::Json).read(&[Value::Null, Value::Text(json.into())])
    }

    fn form(json: &[&str]) -> Option<BoxForm> {
        let mut scan = BoxScan::default();
        for json in json {
            scan.add(&column(FieldType::Json), &[Value::Null, Value::Text((*json).into())]);
        }
        scan.form()
    }

    #[test]
    fn boxes_are_lists_in_objects_or_members_of_lists() {
        let expected = RowBoxes {
            boxes: vec![[20.0, 12.0, 16.0, 8.0], [0.0, 0.0, 1.5, 2.0]],
            categories: Some(vec!["1".to_owned(), "0".to_owned()]),
            ..RowBoxes::default()
        };
        for json in [
            r#"{"bbox": [[20, 12, 16, 8], [0, 0, 1.5, 2]], "categories": [1, 0]}"#,
            r#"[{"bbox": [20, 12, 16, 8], "category": 1}, {"bbox": [0, 0, 1.5, 2], "category": 0}]"#,
            r#"{"bbox": ["[20, 12, 16, 8]", "[0, 0, 1.5, 2]"], "category_id": [1, 0]}"#,
        ] {
            assert_eq!(read(json).unwrap().as_ref(), Some(&expected), "{json}");
        }
        assert_eq!(read("null").unwrap(), None);
        assert_eq!(read(r#"{"bbox": [], "category": []}"#).unwrap().unwrap().boxes, Vec::<[f64; 4]>::new());
        for wrong in [
            r#"{"box": []}"#,
            r#"{"bbox": [[1, 2, 3]]}"#,
            r#"{"bbox": [[1, 2, 3, 4]], "category": []}"#,
            "[1, 2]",
            "3",
        ] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn the_numbers_of_all_boxes_show_their_form() {
        let one = |numbers: &str| format!(r#"{{"bbox": [[{numbers}]], "category": [0]}}"#);
        let of = |numbers: &str| form(&[&one(numbers)]);
        assert_eq!(of("20, 12, 16, 8"), Some(BoxForm::Sizes));
        assert_eq!(of("0, 0, 80, 60"), None);
        assert_eq!(form(&[&one("0, 0, 80, 60"), &one("20, 12, 16, 8")]), Some(BoxForm::Sizes));
        let with_area = |area: &str| {
            form(&[&format!(r#"{{"bbox": [[10, 10, 30, 40]], "category": [0], "area": [{area}]}}"#)])
        };
        assert_eq!(with_area("1200"), Some(BoxForm::Sizes));
        assert_eq!(with_area("600"), Some(BoxForm::Corners));
        assert_eq!(with_area("77"), None);
        assert_eq!(form(&[&one("20, 12, 16, 8"), "7"]), None);
        assert_eq!(form(&[r#"{"bbox": [[20, 12, 16, 8]]}"#]), Some(BoxForm::Sizes));
        assert_eq!(form(&[r#"{"bbox": [[20, 12, 16, 8]]}"#, &one("20, 12, 16, 8")]), None);
        let fields = [
            Field::nullable("bbox", FieldType::String),
            Field::nullable("source_width", FieldType::String),
            Field::nullable("source_height", FieldType::Int64),
            Field::nullable("category", FieldType::Int64),
        ];
        let column = BoxColumn::find(&fields).unwrap();
        let values =
            [Value::Text("[10, 10, 30, 40]".into()), Value::Text("35".into()), Value::Int(45), Value::Int(7)];
        let mut scan = BoxScan::default();
        scan.add(&column, &values);
        assert_eq!((scan.form(), scan.categories.len()), (Some(BoxForm::Corners), 1));
        assert_eq!(column.used(), [0, 1, 2, 3]);
        assert!(column.has_room(&fields) && !column.has_room(&[Field::nullable("labels", FieldType::Json)]));
    }

    #[test]
    fn declared_names_of_categories_are_found_at_any_depth() {
        for feature in [
            r#"{"bbox": {}, "category": {"feature": {"names": ["a", "b"], "_type": "ClassLabel"}, "_type": "List"}}"#,
            r#"{"feature": {"category": {"names": ["a", "b"]}}, "_type": "Sequence"}"#,
            r#"[{"label": {"names": ["a", "b"]}}]"#,
        ] {
            let names = declared_categories(&serde_json::from_str(feature).unwrap());
            assert_eq!(names, Some(vec!["a".to_owned(), "b".to_owned()]), "{feature}");
        }
        assert_eq!(declared_categories(&serde_json::json!({"category": {"dtype": "int64"}})), None);
    }
}
