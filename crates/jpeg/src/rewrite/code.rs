//! Huffman codes for encoding: optimal codes (T.81, annex K.2) and the codes of a DHT segment.

/// Maximum length of a code.
const MAX_BITS: usize = 16;

/// A Huffman code for bytes.
#[derive(Debug)]
pub(crate) struct HuffmanCode {
    /// Number of codes of each length from 1 to 16, as in a DHT segment.
    pub(crate) counts: [u8; MAX_BITS],
    /// By length, then by value, as in a DHT segment.
    pub(crate) symbols: Vec<u8>,
    /// Code and length of each symbol; a length of 0 for symbols without a code.
    codes: [(u16, u32); 256],
}

impl HuffmanCode {
    /// Creates a code with the shortest total length for symbols that occur `occurrences` times, with codes of at most
    /// 16 bits, none of which consists of ones only.
    pub(crate) fn optimal(occurrences: &[u32; 256]) -> Self {
        let lengths = limited(code_lengths(occurrences));
        let mut by_length: Vec<u8> =
            (0..=255).filter(|&symbol| occurrences[usize::from(symbol)] > 0).collect();
        // Frequent symbols get the shorter codes. Ties are decided by value, so that the result is always the same.
        by_length.sort_by_key(|&symbol| (std::cmp::Reverse(occurrences[usize::from(symbol)]), symbol));
        let mut rest = &by_length[..];
        let mut symbols = Vec::new();
        for &count in &lengths {
            let (these, after) = rest.split_at_checked(count.into()).unwrap_or((rest, &[]));
            let start = symbols.len();
            symbols.extend_from_slice(these);
            symbols[start..].sort_unstable();
            rest = after;
        }
        Self::of_table(lengths, symbols)
    }

    /// Creates the code of a DHT segment: the number of codes of each length, and their symbols (T.81, annex C).
    pub(crate) fn of_table(counts: [u8; MAX_BITS], symbols: Vec<u8>) -> Self {
        let (mut codes, mut next) = ([(0, 0); 256], 0u32);
        let mut rest = symbols.iter();
        for (length, &count) in (1..).zip(&counts) {
            for &symbol in rest.by_ref().take(count.into()) {
                codes[usize::from(symbol)] = (next as u16, length);
                next += 1;
            }
            next <<= 1;
        }
        Self { counts, symbols, codes }
    }

    /// Returns the code of a symbol and its length.
    pub(crate) fn of(&self, symbol: u8) -> (u16, u32) {
        self.codes[usize::from(symbol)]
    }
}

/// Returns the number of codes of each length in an optimal code. This includes a code without a symbol: the longest
/// one, which would consist of ones only.
fn code_lengths(occurrences: &[u32; 256]) -> [u32; 258] {
    /// A tree: how often its symbols occur, and its symbols. `None` stands for the code of ones.
    struct Tree {
        weight: u64,
        leaves: Vec<Option<u8>>,
    }
    let used = (0..=255u8).filter(|&symbol| occurrences[usize::from(symbol)] > 0);
    let weight = |symbol: u8| u64::from(occurrences[usize::from(symbol)]);
    let mut trees: Vec<Tree> =
        used.map(|symbol| Tree { weight: weight(symbol), leaves: vec![Some(symbol)] }).collect();
    // It never occurs, so it gets one of the longest codes.
    trees.push(Tree { weight: 0, leaves: vec![None] });
    let mut depths = [0usize; 257];
    while trees.len() > 1 {
        // The two rarest trees are at the end.
        trees.sort_by_key(|tree| std::cmp::Reverse(tree.weight));
        let (Some(mut one), Some(two)) = (trees.pop(), trees.pop()) else { break };
        one.weight += two.weight;
        one.leaves.extend(two.leaves);
        for leaf in &one.leaves {
            depths[leaf.map_or(256, usize::from)] += 1;
        }
        trees.push(one);
    }
    let mut lengths = [0; 258];
    for depth in depths.into_iter().filter(|&depth| depth > 0) {
        lengths[depth] += 1;
    }
    lengths
}

/// Shortens codes of more than 16 bits (T.81, figure K.3), and removes the code of ones.
fn limited(mut lengths: [u32; 258]) -> [u8; MAX_BITS] {
    for long in (MAX_BITS + 1..lengths.len()).rev() {
        while lengths[long] > 0 {
            // A pair of the longest codes is replaced with their common prefix. The other code of the pair becomes the
            // sibling of a code that is shorter by at least two bits.
            let Some(short) = (1..long - 1).rev().find(|&short| lengths[short] > 0) else { break };
            lengths[long] -= 2;
            lengths[long - 1] += 1;
            lengths[short + 1] += 2;
            lengths[short] -= 1;
        }
    }
    if let Some(longest) = (1..=MAX_BITS).rev().find(|&length| lengths[length] > 0) {
        lengths[longest] -= 1;
    }
    std::array::from_fn(|n| lengths[n + 1] as u8)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Sum of 2^(16 − length): a prefix code without the code of ones has less than 2^16.
    fn used_space(code: &HuffmanCode) -> u32 {
        (0..=255)
            .map(|symbol| code.of(symbol).1)
            .filter(|&length| length > 0)
            .map(|length| 1 << (16 - length))
            .sum()
    }

    proptest! {
        #[test]
        fn codes_are_prefix_free_and_frequent_symbols_are_short(
            occurrences in prop::collection::vec(prop_oneof![2 => Just(0u32), 1 => 1u32..5, 1 => 1u32..1_000_000], 256),
        ) {
            let occurrences: [u32; 256] = occurrences.try_into().unwrap();
            let code = HuffmanCode::optimal(&occurrences);
            prop_assert!(used_space(&code) < 1 << 16);
            let used = occurrences.iter().filter(|&&n| n > 0).count();
            prop_assert_eq!(code.symbols.len(), used);
            prop_assert_eq!(code.counts.iter().map(|&n| usize::from(n)).sum::<usize>(), used);
            for a in 0..=255u8 {
                for b in 0..=255u8 {
                    let (one, two) = (occurrences[usize::from(a)], occurrences[usize::from(b)]);
                    let (of_one, of_two) = (code.of(a), code.of(b));
                    prop_assert!(!(one > two && two > 0) || of_one.1 <= of_two.1);
                    if a != b && of_one.1 > 0 && of_one.1 <= of_two.1 {
                        prop_assert!(of_two.0 >> (of_two.1 - of_one.1) != of_one.0, "{a} is a prefix of {b}");
                    }
                }
            }
        }
    }

    #[test]
    fn long_codes_are_shortened() {
        // Fibonacci numbers give the longest codes.
        let (mut occurrences, mut last) = ([0u32; 256], [1u32, 1]);
        for count in &mut occurrences[..40] {
            (*count, last) = (last[0], [last[1], last[0] + last[1]]);
        }
        let code = HuffmanCode::optimal(&occurrences);
        assert_eq!(code.symbols.len(), 40);
        assert_eq!(code.of(39), (0, 1));
        assert!((0..40).all(|symbol| (1..=16).contains(&code.of(symbol).1)));
        assert!(used_space(&code) < 1 << 16);
    }

    #[test]
    fn one_symbol_gets_a_code_of_one_bit() {
        let mut occurrences = [0; 256];
        assert!(HuffmanCode::optimal(&occurrences).symbols.is_empty());
        occurrences[7] = 5;
        assert_eq!(HuffmanCode::optimal(&occurrences).of(7), (0, 1));
    }
}
