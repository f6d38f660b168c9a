//! The proof at load time: a fast engine is used only if it produces the ids of the reference for all of these texts.
//!
//! The texts are small and difficult. They contain the characters that split patterns, normalizers and merges
//! distinguish, in orders that have exposed bugs, and the added tokens of the tokenizer.
//! [`Tokenizer::verify`](crate::Tokenizer::verify) compares the texts that are actually encoded.

use std::mem::discriminant;

use ahash::AHashMap;
use tokenizers::AddedToken;

use super::reference::Reference;
use super::{Engine, Outcome};
use crate::error::EncodeError;
use crate::options::DEFAULT_MAX_REFERENCE_BYTES;
use crate::scratch::Scratch;

/// Maximum number of added tokens that are tested.
const MAX_ADDED_TOKENS: usize = 64;

/// Texts that are encoded one by one and concatenated.
const TEXTS: &[&str] = &[
    "",
    " ",
    "a",
    "The quick brown fox jumps over the lazy dog. The dog doesn't mind; it's used to it, they'd say.",
    "Don't I'LL we'Re 'tis 'S 's' ''s' don\u{2019}t '\u{17f} x'\u{17f}the a'\u{212a} o'clock rock'n'roll 'd'm've'LLama",
    "  two  three   spaces    four\u{20}",
    "\n\n\nline\r\nline\rline\n\r\n  \n\t\n x\n ",
    "\ttab\t\ttabs \t mixed\t \u{b}vertical\u{c}feed\u{85}next\u{1c}file",
    "a\u{a0}b\u{2003}c\u{3000}d\u{2028}e\u{2029}f\u{202f}g\u{205f}h\u{1680}i\u{180e}j \u{a0} k",
    "zero\u{200b}width\u{200d}joiners\u{200c}and\u{feff}marks\u{2060}soft\u{ad}hyphen",
    "0 1 12 123 1234 12345 123456 1,234,567.89 -1e-10 0x1F 3.14159 \u{664}\u{665}\u{666} \u{bd}\u{be} \u{2167} \u{b2}\u{b3}",
    "1st2nd3rd a1b22c333d4444 2026-11-20T23:59:59Z 192.168.0.1",
    "!!! ... ?! -- --- ___ *** ### $$$ %%% &&& /// \\\\\\ ||| ~~~ ``` \"'\"'\" <<>> {[()]} @#$%^&*()",
    "!\n?\r\n.\n\n,\n \n;",
    "fn main() {\n    let x = vec![1, 2, 3];\n\tprintln!(\"{:?}\", x);\n}\n\n\n# comment\n        deep\n",
    "def f(self, *args, **kwargs):\n    \"\"\"Doc.\"\"\"\n    return self.__dict__[f'{args!r}'] if args else None  # ok\n",
    "caf\u{e9} cafe\u{301} na\u{ef}ve nai\u{308}ve \u{1e9e}\u{df} STRASSE \u{130}\u{131} \u{fb01}\u{fb02} \u{1c4}\u{1c5}",
    "e\u{301}\u{327}e\u{327}\u{301} a\u{308}\u{304} \u{1ea5}\u{1eaf} o\u{31b}\u{323} \u{344} \u{212b}\u{212a}\u{2126} \u{301}x  \u{301}",
    "q\u{307}\u{323} d\u{323}\u{307} \u{1e0b}\u{323} \u{f73}\u{f71} \u{1d15e}\u{2f81a}\u{fb1d}\u{958}",
    "Привет, мир! Съешь же ещё этих мягких французских булок. й\u{306} и\u{306}",
    "Ελληνικά ΟΔΥΣΣΕΥΣ ὀδυσσεύς \u{345}\u{3b1}\u{345}",
    "日本語のテキストと中文文本混在。漢字かな交じり文、ｶﾞｷﾞ ﾊﾟ が か\u{3099}",
    "한국어 문장입니다. \u{1112}\u{1161}\u{11ab}\u{1100}\u{1173}\u{11af} 가\u{11a8}",
    "नमस्ते दुनिया क\u{93c} ड\u{93c} বাংলা தமிழ் తెలుగు ಕನ್ನಡ മലയാളം ภาษาไทย ก\u{e33} ລາວ မြန်မာ ខ្មែរ བོད་",
    "שָׁלוֹם עולם \u{5e9}\u{5c1}\u{5b8} مرحبا بالعالم \u{627}\u{653} \u{600}\u{661} اُردُو فارسی\u{200c}ها",
    "👩\u{200d}👩\u{200d}👧\u{200d}👦 👍🏽 🇫🇷🇩🇪🇯 ❤\u{fe0f} 1\u{fe0f}\u{20e3} 🏴\u{e0067}\u{e0062}\u{e007f} \u{1fae8}\u{1f6dc}",
    "𝔘𝔫𝔦𝔠𝔬𝔡𝔢 𝟘𝟙𝟚 Ａｂｃ１２３ ℌ ™ © ½ ㎏ ㍿ ﷺ ⑴ \u{33a7}",
    "\u{0}nul\u{1}control\u{7f}del\u{9f}c1\u{fffd}replacement\u{fffe}\u{10ffff}\u{e000}",
    "\u{1e4d0}\u{1e4eb} \u{10ec2} \u{11f04} \u{31350} \u{16d40} \u{1cc00} \u{105c0} \u{1e5d0}",
    "\u{e31}\u{e34} \u{300}\u{301}\u{302} x\u{338} =\u{338} \u{2ea} \u{488}\u{20dd}",
    "http://example.org/path?q=1&r=%20#frag user.name+tag@mail.example C:\\dir\\file.txt /usr/lib/x86_64",
    "Pneumonoultramicroscopicsilicovolcanoconiosis Donaudampfschifffahrtselektrizitätenhauptbetriebswerkbauunterbeamtengesellschaft",
    "camelCaseHTTPServerID snake_case_name SCREAMING_CASE kebab-case-name dotted.name.here x1y2z3",
    "\u{2581}lower\u{2581}one eighth \u{120}byte\u{10a}level \u{2581} \u{2581}\u{2581}",
    "a , b . c ! d 's e n't \u{ab} f \u{bb} \u{2014} g\u{2014}h \u{201c}i\u{201d} \u{2026} j",
    "HTMLParser's parserHTML'S x'll'd don'tX aB ABc \u{2b0}x X\u{2b0}\u{aa}x \u{1c5}uro \u{1bb}X \u{345}A x\u{345}B Ⅷa É\u{301}cole 語A語a",
    "};\n//c\n/*x*/\n/\n./a\r\n//b;\n\n /c !/\n/\n\n//!x\n +/\n1/2\n/3",
    "・カタ・カナ゜\r\n〇一二3三 \u{3040}あ1あ 、。漢字abc漢123字。\n「語」 \u{200d}x\u{1}\u{2}y 12  34 \t 5\n 6",
    "<s></s> [CLS] [SEP] [MASK] [UNK] [PAD] <unk> <pad> <bos> <eos> <|endoftext|> <|im_start|> <extra_id_0> <0x0A>",
];

/// Words and their repetition counts. Engines use different code paths for words of such lengths.
const REPEATED: &[(&str, usize)] = &[
    ("a", 300),
    ("ab", 1000),
    (" ", 100),
    ("\n", 100),
    (" \n", 50),
    ("=", 200),
    ("9", 100),
    ("\u{e9}", 300),
    ("я", 400),
    ("語", 400),
    ("e\u{301}", 200),
    ("👍🏽", 100),
    ("xyz'", 100),
    ("\u{a0}", 70),
];

/// Returns the texts of the proof for a tokenizer with these added tokens.
pub(crate) fn texts(added: &AHashMap<u32, AddedToken>) -> impl Iterator<Item = String> {
    let fixed = TEXTS.iter().map(|text| (*text).to_owned()).chain([TEXTS.concat(), TEXTS.join(" ")]);
    let repeated = REPEATED.iter().flat_map(|(word, times)| {
        let lead = |lead: &str| {
            let text = format!("{lead}{}", word.repeat(*times));
            [format!("{text}."), text]
        };
        ["", " ", "x"].into_iter().flat_map(lead)
    });
    let mut added: Vec<(u32, &str)> = added.iter().map(|(id, token)| (*id, token.content.as_str())).collect();
    added.sort_unstable();
    // The first ones, usually control tokens, and the last ones, usually added later.
    let middle = added.len().saturating_sub(MAX_ADDED_TOKENS / 2).max(MAX_ADDED_TOKENS / 2);
    let tried = added.iter().take(MAX_ADDED_TOKENS / 2).chain(added.iter().skip(middle));
    let with =
        |token: &str| format!("{token}a {token} b{token}{token}\n{token}  {token}c{}", token.to_lowercase());
    let added: Vec<String> = tried.map(|(_, token)| with(token)).collect();
    fixed.chain(repeated).chain(added)
}

/// Checks that `fast` produces the ids of `reference`. The error names the first text that differs.
pub(crate) fn check(fast: &dyn Engine, reference: &Reference, scratch: &mut Scratch) -> Result<(), String> {
    let is_too_large =
        |error: &EncodeError| matches!(error, EncodeError::TooLarge { .. } | EncodeError::WordTooLong);
    let (mut ids, mut expected_ids) = (Vec::new(), Vec::new());
    for text in texts(reference.parts().get_added_vocabulary().get_added_tokens_decoder()) {
        expected_ids.clear();
        let expected = reference.encode_for_proof(DEFAULT_MAX_REFERENCE_BYTES, &text, &mut expected_ids);
        if expected.as_ref().is_err_and(is_too_large) {
            continue;
        }
        // The ids of the model, then those of the cache.
        for _ in 0..2 {
            ids.clear();
            let same = match (&expected, fast.encode(&text, scratch, &mut ids)) {
                (_, Ok(Outcome::Declined)) => true,
                // The user may have set a small limit.
                (_, Err(error)) if is_too_large(&error) => true,
                (Ok(_), Ok(Outcome::Done)) => ids == expected_ids,
                (Err(a), Err(b)) => discriminant(a) == discriminant(&b),
                _ => false,
            };
            if !same {
                let shown: String = text.chars().take(40).collect();
                return Err(format!(
                    "its ids differ from those of the reference for the text that starts with {shown:?}"
                ));
            }
        }
    }
    Ok(())
}
