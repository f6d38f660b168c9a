//! Boxes, and what each box has, in every format: `fixtures/golden/v3/boxes-*`.

use dsconvert::sample::{pack_box_numbers, pack_boxes};
use dsconvert::schema::{Field as SchemaField, FieldType};

use super::*;

/// A PNG file of one pixel.
const IMAGE: &[u8] = &[
    0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a, 0x00, 0x00, 0x00, 0x0d, 0x49, 0x48, 0x44, 0x52, 0x00,
    0x00, 0x00, 0x01, 0x00, 0x00, 0x00, 0x01, 0x08, 0x00, 0x00, 0x00, 0x00, 0x3a, 0x7e, 0x9b, 0x55, 0x00,
    0x00, 0x00, 0x0a, 0x49, 0x44, 0x41, 0x54, 0x78, 0x9c, 0x63, 0x60, 0x00, 0x00, 0x00, 0x02, 0x00, 0x01,
    0x48, 0xaf, 0xa4, 0x71, 0x00, 0x00, 0x00, 0x00, 0x49, 0x45, 0x4e, 0x44, 0xae, 0x42, 0x60, 0x82,
];

/// Writes a dataset with boxes, as a program does: 0 to 60 boxes, and null in every fifth record.
fn write_boxes(format: &str, out: &Path) {
    let extra = vec![
        SchemaField::nullable("boxes", FieldType::Boxes),
        SchemaField::nullable("labels", FieldType::BoxLabels),
        SchemaField::nullable("iscrowd", FieldType::BoxInts),
    ];
    let mut schema = Schema::images(None, extra).unwrap();
    schema.class_names = ["person", "traffic light", "кот"].map(str::to_owned).to_vec();
    let options = WriterOptions {
        format: format.parse::<Format>().unwrap(),
        splits: vec!["train".to_owned(), "validation".to_owned()],
        shard_records: Some(5),
        ..WriterOptions::new(2, "boxes")
    };
    let writer = DatasetWriter::open(out, &schema, &options).unwrap();
    for number in 0..2 {
        let mut unit = writer.unit(number).unwrap();
        for i in (0..14u32).filter(|i| i % 2 == number) {
            let count = i64::from(i * i * 7 % 61);
            let list = |bytes| if i % 5 == 4 { Field::Null } else { Field::Bytes(bytes) };
            let boxes = (0..count).map(|at| {
                let (left, top) = (at as f32 / 3.0 + i as f32, at as f32 * 1.25);
                [left, top, left + 0.1 + at as f32, top + 480.0]
            });
            let key = format!("image-{i}.png");
            let record = Record {
                values: vec![
                    Field::Text(key.as_str().into()),
                    Field::Bytes(IMAGE.to_vec().into()),
                    Field::UInt(1),
                    Field::UInt(1),
                    Field::Text(key.into()),
                    list(pack_boxes(boxes)),
                    list(pack_box_numbers((0..count).map(|at| at * at % 3))),
                    list(pack_box_numbers((0..count).map(|at| i64::from(at == 5) - i64::from(at == 50)))),
                ],
            };
            unit.push(record, if i % 5 == 3 { "validation" } else { "train" }).unwrap();
        }
        unit.finish().unwrap();
    }
    writer.commit(&Provenance::default()).unwrap();
}

#[test]
fn golden_boxes_are_read_and_still_written() {
    check_golden("boxes", write_boxes, digest);
}
