//! Levels and lengths inside a page, and their validation before rows in it are skipped.
//!
//! The `parquet` crate checks these when it reads rows but not when it skips them. Skipping rows in a page with fewer
//! repetition levels than its header claims never returns. Skipping a value that is longer than the page makes the
//! crate compute a negative size and allocate that much.
//!
//! Format: <https://parquet.apache.org/docs/file-format/data-pages/encodings/>

/// Number of levels in a bit-packed group.
const GROUP: usize = 8;

/// Takes levels, which are preceded by their 32-bit size, from the start of a decompressed data page.
pub(in crate::format::parquet) fn take<'a>(page: &mut &'a [u8]) -> Option<&'a [u8]> {
    let (size, rest) = page.split_first_chunk::<4>()?;
    let (taken, rest) = rest.split_at_checked(usize::try_from(u32::from_le_bytes(*size)).ok()?)?;
    *page = rest;
    Some(taken)
}

/// Calls `each` with the first `left` of the levels in `encoded`, which are at most `max`: a level and how often it repeats,
/// at least once. Returns `None` if there are fewer levels or `each` returns `None`.
pub(in crate::format::parquet) fn runs(
    mut encoded: &[u8],
    mut left: u64,
    max: u8,
    mut each: impl FnMut(u8, usize) -> Option<()>,
) -> Option<()> {
    let bits = (u8::BITS - max.leading_zeros()).max(1) as usize;
    while left > 0 {
        let header = varint(&mut encoded)?;
        let repeated = header >> 1;
        if repeated == 0 {
            return None;
        }
        if header & 1 == 0 {
            let (&level, rest) = encoded.split_first()?;
            encoded = rest;
            let count = repeated.min(left);
            each(level, count as usize)?;
            left -= count;
        } else {
            let (packed, rest) =
                encoded.split_at_checked(usize::try_from(repeated).ok()?.checked_mul(bits)?)?;
            encoded = rest;
            for group in packed.chunks_exact(bits) {
                // Eight levels, the first one in the lowest bits of the first byte.
                let levels = group.iter().rev().fold(0u64, |levels, &byte| levels << 8 | u64::from(byte));
                let count = left.min(GROUP as u64);
                for at in 0..count {
                    each((levels >> (at * bits as u64) & ((1 << bits) - 1)) as u8, 1)?;
                }
                left -= count;
            }
        }
    }
    Some(())
}

/// Counts the rows that start among the first `levels` repetition levels of the decompressed data page `page`, which are at
/// most `max`. Returns `None` if the page has fewer levels.
pub(super) fn rows(mut page: &[u8], levels: u64, max: u8) -> Option<u64> {
    let mut rows = 0;
    runs(take(&mut page)?, levels, max, |level, count| {
        rows += if level == 0 { count as u64 } else { 0 };
        Some(())
    })?;
    Some(rows)
}

/// Returns whether the values of the decompressed data page `page` are byte strings that fill it exactly, each preceded
/// by its 32-bit length. The page has no repetition levels; `has_definition` is set if it has definition levels.
pub(super) fn are_whole_strings(page: &[u8], has_definition: bool) -> bool {
    let mut rest = page;
    if has_definition && take(&mut rest).is_none() {
        return false;
    }
    while !rest.is_empty() {
        // Lengths of strings and sizes of levels are stored alike.
        if take(&mut rest).is_none() {
            return false;
        }
    }
    true
}

fn varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for shift in (0..35).step_by(7) {
        let (&byte, rest) = bytes.split_first()?;
        *bytes = rest;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_counted_in_runs_and_bit_packed_groups() {
        // One run of 300 zeros, then 8 packed levels, 3 of which are zero.
        let runs = [0xd8, 0x04, 0, 3, 0b1101_0110];
        let page = [&[runs.len() as u8, 0, 0, 0][..], &runs, &[9, 9]].concat();
        let rows_of_lists = |page: &[u8], levels| rows(page, levels, 1);
        assert_eq!(rows_of_lists(&page, 300), Some(300));
        assert_eq!(rows_of_lists(&page, 308), Some(303));
        assert_eq!(rows_of_lists(&page, 302), Some(301));
        assert_eq!(rows_of_lists(&page, 309), None, "too few levels");
        assert_eq!(rows_of_lists(&page[..7], 10), None, "cut short");
        assert_eq!(rows_of_lists(&[2, 0, 0, 0, 0, 0], 1), None, "an empty run");
        assert_eq!(rows_of_lists(&[255, 255, 255, 255], 1), None);
    }

    #[test]
    fn rows_of_nested_lists_start_at_level_0() {
        // A run of 5 levels of 2, then 8 packed levels of two bits: 0, 2, 1, 0, 2, 2, 0, 1.
        let runs = [5 << 1, 2, 3, 0b0001_1000, 0b0100_1010];
        let page = [&[runs.len() as u8, 0, 0, 0][..], &runs].concat();
        assert_eq!(rows(&page, 5, 2), Some(0));
        assert_eq!(rows(&page, 13, 2), Some(3));
        assert_eq!(rows(&page, 9, 2), Some(2));
        assert_eq!(rows(&page, 14, 2), None);
    }

    #[test]
    fn strings_must_end_where_the_page_ends() {
        let page = [&[2, 0, 0, 0, 8, 1][..], &[1, 0, 0, 0, b'a'], &[0, 0, 0, 0]].concat();
        assert!(are_whole_strings(&page, true) && are_whole_strings(&page[6..], false));
        assert!(are_whole_strings(&[], false) && !are_whole_strings(&[], true));
        for end in 1..9 {
            assert!(end == 5 || !are_whole_strings(&page[6..6 + end], false), "{end}");
        }
        assert!(!are_whole_strings(&[255, 255, 255, 255, 1], false));
        assert!(!are_whole_strings(&[7, 0, 0, 0, 1], true));
    }
}
