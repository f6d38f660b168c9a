//! Packs the documents of an epoch into rows, window by window.

use std::sync::Arc;

use dsconvert_dataset::error::{Error, Result};
use dsconvert_dataset::packing::{Document, Packing, Row, Window};

use super::super::lengths::Lengths;
use super::super::options::ColumnBudget;
use super::super::options::Shuffle;
use super::super::order::{Epoch, Order};
use super::super::permute::Purpose;
use super::super::state::PackCursor;
use super::PackOptions;
use crate::recent::Recent;

/// Number of windows that are kept: the one whose rows are returned and the one whose rows are prepared.
pub(super) const KEPT_WINDOWS: usize = 2;

/// Fewest and most lengths that are looked up at once.
const MIN_LOOKUP: u64 = 16;
const MAX_LOOKUP: u64 = 1024;

/// The last windows, because each step continues from the cursor after the previous one. Besides the plan, a window
/// depends on its epoch and on the document and the token that it starts with.
pub(super) type PackedWindows = Recent<(u64, u64, u64), Arc<OpenWindow>>;

/// Produces the rows of an epoch in order, from a cursor on.
#[derive(Debug)]
pub(super) struct RowSource<'a, L> {
    lengths: &'a L,
    options: &'a PackOptions,
    windows: &'a PackedWindows,
    epoch: Epoch,
    order: Order,
    cursor: PackCursor,
    /// The window at the cursor.
    open: Option<Arc<OpenWindow>>,
}

#[derive(Debug)]
pub(super) struct OpenWindow {
    window: Window,
    /// Order of the rows in the window.
    order: Order,
    /// Where the next window starts.
    next: PackCursor,
}

impl<'a, L: Lengths> RowSource<'a, L> {
    pub(super) fn new(
        lengths: &'a L,
        options: &'a PackOptions,
        windows: &'a PackedWindows,
        epoch: Epoch,
        cursor: PackCursor,
    ) -> Self {
        let order = Order::of_records(options.shuffle, epoch, lengths.records(), 0);
        Self { lengths, options, windows, epoch, order, cursor, open: None }
    }

    /// Returns the position of the next row.
    pub(super) fn cursor(&self) -> PackCursor {
        self.cursor
    }

    /// Returns the next row, or `None` at the end of the epoch.
    pub(super) fn next(&mut self) -> Result<Option<Row>> {
        if !self.open()? {
            return Ok(None);
        }
        let row = self.open.as_ref().and_then(|open| open.window.row(open.order.at(self.cursor.row)));
        self.cursor.row += 1;
        self.leave_when_done();
        Ok(row)
    }

    /// Packs the window at the cursor unless it is packed. Returns `false` at the end of the epoch.
    pub(super) fn open(&mut self) -> Result<bool> {
        while self.open.is_none() && self.cursor.document < self.lengths.records() {
            let PackCursor { document, token, .. } = self.cursor;
            let start = (self.epoch.epoch, document, token);
            let window = match self.windows.get(&start) {
                Some(window) => window,
                None => {
                    let window = Arc::new(self.pack()?);
                    self.windows.keep(start, Arc::clone(&window));
                    window
                }
            };
            self.open = Some(window);
            self.leave_when_done();
        }
        Ok(self.open.is_some())
    }

    /// Skips the rest of the open window and returns the number of rows skipped.
    pub(super) fn skip_window(&mut self) -> u64 {
        let rows = self.open.as_ref().map_or(0, |open| open.window.rows());
        let left = rows.saturating_sub(self.cursor.row);
        self.cursor.row = rows;
        self.leave_when_done();
        left
    }

    /// Moves the cursor to the next window when all rows of this one are done.
    fn leave_when_done(&mut self) {
        if let Some(open) = &self.open
            && self.cursor.row >= open.window.rows()
        {
            self.cursor = open.next;
            self.open = None;
        }
    }

    fn pack(&self) -> Result<OpenWindow> {
        let (lengths, options) = (self.lengths, self.options);
        let PackCursor { document: start, token: skipped, .. } = self.cursor;
        let records = lengths.records();
        // Documents that have tokens, and, as `concat` may leave some for the next window, their positions in the order.
        let (mut documents, mut positions) = (Vec::new(), Vec::new());
        // With a second budget, what each of the documents has of its column.
        let mut counts = Vec::new();
        let (mut tokens, mut next) = (0u64, start);
        let (mut ids, mut found) = (Vec::new(), Vec::new());
        while next < records && !options.completes_window(documents.len() as u64, tokens) {
            // As many again, because the end of the window depends on the lengths.
            let count = (next - start).clamp(MIN_LOOKUP, MAX_LOOKUP).min(records - next);
            ids.clear();
            ids.extend((next..next + count).map(|position| self.order.at(position)));
            found.clear();
            let looked_up = lengths.lengths_of(&ids, &mut found);
            for (&id, &length) in ids.iter().zip(&found) {
                if options.completes_window(documents.len() as u64, tokens) {
                    break;
                }
                if length > 0 {
                    let used = if documents.is_empty() { skipped } else { 0 };
                    tokens = tokens.saturating_add(length.saturating_sub(used));
                    documents.push(Document { id, length });
                    if let Some(budget) = &options.budget {
                        counts.push(self.count_within(budget, id, length)?);
                    }
                    if options.packing == Packing::Concat {
                        positions.push(next);
                    }
                }
                next += 1;
            }
            // An error about a record after the window is that of the next window.
            if !options.completes_window(documents.len() as u64, tokens) {
                looked_up?;
                if found.len() < ids.len() {
                    let what = format!("the source returns {} lengths instead of {count}", found.len());
                    return Err(Error::internal(what));
                }
            }
        }
        let window = match &options.budget {
            Some(budget) => Window::of_whole_documents(options.seq_len, documents, budget.max, &counts),
            None => Window::new(options.packing, options.seq_len, documents, skipped, next == records),
        };
        let order = match options.shuffle {
            Shuffle::None => Order::natural(),
            _ => Order::random(self.epoch, window.rows(), Purpose::Rows, start),
        };
        let carry = window.carry;
        let document = positions.get(carry.documents).copied().unwrap_or(next);
        Ok(OpenWindow { window, order, next: PackCursor { document, token: carry.tokens, row: 0 } })
    }

    /// Returns what a document of `length` has of the column of a budget, after checking that it exceeds no budget.
    fn count_within(&self, budget: &ColumnBudget, id: u64, length: u64) -> Result<u64> {
        let count = budget.of(self.lengths, id)?;
        if length > self.options.seq_len || count > budget.max {
            // The plan has checked it.
            return Err(Error::corrupt("the record index changed while it was used").at_row(id));
        }
        Ok(count)
    }
}
