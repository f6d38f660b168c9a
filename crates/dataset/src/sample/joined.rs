//! The value of a packed row in a field of its documents.

use bytes::Bytes;

use super::{ArrayValue, Value};
use crate::schema::FieldType;

/// Returns whether values of a field of type `ty` can be joined ([`joined`]): lists of images, arrays whose first axis alone is
/// open, and counts.
pub fn can_be_joined(ty: FieldType) -> bool {
    match ty {
        FieldType::Images | FieldType::UInt32 | FieldType::UInt64 => true,
        FieldType::Array(array) => {
            let mut axes = array.axes();
            axes.next() == Some(None) && axes.all(|axis| axis.is_some())
        }
        _ => false,
    }
}

/// Joins the values that the documents of a row have, in their order: images and arrays follow each other, and counts are added.
/// `None` if there are none, or if their types or other axes differ.
pub fn joined<'a>(values: impl IntoIterator<Item = &'a Value>) -> Option<Value> {
    let mut values = values.into_iter();
    let mut all = Joining::of(values.next()?)?;
    for value in values {
        all.add(value)?;
    }
    Some(all.finish())
}

/// A value to which more are added.
enum Joining {
    Files(Vec<Bytes>),
    Array { shape: Vec<u32>, bytes: Vec<u8> },
    Count(u64),
}

impl Joining {
    fn of(value: &Value) -> Option<Self> {
        match value {
            Value::Files(files) => Some(Joining::Files(files.clone())),
            Value::Array(array) => {
                Some(Joining::Array { shape: array.shape().to_vec(), bytes: array.as_bytes().to_vec() })
            }
            Value::UInt(count) => Some(Joining::Count(*count)),
            _ => None,
        }
    }

    fn add(&mut self, value: &Value) -> Option<()> {
        match (self, value) {
            (Joining::Files(all), Value::Files(files)) => all.extend_from_slice(files),
            (Joining::Array { shape, bytes }, Value::Array(array)) => {
                let ([all, axes @ ..], [more, others @ ..]) = (shape.as_mut_slice(), array.shape()) else {
                    return None;
                };
                *all = all.checked_add(*more).filter(|_| axes == others)?;
                bytes.extend_from_slice(array.as_bytes());
            }
            (Joining::Count(sum), Value::UInt(count)) => *sum = sum.checked_add(*count)?,
            _ => return None,
        }
        Some(())
    }

    fn finish(self) -> Value {
        match self {
            Joining::Files(files) => Value::Files(files),
            Joining::Array { shape, bytes } => Value::Array(ArrayValue::new(shape, bytes.into())),
            Joining::Count(sum) => Value::UInt(sum),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::{ArrayType, DType};

    #[test]
    fn lists_and_arrays_follow_each_other_and_counts_are_added() {
        let files =
            |names: &[&'static str]| Value::Files(names.iter().map(|name| Bytes::from(*name)).collect());
        let array = |shape: [u32; 2], bytes: &'static [u8]| {
            Value::Array(ArrayValue::new(shape, Bytes::from_static(bytes)))
        };
        for (values, expected) in [
            ([files(&["a", "b"]), files(&[]), files(&["c"])], Some(files(&["a", "b", "c"]))),
            (
                [array([2, 2], &[1, 2, 3, 4]), array([0, 2], &[]), array([1, 2], &[5, 6])],
                Some(array([3, 2], &[1, 2, 3, 4, 5, 6])),
            ),
            ([Value::UInt(3), Value::UInt(0), Value::UInt(4)], Some(Value::UInt(7))),
            ([Value::UInt(u64::MAX), Value::UInt(0), Value::UInt(1)], None),
            ([array([1, 2], &[1, 2]), array([1, 3], &[1, 2, 3]), array([0, 2], &[])], None),
            ([files(&["a"]), Value::UInt(1), files(&[])], None),
            ([Value::Null, Value::Null, Value::Null], None),
        ] {
            assert_eq!(joined(&values), expected, "{values:?}");
        }
        assert_eq!(joined([]), None);
    }

    #[test]
    fn arrays_with_one_open_axis_in_front_can_be_joined() {
        let ty = |axes: &[Option<usize>]| FieldType::Array(ArrayType::new(DType::Int32, axes).unwrap());
        assert!(can_be_joined(ty(&[None, Some(3)])) && can_be_joined(ty(&[None])));
        assert!(!can_be_joined(ty(&[Some(3), None])) && !can_be_joined(ty(&[None, None])));
        assert!(can_be_joined(FieldType::Images) && !can_be_joined(FieldType::String));
    }
}
