//! Suggestions for misspelled names.

/// Returns the name in `there` that `wanted` was probably meant to be. `None` if no name is similar.
pub fn nearest<'a>(wanted: &str, there: &[&'a str]) -> Option<&'a str> {
    let near = there.iter().map(|name| (distance(wanted, name), *name)).min()?;
    (near.0 <= 1 + wanted.chars().count() / 4).then_some(near.1)
}

/// Asks whether the name in `there` was meant that [`nearest`] finds.
pub fn did_you_mean(wanted: &str, there: &[&str]) -> Option<String> {
    nearest(wanted, there).map(|name| format!("did you mean {name:?}?"))
}

/// Returns the Levenshtein distance between `a` and `b`, ignoring case.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.to_lowercase().chars().collect();
    // Distances between the characters of `a` so far and each prefix of `b`.
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, c) in a.to_lowercase().chars().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], i + 1);
        for (j, d) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(c != *d);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances_are_those_of_levenshtein() {
        for (a, b, expected) in
            [("", "", 0), ("", "ab", 2), ("kitten", "sitting", 3), ("Text", "text", 0), ("ab", "ba", 2)]
        {
            assert_eq!((distance(a, b), distance(b, a)), (expected, expected), "{a} {b}");
        }
    }

    #[test]
    fn only_a_similar_name_is_suggested() {
        let there = ["length", "geometric", "windows"];
        assert_eq!(nearest("lenght", &there), Some("length"));
        assert_eq!(nearest("Windows", &there), Some("windows"));
        assert_eq!(nearest("random", &there), None);
        assert_eq!(nearest("length", &[]), None);
    }
}
