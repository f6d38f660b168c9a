//! Element types of arrays, and blocks of elements.

use std::fmt;

use dsconvert_dataset::schema::DType;

/// The bits of a [`DType::Float16`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Half(pub u16);

/// The bits of a [`DType::BFloat16`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct BHalf(pub u16);

/// A block of elements of one type.
#[derive(Debug)]
pub(super) enum Elements {
    Bool(Vec<bool>),
    UInt8(Vec<u8>),
    Int8(Vec<i8>),
    UInt16(Vec<u16>),
    Int16(Vec<i16>),
    UInt32(Vec<u32>),
    Float16(Vec<Half>),
    BFloat16(Vec<BHalf>),
    Int32(Vec<i32>),
    Int64(Vec<i64>),
    UInt64(Vec<u64>),
    Float32(Vec<f32>),
    Float64(Vec<f64>),
}

/// A type that an array can hold.
pub trait Element: Copy + Default + PartialEq + fmt::Debug + Send + Sync + sealed::Sealed + 'static {
    /// Its [`DType`].
    const DTYPE: DType;
}

mod sealed {
    use super::Elements;

    /// Restricts [`Element`](super::Element) to the types of [`Elements`], and gives access to them.
    pub trait Sealed: Sized {
        #[doc(hidden)]
        #[allow(private_interfaces)]
        fn wrap(block: Vec<Self>) -> Elements;
        #[doc(hidden)]
        #[allow(private_interfaces)]
        fn of(block: &Elements) -> Option<&Vec<Self>>;
        #[doc(hidden)]
        #[allow(private_interfaces)]
        fn of_mut(block: &mut Elements) -> Option<&mut Vec<Self>>;
    }
}

/// One `match` for all types of elements: `each!(block, v => v.len())`.
macro_rules! each {
    ($block:expr, $v:ident => $result:expr) => {
        match $block {
            Elements::Bool($v) => $result,
            Elements::UInt8($v) => $result,
            Elements::Int8($v) => $result,
            Elements::UInt16($v) => $result,
            Elements::Int16($v) => $result,
            Elements::Float16($v) => $result,
            Elements::BFloat16($v) => $result,
            Elements::UInt32($v) => $result,
            Elements::Int32($v) => $result,
            Elements::Int64($v) => $result,
            Elements::UInt64($v) => $result,
            Elements::Float32($v) => $result,
            Elements::Float64($v) => $result,
        }
    };
}

macro_rules! element {
    ($($ty:ty => $variant:ident),*) => {$(
        impl Element for $ty {
            const DTYPE: DType = DType::$variant;
        }

        #[allow(private_interfaces)]
        impl sealed::Sealed for $ty {
            fn wrap(block: Vec<Self>) -> Elements {
                Elements::$variant(block)
            }

            fn of(block: &Elements) -> Option<&Vec<Self>> {
                match block {
                    Elements::$variant(block) => Some(block),
                    _ => None,
                }
            }

            fn of_mut(block: &mut Elements) -> Option<&mut Vec<Self>> {
                match block {
                    Elements::$variant(block) => Some(block),
                    _ => None,
                }
            }
        }
    )*};
}

element!(bool => Bool, u8 => UInt8, i8 => Int8, u16 => UInt16, i16 => Int16, Half => Float16, BHalf => BFloat16, u32 => UInt32, i32 => Int32, i64 => Int64, u64 => UInt64, f32 => Float32, f64 => Float64);

impl Elements {
    pub(super) fn dtype(&self) -> DType {
        fn of<T: Element>(_: &[T]) -> DType {
            T::DTYPE
        }
        each!(self, v => of(v))
    }

    /// Returns the number of elements in the block.
    pub(super) fn len(&self) -> usize {
        each!(self, v => v.len())
    }

    pub(super) fn address(&self) -> *const u8 {
        each!(self, v => v.as_ptr().cast())
    }

    pub(super) fn address_mut(&mut self) -> *mut u8 {
        each!(self, v => v.as_mut_ptr().cast())
    }
}
