//! Examples of `docs/reference/format-records.md`. Existing datasets use their encodings, so they never change.

#![cfg(any(feature = "msgpack", feature = "protobuf"))]

use std::sync::Arc;

use bytes::Bytes;

use super::frames::{Fault, FrameCodec};
use crate::sample::{Ids, Record, Value, pack_box_numbers, pack_boxes, pack_pair};
use crate::schema::{Field, FieldType, IdWidth, Schema};

/// A text.
pub(super) fn text() -> (Arc<Schema>, Record) {
    let values = vec![
        Value::Text("a".into()),
        Value::Ids(Ids::pack(IdWidth::U16, &[7, 258]).unwrap()),
        Value::UInt(2),
        Value::Text("t.txt".into()),
    ];
    (Arc::new(Schema::text(IdWidth::U16, vec![]).unwrap()), Record { values })
}

/// The same text with flags.
pub(super) fn flags() -> (Arc<Schema>, Record) {
    let (schema, mut record) = text();
    record.values.push(Value::Bytes(Bytes::from_static(&[0, 1])));
    (Arc::new(Schema::clone(&schema).with_assistant_masks().unwrap()), record)
}

/// An image with the values `more` in the fields `extra`.
fn image(extra: &[Field], more: impl IntoIterator<Item = Value>) -> (Arc<Schema>, Record) {
    let mut values = vec![
        Value::Text("a".into()),
        Value::Bytes(Bytes::from_static(b"x")),
        Value::UInt(2),
        Value::UInt(1),
        Value::Text("a".into()),
    ];
    values.extend(more);
    (Arc::new(Schema::images(None, extra.to_vec()).unwrap()), Record { values })
}

/// An image with a box.
pub(super) fn boxes() -> (Arc<Schema>, Record) {
    let extra = [
        Field::nullable("boxes", FieldType::Boxes),
        Field::nullable("labels", FieldType::BoxLabels),
        Field::nullable("iscrowd", FieldType::BoxInts),
    ];
    let boxes = pack_boxes([[0.0, 0.5, 1.0, 1.5]]);
    image(&extra, [boxes, pack_box_numbers([2]), pack_box_numbers([-1])].map(Value::Bytes))
}

/// An image with a pair, and a second pair or null.
pub(super) fn pairs(second: Value) -> (Arc<Schema>, Record) {
    let extra = [Field::required("size", FieldType::Int32Pair), Field::nullable("at", FieldType::Int32Pair)];
    image(&extra, [Value::Bytes(pack_pair([480, 640])), second])
}

/// Returns the frame of an example, which is decoded to the same record.
pub(super) fn frame<C: FrameCodec>((schema, record): (Arc<Schema>, Record)) -> Bytes {
    let codec = C::new(schema).unwrap();
    let mut frame = Vec::new();
    codec.encode(&record, &mut frame).unwrap();
    let frame = Bytes::from(frame);
    assert_eq!(codec.decode(&frame).unwrap(), (record, frame.len()));
    frame
}

/// Checks that no beginning of the frame of an example is a frame.
pub(super) fn check_beginnings<C: FrameCodec>((schema, record): (Arc<Schema>, Record)) {
    let frame = frame::<C>((Arc::clone(&schema), record));
    let codec = C::new(schema).unwrap();
    for len in 0..frame.len() {
        assert_eq!(codec.decode(&frame.slice(..len)), Err(Fault::Short), "{len}");
    }
}

/// Checks that runs of flags, the last 8 bytes of a frame, are refused if they are not those of two tokens.
pub(super) fn check_runs<C: FrameCodec>() {
    let codec = C::new(flags().0).unwrap();
    let frame = frame::<C>(flags());
    let runs = frame.len() - 8;
    for (at, byte) in [(4, 2), (4, 0), (0, 0), (0, 2), (3, 0xff), (7, 0xff)] {
        let mut wrong = frame.to_vec();
        wrong[runs + at] = byte;
        assert!(matches!(codec.decode(&wrong.into()), Err(Fault::Bad { .. })), "{at} {byte}");
    }
}
