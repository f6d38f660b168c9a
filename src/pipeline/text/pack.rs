//! Packing of the documents of a unit into rows of equal length, for `--pack`.
//!
//! The rows are those of [`crate::packing`]: documents are collected until a window is full, then packed and returned
//! as records. A window never spans units, so each unit is independent. Padding is not stored.

use std::collections::BTreeMap;

use super::convert::{TextRecord, piece_name};
use crate::error::{Error, Result};
use crate::packing::{Document, Packing, Row, Window};
use crate::sample::{Ids, Tokens, Value};
use crate::schema::IdWidth;
use crate::writer::outcome::ConvertedRecord;
use crate::writer::stage::{Finished, NextStage, Stage};

/// Number of documents that fills a window.
const WINDOW_DOCUMENTS: usize = 65_536;
/// Number of tokens that fills a window.
const WINDOW_TOKENS: u64 = 4 << 20;
/// Number of rows below which a window is extended with best-fit, because one of its rows is not full.
const WINDOW_ROWS: u64 = 128;
/// Largest multiple of both limits to which a window is extended.
const MAX_EXTENSION: u64 = 4;

/// Number of tokens per row, and the packing method.
pub(super) type Pack = (u32, Packing);

/// Stage that packs the documents of a unit into rows.
pub(super) struct PackDocuments {
    pack: Pack,
    /// Whether documents have masks.
    has_masks: bool,
    /// One packer per split that has documents.
    packers: BTreeMap<u16, Packer>,
}

impl PackDocuments {
    pub(super) fn new(pack: Pack, has_masks: bool) -> Self {
        Self { pack, has_masks, packers: BTreeMap::new() }
    }
}

impl Stage for PackDocuments {
    fn push(&mut self, converted: ConvertedRecord, next: &mut NextStage<'_>) -> Result<()> {
        let (split, pack, has_masks) = (converted.split, self.pack, self.has_masks);
        let packer = self.packers.entry(split).or_insert_with(|| Packer::new(split, pack, has_masks));
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
        vec![
            ("packed_rows", all(|c| c.rows)),
            ("packed_tokens", all(|c| c.tokens)),
            ("packed_places", all(|c| c.capacity)),
            ("packed_documents_cut", all(|c| c.cut)),
        ]
    }
}

/// Packer for the documents of one split of a unit.
struct Packer {
    split: u16,
    pack: Pack,
    has_masks: bool,
    documents: Vec<TextRecord>,
    tokens: u64,
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
}

impl Packer {
    pub(super) fn new(split: u16, pack: Pack, has_masks: bool) -> Self {
        let (documents, counts) = (Vec::new(), PackCounts::default());
        Self { split, pack, has_masks, documents, tokens: 0, skipped: 0, counts }
    }

    /// Adds a document. Returns rows if a window is full.
    pub(super) fn push(&mut self, converted: ConvertedRecord) -> Result<Vec<ConvertedRecord>> {
        let record = TextRecord::of(converted.record, self.has_masks);
        let mut document =
            record.ok_or_else(|| Error::internal("a record to be packed is not a document"))?;
        let length = document.tokens.len();
        self.tokens += length as u64;
        // Copied, because other documents may share the buffer, and their ids would stay in memory until the window is
        // full.
        if let Some(tokens) = document.tokens.copy_of(0..length) {
            document.tokens = tokens;
        }
        self.documents.push(document);
        if self.is_full() { self.rows(false) } else { Ok(Vec::new()) }
    }

    /// Returns whether the window is complete.
    fn is_full(&self) -> bool {
        let (length, packing) = (u64::from(self.pack.0), self.pack.1);
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
        let (length, packing) = self.pack;
        let lengths: Vec<Document> = (0..)
            .zip(&self.documents)
            .map(|(id, d)| Document { id, length: d.tokens.len() as u64 })
            .collect();
        let window = Window::new(packing, u64::from(length), lengths, self.skipped, is_last);
        let mut rows = Vec::new();
        for row in (0..window.rows()).filter_map(|i| window.row(i)) {
            self.counts.rows += 1;
            self.counts.tokens += row.tokens();
            self.counts.capacity += u64::from(length);
            self.counts.cut += row.pieces.iter().filter(|p| p.start == 0 && !p.ends).count() as u64;
            rows.push(self.record(&row)?);
        }
        let carry = window.carry;
        self.documents.drain(..carry.documents);
        self.skipped = carry.tokens;
        self.tokens = self.documents.iter().map(|d| d.tokens.len() as u64).sum::<u64>() - self.skipped;
        Ok(rows)
    }

    fn record(&self, row: &Row) -> Result<ConvertedRecord> {
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
        let numbers = |numbers: &[u32]| Ids::pack(IdWidth::U32, numbers).map(Value::Ids).ok_or_else(lost);
        let record = TextRecord {
            key: piece_name(named.key.as_str(), start).into(),
            tokens: Tokens::join(&pieces).ok_or_else(lost)?,
            origin: piece_name(named.origin.as_str(), start).into(),
            extra_values: vec![numbers(&ends)?, numbers(&starts)?],
        };
        Ok(record.converted(self.split, true))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

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
        let mut packer = Packer::new(0, (4, packing), false);
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
        assert_eq!(counts, PackCounts { rows: 3, tokens: 10, capacity: 12, cut: 1 });
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
            let mut packer = Packer::new(0, (row, packing), true);
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

    #[test]
    fn consecutive_windows_leave_no_gap() {
        let mut packer = Packer::new(0, (1000, Packing::Concat), false);
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
            let mut packer = Packer::new(0, (length, packing), false);
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
