//! Types of arrays: a type of numbers, and a shape whose axes are fixed or open.

use std::fmt;
use std::str::FromStr;

use super::{DType, MAX_RECORD_BYTES};
use crate::error::{Error, Result};

/// Maximum number of axes of an array.
pub const MAX_AXES: usize = 8;
/// Size that stands for an open axis. Sizes are below 2³¹, because shapes are stored as 32-bit integers.
const OPEN: u32 = u32::MAX;

/// Type of the arrays of a field: a type of numbers, and the size of each axis, or `None` where it differs from record to
/// record. An array without axes is a number.
///
/// Its text form is `array<bfloat16>[16,?,?]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ArrayType {
    dtype: DType,
    axes: [u32; MAX_AXES],
    rank: u8,
}

/// How the arrays of a type are stored in the columns of Arrow and Parquet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ArrayLayout {
    /// Each row is a nested list of these fixed sizes.
    Fixed(Vec<usize>),
    /// Each row is a list of nested lists of these fixed sizes: only the first axis is open.
    Rows(Vec<usize>),
    /// Each row is a list of numbers and the size of each axis. The number is the rank.
    Shaped(usize),
}

impl ArrayType {
    /// Creates the type of arrays of `dtype` with these `axes`.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Usage`](crate::error::ErrorKind) if no array can have this shape, or each would be larger than the limit
    /// of a record.
    pub fn new(dtype: DType, axes: &[Option<usize>]) -> Result<Self> {
        if dtype == DType::Bool {
            return Err(Error::usage("an array cannot hold the type bool").help("store it as uint8"));
        }
        if axes.len() > MAX_AXES {
            let what = format!("an array has at most {MAX_AXES} axes, not {}", axes.len());
            return Err(Error::usage(what).help("flatten some of them"));
        }
        let mut sizes = [OPEN; MAX_AXES];
        let mut bytes = dtype.bytes() as u64;
        for (size, axis) in sizes.iter_mut().zip(axes) {
            let Some(axis) = *axis else { continue };
            bytes = bytes.saturating_mul(axis as u64);
            if axis == 0 || bytes > MAX_RECORD_BYTES {
                let what = format!("an axis of an array cannot have the size {axis}");
                let limit =
                    format!("fixed axes are at least 1, and an array has at most {MAX_RECORD_BYTES} bytes");
                return Err(Error::usage(what).help(limit));
            }
            *size = axis as u32;
        }
        Ok(Self { dtype, axes: sizes, rank: axes.len() as u8 })
    }

    /// Returns the type of the numbers.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// Returns the size of each axis, `None` if it is open.
    pub fn axes(&self) -> impl ExactSizeIterator<Item = Option<usize>> + '_ {
        let axes = self.axes.get(..self.rank.into()).unwrap_or_default();
        axes.iter().map(|&size| (size != OPEN).then_some(size as usize))
    }

    /// Returns how the arrays are stored in columns.
    pub fn layout(&self) -> ArrayLayout {
        let open = self.axes().filter(Option::is_none).count();
        let sizes = self.axes().flatten().collect();
        match (open, self.axes().next()) {
            (0, _) => ArrayLayout::Fixed(sizes),
            (1, Some(None)) => ArrayLayout::Rows(sizes),
            _ => ArrayLayout::Shaped(self.rank.into()),
        }
    }

    /// Checks that an array of `shape` with `bytes` bytes has this type. The error says what the field holds.
    pub(crate) fn check(&self, shape: &[u32], bytes: usize) -> Result<(), String> {
        let fits = shape.len() == usize::from(self.rank)
            && self.axes().zip(shape).all(|(axis, &size)| axis.is_none_or(|axis| axis == size as usize));
        let size = shape.iter().try_fold(self.dtype.bytes(), |size, &axis| size.checked_mul(axis as usize));
        match fits && shape.iter().all(|&axis| axis <= i32::MAX as u32) && size == Some(bytes) {
            true => Ok(()),
            false => Err(format!("an array of shape {shape:?} with {bytes} bytes")),
        }
    }
}

impl fmt::Display for ArrayType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let axes = self.axes().map(|axis| axis.map_or_else(|| "?".to_owned(), |size| size.to_string()));
        write!(f, "array<{}>[{}]", self.dtype, axes.collect::<Vec<_>>().join(","))
    }
}

impl FromStr for ArrayType {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let unknown = || {
            Error::usage(format!("unknown type of arrays {text:?}"))
                .help("write it as \"array<float32>[3,?]\", with a question mark for each open axis")
        };
        let parts = text.strip_prefix("array<").and_then(|rest| rest.strip_suffix(']')?.split_once(">["));
        let (dtype, axes) = parts.ok_or_else(unknown)?;
        let dtype = DType::ALL.into_iter().find(|known| known.name() == dtype).ok_or_else(unknown)?;
        let axis = |axis: &str| match axis {
            "?" => Ok(None),
            // Only the text that `Display` writes.
            size => {
                size.parse::<usize>().ok().filter(|n| n.to_string() == size).map(Some).ok_or_else(unknown)
            }
        };
        let axes: Vec<_> = match axes {
            "" => Vec::new(),
            axes => axes.split(',').map(axis).collect::<Result<_>>()?,
        };
        Self::new(dtype, &axes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_round_trip_through_text() {
        for (text, layout) in [
            ("array<float32>[]", ArrayLayout::Fixed(vec![])),
            ("array<bfloat16>[4,8]", ArrayLayout::Fixed(vec![4, 8])),
            ("array<int8>[?]", ArrayLayout::Rows(vec![])),
            ("array<uint64>[?,3,2]", ArrayLayout::Rows(vec![3, 2])),
            ("array<float16>[16,?,?]", ArrayLayout::Shaped(3)),
            ("array<float64>[?,?]", ArrayLayout::Shaped(2)),
        ] {
            let parsed: ArrayType = text.parse().unwrap();
            assert_eq!((parsed.to_string().as_str(), parsed.layout()), (text, layout));
        }
        let wrong = [
            "array<bool>[2]",
            "array<float32>",
            "array<float31>[2]",
            "array<float32>[0]",
            "array<float32>[+2]",
            "array<float32>[2,]",
            "array<float32>[02]",
            "array<uint8>[2000000000]",
            "array<int8>[1,1,1,1,1,1,1,1,1]",
            "array<float32>[65536,65536]",
            "list<float32>",
        ];
        for text in wrong {
            assert!(text.parse::<ArrayType>().is_err(), "{text}");
        }
    }

    #[test]
    fn arrays_have_the_shape_of_their_type() {
        let ty: ArrayType = "array<float16>[2,?]".parse().unwrap();
        for (shape, bytes, fits) in [
            (&[2, 3][..], 12, true),
            (&[2, 0], 0, true),
            (&[2, 3], 14, false),
            (&[3, 2], 12, false),
            (&[2, 3, 1], 12, false),
            (&[2, u32::MAX], 12, false),
        ] {
            assert_eq!(ty.check(shape, bytes).is_ok(), fits, "{shape:?} {bytes}");
        }
    }
}
