//! Numbers of a list, for code that shows, converts or copies them without regard to the type of the field.

use serde_json::{Value as Json, json};

use super::Value;
use crate::schema::{DType, FieldType};

/// Numbers of a value in row-major order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Numbers<B> {
    /// Type of the numbers.
    pub dtype: DType,
    /// Size in each dimension.
    pub shape: Vec<usize>,
    /// The numbers, little-endian.
    pub bytes: B,
}

impl<'a, B: AsRef<[u8]>> Numbers<&'a B> {
    /// Returns the numbers of a `value` of type `ty`; `None` for types other than lists of numbers, and for null.
    pub fn of(ty: FieldType, value: &'a Value<B>) -> Option<Self> {
        if let (FieldType::Array(array), Value::Array(value)) = (ty, value) {
            let shape = value.shape().iter().map(|&size| size as usize).collect();
            return Some(Self { dtype: array.dtype(), shape, bytes: value.as_bytes() });
        }
        let (items, bytes) = match value {
            Value::Bytes(bytes) => (ty.list_items()?, bytes),
            Value::Ids(ids) => return Some(ids.numbers()),
            _ => return None,
        };
        let count = bytes.as_ref().len() / items.bytes();
        let shape = std::iter::once(count).chain(items.columns).collect();
        Some(Self { dtype: items.dtype, shape, bytes })
    }
}

impl<B: AsRef<[u8]>> Numbers<B> {
    /// Returns the numbers as text, in order.
    pub fn texts(&self) -> impl ExactSizeIterator<Item = String> + '_ {
        let dtype = self.dtype;
        self.bytes.as_ref().chunks_exact(dtype.bytes()).map(move |number| text(dtype, number))
    }

    /// Returns the numbers as nested lists. Those that JSON lacks, such as NaN, become null; others have the shortest text
    /// that is the same number.
    pub fn to_json(&self) -> Json {
        nested(self.dtype, &self.shape, self.bytes.as_ref())
    }
}

/// Calls `$f` with the little-endian number in `$bytes`.
macro_rules! number {
    ($ty:ty, $bytes:expr) => {
        <$ty>::from_le_bytes($bytes.try_into().unwrap_or_default())
    };
}

fn text(dtype: DType, number: &[u8]) -> String {
    match dtype {
        DType::Bool => number.iter().any(|&byte| byte != 0).to_string(),
        DType::UInt8 => number!(u8, number).to_string(),
        DType::Int8 => number!(i8, number).to_string(),
        DType::UInt16 => number!(u16, number).to_string(),
        DType::Int16 => number!(i16, number).to_string(),
        DType::UInt32 => number!(u32, number).to_string(),
        DType::Int32 => number!(i32, number).to_string(),
        DType::UInt64 => number!(u64, number).to_string(),
        DType::Int64 => number!(i64, number).to_string(),
        DType::Float16 => from_half(number!(u16, number)).to_string(),
        DType::BFloat16 => f32::from_bits(u32::from(number!(u16, number)) << 16).to_string(),
        DType::Float32 => number!(f32, number).to_string(),
        DType::Float64 => number!(f64, number).to_string(),
    }
}

/// Returns the number with these bits of a binary16.
fn from_half(bits: u16) -> f32 {
    let sign = if bits >> 15 == 1 { -1.0 } else { 1.0 };
    let fraction = f32::from(bits & 0x3ff);
    match (bits >> 10) & 0x1f {
        0 => sign * fraction * 2f32.powi(-24),
        31 if fraction == 0.0 => sign * f32::INFINITY,
        31 => f32::NAN,
        exponent => sign * (1.0 + fraction / 1024.0) * 2f32.powi(i32::from(exponent) - 15),
    }
}

fn nested(dtype: DType, shape: &[usize], bytes: &[u8]) -> Json {
    let Some((&count, rest)) = shape.split_first() else {
        let text = text(dtype, bytes);
        return match dtype {
            DType::Bool => json!(text == "true"),
            DType::UInt64 => json!(number!(u64, bytes)),
            DType::Float16 | DType::BFloat16 | DType::Float32 | DType::Float64 => {
                text.parse::<f64>().map_or(Json::Null, |number| json!(number))
            }
            _ => text.parse::<i64>().map_or(Json::Null, |number| json!(number)),
        };
    };
    let size = bytes.len().checked_div(count).unwrap_or_default();
    (0..count)
        .map(|at| nested(dtype, rest, bytes.get(at * size..(at + 1) * size).unwrap_or_default()))
        .collect()
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::sample::{ArrayValue, pack_box_numbers, pack_boxes, pack_pair};

    #[test]
    fn numbers_are_shown_in_their_shape() {
        let of = |ty, bytes: Bytes| {
            let value = Value::Bytes(bytes);
            let numbers = Numbers::of(ty, &value).unwrap();
            (
                numbers.shape.clone(),
                numbers.texts().collect::<Vec<_>>().join(" "),
                numbers.to_json().to_string(),
            )
        };
        let boxes = pack_boxes([[0.1, 1.0, 2.5, 1e10], [1.0, 2.0, 3.0, 4.0]]);
        assert_eq!(
            of(FieldType::Boxes, boxes),
            (
                vec![2, 4],
                "0.1 1 2.5 10000000000 1 2 3 4".into(),
                "[[0.1,1.0,2.5,10000000000.0],[1.0,2.0,3.0,4.0]]".into()
            )
        );
        assert_eq!(of(FieldType::Boxes, Bytes::new()), (vec![0, 4], String::new(), "[]".into()));
        let numbers = pack_box_numbers([-1, i64::MAX]);
        let shown = (vec![2], "-1 9223372036854775807".into(), "[-1,9223372036854775807]".into());
        assert_eq!(of(FieldType::BoxInts, numbers), shown);
        assert_eq!(of(FieldType::Int32Pair, pack_pair([-3, 4])), (vec![2], "-3 4".into(), "[-3,4]".into()));
        let ty = FieldType::Array("array<float16>[?,2]".parse().unwrap());
        let halves = [0x3c00u16, 0xc000, 0x7c00, 0x0001].iter().flat_map(|bits| bits.to_le_bytes());
        let value = Value::Array(ArrayValue::new([2, 2], halves.collect::<Bytes>()));
        let numbers = Numbers::of(ty, &value).unwrap();
        assert_eq!(numbers.texts().collect::<Vec<_>>(), ["1", "-2", "inf", "0.000000059604645"]);
        assert_eq!(numbers.to_json().to_string(), "[[1.0,-2.0],[null,5.9604645e-8]]");
        let ty = FieldType::Array("array<bfloat16>[]".parse().unwrap());
        let value = Value::Array(ArrayValue::new([], Bytes::from_static(&[0x80, 0x3f])));
        assert_eq!(Numbers::of(ty, &value).unwrap().to_json().to_string(), "1.0");
        assert_eq!(Numbers::of(FieldType::Binary, &Value::Bytes(Bytes::new())), None);
        assert_eq!(Numbers::of(FieldType::Boxes, &Value::<Bytes>::Null), None);
    }
}
