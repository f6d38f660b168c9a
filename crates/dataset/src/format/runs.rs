//! Flags per token in msgpack and protobuf: run lengths.

/// Bytes of the length of a run.
const RUN_BYTES: usize = 4;

/// Returns the stored form of `flags` in msgpack and protobuf: the lengths of alternating runs as u32, LE. The first run is
/// one of zeros, and the only one that may be empty.
pub(super) fn to_runs(flags: &[u8]) -> Vec<u8> {
    let (mut runs, mut rest, mut value) = (Vec::new(), flags, 0);
    while !rest.is_empty() {
        let run = rest.iter().position(|&flag| flag != value).unwrap_or(rest.len());
        // A record has fewer than 2³¹ tokens.
        runs.extend((run as u32).to_le_bytes());
        rest = rest.get(run..).unwrap_or_default();
        value ^= 1;
    }
    runs
}

/// Returns the flags of a record with `tokens` tokens, given their stored form. Nothing is allocated unless the runs add up
/// to that number. The error is a clause for a message.
pub(super) fn from_runs(runs: &[u8], tokens: usize) -> Result<Vec<u8>, String> {
    let (runs, rest) = runs.as_chunks::<RUN_BYTES>();
    let lengths = || runs.iter().map(|run| u32::from_le_bytes(*run));
    if !rest.is_empty() {
        return Err("the list of runs ends in the middle of a length".to_owned());
    }
    if lengths().skip(1).any(|run| run == 0) || (runs.len() == 1 && lengths().eq([0])) {
        return Err("a run is empty".to_owned());
    }
    let sum: u64 = lengths().map(u64::from).sum();
    if sum != tokens as u64 {
        return Err(format!("the record has {tokens} ids, but its runs have {sum} values"));
    }
    let mut flags = Vec::with_capacity(tokens);
    for (run, value) in lengths().zip([0, 1].into_iter().cycle()) {
        flags.resize(flags.len() + run as usize, value);
    }
    Ok(flags)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Existing datasets use this encoding, so this test never changes.
    #[test]
    fn the_encoding_of_runs_never_changes() {
        let runs = |lengths: &[u32]| lengths.iter().flat_map(|n| n.to_le_bytes()).collect::<Vec<u8>>();
        for (flags, lengths) in [
            (&[][..], &[][..]),
            (&[0], &[1]),
            (&[1], &[0, 1]),
            (&[0, 0, 1, 1, 1, 0], &[2, 3, 1]),
            (&[1, 0, 1], &[0, 1, 1, 1]),
            (&[1; 300], &[0, 300]),
        ] {
            assert_eq!(to_runs(flags), runs(lengths), "{flags:?}");
            assert_eq!(from_runs(&runs(lengths), flags.len()).unwrap(), flags);
        }
        assert_eq!(to_runs(&[0, 1, 1]), [1, 0, 0, 0, 2, 0, 0, 0]);
        for (lengths, tokens) in
            [(&[0][..], 0), (&[1, 0], 1), (&[0, 0, 1], 1), (&[1, 0, 1], 2), (&[2], 3), (&[4], 3), (&[], 1)]
        {
            assert!(from_runs(&runs(lengths), tokens).is_err(), "{lengths:?} for {tokens}");
        }
        assert!(from_runs(&runs(&[u32::MAX; 9]), usize::MAX).is_err(), "no such allocation");
        assert!(from_runs(&[1, 0, 0], 1).is_err());
    }

    proptest! {
        #[test]
        fn any_flags_round_trip_through_runs(flags in prop::collection::vec(0u8..2, 0..200)) {
            prop_assert_eq!(&from_runs(&to_runs(&flags), flags.len()).unwrap(), &flags);
            prop_assert!(from_runs(&to_runs(&flags), flags.len() + 1).is_err());
        }

        #[test]
        fn any_bytes_are_the_only_runs_of_some_flags_or_an_error(
            runs in prop::collection::vec(prop::sample::select(vec![0u8, 1, 2, 255]), 0..24), tokens in 0usize..600,
        ) {
            if let Ok(flags) = from_runs(&runs, tokens) {
                prop_assert_eq!(flags.len(), tokens);
                prop_assert_eq!(to_runs(&flags), runs);
            }
        }
    }
}
