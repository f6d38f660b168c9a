//! Limits of the formats, with sources that consist of lengths only.

use std::path::PathBuf;
use std::sync::Arc;

use super::*;
use crate::reader::RecordSource;
use crate::reader::batch::{Lengths, LengthsInMemory};
use crate::schema::{Field, Kind};

#[derive(Debug, Clone)]
struct OnlyLengths {
    schema: Schema,
    lengths: LengthsInMemory,
}

impl RecordSource for OnlyLengths {
    fn name(&self) -> &str {
        "train"
    }

    fn fingerprint(&self) -> String {
        self.lengths.fingerprint()
    }

    fn schema(&self) -> &Schema {
        &self.schema
    }

    fn lengths(&self) -> &dyn Lengths {
        &self.lengths
    }

    fn get_many(&self, _: &[u64]) -> Result<Vec<Record>> {
        Err(Error::internal("nothing is read before the limits are checked"))
    }

    fn reopened(&self) -> Arc<dyn RecordSource> {
        Arc::new(self.clone())
    }
}

fn input(lengths: &[u64]) -> ExportInput {
    let fields = vec![Field::required("input_ids", FieldType::IdsU16)];
    let schema = Schema { kind: Kind::Text, fields, class_names: Vec::new(), indexed: Vec::new() };
    let source = Arc::new(OnlyLengths { schema, lengths: LengthsInMemory::new(lengths.to_vec()) });
    ExportInput {
        splits: vec![ExportSplit { name: "train".to_owned(), source, bytes: 0 }],
        fingerprint: String::new(),
        tokenizer: TokenizerFacts::default(),
        cut_documents: 0,
        mixture: None,
        fields: None,
    }
}

fn options(format: ExportFormat, layout: Option<Layout>, parts: u64, out: PathBuf) -> ExportOptions {
    ExportOptions {
        format,
        layout,
        columns: None,
        eod: Some(EndOfDocument::Token("7".to_owned())),
        parts: Some(parts),
        out,
        scratch: None,
        threads: 1,
        resume: false,
    }
}

#[test]
fn more_than_two_to_the_31_tokens_in_one_file_are_refused_where_the_format_counts_them() {
    let (half, most) = (1u64 << 30, (1u64 << 31) - 1);
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("out");
    let refusal = |lengths: &[u64], format, layout, parts| {
        let options = options(format, layout, parts, out.clone());
        let error = export(&input(lengths), &options, &mut |_| {}, &Progress::default(), &Stop::default())
            .unwrap_err();
        let text = format!("{error}; {}", error.remedy().unwrap_or_default());
        // An error about the records means that the limits are met.
        (!text.contains("nothing is read")).then(|| {
            assert!(!out.exists(), "{text}");
            text
        })
    };
    // With the separating tokens.
    let found = refusal(&[half, half - 2], ExportFormat::Tokens, Some(Layout::Llmc), 1).unwrap();
    assert!(found.contains("2^31 - 1") && found.contains("`parts 2`"), "{found}");
    let found = refusal(&[most], ExportFormat::Megatron, None, 1).unwrap();
    assert!(found.contains("2,147,483,647 tokens") && found.contains("`max_length`"), "{found}");
    for (lengths, format, layout, parts) in [
        (&[half, half - 3][..], ExportFormat::Tokens, Some(Layout::Llmc), 1),
        (&[half, half], ExportFormat::Tokens, Some(Layout::Llmc), 2),
        // The other formats count in 64 bits.
        (&[most, most, most], ExportFormat::Tokens, Some(Layout::Nanogpt), 1),
        (&[most, most, most], ExportFormat::Tokens, Some(Layout::Olmo), 1),
        (&[most - 1, most - 1, most - 1], ExportFormat::Megatron, None, 1),
    ] {
        assert_eq!(refusal(lengths, format, layout, parts), None, "{format} {layout:?}");
        std::fs::remove_dir_all(&out).unwrap();
    }
}
