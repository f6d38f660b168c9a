//! Packing of the documents of a unit into rows of equal length, for `--pack`.
//!
//! The rows are those of [`crate::packing`]: documents are collected until a window is full, then packed and returned
//! as records. A window never spans units, so each unit is independent. Padding is not stored.
//!
//! Chats with images are packed whole, and the patches of the images of a row have a budget, too.

use std::collections::BTreeMap;

use dsconvert_writer::outcome::ConvertedRecord;
use dsconvert_writer::stage::{Finished, NextStage, Stage};

use super::convert::{TextRecord, piece_name};
use crate::error::{Error, Result};
use crate::packing::{Document, Packing, Row, Window};
use crate::sample::{Ids, Tokens, Value, joined};
use crate::schema::IdWidth;

/// Number of documents that fills a window.
const WINDOW_DOCUMENTS: usize = 65_536;
/// Number of tokens that fills a window.
const WINDOW_TOKENS: u64 = 4 << 20;
/// Number of bytes of images that fills a window.
const WINDOW_IMAGE_BYTES: u64 = 128 << 20;
/// Number of rows below which a window is extended with best-fit, because one of its rows is not full.
const WINDOW_ROWS: u64 = 128;
/// Largest multiple of both limits to which a window is extended.
const MAX_EXTENSION: u64 = 4;

/// How the documents of a unit are packed.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pack {
    /// Number of tokens per row.
    pub(super) length: u32,
    pub(super) packing: Packing,
    /// For chats with images, the maximum number of patches per row.
    pub(super) patches: Option<u32>,
    /// Whether documents have masks.
    pub(super) has_masks: bool,
}

/// Fields of images in the values of a chat after its masks: the images, their grids and the number of patches.
const IMAGE_FIELDS: usize = 3;

/// Stage that packs the documents of a unit into rows.
pub(super) struct PackDocuments {
    pack: Pack,
    /// One packer per split that has documents.
    packers: BTreeMap<u16, Packer>,
}

impl PackDocuments {
    pub(super) fn new(pack: Pack) -> Self {
        Self { pack, packers: BTreeMap::new() }
    }
}

impl Stage for PackDocuments {
    fn push(&mut self, converted: ConvertedRecord, next: &mut NextStage<'_>) -> Result<()> {
        let (split, pack) = (converted.split, self.pack);
        let packer = self.packers.entry(split).or_insert_with(|| Packer::new(split, pack));
        packer.push(converted)?.into_iter().try_for_each(next)
    }

    fn finish(&mut self, next: &mut NextStage<'_>) -> Result<Finished> {
        for packer in self.packers.values_mut() {
            packer.finish()?.into_iter().try_for_each(&mut *next)?;
        }
        Ok(Finished::Yes)
    }

    fn notes(&self) -> Vec<(&'static str, u64)> {
        let all = |count: fn(&PackCounts) -> u64| self.packers.values().map(|p| count(&p.counts)).sum();
        if self.packers.is_empty() {
            return Vec::new();
        }
        let mut notes = vec![
            ("packed_rows", all(|c| c.rows)),
            ("packed_tokens", all(|c| c.tokens)),
            ("packed_places", all(|c| c.capacity)),
            ("packed_documents_cut", all(|c| c.cut)),
        ];
        if self.pack.patches.is_some() {
            notes.push(("packed_patches", all(|c| c.patches)));
        }
        notes
    }
}

/// Packer for the documents of one split of a unit.
struct Packer {
    split: u16,
    pack: Pack,
    documents: Vec<TextRecord>,
    tokens: u64,
    /// Bytes of the images of the documents.
    image_bytes: u64,
    /// Tokens of the first document that are already in rows.
    skipped: u64,
    pub(super) counts: PackCounts,
}

/// Statistics of the packed rows.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct PackCounts {
    pub(super) rows: u64,
    /// Tokens in the rows.
    pub(super) tokens: u64,
    /// Token capacity of the rows.
    pub(super) capacity: u64,
    /// Documents that are divided among several rows.
    pub(super) cut: u64,
    /// Patches of images in the rows.
    pub(super) patches: u64,
}

impl Packer {
    pub(super) fn new(split: u16, pack: Pack) -> Self {
        let (documents, counts) = (Vec::new(), PackCounts::default());
        Self { split, pack, documents, tokens: 0, image_bytes: 0, skipped: 0, counts }
    }

    /// Adds a document. Returns rows if a window is full.
    pub(super) fn push(&mut self, converted: ConvertedRecord) -> Result<Vec<ConvertedRecord>> {
        let record = TextRecord::of(converted.record, self.pack.has_masks);
        let mut document =
            record.ok_or_else(|| Error::internal("a record to be packed is not a document"))?;
        let length = document.tokens.len();
        self.tokens += length as u64;
        // Copied, because other documents may share the buffer, and their ids would stay in memory until the window is
        // full.
        if let Some(tokens) = document.tokens.copy_of(0..length) {
            document.tokens = tokens;
        }
        self.image_bytes += document.extra_values.iter().map(image_bytes).sum::<u64>();
        self.documents.push(document);
        if self.is_full() { self.rows(false) } else { Ok(Vec::new()) }
    }

    /// Returns whether the window is complete.
    fn is_full(&self) -> bool {
        let (length, packing) = (u64::from(self.pack.length), self.pack.packing);
        if self.image_bytes >= WINDOW_IMAGE_BYTES {
            return true;
        }
        let exceeds = |factor: u64| {
            self.documents.len() as u64 >= factor * WINDOW_DOCUMENTS as u64
                || self.tokens >= factor * WINDOW_TOKENS
        };
        // Half a row less, so that the last row does not hold a single document.
        let has_rows = packing == Packing::Concat || self.tokens >= WINDOW_ROWS * length - length / 2;
        exceeds(if has_rows { 1 } else { MAX_EXTENSION })
    }

    /// Returns the rows of the remaining documents.
    pub(super) fn finish(&mut self) -> Result<Vec<ConvertedRecord>> {
        self.rows(true)
    }

    fn rows(&mut self, is_last: bool) -> Result<Vec<ConvertedRecord>> {
        let Pack { length, packing, patches, .. } = self.pack;
        let lengths: Vec<Document> = (0..)
            .zip(&self.documents)
            .map(|(id, d)| Document { id, length: d.tokens.len() as u64 })
            .collect();
        let window = match patches {
            Some(max) => {
                let counts = self.documents.iter().map(patches_of).collect::<Result<Vec<u64>>>()?;
                Window::of_whole_documents(length.into(), lengths, max.into(), &counts)
            }
            None => Window::new(packing, u64::from(length), lengths, self.skipped, is_last),
        };
        let mut rows = Vec::new();
        for row in (0..window.rows()).filter_map(|i| window.row(i)) {
            self.counts.rows += 1;
            self.counts.tokens += row.tokens();
            self.counts.capacity += u64::from(length);
            self.counts.cut += row.pieces.iter().filter(|p| p.start == 0 && !p.ends).count() as u64;
            let (record, patches) = self.record(&row)?;
            self.counts.patches += patches;
            rows.push(record);
        }
        let carry = window.carry;
        self.documents.drain(..carry.documents);
        self.skipped = carry.tokens;
        self.tokens = self.documents.iter().map(|d| d.tokens.len() as u64).sum::<u64>() - self.skipped;
        self.image_bytes = self.documents.iter().flat_map(|d| &d.extra_values).map(image_bytes).sum();
        Ok(rows)
    }

    /// Returns the record of a row, and the number of patches of its images.
    fn record(&self, row: &Row) -> Result<(ConvertedRecord, u64)> {
        let lost = || Error::internal("a row refers to a missing document");
        let document =
            |id: u64| usize::try_from(id).ok().and_then(|id| self.documents.get(id)).ok_or_else(lost);
        let first = row.pieces.first().ok_or_else(lost)?;
        let (named, start) = (document(first.document)?, first.start);
        let mut pieces = Vec::with_capacity(row.pieces.len());
        let (mut ends, mut starts) = (vec![0], Vec::new());
        let mut end = 0;
        for piece in &row.pieces {
            let inputs = piece.inputs();
            let tokens = inputs.start as usize..inputs.end as usize;
            pieces.push((&document(piece.document)?.tokens, tokens));
            // A row has fewer than 2³² tokens, and so does a document.
            end += piece.len as u32;
            ends.push(end);
            starts.push(piece.start as u32);
        }
        let mut extra_values = Vec::new();
        for field in 0..if self.pack.patches.is_some() { IMAGE_FIELDS } else { 0 } {
            let documents = row.pieces.iter().map(|piece| document(piece.document));
            let documents = documents.collect::<Result<Vec<&TextRecord>>>()?;
            let values = documents.iter().map(|document| document.extra_values.get(field));
            let values = values.collect::<Option<Vec<&Value>>>();
            let value = values.and_then(joined);
            extra_values.push(value.ok_or_else(|| Error::internal("the images of a row cannot be joined"))?);
        }
        let patches = match extra_values.last() {
            Some(Value::UInt(patches)) => *patches,
            _ => 0,
        };
        let numbers = |numbers: &[u32]| Ids::pack(IdWidth::U32, numbers).map(Value::Ids).ok_or_else(lost);
        extra_values.extend([numbers(&ends)?, numbers(&starts)?]);
        let record = TextRecord {
            key: piece_name(named.key.as_str(), start).into(),
            tokens: Tokens::join(&pieces).ok_or_else(lost)?,
            origin: piece_name(named.origin.as_str(), start).into(),
            extra_values,
        };
        Ok((record.converted(self.split, true), patches))
    }
}

/// Returns the number of patches of the images of a chat.
fn patches_of(document: &TextRecord) -> Result<u64> {
    match document.extra_values.get(IMAGE_FIELDS - 1) {
        Some(Value::UInt(patches)) => Ok(*patches),
        _ => Err(Error::internal("a chat to be packed has no number of patches")),
    }
}

/// Returns the bytes of the images in a value.
fn image_bytes(value: &Value) -> u64 {
    match value {
        Value::Files(files) => files.iter().map(|file| file.len() as u64).sum(),
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use proptest::prelude::*;

    use super::*;
    use crate::sample::ArrayValue;

    fn pack(length: u32, packing: Packing) -> Pack {
        Pack { length, packing, patches: None, has_masks: false }
    }

    fn document(key: &str, ids: &[u32]) -> ConvertedRecord {
        record(key, Ids::pack(IdWidth::U16, ids).unwrap().into())
    }

    fn record(key: &str, tokens: Tokens) -> ConvertedRecord {
        TextRecord { key: key.into(), tokens, origin: key.into(), extra_values: Vec::new() }
            .converted(0, false)
    }

    /// Key, ids and the two lists of a row.
    type Shown = (String, Vec<u32>, Vec<u32>, Vec<u32>);

    fn rows(packing: Packing) -> (Vec<Shown>, PackCounts) {
        let mut packer = Packer::new(0, pack(4, packing));
        let mut rows = Vec::new();
        for (key, ids) in [("a", &[1, 2, 3][..]), ("b", &[4, 5, 6, 7, 8, 9]), ("c", &[10])] {
            rows.extend(packer.push(document(key, ids)).unwrap());
        }
        rows.extend(packer.finish().unwrap());
        let rows = rows.into_iter().map(|row| {
            let row = TextRecord::of(row.record, false).unwrap();
            let [Value::Ids(ends), Value::Ids(starts)] = &row.extra_values[..] else {
                panic!("{:?}", row.extra_values)
            };
            let numbers = |ids: &Ids| ids.iter().collect::<Vec<_>>();
            (row.key.as_str().to_owned(), numbers(&row.tokens.ids), numbers(ends), numbers(starts))
        });
        (rows.collect(), packer.counts)
    }

    #[test]
    fn rows_record_where_their_documents_start() {
        let (concat, counts) = rows(Packing::Concat);
        assert_eq!(
            concat,
            [
                ("a@0".into(), vec![1, 2, 3, 4], vec![0, 3, 4], vec![0, 0]),
                ("b@1".into(), vec![5, 6, 7, 8], vec![0, 4], vec![1]),
                ("b@5".into(), vec![9, 10], vec![0, 1, 2], vec![5, 0]),
            ]
        );
        assert_eq!(counts, PackCounts { rows: 3, tokens: 10, capacity: 12, cut: 1, patches: 0 });
        let (best_fit, counts) = rows(Packing::BestFit);
        assert_eq!(
            best_fit,
            [
                ("b@0".into(), vec![4, 5, 6, 7], vec![0, 4], vec![0]),
                ("a@0".into(), vec![1, 2, 3, 10], vec![0, 3, 4], vec![0, 0]),
                ("b@4".into(), vec![8, 9], vec![0, 2], vec![4]),
            ]
        );
        assert_eq!(counts.cut, 1);
    }

    proptest! {
        /// The mask of a token is a function of its id here, so a mask that is not where its id is would be seen.
        #[test]
        fn rows_carry_the_masks_of_their_tokens(
            lengths in prop::collection::vec(1usize..30, 1..40),
            row in 1u32..20,
            packing in prop::sample::select(vec![Packing::Concat, Packing::BestFit]),
        ) {
            let mask = |id: u32| u8::from(id * 7 % 5 < 2);
            let mut packer = Packer::new(0, Pack { has_masks: true, ..pack(row, packing) });
            let (mut rows, mut next) = (Vec::new(), 0);
            for (i, &length) in lengths.iter().enumerate() {
                let ids: Vec<u32> = (next..next + length as u32).collect();
                next += length as u32;
                let masks = ids.iter().map(|&id| mask(id)).collect();
                let tokens = Tokens::new(Ids::pack(IdWidth::U16, &ids).unwrap(), Some(masks)).unwrap();
                rows.extend(packer.push(record(&i.to_string(), tokens)).unwrap());
            }
            rows.extend(packer.finish().unwrap());
            let mut found = Vec::new();
            for row in rows {
                let row = TextRecord::of(row.record, true).unwrap();
                let ids: Vec<u32> = row.tokens.ids.iter().collect();
                let masks: Vec<u8> = ids.iter().map(|&id| mask(id)).collect();
                prop_assert_eq!(row.tokens.masks.as_deref(), Some(&masks[..]));
                prop_assert_eq!(row.extra_values.len(), 2);
                found.extend(ids);
            }
            found.sort_unstable();
            prop_assert_eq!(found, (0..next).collect::<Vec<_>>());
        }
    }

    proptest! {
        /// The images of a document are named after its first token.
        #[test]
        fn rows_carry_the_images_of_their_documents(
            documents in prop::collection::vec((1usize..30, 0usize..4, 1u32..9), 1..60),
            patches in 28u32..60,
        ) {
            let mut packer =
                Packer::new(0, Pack { patches: Some(patches), ..pack(40, Packing::BestFit) });
            let (mut rows, mut next) = (Vec::new(), 0);
            for &(length, images, side) in &documents {
                let ids: Vec<u32> = (next..next + length as u32).collect();
                let names = (0..images).map(|image| Bytes::from(format!("{image} of {next}"))).collect();
                let grids: Vec<u8> = (0..images).flat_map(|_| [1, 1, side]).flat_map(u32::to_le_bytes).collect();
                next += length as u32;
                let images = images as u32;
                let document = TextRecord {
                    key: length.to_string().as_str().into(),
                    tokens: Ids::pack(IdWidth::U16, &ids).unwrap().into(),
                    origin: "origin".into(),
                    extra_values: vec![
                        Value::Files(names),
                        Value::Array(ArrayValue::new([images, 3], grids.into())),
                        Value::UInt((images * side).into()),
                    ],
                };
                rows.extend(packer.push(document.converted(0, false)).unwrap());
            }
            rows.extend(packer.finish().unwrap());
            let mut found = Vec::new();
            for row in rows {
                let row = TextRecord::of(row.record, false).unwrap();
                let ids: Vec<u32> = row.tokens.ids.iter().collect();
                let [Value::Files(files), Value::Array(grids), Value::UInt(sum), Value::Ids(ends), Value::Ids(starts)] =
                    &row.extra_values[..]
                else {
                    panic!("{:?}", row.extra_values)
                };
                prop_assert!(ids.len() <= 40 && *sum <= patches.into());
                prop_assert!(starts.iter().all(|start| start == 0), "whole documents");
                let (mut names, mut sides) = (Vec::new(), Vec::new());
                for start in ends.iter().take(starts.len()) {
                    let first = ids[start as usize];
                    let mut at = 0;
                    let document = documents.iter().find(|(length, ..)| {
                        at += *length as u32;
                        at - *length as u32 == first
                    });
                    let &(_, images, side) = document.unwrap();
                    names.extend((0..images).map(|image| Bytes::from(format!("{image} of {first}"))));
                    sides.extend((0..images).flat_map(|_| [1, 1, side]).flat_map(u32::to_le_bytes));
                }
                prop_assert_eq!(files, &names);
                prop_assert_eq!(grids.as_bytes().as_ref(), &sides[..]);
                prop_assert_eq!(grids.shape(), [names.len() as u32, 3]);
                prop_assert_eq!(*sum, sides.chunks(12).map(|grid| u64::from(grid[8])).sum::<u64>());
                found.extend(ids);
            }
            found.sort_unstable();
            prop_assert_eq!(found, (0..next).collect::<Vec<_>>());
            prop_assert_eq!(packer.counts.cut, 0);
        }
    }

    #[test]
    fn images_fill_a_window() {
        let mut packer = Packer::new(0, Pack { patches: Some(1 << 20), ..pack(1 << 20, Packing::BestFit) });
        let image = Bytes::from(vec![0; 16 << 20]);
        let mut pushed = 0;
        let rows = loop {
            let values = vec![
                Value::Files(vec![image.clone()]),
                Value::Array(ArrayValue::new([1, 3], vec![1, 0, 0, 0, 1, 0, 0, 0, 4, 0, 0, 0].into())),
                Value::UInt(4),
            ];
            let tokens = Ids::pack(IdWidth::U16, &[1, 2]).unwrap().into();
            let document = TextRecord { key: "a".into(), tokens, origin: "a".into(), extra_values: values };
            pushed += 1;
            let rows = packer.push(document.converted(0, false)).unwrap();
            if !rows.is_empty() {
                break rows;
            }
        };
        assert_eq!((pushed, rows.len(), packer.counts.patches, packer.image_bytes), (8, 1, 32, 0));
    }

    #[test]
    fn consecutive_windows_leave_no_gap() {
        let mut packer = Packer::new(0, pack(1000, Packing::Concat));
        let mut rows = Vec::new();
        let ids: Vec<u32> = (0..40_000).collect();
        for i in 0..300 {
            rows.extend(packer.push(document(&i.to_string(), &ids[..39_999])).unwrap());
        }
        assert!(!rows.is_empty(), "a window was full");
        rows.extend(packer.finish().unwrap());
        assert!(rows[..rows.len() - 1].iter().all(|row| row.length == 1000));
        assert_eq!(rows.iter().map(|row| row.length).sum::<u64>(), 300 * 39_999);
    }

    /// Windows of the rows that every earlier version had, unless these were few.
    #[test]
    fn windows_of_long_rows_are_extended() {
        let first_window = |length: u32, packing, ids: usize| {
            let mut packer = Packer::new(0, pack(length, packing));
            let ids = vec![1; ids];
            let pushed = (1..).find(|i| !packer.push(document(&i.to_string(), &ids)).unwrap().is_empty());
            (pushed.unwrap(), packer.counts.rows)
        };
        for packing in [Packing::BestFit, Packing::Concat] {
            assert_eq!(first_window(2048, packing, 1000).0, 4195, "4,194,304 tokens");
            assert_eq!(first_window(512, packing, 4).0, 65_536, "as many documents");
        }
        assert_eq!(first_window(131_072, Packing::Concat, 1000).0, 4195);
        let (documents, rows) = first_window(131_072, Packing::BestFit, 1000);
        assert_eq!((documents, rows), (16_712, 128));
        assert_eq!(first_window(1 << 20, Packing::BestFit, 1000), (16_778, 17), "16,777,216 tokens");
    }
}
