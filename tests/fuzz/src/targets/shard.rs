//! Single shards in memory: everything the format readers do, without indexes.

use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use dsconvert::format::{Format, Placed, infer_schema, open, sniff};
use dsconvert::manifest::Manifest;
use dsconvert::schema::Schema;
use dsconvert::storage::Blob;

use super::{Input, Target, Verdict, files, fixture};
use crate::Result;

pub(super) struct Shards {
    format: Format,
    inputs: Vec<Input>,
    /// Schema and record positions of each input.
    known: Vec<(Arc<Schema>, Vec<Placed>)>,
}

impl Shards {
    pub(super) fn new(format: Format) -> Result<Self> {
        let mut inputs = Vec::new();
        let mut known = Vec::new();
        let has_arrays = matches!(format, Format::Parquet | Format::Arrow);
        for kind in ["v1/images", "v1/text", "v3/boxes", "v4/records"]
            .into_iter()
            .chain(has_arrays.then_some(["v3/arrays", "v4/image-lists"]).into_iter().flatten())
        {
            let dir = fixture(&format!("golden/{kind}-{format}"));
            let schema = Arc::new(Manifest::read(&dir)?.schema);
            for mut file in files(&dir)?.into_iter().filter(|f| f.name.ends_with(format.extension())) {
                if file.name.starts_with("index") {
                    continue;
                }
                file.name = format!("{kind}/{}", file.name);
                let blob = Blob::from_bytes(Path::new("shard"), file.bytes.clone().into());
                let reader = open(format, Arc::clone(&schema), blob)?;
                let placed = reader.scan()?.map(|found| Ok(found?.0)).collect::<Result<Vec<_>>>()?;
                known.push((Arc::clone(&schema), placed));
                inputs.push(file);
            }
        }
        Ok(Self { format, inputs, known })
    }
}

impl Target for Shards {
    fn inputs(&self) -> &[Input] {
        &self.inputs
    }

    fn check(&mut self, input: usize, bytes: &[u8]) -> Verdict {
        let (schema, placed) = &self.known[input];
        let blob = Blob::from_bytes(Path::new("shard"), Bytes::copy_from_slice(bytes));
        let _ = sniff(&blob);
        let mut refused = infer_schema(self.format, &blob).is_err();
        let Ok(reader) = open(self.format, Arc::clone(schema), blob) else { return Verdict::Refused };
        match reader.scan() {
            Ok(mut records) => refused |= records.any(|record| record.is_err()),
            Err(_) => refused = true,
        }
        let backwards: Vec<Placed> = placed.iter().rev().step_by(2).copied().collect();
        refused |= reader.get_many(&backwards).is_err();
        let columns: Vec<usize> = (0..schema.fields.len()).step_by(2).collect();
        refused |= reader.get_columns(&backwards, &columns).is_err();
        let _ = reader.lend(placed, &mut Vec::new());
        let alone = placed.first().is_some_and(|&at| reader.get(at).is_err());
        Verdict::of(refused || alone)
    }
}
