//! Types of numbers: those of arrays in records and in batches.

use std::fmt;

/// Type of the numbers of an array.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum DType {
    /// One byte, 0 or 1.
    Bool,
    /// Unsigned, 8 bits.
    UInt8,
    /// Signed, 8 bits.
    Int8,
    /// Unsigned, 16 bits.
    UInt16,
    /// Signed, 16 bits.
    Int16,
    /// Unsigned, 32 bits.
    UInt32,
    /// Signed, 32 bits.
    Int32,
    /// Unsigned, 64 bits.
    UInt64,
    /// Signed, 64 bits.
    Int64,
    /// IEEE 754 binary16.
    Float16,
    /// The upper half of a binary32. numpy and Arrow lack it: there it is `uint16`.
    BFloat16,
    /// IEEE 754 binary32.
    Float32,
    /// IEEE 754 binary64.
    Float64,
}

impl DType {
    /// All types.
    pub const ALL: [DType; 13] = [
        DType::Bool,
        DType::UInt8,
        DType::Int8,
        DType::UInt16,
        DType::Int16,
        DType::UInt32,
        DType::Int32,
        DType::UInt64,
        DType::Int64,
        DType::Float16,
        DType::BFloat16,
        DType::Float32,
        DType::Float64,
    ];

    /// Returns the name that torch uses.
    pub fn name(self) -> &'static str {
        match self {
            DType::Bool => "bool",
            DType::UInt8 => "uint8",
            DType::Int8 => "int8",
            DType::UInt16 => "uint16",
            DType::Int16 => "int16",
            DType::UInt32 => "uint32",
            DType::Int32 => "int32",
            DType::UInt64 => "uint64",
            DType::Int64 => "int64",
            DType::Float16 => "float16",
            DType::BFloat16 => "bfloat16",
            DType::Float32 => "float32",
            DType::Float64 => "float64",
        }
    }

    /// Returns the type with the same bits that Arrow, Parquet and numpy have.
    pub fn stored(self) -> DType {
        if self == DType::BFloat16 { DType::UInt16 } else { self }
    }

    /// Returns the size of one number in bytes.
    pub fn bytes(self) -> usize {
        match self {
            DType::Bool | DType::UInt8 | DType::Int8 => 1,
            DType::UInt16 | DType::Int16 | DType::Float16 | DType::BFloat16 => 2,
            DType::UInt32 | DType::Int32 | DType::Float32 => 4,
            DType::UInt64 | DType::Int64 | DType::Float64 => 8,
        }
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
