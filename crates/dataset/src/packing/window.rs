//! Packing of one window of documents.

use super::{Document, Packing, Piece, Row, best_fit, first_fit};

/// A window of documents packed together. Rows are built on demand.
#[derive(Debug, Clone)]
pub struct Window {
    seq_len: u64,
    rows: WindowRows,
    /// Start of the next window.
    pub carry: Carry,
}

/// Start of the next window: how much of this one is used up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Carry {
    /// Number of fully used documents of this window.
    pub documents: usize,
    /// Number of used tokens of the document after those.
    pub tokens: u64,
}

#[derive(Debug, Clone)]
enum WindowRows {
    Concat {
        documents: Vec<Document>,
        /// Cumulative number of tokens up to the end of each document, excluding skipped tokens.
        ends: Vec<u64>,
        count: u64,
    },
    BestFit {
        documents: Vec<Document>,
        /// Documents that fill whole rows, each with the number of such rows up to and including it.
        whole: Vec<(Document, u64)>,
        /// Rows of the remainders of documents, as indices into `documents`.
        mixed: best_fit::Rows,
    },
    /// Rows of whole documents, as indices into `documents`.
    Whole { documents: Vec<Document>, rows: best_fit::Rows },
}

impl Window {
    /// Packs `documents` in order into rows of `seq_len` tokens.
    ///
    /// The first `skipped` tokens are already used (0 with best-fit, which always uses up its window). `is_last` means
    /// that no document follows, so the remaining tokens form a row that is not full. Documents without tokens are in
    /// no row.
    ///
    /// Memory: about 30 bytes per document, regardless of its length.
    pub fn new(
        packing: Packing,
        seq_len: u64,
        documents: Vec<Document>,
        skipped: u64,
        is_last: bool,
    ) -> Self {
        let seq_len = seq_len.max(1);
        match packing {
            Packing::Concat => Self::concat(seq_len, documents, skipped, is_last),
            Packing::BestFit => Self::best_fit(seq_len, documents),
        }
    }

    /// Packs whole documents into rows of at most `seq_len` tokens that also have at most `max` of a second number, such as the
    /// patches of images: `counts` has that number for each document. No document exceeds either of them.
    ///
    /// Memory: about 50 bytes per document.
    pub fn of_whole_documents(seq_len: u64, documents: Vec<Document>, max: u64, counts: &[u64]) -> Self {
        let sizes = |item: u32| {
            let at = item as usize;
            let length = documents.get(at).map_or(0, |document| document.length);
            (length, counts.get(at).copied().unwrap_or(0))
        };
        // As with best fit, there are fewer than 2³² documents.
        let rows = first_fit::pack(documents.len() as u32, sizes, (seq_len, max));
        let carry = Carry { documents: documents.len(), tokens: 0 };
        Self { seq_len, rows: WindowRows::Whole { documents, rows }, carry }
    }

    fn concat(seq_len: u64, documents: Vec<Document>, skipped: u64, is_last: bool) -> Self {
        let mut end = 0u64;
        let ends: Vec<u64> = documents
            .iter()
            .enumerate()
            .map(|(i, document)| {
                let used = if i == 0 { skipped } else { 0 };
                end = end.saturating_add(document.length.saturating_sub(used));
                end
            })
            .collect();
        let count = if is_last { end.div_ceil(seq_len) } else { end / seq_len };
        let used = count.saturating_mul(seq_len).min(end);
        // The first document that is not fully used.
        let next = ends.partition_point(|&end| end <= used);
        let before = next.checked_sub(1).and_then(|i| ends.get(i)).copied().unwrap_or(0);
        let tokens =
            if next == documents.len() { 0 } else { used - before + if next == 0 { skipped } else { 0 } };
        let carry = Carry { documents: next, tokens };
        Self { seq_len, rows: WindowRows::Concat { documents, ends, count }, carry }
    }

    fn best_fit(seq_len: u64, documents: Vec<Document>) -> Self {
        let mut whole: Vec<(Document, u64)> = Vec::new();
        let mut count = 0;
        for &document in documents.iter().filter(|document| document.length >= seq_len) {
            count += document.length / seq_len;
            whole.push((document, count));
        }
        let rest = |item: u32| documents.get(item as usize).map_or(0, |document| document.length % seq_len);
        // Every document has a token, and a window has few rows of more than 2³¹, so it has fewer than 2³² documents.
        let mixed = best_fit::pack(documents.len() as u32, rest, seq_len);
        let carry = Carry { documents: documents.len(), tokens: 0 };
        Self { seq_len, rows: WindowRows::BestFit { documents, whole, mixed }, carry }
    }

    /// Returns the number of rows.
    pub fn rows(&self) -> u64 {
        match &self.rows {
            WindowRows::Concat { count, .. } => *count,
            WindowRows::BestFit { whole, mixed, .. } => {
                whole.last().map_or(0, |(_, end)| *end) + mixed.len() as u64
            }
            WindowRows::Whole { rows, .. } => rows.len() as u64,
        }
    }

    /// Returns row `index`, or `None` if there are not that many rows.
    pub fn row(&self, index: u64) -> Option<Row> {
        if index >= self.rows() {
            return None;
        }
        match &self.rows {
            WindowRows::Concat { documents, ends, .. } => {
                Some(concat_row(documents, ends, index * self.seq_len, self.seq_len))
            }
            WindowRows::Whole { documents, rows } => {
                let piece = |&item: &u32| {
                    let &Document { id, length } = documents.get(item as usize)?;
                    Some(Piece { document: id, start: 0, len: length, ends: true })
                };
                let items = rows.get(usize::try_from(index).ok()?)?;
                Some(Row { pieces: items.iter().filter_map(piece).collect() })
            }
            WindowRows::BestFit { documents, whole, mixed } => {
                let found = whole.partition_point(|&(_, end)| end <= index);
                let Some(&(document, end)) = whole.get(found) else {
                    let rows_before = whole.last().map_or(0, |(_, end)| *end);
                    let remainder = |&item: &u32| {
                        let &Document { id, length } = documents.get(item as usize)?;
                        let len = length % self.seq_len;
                        Some(Piece { document: id, start: length - len, len, ends: true })
                    };
                    let items = mixed.get(usize::try_from(index - rows_before).ok()?)?;
                    return Some(Row { pieces: items.iter().filter_map(remainder).collect() });
                };
                // The last row of the document is row `end - 1`.
                let full = document.length / self.seq_len;
                let start = (full - (end - index)) * self.seq_len;
                let ends = start + self.seq_len == document.length;
                let piece = Piece { document: document.id, start, len: self.seq_len, ends };
                Some(Row { pieces: vec![piece] })
            }
        }
    }
}

/// Builds the row of the tokens from `from` on.
fn concat_row(documents: &[Document], ends: &[u64], from: u64, seq_len: u64) -> Row {
    let mut pieces = Vec::new();
    let (mut at, to) = (from, from.saturating_add(seq_len));
    let first = ends.partition_point(|&end| end <= from);
    for (document, &end) in documents.iter().zip(ends).skip(first) {
        if at >= to {
            break;
        }
        let len = end.min(to) - at;
        if len > 0 {
            let start = document.length - (end - at);
            pieces.push(Piece { document: document.id, start, len, ends: at + len == end });
        }
        at += len;
    }
    Row { pieces }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn documents(lengths: &[u64]) -> Vec<Document> {
        (0..).zip(lengths).map(|(id, &length)| Document { id, length }).collect()
    }

    fn rows(window: &Window) -> Vec<Row> {
        (0..window.rows()).map(|i| window.row(i).unwrap()).collect()
    }

    fn piece(document: u64, start: u64, len: u64, ends: bool) -> Piece {
        Piece { document, start, len, ends }
    }

    #[test]
    fn a_known_concatenation() {
        let window = Window::new(Packing::Concat, 4, documents(&[3, 0, 6, 2]), 0, false);
        let expected = [vec![piece(0, 0, 3, true), piece(2, 0, 1, false)], vec![piece(2, 1, 4, false)]];
        assert_eq!(rows(&window).into_iter().map(|row| row.pieces).collect::<Vec<_>>(), expected);
        assert_eq!(window.carry, Carry { documents: 2, tokens: 5 });
        let rest = Window::new(Packing::Concat, 4, documents(&[3, 0, 6, 2]).split_off(2), 5, true);
        assert_eq!(rows(&rest), [Row { pieces: vec![piece(2, 5, 1, true), piece(3, 0, 2, true)] }]);
        assert_eq!(rest.carry, Carry { documents: 2, tokens: 0 });
    }

    #[test]
    fn documents_larger_than_memory_are_packed() {
        for packing in [Packing::Concat, Packing::BestFit] {
            let window = Window::new(packing, 4, documents(&[1 << 50]), 0, true);
            assert_eq!(window.rows(), 1 << 48);
            let last = window.row((1 << 48) - 1).unwrap();
            assert_eq!(last.pieces, [piece(0, (1 << 50) - 4, 4, true)]);
            assert_eq!(window.row(7).unwrap().pieces, [piece(0, 28, 4, false)]);
            assert_eq!(window.row(1 << 48), None);
        }
    }

    fn any_packing() -> impl Strategy<Value = Packing> {
        prop_oneof![Just(Packing::Concat), Just(Packing::BestFit)]
    }

    proptest! {
        #[test]
        fn every_token_is_in_exactly_one_row(
            lengths in prop::collection::vec(0u64..50, 0..60), seq_len in 1u64..40, packing in any_packing(),
        ) {
            let window = Window::new(packing, seq_len, documents(&lengths), 0, true);
            let mut pieces: Vec<Piece> = rows(&window).into_iter().flat_map(|row| {
                assert!(row.tokens() <= seq_len && row.tokens() > 0);
                row.pieces
            }).collect();
            pieces.sort_by_key(|p| (p.document, p.start));
            let mut next = lengths.iter().map(|_| 0).collect::<Vec<u64>>();
            for piece in pieces {
                let at = &mut next[piece.document as usize];
                prop_assert_eq!(piece.start, *at);
                *at += piece.len;
                prop_assert_eq!(piece.ends, *at == lengths[piece.document as usize]);
            }
            prop_assert_eq!(next, lengths);
        }

        #[test]
        fn consecutive_windows_pack_like_one(
            lengths in prop::collection::vec(0u64..50, 1..60), seq_len in 1u64..40, step in 1usize..9,
        ) {
            let all = documents(&lengths);
            let (mut at, mut skipped, mut found) = (0, 0, Vec::new());
            let mut size = step;
            loop {
                let end = (at + size).min(all.len());
                let window = Window::new(Packing::Concat, seq_len, all[at..end].to_vec(), skipped, end == all.len());
                found.extend(rows(&window));
                if end == all.len() {
                    break;
                }
                let carry = window.carry;
                size = if window.rows() == 0 { size + step } else { step };
                (at, skipped) = (at + carry.documents, carry.tokens);
            }
            prop_assert_eq!(found, rows(&Window::new(Packing::Concat, seq_len, all.clone(), 0, true)));
        }
    }
}
