//! Blocks of 8×8 coefficients and their memory layout.

/// Coefficients of a block. [`index_of`] maps a row and a column to an index.
pub(crate) type DctBlock = [i16; 64];

/// Returns the index of a coefficient in a [`DctBlock`]. Rows 0 and 4, 1 and 5, 2 and 6, 3 and 7 are interleaved,
/// because the transform needs them together.
pub(crate) const fn index_of(row: usize, column: usize) -> usize {
    row % 4 * 16 + column * 2 + row / 4
}

/// [`DctBlock`] index of each coefficient, in zigzag order.
pub(crate) static ZIGZAG_INDEX: [u8; 64] = {
    let mut indexes = [0; 64];
    let mut n = 0;
    while n < 64 {
        indexes[n] = index_of(ZIGZAG[n].0, ZIGZAG[n].1) as u8;
        n += 1;
    }
    indexes
};

/// Row and column of each coefficient, in zigzag order.
const ZIGZAG: [(usize, usize); 64] = {
    let mut order = [(0, 0); 64];
    let (mut n, mut sum) = (0, 0);
    while sum < 15 {
        let mut step = 0;
        while step <= sum {
            // Diagonals alternate between upward and downward.
            let (row, column) = if sum % 2 == 0 { (sum - step, step) } else { (step, sum - step) };
            if row < 8 && column < 8 {
                order[n] = (row, column);
                n += 1;
            }
            step += 1;
        }
        sum += 1;
    }
    order
};

/// A quantization table, in the order of a [`DctBlock`].
#[derive(Debug, Clone)]
pub(crate) struct QuantTable(pub(crate) DctBlock);

impl QuantTable {
    /// Creates a table from values in zigzag order. Values that do not fit in 15 bits wrap, as in libjpeg-turbo.
    pub(crate) fn new(stored: &[u16; 64]) -> Self {
        let mut table = [0; 64];
        for (&index, &stored) in ZIGZAG_INDEX.iter().zip(stored) {
            table[usize::from(index)] = stored.cast_signed();
        }
        Self(table)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_zigzag_order_matches_the_standard() {
        let start =
            [(0, 0), (0, 1), (1, 0), (2, 0), (1, 1), (0, 2), (0, 3), (1, 2), (2, 1), (3, 0), (4, 0), (3, 1)];
        assert_eq!(ZIGZAG[..12], start);
        assert_eq!(ZIGZAG[61..], [(6, 7), (7, 6), (7, 7)]);
    }

    #[test]
    fn indexes_are_distinct() {
        let mut indexes: Vec<usize> = (0..64).map(|n| index_of(n / 8, n % 8)).collect();
        indexes.sort_unstable();
        assert_eq!(indexes, (0..64).collect::<Vec<_>>());
    }
}
