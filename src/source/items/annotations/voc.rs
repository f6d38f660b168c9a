//! Pascal VOC: an XML file per image, with a box of pixels per object.

use std::borrow::Cow;

use quick_xml::Reader;
use quick_xml::escape::resolve_xml_entity;
use quick_xml::events::Event;

use crate::sample::{PixelBox, Reject, RejectCode};
use crate::source::io::encoding::{to_utf8, without_bom};
use crate::source::list::boxes::BoxExtras;

/// Maximum nesting depth of elements. Those of VOC have four levels.
const MAX_DEPTH: usize = 64;
/// Start of the name of the database in the files of the original challenges, whose first pixel is 1.
const CHALLENGE: &str = "The VOC20";
/// Name of the root element.
const ROOT: &str = "annotation";

/// What a file says about its image.
#[derive(Debug, Default, PartialEq)]
pub(super) struct VocImage {
    /// Width and height of the image, if they are stated.
    pub(super) size: Option<(u32, u32)>,
    pub(super) objects: Vec<VocObject>,
    pub(super) extras: BoxExtras,
}

#[derive(Debug, PartialEq)]
pub(super) struct VocObject {
    pub(super) name: String,
    /// x and y of the top left and bottom right corners.
    pub(super) corners: PixelBox,
    pub(super) difficult: i64,
}

/// The elements of an object while it is read.
#[derive(Default)]
struct ObjectElements {
    name: Option<String>,
    /// `xmin`, `ymin`, `xmax` and `ymax`.
    sides: [Option<String>; 4],
    difficult: Option<String>,
    has_polygon: bool,
    parts: u64,
}

/// Parses the file of an image.
///
/// # Errors
///
/// Rejects an image whose file is not XML of this form, or has an object without a name or a box.
pub(super) fn parse(bytes: Vec<u8>) -> Result<VocImage, Reject> {
    let text = to_utf8(bytes, None)?;
    let text = std::str::from_utf8(without_bom(&text)).map_err(|e| Reject::not_utf8("its annotation", &e))?;
    let mut reader = Reader::from_str(text);
    reader.config_mut().expand_empty_elements = true;
    let (mut image, mut object) = (VocImage::default(), None);
    let (mut width, mut height, mut database) = (None, None, String::new());
    // Names of the open elements, and the text of the innermost one.
    let (mut path, mut content): (Vec<String>, String) = (Vec::new(), String::new());
    loop {
        let event = reader.read_event().map_err(|e| damaged(reader.error_position(), &e.to_string()))?;
        match event {
            Event::Start(element) => {
                let name = String::from_utf8_lossy(element.name().as_ref()).into_owned();
                if path.is_empty() && name != ROOT {
                    return Err(invalid(format!("starts with the element {name:?}, not {ROOT:?}")));
                }
                if path.len() == MAX_DEPTH {
                    return Err(invalid(format!("has more than {MAX_DEPTH} nested elements")));
                }
                path.push(name);
                content.clear();
                if is(&path, &["object"]) {
                    object = Some(ObjectElements::default());
                }
            }
            Event::Empty(_) | Event::Comment(_) | Event::PI(_) | Event::Decl(_) | Event::DocType(_) => {}
            Event::Text(text) => content.push_str(&decoded(text.decode(), &reader)?),
            Event::CData(text) => content.push_str(&decoded(text.decode(), &reader)?),
            Event::GeneralRef(entity) => {
                let name = decoded(entity.decode(), &reader)?;
                match (entity.resolve_char_ref(), resolve_xml_entity(&name)) {
                    (Ok(Some(c)), _) => content.push(c),
                    (Ok(None), Some(text)) => content.push_str(text),
                    _ => return Err(invalid(format!("has the unknown entity {name:?}"))),
                }
            }
            Event::End(_) => {
                let value = || content.trim().to_owned();
                if is(&path, &["size", "width"]) {
                    width = side(&value());
                } else if is(&path, &["size", "height"]) {
                    height = side(&value());
                } else if is(&path, &["source", "database"]) {
                    database = value();
                } else if is(&path, &["object"]) {
                    if let Some(object) = object.take() {
                        let number = image.objects.len() + 1;
                        image.objects.push(finished(object, number, &mut image.extras)?);
                    }
                } else if let Some(object) = &mut object {
                    match path
                        .get(2..)
                        .map(|path| path.iter().map(String::as_str).collect::<Vec<_>>())
                        .as_deref()
                    {
                        Some(["name"]) => object.name = Some(value()),
                        Some(["difficult"]) => object.difficult = Some(value()),
                        Some(["polygon"]) => object.has_polygon = true,
                        Some(["part"]) => object.parts += 1,
                        Some(["bndbox", side]) => {
                            let at = ["xmin", "ymin", "xmax", "ymax"].iter().position(|known| known == side);
                            if let Some(place) = at.and_then(|at| object.sides.get_mut(at)) {
                                *place = Some(value());
                            }
                        }
                        _ => {}
                    }
                }
                path.pop();
                content.clear();
            }
            Event::Eof => break,
        }
    }
    if !path.is_empty() {
        return Err(invalid("ends inside an element".to_owned()));
    }
    if reader.buffer_position() == 0 || text.trim().is_empty() {
        return Err(invalid("is empty".to_owned()));
    }
    // The files of the challenges count pixels from 1, and the last one is inside the box.
    if database.starts_with(CHALLENGE) {
        for object in &mut image.objects {
            object.corners[0] -= 1.0;
            object.corners[1] -= 1.0;
        }
    }
    image.size = width.zip(height);
    Ok(image)
}

/// Returns whether `path` consists of these elements in the root.
fn is(path: &[String], elements: &[&str]) -> bool {
    path.get(1..).is_some_and(|path| path == elements)
}

/// Returns a side of the image. Some programs write 0 if they do not have it.
fn side(text: &str) -> Option<u32> {
    text.parse::<f64>()
        .ok()
        .filter(|side| side.fract() == 0.0 && (1.0..=f64::from(u32::MAX)).contains(side))
        .map(|side| side as u32)
}

fn finished(object: ObjectElements, number: usize, extras: &mut BoxExtras) -> Result<VocObject, Reject> {
    let ObjectElements { name, sides, difficult, has_polygon, parts } = object;
    let name = name
        .filter(|name| !name.is_empty())
        .ok_or_else(|| invalid(format!("has no name for object {number}")))?;
    if sides.iter().all(Option::is_none) {
        let what = format!("has no bndbox for object {number}; turned boxes and polygons alone are not read");
        return Err(Reject::new(RejectCode::Unsupported, format!("its annotation {what}")));
    }
    let mut corners = PixelBox::default();
    for ((corner, text), name) in corners.iter_mut().zip(&sides).zip(["xmin", "ymin", "xmax", "ymax"]) {
        let number_in =
            text.as_deref().and_then(|text| text.parse::<f64>().ok()).filter(|number| number.is_finite());
        *corner =
            number_in.ok_or_else(|| invalid(format!("has no number in {name} of object {number}")))? as f32;
    }
    let difficult = match difficult.as_deref() {
        None | Some("" | "0" | "Unspecified" | "false" | "False") => 0,
        Some("1" | "true" | "True") => 1,
        Some(other) => {
            return Err(invalid(format!("has {other:?} in difficult of object {number}; expected 0 or 1")));
        }
    };
    extras.masks += u64::from(has_polygon);
    extras.parts += parts;
    Ok(VocObject { name, corners, difficult })
}

fn decoded<E: std::fmt::Display>(
    text: Result<Cow<'_, str>, E>,
    reader: &Reader<&[u8]>,
) -> Result<String, Reject> {
    text.map(Cow::into_owned).map_err(|e| damaged(reader.error_position(), &e.to_string()))
}

fn damaged(offset: u64, what: &str) -> Reject {
    invalid(format!("is not XML, at byte {offset}: {what}"))
}

fn invalid(what: String) -> Reject {
    Reject::new(RejectCode::InvalidValue, format!("its annotation {what}"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const FILE: &str = "<annotation><folder>VOC2007</folder><filename>a.jpg</filename>
        <source><database>Unknown</database></source>
        <size><width>50</width><height>40</height><depth>3</depth></size><segmented>0</segmented>
        <object><name>cat &amp; dog</name><pose>Left</pose><truncated>1</truncated><difficult>1</difficult>
          <part><name>head</name><bndbox><xmin>9</xmin><ymin>9</ymin><xmax>9</xmax><ymax>9</ymax></bndbox></part>
          <bndbox><ymin>2.5</ymin><xmin> 1 </xmin><ymax>20</ymax><xmax>30</xmax></bndbox></object>
        <object><name><![CDATA[b]]></name><bndbox><xmin>1</xmin><ymin>1</ymin><xmax>50</xmax><ymax>40</ymax></bndbox>
          <polygon><x1>1</x1></polygon></object></annotation>";

    #[test]
    fn objects_have_names_and_boxes() {
        let found = parse(FILE.as_bytes().to_vec()).unwrap();
        assert_eq!(found.size, Some((50, 40)));
        let shown: Vec<_> = found.objects.iter().map(|o| (o.name.as_str(), o.corners, o.difficult)).collect();
        assert_eq!(shown, [("cat & dog", [1.0, 2.5, 30.0, 20.0], 1), ("b", [1.0, 1.0, 50.0, 40.0], 0)]);
        assert_eq!((found.extras.parts, found.extras.masks), (1, 1));
        let challenge = FILE.replace("Unknown", "The VOC2007 Database");
        let found = parse(challenge.into_bytes()).unwrap();
        assert_eq!(found.objects[1].corners, [0.0, 0.0, 50.0, 40.0]);
        let unsized_file = "<annotation><size><width>0</width><height>0</height></size></annotation>";
        assert_eq!(parse(unsized_file.into()).unwrap(), VocImage::default());
    }

    #[test]
    fn other_files_are_rejected() {
        let deep = format!("<annotation>{}", "<a>".repeat(100));
        let entity =
            "<!DOCTYPE a [<!ENTITY b \"cc\">]><annotation><object><name>&b;</name></object></annotation>";
        for (text, what) in [
            ("", "is empty"),
            ("<html></html>", "starts with the element \"html\""),
            ("<annotation><a></annotation>", "is not XML"),
            ("<annotation>", "ends inside an element"),
            (FILE.replace("<name>cat &amp; dog</name>", "").as_str(), "no name for object 1"),
            (FILE.replace("<xmin> 1 </xmin>", "<xmin>left</xmin>").as_str(), "no number in xmin of object 1"),
            (FILE.replace("<xmin> 1 </xmin>", "").as_str(), "no number in xmin of object 1"),
            (FILE.replace("<difficult>1", "<difficult>7").as_str(), "\"7\" in difficult"),
            (FILE.replace("bndbox", "robndbox").as_str(), "no bndbox"),
            (deep.as_str(), "more than 64 nested"),
            (entity, "unknown entity"),
        ] {
            let reject = parse(text.as_bytes().to_vec()).unwrap_err();
            assert!(reject.message.contains(what), "{text}: {reject:?}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_rejected(text in "(<annotation>|</annotation>|<object>|</object>|<name>|</name>|<bndbox>|<xmin>|1|&|[<>/a!\\[\\]-]){0,30}", cut in 0usize..900) {
            let _ = parse(text.into_bytes());
            let cut = FILE.as_bytes()[..cut.min(FILE.len() - 1)].to_vec();
            prop_assert!(parse(cut).is_err());
        }
    }
}
