//! The published encodings of tiktoken.
//!
//! Names, URLs, hashes, patterns and special tokens are those of `tiktoken_ext/openai_public.py` in tiktoken 0.14.0
//! (MIT License). A test in `tests/python` compares them with the package.

use crate::engine::fast::split::pattern;

/// A tiktoken encoding: the split pattern and special tokens that a tiktoken file does not contain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TiktokenEncoding {
    /// Name, such as `cl100k_base`.
    pub name: &'static str,
    /// URL of the published file.
    pub url: &'static str,
    /// File name in tiktoken's cache: the SHA-1 of the URL, in hexadecimal.
    pub cache_name: &'static str,
    /// SHA-256 of the published file, in hexadecimal.
    pub sha256: &'static str,
    /// Format of the file.
    pub file: RankFile,
    /// The split pattern.
    pub(super) pattern: SplitPattern,
    /// Special tokens and their ids.
    pub special_tokens: &'static [(&'static str, u32)],
}

/// Format of a file of token ranks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RankFile {
    /// One line per token: its bytes in Base64, a space, its rank.
    Base64,
    /// `vocab.bpe` of GPT-2: one line per merge, in order.
    VocabBpe,
}

/// A split pattern as written in tiktoken, and as written in most `tokenizer.json` files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SplitPattern {
    pub(super) tiktoken: &'static str,
    /// Gives the same words, except for the difference that
    /// [`splits_final_white_space`](Self::splits_final_white_space) describes.
    pub(super) usual: &'static str,
    /// The usual pattern divides white space at the end of a text after its last line break.
    pub(super) splits_final_white_space: bool,
}

const GPT2: SplitPattern = SplitPattern {
    tiktoken: r"'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s",
    usual: pattern::GPT2,
    splits_final_white_space: false,
};

const CL100K: SplitPattern = SplitPattern {
    tiktoken: r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]|\s+(?!\S)|\s",
    usual: pattern::CL100K,
    splits_final_white_space: true,
};

const O200K: SplitPattern =
    SplitPattern { tiktoken: pattern::O200K, usual: pattern::O200K, splits_final_white_space: false };

const END_OF_TEXT: &str = "<|endoftext|>";

const ENCODINGS: [TiktokenEncoding; 5] = [
    TiktokenEncoding {
        name: "cl100k_base",
        url: "https://openaipublic.blob.core.windows.net/encodings/cl100k_base.tiktoken",
        cache_name: "9b5ad71b2ce5302211f9c61530b329a4922fc6a4",
        sha256: "223921b76ee99bde995b7ff738513eef100fb51d18c93597a113bcffe865b2a7",
        file: RankFile::Base64,
        pattern: CL100K,
        special_tokens: &[
            (END_OF_TEXT, 100_257),
            ("<|fim_prefix|>", 100_258),
            ("<|fim_middle|>", 100_259),
            ("<|fim_suffix|>", 100_260),
            ("<|endofprompt|>", 100_276),
        ],
    },
    TiktokenEncoding {
        name: "o200k_base",
        url: "https://openaipublic.blob.core.windows.net/encodings/o200k_base.tiktoken",
        cache_name: "fb374d419588a4632f3f557e76b4b70aebbca790",
        sha256: "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d",
        file: RankFile::Base64,
        pattern: O200K,
        special_tokens: &[(END_OF_TEXT, 199_999), ("<|endofprompt|>", 200_018)],
    },
    TiktokenEncoding {
        name: "p50k_base",
        url: "https://openaipublic.blob.core.windows.net/encodings/p50k_base.tiktoken",
        cache_name: "ec7223a39ce59f226a68acc30dc1af2788490e15",
        sha256: "94b5ca7dff4d00767bc256fdd1b27e5b17361d7b8a5f968547f9f23eb70d2069",
        file: RankFile::Base64,
        pattern: GPT2,
        special_tokens: &[(END_OF_TEXT, 50_256)],
    },
    TiktokenEncoding {
        name: "r50k_base",
        url: "https://openaipublic.blob.core.windows.net/encodings/r50k_base.tiktoken",
        cache_name: "0ea1e91bbb3a60f729a8dc8f777fd2fc07cd8df4",
        sha256: "306cd27f03c1a714eca7108e03d66b7dc042abe8c258b44c199a7ed9838dd930",
        file: RankFile::Base64,
        pattern: GPT2,
        special_tokens: &[(END_OF_TEXT, 50_256)],
    },
    TiktokenEncoding {
        name: "gpt2",
        url: "https://openaipublic.blob.core.windows.net/gpt-2/encodings/main/vocab.bpe",
        cache_name: "6d1cbeee0f20b3d9449abfede4726ed8212e3aee",
        sha256: "1ce1664773c50f3e0cc8842619a93edc4624525b728b188a9e0be33b7726adc5",
        file: RankFile::VocabBpe,
        pattern: GPT2,
        special_tokens: &[(END_OF_TEXT, 50_256)],
    },
];

impl TiktokenEncoding {
    /// Returns all supported encodings.
    pub fn all() -> &'static [Self] {
        &ENCODINGS
    }

    /// Returns the encoding with this name.
    pub fn named(name: &str) -> Option<&'static Self> {
        ENCODINGS.iter().find(|encoding| encoding.name == name)
    }
}
