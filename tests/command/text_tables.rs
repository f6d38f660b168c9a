//! Documents in the rows of tables: damaged tables, and the types of columns.

use std::sync::Arc;

use arrow_array::{ArrayRef, Int64Array, RecordBatch};
use parquet::arrow::ArrowWriter;

use crate::support::*;
use crate::text_sources::{arrow_file, compress, parquet_file};

#[test]
fn an_unclosed_quote_in_a_table_is_a_reject_that_is_impossible_to_miss() {
    let dir = tempfile::tempdir().unwrap();
    let run = |name: &str, table: &str, extension: &str, options: &str| {
        let source = dir.path().join(format!("{name}.csv{extension}"));
        std::fs::write(&source, compress(table.as_bytes(), extension)).unwrap();
        let out = dir.path().join(format!("out-{name}{extension}"));
        let ran = convert("text", &source, &out, &format!("--tokenizer bytes --max-rejects 100% {options}"));
        (ran, out)
    };
    let (good, more) = ("1,a\n".repeat(100), "2,b\n".repeat(1 << 16));
    let large = format!("id,text\n{good}101,\"a\n{more}");
    // Also with a header that starts with a byte order mark, and at the end of a file.
    let small = "\u{feff}\"id\",text\n1,a\n2,\"b";
    for extension in ["", ".gz", ".zst"] {
        for (name, table, offset, options) in [
            ("large", large.as_str(), 408, ""),
            ("too-large", &large, 408, "--max-document-bytes 1000"),
            ("small", small, 17, ""),
        ] {
            let (ran, out) = run(name, table, extension, options);
            let lost = table.len() - offset;
            let ran = ran.exits(0);
            for part in ["1 rejected", "warning: ", "lost after a quote that is never closed"] {
                assert!(ran.stdout.contains(part), "{}", ran.stdout);
            }
            assert!(only_texts(&out).iter().all(|text| text == "a"), "{name}{extension}");
            let converted = if name == "small" { 1 } else { 100 };
            assert_outcomes(&out, [converted, 0, 0, 1]);
            assert_eq!(rejects(&out), [(format!("{name}.csv{extension}#{offset}"), "truncated".to_owned())]);
            let message = std::fs::read_to_string(out.join("rejects.jsonl")).unwrap();
            let expected = format!("row at byte {offset} is never closed; the last {lost} bytes");
            assert!(message.contains(&expected), "{message}");
            assert_eq!(manifest(&out)["notes"]["unclosed_quote_bytes"], lost, "{name}{extension}");
        }
    }
    let (ran, _) = run("header", "id,\"text\n1,a\n2,b\n", "", "");
    ran.exits(3).says(&["the quoted cell in the row at byte 0 is never closed"]);
}

#[test]
fn dictionaries_dates_and_decimals_are_strings() {
    use arrow_array::types::Int32Type;
    use arrow_array::{Date32Array, Decimal128Array, DictionaryArray, TimestampMicrosecondArray};

    let dir = tempfile::tempdir().unwrap();
    let text: DictionaryArray<Int32Type> = ["b", "a", "b"].into_iter().collect();
    let ts = TimestampMicrosecondArray::from(vec![Some(0), None, Some(1_500_000)]).with_timezone("UTC");
    let price = Decimal128Array::from(vec![150, -5, 0]).with_precision_and_scale(9, 2).unwrap();
    let columns: [(&str, ArrayRef); 5] = [
        ("unused", Arc::new(Int64Array::from(vec![1, 2, 3]))),
        ("day", Arc::new(Date32Array::from(vec![0, 1, 2]))),
        ("ts", Arc::new(ts)),
        ("text", Arc::new(text)),
        ("price", Arc::new(price)),
    ];
    let batch = RecordBatch::try_from_iter(columns).unwrap();
    let mut arrow = arrow_ipc::writer::FileWriter::try_new(Vec::new(), &batch.schema()).unwrap();
    arrow.write(&batch).unwrap();
    let mut parquet = ArrowWriter::try_new(Vec::new(), batch.schema(), None).unwrap();
    parquet.write(&batch).unwrap();
    for (name, bytes) in
        [("t.arrow", arrow.into_inner().unwrap()), ("t.parquet", parquet.into_inner().unwrap())]
    {
        let source = dir.path().join(name);
        std::fs::write(&source, bytes).unwrap();
        let out = dir.path().join(format!("out-{name}"));
        convert("text", &source, &out, "--tokenizer bytes --keep-fields ts:string,day,price,text").exits(0);
        assert_eq!(only_texts(&out), ["b", "a", "b"]);
        let records = records(&out);
        let kept = |field: &str| records.iter().map(|record| record.text(field)).collect::<Vec<_>>();
        assert_eq!(
            kept("ts"),
            [Some("1970-01-01T00:00:00Z"), None, Some("1970-01-01T00:00:01.500Z")],
            "{name}"
        );
        assert_eq!(kept("day"), [Some("1970-01-01"), Some("1970-01-02"), Some("1970-01-03")]);
        assert_eq!(kept("price"), [Some("1.50"), Some("-0.05"), Some("0.00")]);
        assert_eq!(kept("text"), [Some("b"), Some("a"), Some("b")]);
    }
}

#[test]
fn damaged_tables_keep_their_undamaged_rows() {
    let dir = tempfile::tempdir().unwrap();
    let texts: Vec<String> = (0..300).map(|i| format!("document {i} {}", "x".repeat(50))).collect();
    let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
    let run = |name: &str, bytes: &[u8]| {
        let source = dir.path().join(name);
        std::fs::write(&source, bytes).unwrap();
        let out = dir.path().join(format!("out-{name}"));
        convert("text", &source, &out, "--tokenizer bytes").exits(0);
        let found = only_texts(&out);
        assert_outcomes(&out, [found.len() as u64, 0, 0, 1]);
        (found, rejects(&out))
    };
    // Overwrites text pages of the second of three row groups.
    let mut parquet = parquet_file(&texts, 100);
    let at = parquet.windows(12).position(|w| w == b"document 150").unwrap();
    parquet[at - 40..at + 400].fill(0xff);
    let (found, rejected) = run("middle.parquet", &parquet);
    assert_eq!(found, [&texts[..100], &texts[200..]].concat());
    assert_eq!(rejected, [("middle.parquet#100".into(), "corrupt".into())]);
    for stream in [false, true] {
        let arrow = arrow_file(&texts, stream);
        let (found, rejected) = run(&format!("cut-{stream}.arrow"), &arrow[..arrow.len() / 2]);
        assert_eq!(found, texts[..found.len()]);
        assert!((100..200).contains(&found.len()), "{}", found.len());
        assert_eq!(rejected[0].1, "truncated");
    }
}
