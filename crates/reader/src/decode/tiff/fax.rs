//! Fax compression of black-and-white rows: CCITT T.4 (group 3, in one and two dimensions) and T.6 (group 4), and the
//! rows of TIFF compression 2, which have neither markers nor references.
//!
//! The decoder is strict: a code that does not exist, or a row of another width, is damage.

use dsconvert_dataset::sample::Reject;
use fax::BitReader as _;
use fax::maps::{Mode, black, mode, white};

use super::super::{corrupt, truncated, unsupported};
use super::layout::Compression;

/// Bits of the longest code of a run length.
const MAX_CODE_BITS: usize = 13;

/// Decodes `rows` rows of `width` pixels from `data` into `out`, where they start at whole bytes. Black pixels are set
/// bits; `out` must be zeros.
pub(super) fn decode(
    data: &[u8],
    (width, rows): (u32, u32),
    compression: Compression,
    out: &mut [u8],
) -> Result<(), Reject> {
    let mut bits = BitReader { data, at: 0 };
    // Positions at which the color changes, in this row and in the one before. The first change is to black.
    let (mut row, mut above) = (Vec::new(), Vec::new());
    let row_bytes = (width as usize).div_ceil(8);
    for out in out.chunks_exact_mut(row_bytes.max(1)).take(rows as usize) {
        std::mem::swap(&mut row, &mut above);
        row.clear();
        match compression {
            Compression::FaxT6 => two_dimensional(&mut bits, &above, width, &mut row)?,
            Compression::FaxT4 { is_two_dimensional } => {
                let has_mark = bits.skip_end_of_line();
                // Without a mark there is no bit that says how the row is coded.
                if is_two_dimensional && has_mark && !bits.bit()? {
                    two_dimensional(&mut bits, &above, width, &mut row)?;
                } else {
                    one_dimensional(&mut bits, width, &mut row)?;
                }
            }
            _ => {
                one_dimensional(&mut bits, width, &mut row)?;
                bits.align(if compression == (Compression::FaxRows { is_word_aligned: true }) {
                    16
                } else {
                    8
                });
            }
        }
        fill(&row, width, out);
    }
    Ok(())
}

/// Sets the bits of the black pixels of a row.
fn fill(changes: &[u32], width: u32, out: &mut [u8]) {
    for run in changes.chunks(2) {
        let (start, end) = (run[0] as usize, run.get(1).copied().unwrap_or(width) as usize);
        let (first, last) = (start / 8, end / 8);
        let (head, tail) = (0xff_u8 >> (start % 8), !(0xff_u16 >> (end % 8)) as u8);
        if first == last {
            out[first] |= head & tail;
            continue;
        }
        out[first] |= head;
        out[first + 1..last].fill(0xff);
        if tail != 0 {
            out[last] |= tail;
        }
    }
}

/// Adds a change of color at `at`. Two changes at one position are none.
fn push(changes: &mut Vec<u32>, at: u32, width: u32) {
    if changes.last() == Some(&at) {
        changes.pop();
    } else if at < width {
        changes.push(at);
    }
}

/// Reads a row of run lengths, white first.
fn one_dimensional(bits: &mut BitReader<'_>, width: u32, row: &mut Vec<u32>) -> Result<(), Reject> {
    let (mut at, mut is_black) = (0, false);
    while at < width {
        at = advance(at, bits.run(is_black)?, width)?;
        push(row, at, width);
        is_black = !is_black;
    }
    Ok(())
}

/// Reads a row that refers to the changes of color in the row `above`.
fn two_dimensional(
    bits: &mut BitReader<'_>,
    above: &[u32],
    width: u32,
    row: &mut Vec<u32>,
) -> Result<(), Reject> {
    // The position of the last change; at the start of a row, the imaginary pixel on its left.
    let mut at = None;
    let mut is_black = false;
    let mut index = 0usize;
    while at.is_none_or(|at| at < width) {
        // The first change above that is to the right, and to the opposite color.
        let is_right = |change: &u32| at.is_none_or(|at| *change > at);
        while index > 0 && is_right(&above[index - 1]) {
            index -= 1;
        }
        while above.get(index).is_some_and(|change| !is_right(change)) {
            index += 1;
        }
        let opposite = index + usize::from((index % 2 == 1) != is_black);
        let above = |index: usize| above.get(index).copied().unwrap_or(width);
        let start = at.unwrap_or(0);
        let code = bits.at;
        match mode::decode(bits) {
            Some(Mode::Pass) => at = Some(above(opposite + 1)),
            Some(Mode::Horizontal) => {
                let first = advance(start, bits.run(is_black)?, width)?;
                let second = advance(first, bits.run(!is_black)?, width)?;
                push(row, first, width);
                push(row, second, width);
                at = Some(second);
            }
            Some(Mode::Vertical(by)) => {
                let change = i64::from(above(opposite)) + i64::from(by);
                let change = u32::try_from(change).ok().filter(|change| (start..=width).contains(change));
                let change = change.ok_or_else(|| corrupt("a row of the fax changes color outside it"))?;
                push(row, change, width);
                is_black = !is_black;
                at = Some(change);
            }
            Some(Mode::Extension) => {
                return Err(unsupported("a fax with uncompressed pixels is not supported"));
            }
            Some(Mode::EOF) | None => return Err(bits.unknown_code(code)),
        }
    }
    Ok(())
}

fn advance(at: u32, run: u32, width: u32) -> Result<u32, Reject> {
    let end = at.saturating_add(run);
    if end <= width { Ok(end) } else { Err(corrupt("a row of the fax is wider than the image")) }
}

/// Reads bits, the highest of a byte first.
struct BitReader<'a> {
    data: &'a [u8],
    /// Position in bits.
    at: usize,
}

impl fax::BitReader for BitReader<'_> {
    type Error = Reject;

    /// Returns the next bits. The data continues with zeros.
    fn peek(&self, bits: u8) -> Option<u16> {
        let byte = |n: usize| u32::from(self.data.get(self.at / 8 + n).copied().unwrap_or(0));
        let three = byte(0) << 16 | byte(1) << 8 | byte(2);
        Some((three << (8 + self.at % 8) >> (32 - u32::from(bits))) as u16)
    }

    fn consume(&mut self, bits: u8) -> Result<(), Reject> {
        self.at += usize::from(bits);
        if self.at <= self.data.len() * 8 { Ok(()) } else { Err(truncated("a row of the fax")) }
    }

    fn bits_to_byte_boundary(&self) -> u8 {
        (self.at.next_multiple_of(8) - self.at) as u8
    }
}

impl BitReader<'_> {
    fn bit(&mut self) -> Result<bool, Reject> {
        let is_set = self.peek(1) == Some(1);
        self.consume(1).map(|()| is_set)
    }

    fn align(&mut self, bits: usize) {
        self.at = self.at.next_multiple_of(bits);
    }

    /// Skips an end-of-line mark: at least 11 zeros, and a one. Returns whether there is one.
    fn skip_end_of_line(&mut self) -> bool {
        let end = self.data.len() * 8;
        let mut at = self.at;
        // Whole bytes of zeros, then single bits.
        while at.is_multiple_of(8) && self.data.get(at / 8) == Some(&0) {
            at += 8;
        }
        while at < end && (Self { data: self.data, at }).peek(1) == Some(0) {
            at += 1;
            while at.is_multiple_of(8) && self.data.get(at / 8) == Some(&0) {
                at += 8;
            }
        }
        let is_mark = at < end && at - self.at >= 11;
        if is_mark {
            self.at = at + 1;
        }
        is_mark
    }

    /// Reads a run length: any number of codes for multiples of 64, and one for the rest.
    fn run(&mut self, is_black: bool) -> Result<u32, Reject> {
        let mut sum = 0u32;
        loop {
            let start = self.at;
            let run = if is_black { black::decode(self) } else { white::decode(self) };
            let run = run.ok_or_else(|| self.unknown_code(start))?;
            sum = sum.saturating_add(run.into());
            if run < 64 {
                return Ok(sum);
            }
        }
    }

    /// Returns the reject for bits from `start` on that are no code: the end of the data, an end-of-line mark, or damage.
    fn unknown_code(&self, start: usize) -> Reject {
        let is_mark = Self { data: self.data, at: start }.peek(12).is_some_and(|bits| bits <= 1);
        if is_mark || self.data.len() * 8 <= start + MAX_CODE_BITS {
            truncated("the rows of the fax")
        } else {
            corrupt("the fax contains an unknown code")
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Packs a text of zeros and ones; other characters are ignored.
    fn packed(text: &str) -> Vec<u8> {
        let bits: Vec<u8> = text.bytes().filter(|b| matches!(b, b'0' | b'1')).map(|b| b - b'0').collect();
        bits.chunks(8)
            .map(|byte| byte.iter().enumerate().fold(0, |sum, (i, bit)| sum | bit << (7 - i)))
            .collect()
    }

    fn decoded(text: &str, size: (u32, u32), compression: Compression) -> Result<Vec<u8>, Reject> {
        let mut out = vec![0; (size.0 as usize).div_ceil(8) * size.1 as usize];
        decode(&packed(text), size, compression, &mut out)?;
        Ok(out)
    }

    const ROWS: Compression = Compression::FaxRows { is_word_aligned: false };
    const T4: Compression = Compression::FaxT4 { is_two_dimensional: false };
    const T4_2D: Compression = Compression::FaxT4 { is_two_dimensional: true };

    #[test]
    fn rows_of_run_lengths_start_at_bytes() {
        // White 4, black 3, white 3; then white 0, black 10.
        let text = "1011 10 1000 000000 00110101 0000100";
        assert_eq!(decoded(text, (10, 2), ROWS).unwrap(), [0b0000_1110, 0, 0xff, 0xc0]);
    }

    #[test]
    fn long_runs_consist_of_several_codes() {
        // White 2560 + 64 + 1.
        let text = "000000011111 11011 000111 11";
        let row = decoded(text, (2627, 1), ROWS).unwrap();
        assert!(row[..328].iter().all(|byte| *byte == 0));
        assert_eq!(row[328], 0b0110_0000);
    }

    #[test]
    fn end_of_line_marks_are_skipped_with_their_filling() {
        let row = "1011 10 1000";
        let text = format!("000000000001 {row} 0000 000000000001 {row} {row}");
        assert_eq!(decoded(&text, (10, 3), T4).unwrap(), [0b0000_1110, 0].repeat(3));
        // A row of its own, one like the row before, and one with a change that moves by one pixel.
        let text = format!("000000000001 1 {row} 000000000001 0 1 1 1 000000000001 0 011 1 1");
        let expected = [0b0000_1110, 0, 0b0000_1110, 0, 0b0000_0110, 0];
        assert_eq!(decoded(&text, (10, 3), T4_2D).unwrap(), expected);
    }

    #[test]
    fn rows_refer_to_the_row_above() {
        // Horizontal: white 4, black 3; the end of the row. Pass. The same row again, starting in black.
        let text = "001 1011 10 1 | 0001 1 | 001 00110101 0010 1 | 1 1 1 1";
        let expected = [0b0000_1110, 0, 0, 0, 0b1111_1100, 0, 0b1111_1100, 0];
        assert_eq!(
            decoded(&text.replace("1 1 1 1", "1 1 1"), (10, 4), Compression::FaxT6).unwrap(),
            expected
        );
    }

    #[test]
    fn damage_is_named() {
        let code = |text: &str, compression| decoded(text, (10, 2), compression).unwrap_err().code.name();
        assert_eq!(code("1011 10", ROWS), "truncated");
        assert_eq!(code("1011 00000000 11111111 11111111 11111111", ROWS), "corrupt");
        assert_eq!(code("10100 0000100 11111111 11111111", ROWS), "corrupt");
        assert_eq!(code("1 000000000001 000000000001 1111 1111 1111", Compression::FaxT6), "truncated");
        assert_eq!(code("0000011 1111 1111 1111 1111 1111 1111", Compression::FaxT6), "corrupt");
        assert_eq!(code("0000001 111", Compression::FaxT6), "unsupported");
    }

    proptest! {
        #[test]
        fn any_bytes_are_safe(
            data in prop::collection::vec(any::<u8>(), 0..60),
            width in 1u32..40,
            which in 0usize..5,
        ) {
            let word = Compression::FaxRows { is_word_aligned: true };
            let compression = [ROWS, word, T4, T4_2D, Compression::FaxT6][which];
            let mut out = vec![0; (width as usize).div_ceil(8) * 9];
            let _ = decode(&data, (width, 9), compression, &mut out);
        }
    }
}
