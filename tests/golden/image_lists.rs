//! Lists of images, in the formats that hold them: `fixtures/golden/v4/image-lists-*`.

use dsconvert::schema::{Field as SchemaField, FieldType};

use super::*;

/// Red, 2 × 1, and blue, 1 × 3.
const PAGES: [&[u8]; 2] = [
    b"\x89PNG\x0d\x0a\x1a\x0a\x00\x00\x00\x0dIHDR\x00\x00\x00\x02\x00\x00\x00\x01\x08\x02\x00\x00\x00{@\xe8\xdd\x00\x00\x00\x12IDATx\x01\x01\x07\x00\xf8\xff\x00\xff\x00\x00\xff\x00\x00\x08\xfe\x01\xff\xea]y\xf7\x00\x00\x00\x00IEND\xaeB`\x82",
    b"\x89PNG\x0d\x0a\x1a\x0a\x00\x00\x00\x0dIHDR\x00\x00\x00\x01\x00\x00\x00\x03\x08\x02\x00\x00\x00\xdd\xbf\xf2\xd5\x00\x00\x00\x17IDATx\x01\x01\x0c\x00\xf3\xff\x00\x00\x00\xff\x00\x00\x00\xff\x00\x00\x00\xff\x0e\xfd\x02\xfe\x97\xa4+j\x00\x00\x00\x00IEND\xaeB`\x82",
];

fn write_image_lists(format: &str, out: &Path) {
    let fields = vec![
        SchemaField::nullable("pages", FieldType::Images),
        SchemaField::required("caption", FieldType::String),
    ];
    let options = WriterOptions {
        format: format.parse::<Format>().unwrap(),
        shard_records: Some(5),
        ..WriterOptions::new(2, "image lists")
    };
    let writer = DatasetWriter::open(out, &Schema::records(fields).unwrap(), &options).unwrap();
    for number in 0..2 {
        let mut unit = writer.unit(number).unwrap();
        for i in (0..13usize).filter(|i| i % 2 == number as usize) {
            let pages = (0..i % 4).map(|at| PAGES[(i + at) % 2].into()).collect();
            let record = Record {
                values: vec![
                    Field::Text(format!("document-{i}").into()),
                    if i % 6 == 5 { Field::Null } else { Field::Files(pages) },
                    Field::Text(format!("{} pages", i % 4).into()),
                ],
            };
            unit.push(record, "train").unwrap();
        }
        unit.finish().unwrap();
    }
    writer.commit(&Provenance::default()).unwrap();
}

/// Schema, and of each record the key, the checksum, the length and the sizes of its images.
fn digest(path: &Path) -> Value {
    digest_of_records(path, |split, i| match split.get(i).unwrap().get("pages") {
        Some(Field::Files(pages)) => pages.iter().map(|page| page.len()).collect(),
        _ => Value::Null,
    })
}

#[test]
fn golden_lists_of_images_are_read_and_still_written() {
    check_golden_in("v4", &["parquet", "arrow"], "image-lists", write_image_lists, digest);
}
