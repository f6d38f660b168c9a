//! Tokens of images: where they are in a rendered chat, and how often each is repeated.
//!
//! A template writes one token for each image. It is an added token, so a run of `n` is exactly `n` ids, and the ids of the chat
//! with one token for each image, each of them repeated, equal the ids of the chat with the runs.

use std::ops::Range;

use crate::sample::{Reject, RejectCode};

/// Maximum number of tokens of a chat with its images.
const MAX_TOKENS: u64 = 1 << 26;

/// Returns the places of `token` in `text` that are outside of `content`, sorted ranges that messages have written.
pub(in crate::pipeline::text) fn places(text: &str, token: &str, content: &[Range<usize>]) -> Vec<usize> {
    let is_content = |at: usize| {
        let next = content.partition_point(|range| range.end <= at);
        content.get(next).is_some_and(|range| range.start < at + token.len())
    };
    text.match_indices(token).map(|(at, _)| at).filter(|&at| !is_content(at)).collect()
}

/// The ids of a chat with the tokens of its images, and the mask of the tokens to train on.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::pipeline::text) struct Expanded {
    pub(in crate::pipeline::text) ids: Vec<u32>,
    pub(in crate::pipeline::text) masks: Vec<u8>,
    /// End of the last image.
    pub(in crate::pipeline::text) images_end: usize,
}

/// Repeats each image token of `ids`, whose byte ranges are `ranges`. Those at `places` stand for images with these `counts` of
/// tokens. Tokens of images are not trained.
///
/// # Errors
///
/// A reject if there are other image tokens, or if there are too many tokens.
pub(in crate::pipeline::text) fn expand(
    ids: &[u32],
    ranges: &[Range<u32>],
    masks: &[u8],
    image_id: u32,
    places: &[usize],
    counts: &[u32],
) -> Result<Expanded, Reject> {
    let total = ids.len() as u64 + counts.iter().map(|&count| u64::from(count)).sum::<u64>();
    if total > MAX_TOKENS {
        let message =
            format!("the chat has {total} tokens with those of its images; the limit is {MAX_TOKENS}");
        return Err(Reject::new(RejectCode::TooLarge, message));
    }
    let capacity = total as usize;
    let mut out =
        Expanded { ids: Vec::with_capacity(capacity), masks: Vec::with_capacity(capacity), images_end: 0 };
    let mut images = places.iter().zip(counts);
    for ((&id, range), &mask) in ids.iter().zip(ranges).zip(masks) {
        if id != image_id {
            out.ids.push(id);
            out.masks.push(mask);
            continue;
        }
        match images.next() {
            Some((&place, &count)) if place == range.start as usize => {
                out.ids.extend(std::iter::repeat_n(id, count as usize));
                out.masks.extend(std::iter::repeat_n(0, count as usize));
                out.images_end = out.ids.len();
            }
            _ => {
                let message = "a message contains the token that stands for images (`special_in_content text` reads it as text)";
                return Err(Reject::new(RejectCode::SpecialToken, message));
            }
        }
    }
    match images.next() {
        None => Ok(out),
        Some(_) => Err(Reject::new(
            RejectCode::ImageCount,
            "the tokenizer does not encode the token of an image as one id",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_of_messages_stand_for_no_image() {
        let text = "<i>a<i><i>";
        assert_eq!(places(text, "<i>", &[]), [0, 4, 7]);
        assert_eq!(places(text, "<i>", &[3..7]), [0, 7]);
        assert_eq!(places(text, "<i>", &[0..1, 9..10]), [4]);
    }

    #[test]
    fn image_tokens_are_repeated_and_not_trained() {
        let (ids, ranges) = ([5, 9, 6, 9], [0..1, 1..4, 4..5, 5..8]);
        let expanded = expand(&ids, &ranges, &[1; 4], 9, &[1, 5], &[3, 1]).unwrap();
        assert_eq!(expanded.ids, [5, 9, 9, 9, 6, 9]);
        assert_eq!((expanded.masks, expanded.images_end), (vec![1, 0, 0, 0, 1, 0], 6));
        let code = |places: &[usize], counts: &[u32]| {
            expand(&ids, &ranges, &[1; 4], 9, places, counts).map_err(|reject| reject.code)
        };
        assert_eq!(code(&[5], &[1]), Err(RejectCode::SpecialToken));
        assert_eq!(code(&[1, 5, 8], &[1, 1, 1]), Err(RejectCode::ImageCount));
        assert_eq!(code(&[1, 5], &[u32::MAX, 1]), Err(RejectCode::TooLarge));
    }
}
