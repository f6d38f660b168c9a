//! Reads Unigram models with the same scores as the published `tokenizers` package.
//!
//! That package builds `serde_json` without its feature `float_roundtrip`, so a score of 16 or more digits may differ
//! from the nearest number by one unit in the last place. This difference can decide between two segmentations. Cargo
//! enables a feature for all crates of a build, so neither this crate nor a program that embeds it can rely on the
//! feature being off for the reference. Therefore this module parses the scores itself, with the package's arithmetic.

use std::sync::LazyLock;

use serde::Deserialize;
use serde::de::{Deserializer, Error};
use serde_json::value::RawValue;
use tokenizers::models::unigram::Unigram;

use crate::read_model::ReadModel;

/// A Unigram model with the scores of the package.
pub(crate) type UnigramModel = ReadModel<Unigram>;

/// A `tokenizer.json`, of which only the model is read.
#[derive(Deserialize)]
pub(crate) struct UnigramFile {
    pub(crate) model: UnigramModel,
}

#[derive(Deserialize)]
struct StoredUnigram<'a> {
    #[serde(borrow)]
    vocab: Vec<(String, &'a RawValue)>,
    unk_id: Option<usize>,
    #[serde(default)]
    byte_fallback: bool,
}

impl<'de> Deserialize<'de> for UnigramModel {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let StoredUnigram { vocab, unk_id, byte_fallback } = StoredUnigram::deserialize(deserializer)?;
        let scored = |(piece, number): (String, &RawValue)| match parse(number.get()) {
            Some(score) => Ok((piece, score)),
            None => Err(D::Error::custom(format!("the score of the piece {piece:?} is not a 64-bit float"))),
        };
        let vocab = vocab.into_iter().map(scored).collect::<Result<_, _>>()?;
        Unigram::from(vocab, unk_id, byte_fallback).map(ReadModel).map_err(D::Error::custom)
    }
}

/// The powers of ten in the range of 64-bit floats, each rounded to the nearest float.
static POWERS: LazyLock<Vec<f64>> =
    LazyLock::new(|| (0..=MAX_POWER).map(|e| format!("1e{e}").parse().unwrap_or(f64::INFINITY)).collect());
const MAX_POWER: i32 = 308;

/// Computes the value of a JSON number like `serde_json` without `float_roundtrip`: the digits that fit into 64 bits
/// are multiplied or divided by a power of ten, and each step is rounded. `None` for other JSON and for numbers out of
/// range.
fn parse(json: &str) -> Option<f64> {
    let (unsigned, is_negative) = match json.strip_prefix('-') {
        Some(rest) => (rest, true),
        None => (json, false),
    };
    let (number, exponent) = match unsigned.split_once(['e', 'E']) {
        Some((number, exponent)) => (number, Some(exponent)),
        None => (unsigned, None),
    };
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if !whole.starts_with(|c: char| c.is_ascii_digit()) {
        return None;
    }
    let (mut digits, taken) = append_digits(0, whole);
    let mut power = saturated(whole.len() - taken);
    let (more, taken) = append_digits(digits, fraction);
    digits = more;
    power = power.saturating_sub(saturated(taken));
    power = power.saturating_add(exponent.map_or(Some(0), parse_exponent)?);
    let value = scaled(digits, power)?;
    Some(if is_negative { -value } else { value })
}

/// Appends as many digits of `text` to `number` as fit. Returns the result and their count.
fn append_digits(number: u64, text: &str) -> (u64, usize) {
    let (mut number, mut taken) = (number, 0);
    for digit in text.bytes().map(|byte| u64::from(byte.wrapping_sub(b'0'))) {
        let Some(longer) = number.checked_mul(10).and_then(|tens| tens.checked_add(digit)) else { break };
        number = longer;
        taken += 1;
    }
    (number, taken)
}

fn saturated(count: usize) -> i32 {
    i32::try_from(count).unwrap_or(i32::MAX)
}

/// Parses an exponent, clamped to the range of `i32`.
fn parse_exponent(text: &str) -> Option<i32> {
    let (digits, is_negative) = match text.strip_prefix('-') {
        Some(rest) => (rest, true),
        None => (text.strip_prefix('+').unwrap_or(text), false),
    };
    let is_number = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
    let size = digits.parse().unwrap_or(i32::MAX);
    is_number.then_some(if is_negative { -size } else { size })
}

/// Returns `digits` times ten to the power of `power`.
fn scaled(digits: u64, mut power: i32) -> Option<f64> {
    let mut value = digits as f64;
    loop {
        match POWERS.get(power.unsigned_abs() as usize) {
            Some(factor) if power >= 0 => return Some(value * factor).filter(|v| v.is_finite()),
            Some(divisor) => return Some(value / divisor),
            None if value == 0.0 => return Some(value),
            None if power >= 0 => return None,
            None => {
                value /= 1e308;
                power += MAX_POWER;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Numbers and their bits as read by `tokenizers` 0.23.2 from PyPI.
    const READ: &[(&str, u64)] = &[
        ("0", 0x0000_0000_0000_0000),
        ("-0", 0x8000_0000_0000_0000),
        ("-0.0", 0x8000_0000_0000_0000),
        ("1", 0x3ff0_0000_0000_0000),
        ("-13", 0xc02a_0000_0000_0000),
        ("0.1", 0x3fb9_9999_9999_999a),
        ("-2.8483543395996094", 0xc006_c96e_0000_0001),
        ("-7.2600626945495605", 0xc01d_0a4d_dfff_ffff),
        ("-7.3020195960998535", 0xc01d_3544_9fff_ffff),
        ("-6.476655296663248", 0xc019_e818_537a_890a),
        ("-3.0169834784900385", 0xc008_22c8_3be5_7f0c),
        ("-13.018689460797075", 0xc02a_0991_aa3d_ce7f),
        ("-1.4487257333508552", 0xbff7_2dfb_08d9_d940),
        ("-10.717640086133784", 0xc025_6f6e_8578_7c88),
        ("-7.31377833825171", 0xc01d_414f_1bd3_eff2),
        ("-1.1599784954941361", 0xbff2_8f45_9c63_5e9b),
        ("-10.148714663788406", 0xc024_4c24_5412_d04d),
        ("-0.7499131688396976", 0xbfe7_ff49_e6e0_3304),
        ("-8.672913673247717", 0xc021_5888_2417_42a6),
        ("-1.3971084714923787", 0xbff6_5a8e_69a0_6398),
        ("-1.8142602668773011", 0xbffd_0735_c60a_b94e),
        ("-8.49038378285028", 0xc020_fb13_954b_a954),
        ("-16.53704249344076", 0xc030_897b_9de9_e3ef),
        ("-2.476039171218872", 0xc003_ceed_a000_0000),
        ("-4.464779376983643", 0xc011_dbef_2000_0000),
        ("-11.632002830505371", 0xc027_4395_e000_0001),
        ("-15.887589454650879", 0xc02f_c672_2000_0001),
        ("-13.979888916015625", 0xc02b_f5b3_ffff_ffff),
        ("-9.779261589050293", 0xc023_8efb_5fff_ffff),
        ("-13.364316940307617", 0xc02a_ba87_bfff_ffff),
        ("-15.291417121887207", 0xc02e_9534_a000_0001),
        ("-11.887397766113281", 0xc027_c658_ffff_ffff),
        ("-12.942577362060547", 0xc029_e299_8000_0001),
        ("-15.364659309387207", 0xc02e_bab4_a000_0001),
        ("-13.809873580932617", 0xc02b_9ea7_bfff_ffff),
        ("-15.599390029907227", 0xc02f_32e3_4000_0001),
        ("-9.319788932800293", 0xc022_a3bb_5fff_ffff),
        ("-10.863448143005371", 0xc025_ba15_e000_0001),
        ("-14.797460556030273", 0xc02d_984c_bfff_ffff),
        ("-13.850439071655273", 0xc02b_b36c_bfff_ffff),
        ("-3.9341232776641846", 0xc00f_7915_a000_0001),
        ("18446744073709551615", 0x43f0_0000_0000_0000),
        ("18446744073709551616", 0x43f0_0000_0000_0000),
        ("1844674407370955161.5", 0x43b9_9999_9999_999a),
        ("1844674407370955161.6", 0x43b9_9999_9999_999a),
        ("184467440737095516199.25e-3", 0x4384_7ae1_47ae_147b),
        ("123456789012345678901234567890.5", 0x45f8_ee90_ff6c_373e),
        ("-1.7976931348623157e308", 0xffef_ffff_ffff_ffff),
        ("2.2250738585072014e-308", 0x0010_0000_0000_0000),
        ("4.9406564584124654e-324", 0x0000_0000_0000_0001),
        ("1.2345678901234567890123e-310", 0x0000_16b9_f4d3_cd48),
        ("123e-330", 0x0000_0000_0000_0000),
        ("1E5", 0x40f8_6a00_0000_0000),
        ("1e+5", 0x40f8_6a00_0000_0000),
        ("-6.02e+23", 0xc4df_de9f_10a8_d361),
        ("0.30000000000000004", 0x3fd3_3333_3333_3334),
        ("12345678901234567890123e-2", 0x441a_c53a_7e04_bcd9),
        ("0e400", 0x0000_0000_0000_0000),
    ];

    #[test]
    fn scores_equal_those_of_the_published_package() {
        for (text, bits) in READ {
            let value = parse(text).unwrap();
            assert_eq!(value.to_bits(), *bits, "{text}: {value:?}");
        }
        let differ = READ.iter().filter(|(text, bits)| text.parse::<f64>().unwrap().to_bits() != *bits);
        assert!(differ.count() > 10, "some numbers must differ from exact parsing");
    }

    #[test]
    fn other_json_and_out_of_range_numbers_are_refused() {
        for text in
            ["\"1\"", "null", "[1]", "true", "1e309", "-1e400", "18446744073709551616e300", "1e99999999999"]
        {
            assert_eq!(parse(text), None, "{text}");
        }
        assert_eq!(parse("0e99999999999"), Some(0.0));
        assert_eq!(parse("1e-99999999999"), Some(0.0));
    }

    #[test]
    fn a_model_keeps_the_parsed_scores() {
        let file = r#"{"model": {"type": "Unigram", "unk_id": 0, "byte_fallback": true, "later": [1],
            "vocab": [["<unk>", 0], ["a", -2.8483543395996094]]}}"#;
        let UnigramFile { model: ReadModel(model) } = serde_json::from_str(file).unwrap();
        let scores: Vec<f64> = model.iter().map(|(_, score)| *score).collect();
        assert_eq!(scores, [0.0, -2.848_354_339_599_61]);
        assert!(model.byte_fallback());
        for (vocab, why) in [
            (json!([["a", "1"]]), "not a 64-bit float"),
            (json!([["a", 1, 2]]), "trailing characters"),
            (json!([]), "vocabulary is empty"),
        ] {
            let file = json!({"model": {"vocab": vocab, "unk_id": 0}}).to_string();
            let error = serde_json::from_str::<UnigramFile>(&file).err().unwrap().to_string();
            assert!(error.contains(why), "{error}");
        }
    }
}
