//! A batch as it is handed out.

use std::any::Any;

use bytes::Bytes;
use dsconvert_dataset::error::Error;
use dsconvert_dataset::sample::{Ids, Text};

use super::array::Array;

/// One named part of a batch. Lists have one entry per row; it is `None` where the value is missing or the row holds no
/// record.
#[derive(Debug)]
#[non_exhaustive]
pub enum Column {
    /// Numbers of one shape.
    Array(Array),
    /// `string` and `json` fields.
    Texts(Vec<Option<Text>>),
    /// `binary` fields, and images that are not decoded.
    Bytes(Vec<Option<Bytes>>),
    /// Lists of ids that are not `input_ids`.
    Ids(Vec<Option<Ids>>),
}

/// Which batch it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct BatchId {
    /// Epoch, from 0.
    pub epoch: u64,
    /// Global step in the epoch.
    pub step: u64,
    /// Place among the micro-batches of the step, over all ranks.
    pub micro_batch: u64,
}

/// A row whose image could not be decoded and is blank ([`Undecodable::Blank`](super::Undecodable)).
#[derive(Debug)]
pub struct BlankRow {
    /// Row of the batch.
    pub row: usize,
    /// Ordinal of the record in its split.
    pub record: u64,
    /// What is wrong with it: the error that would else have come in the place of the batch.
    pub error: Error,
}

/// The records of one micro-batch as named arrays.
#[derive(Debug)]
pub struct Batch {
    pub(super) id: BatchId,
    pub(super) rows: usize,
    pub(super) filler_rows: usize,
    pub(super) blank_rows: Vec<BlankRow>,
    pub(super) records: Vec<u64>,
    pub(super) tokens: u64,
    pub(super) max_len: u64,
    pub(super) columns: Vec<(String, Column)>,
    pub(super) attached: Option<Box<dyn Any + Send>>,
}

impl Batch {
    /// Which batch it is.
    pub fn id(&self) -> BatchId {
        self.id
    }

    /// Number of rows, those without record included. 0 for a rank that the last short step has no record for.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// How many of the rows, the last ones, hold no record.
    pub fn filler_rows(&self) -> usize {
        self.filler_rows
    }

    /// Rows whose image could not be decoded, in order. They count everywhere as the records they stand for.
    pub fn blank_rows(&self) -> &[BlankRow] {
        &self.blank_rows
    }

    /// Ordinals of the records in their split: one per row, or, when packed, one per piece of a document.
    pub fn records(&self) -> &[u64] {
        &self.records
    }

    /// Lengths of the records together: tokens, or stored pixels of images. Padding does not count.
    pub fn tokens(&self) -> u64 {
        self.tokens
    }

    /// Length of the longest record or, when packed, piece; padding at the end of a packed row counts as a piece.
    pub fn max_len(&self) -> u64 {
        self.max_len
    }

    /// Names and parts, in the order in which they were asked for.
    pub fn columns(&self) -> impl ExactSizeIterator<Item = (&str, &Column)> {
        self.columns.iter().map(|(name, column)| (name.as_str(), column))
    }

    /// The part called `name`.
    pub fn get(&self, name: &str) -> Option<&Column> {
        self.columns.iter().find(|(n, _)| n == name).map(|(_, column)| column)
    }

    /// The array called `name`.
    pub fn array(&self, name: &str) -> Option<&Array> {
        match self.get(name)? {
            Column::Array(array) => Some(array),
            _ => None,
        }
    }

    /// Names and parts, to be kept one by one: each is independent of the others.
    pub fn into_columns(self) -> Vec<(String, Column)> {
        self.columns
    }

    /// Takes the parts out of the batch, for a [`BatchFinisher`](super::BatchFinisher) that replaces them.
    pub fn take_columns(&mut self) -> Vec<(String, Column)> {
        std::mem::take(&mut self.columns)
    }

    /// Attaches a value that travels with the batch, such as what a [`BatchFinisher`](super::BatchFinisher) made of it.
    pub fn attach(&mut self, value: Box<dyn Any + Send>) {
        self.attached = Some(value);
    }

    /// Takes the value that was attached.
    pub fn take_attached(&mut self) -> Option<Box<dyn Any + Send>> {
        self.attached.take()
    }
}
