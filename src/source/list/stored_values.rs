//! Exact JSON form of the values of kept fields, for `#[serde(with = "super::stored_values")]`.

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::sample::Value;

/// One value. Floating-point numbers are stored as their bits, because JSON has no NaN and no infinities.
#[derive(Serialize, Deserialize)]
enum StoredValue {
    Null,
    Bool(bool),
    Int(i64),
    UInt(u64),
    FloatBits(u64),
    Text(String),
    Bytes(Vec<u8>),
}

pub(super) fn serialize<S: Serializer>(values: &[Value], serializer: S) -> Result<S::Ok, S::Error> {
    let stored = |value: &Value| {
        Ok(match value {
            Value::Null => StoredValue::Null,
            Value::Bool(b) => StoredValue::Bool(*b),
            Value::Int(i) => StoredValue::Int(*i),
            Value::UInt(u) => StoredValue::UInt(*u),
            Value::Float(x) => StoredValue::FloatBits(x.to_bits()),
            Value::Text(text) => StoredValue::Text(text.as_str().to_owned()),
            Value::Bytes(bytes) => StoredValue::Bytes(bytes.to_vec()),
            Value::Ids(_) | Value::Array(_) | Value::Texts(_) | Value::Files(_) => {
                return Err(serde::ser::Error::custom(
                    "ids, arrays and lists are not values of a kept field",
                ));
            }
        })
    };
    values.iter().map(stored).collect::<Result<Vec<_>, S::Error>>()?.serialize(serializer)
}

pub(in crate::source) fn deserialize<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Box<[Value]>, D::Error> {
    let value = |stored| match stored {
        StoredValue::Null => Value::Null,
        StoredValue::Bool(b) => Value::Bool(b),
        StoredValue::Int(i) => Value::Int(i),
        StoredValue::UInt(u) => Value::UInt(u),
        StoredValue::FloatBits(bits) => Value::Float(f64::from_bits(bits)),
        StoredValue::Text(text) => Value::Text(text.into()),
        StoredValue::Bytes(bytes) => Value::Bytes(bytes.into()),
    };
    Ok(Vec::<StoredValue>::deserialize(deserializer)?.into_iter().map(value).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Serialize, Deserialize)]
    struct Holder(#[serde(with = "super")] Box<[Value]>);

    #[test]
    fn values_survive_json_exactly() {
        let values = vec![
            Value::Null,
            Value::Bool(true),
            Value::Int(i64::MIN),
            Value::UInt(u64::MAX),
            Value::Float(0.1),
            Value::Float(f64::INFINITY),
            Value::Text("ä\n".into()),
            Value::Bytes(vec![0, 255].into()),
        ];
        let json = serde_json::to_string(&Holder(values.clone().into())).unwrap();
        let Holder(read) = serde_json::from_str(&json).unwrap();
        assert_eq!(*read, *values);
    }
}
