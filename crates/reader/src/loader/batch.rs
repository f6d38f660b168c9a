//! Batches as the loader returns them.

use std::any::Any;

use bytes::Bytes;
use dsconvert_dataset::error::Error;
use dsconvert_dataset::sample::{Ids, Text};

use super::array::Array;

/// A named column of a batch. Lists have one entry per row, which is `None` where the value is missing or the row holds
/// no record.
#[derive(Debug)]
#[non_exhaustive]
pub enum Column {
    /// An array of numbers.
    Array(Array),
    /// A number of the whole batch: the length of its longest document.
    Number(u64),
    /// An argument of a model that is a switch.
    Flag(bool),
    /// `string` and `json` fields.
    Texts(Vec<Option<Text>>),
    /// `binary` fields, and images that are not decoded.
    Bytes(Vec<Option<Bytes>>),
    /// Lists of texts.
    TextLists(Vec<Option<Vec<Text>>>),
    /// Lists of images, which are not decoded.
    FileLists(Vec<Option<Vec<Bytes>>>),
    /// Lists of ids other than `input_ids`.
    Ids(Vec<Option<Ids>>),
    /// Boxes (an array of `[n, 4]` per row), or what each box has (`[n]`).
    Arrays(Vec<Option<Array>>),
}

/// The identity of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct BatchId {
    /// Epoch, from 0.
    pub epoch: u64,
    /// Global step in the epoch.
    pub step: u64,
    /// Index among the micro-batches of the step, over all ranks.
    pub micro_batch: u64,
}

/// A row whose image could not be decoded and is blank ([`Undecodable::Blank`](super::Undecodable)).
#[derive(Debug)]
pub struct BlankRow {
    /// Index of the row in the batch.
    pub row: usize,
    /// Ordinal of the record in its split.
    pub record: u64,
    /// The cause: the error that the loader would otherwise return in place of the batch.
    pub error: Error,
}

/// The records of one micro-batch as named columns.
#[derive(Debug)]
pub struct Batch {
    pub(super) id: BatchId,
    pub(super) rows: usize,
    pub(super) filler_rows: usize,
    pub(super) blank_rows: Vec<BlankRow>,
    pub(super) records: Vec<u64>,
    pub(super) tokens: u64,
    pub(super) trained: Option<u64>,
    pub(super) max_len: u64,
    pub(super) columns: Vec<(String, Column)>,
    pub(super) attached: Option<Box<dyn Any + Send>>,
}

impl Batch {
    /// Returns the identity of the batch.
    pub fn id(&self) -> BatchId {
        self.id
    }

    /// Returns the number of rows, including those without a record. 0 if the last short step has no record for this
    /// rank.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Returns the number of rows that hold no record. They are the last ones.
    pub fn filler_rows(&self) -> usize {
        self.filler_rows
    }

    /// Returns the rows whose image could not be decoded, in order. All other methods count them like any other record.
    pub fn blank_rows(&self) -> &[BlankRow] {
        &self.blank_rows
    }

    /// Returns the ordinals of the records in their split: one per row or, if packed, one per piece of a document.
    pub fn records(&self) -> &[u64] {
        &self.records
    }

    /// Returns the total length of the records: tokens, or stored pixels of images. Padding does not count.
    pub fn tokens(&self) -> u64 {
        self.tokens
    }

    /// Returns the number of tokens that the loss is computed on: those that are labels of a position before them. Without
    /// [`assistant_masks`](dsconvert_dataset::schema::ASSISTANT_MASKS), these are all but the first of each document or
    /// piece. `None` if the batch has no labels.
    pub fn trained(&self) -> Option<u64> {
        self.trained
    }

    /// Returns the length of the longest record or, if packed, piece. Padding at the end of a packed row counts as a
    /// piece.
    pub fn max_len(&self) -> u64 {
        self.max_len
    }

    /// Returns the names and columns, in the requested order.
    pub fn columns(&self) -> impl ExactSizeIterator<Item = (&str, &Column)> {
        self.columns.iter().map(|(name, column)| (name.as_str(), column))
    }

    /// Returns the column `name`.
    pub fn get(&self, name: &str) -> Option<&Column> {
        self.columns.iter().find(|(n, _)| n == name).map(|(_, column)| column)
    }

    /// Returns the array `name`.
    pub fn array(&self, name: &str) -> Option<&Array> {
        match self.get(name)? {
            Column::Array(array) => Some(array),
            _ => None,
        }
    }

    /// Takes the names and columns out of the batch. Each column can be kept independently of the others.
    pub fn take_columns(&mut self) -> Vec<(String, Column)> {
        std::mem::take(&mut self.columns)
    }

    /// Attaches a value that travels with the batch, such as the result of a [`BatchFinisher`](super::BatchFinisher).
    pub fn attach(&mut self, value: Box<dyn Any + Send>) {
        self.attached = Some(value);
    }

    /// Takes the attached value.
    pub fn take_attached(&mut self) -> Option<Box<dyn Any + Send>> {
        self.attached.take()
    }
}
