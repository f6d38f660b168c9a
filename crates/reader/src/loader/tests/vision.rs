//! Tests of batches of chats with images that need no pixels.

use std::sync::Arc;

use bytes::Bytes;
use dsconvert_dataset::sample::{ArrayValue, Ids, Value};
use dsconvert_dataset::schema::{IdWidth, Schema};
use dsconvert_vision::{Grid, Processor};

use super::*;
use crate::batch::{Lengths, LengthsInMemory, PackOptions};
use crate::{Record, RecordProperties};

const IMAGE: u32 = 151_655;

/// Chats in memory: their ids and the grids of their images.
#[derive(Debug, Clone)]
struct Chats {
    schema: Arc<Schema>,
    chats: Vec<(Vec<u32>, Vec<Grid>)>,
    lengths: LengthsInMemory,
    vision: Option<Processor>,
}

impl Chats {
    fn new(chats: &[(&[u32], &[Grid])]) -> Self {
        let chats: Vec<(Vec<u32>, Vec<Grid>)> =
            chats.iter().map(|(ids, grids)| (ids.to_vec(), grids.to_vec())).collect();
        let schema = Schema::text(IdWidth::U32, Vec::new()).and_then(Schema::with_images).unwrap();
        let lengths = LengthsInMemory::new(chats.iter().map(|(ids, _)| ids.len() as u64).collect());
        Self { schema: Arc::new(schema), chats, lengths, vision: Some(Processor::qwen2_5_vl()) }
    }
}

impl RecordSource for Chats {
    fn name(&self) -> &str {
        "chats"
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

    fn get_many(&self, records: &[u64]) -> Result<Vec<Record>> {
        let record = |&at: &u64| {
            let (ids, grids) = &self.chats[at as usize];
            let bytes: Vec<u8> = grids.iter().flatten().flat_map(|side| side.to_le_bytes()).collect();
            let values = vec![
                Value::Text(format!("chat-{at}").into()),
                Ids::pack(IdWidth::U32, ids).map_or(Value::Null, Value::Ids),
                Value::UInt(ids.len() as u64),
                Value::Text("memory".into()),
                Value::Files(vec![Bytes::new(); grids.len()]),
                Value::Array(ArrayValue::new(vec![grids.len() as u32, 3], bytes.into())),
                Value::UInt(0),
            ];
            Record::new(Arc::clone(&self.schema), at, values)
        };
        Ok(records.iter().map(record).collect())
    }

    fn reopened(&self) -> Arc<dyn RecordSource> {
        Arc::new(self.clone())
    }

    fn properties(&self) -> RecordProperties {
        RecordProperties { vision: self.vision.clone(), ..RecordProperties::of_schema(&self.schema) }
    }
}

fn options(batching: impl Into<Batching>, fields: &[&str]) -> LoaderOptions {
    let fields = Some(fields.iter().map(|&name| name.to_owned()).collect());
    LoaderOptions { threads: 0, fields, ..LoaderOptions::new(batching) }
}

fn in_order(records: u64) -> BatchOptions {
    BatchOptions { shuffle: crate::batch::Shuffle::None, ..BatchOptions::new(BatchSize::BatchSize(records)) }
}

fn loader(chats: &Chats, options: LoaderOptions) -> Result<Loader> {
    Loader::new(Arc::new(chats.clone()) as Arc<dyn RecordSource>, options)
}

fn numbers(batch: &Batch, name: &str) -> (Vec<usize>, Vec<i64>) {
    let array = batch.array(name).unwrap();
    (array.shape().to_vec(), array.as_slice::<i64>().unwrap().to_vec())
}

const CHATS: [(&[u32], &[Grid]); 2] =
    [(&[5, IMAGE, IMAGE, 6], &[[1, 2, 4]]), (&[7, IMAGE, 8, IMAGE, 9, 9], &[[1, 2, 2], [1, 2, 2]])];

#[test]
fn padded_rows_have_the_positions_of_each_chat() {
    let chats = Chats::new(&CHATS);
    let fields = ["position_ids", "mm_token_type_ids", "image_grid_thw"];
    let batch = loader(&chats, options(in_order(2), &fields)).unwrap().next_batch().unwrap().unwrap();
    let (shape, positions) = numbers(&batch, "position_ids");
    assert_eq!(shape, [3, 2, 6]);
    assert_eq!(positions[..12], [0, 1, 1, 3, 0, 0, 0, 1, 2, 3, 4, 5], "in time");
    assert_eq!(positions[24..], [0, 1, 2, 3, 0, 0, 0, 1, 2, 3, 4, 5], "in columns");
    assert_eq!(numbers(&batch, "mm_token_type_ids").1, [0, 1, 1, 0, 0, 0, 0, 1, 0, 1, 0, 0]);
    assert_eq!(numbers(&batch, "image_grid_thw"), (vec![3, 3], vec![1, 2, 4, 1, 2, 2, 1, 2, 2]));
}

#[test]
fn packed_rows_also_have_the_positions_in_each_chat() {
    let chats = Chats::new(&CHATS);
    let text = TextBatchOptions { packed: PackedLayout::Flash, ..TextBatchOptions::default() };
    for batching in [Batching::from(in_order(2)), PackOptions::new(10, 1).into()] {
        let options =
            LoaderOptions { text: text.clone(), ..options(batching, &["position_ids", "use_cache"]) };
        let batch = loader(&chats, options).unwrap().next_batch().unwrap().unwrap();
        let (shape, positions) = numbers(&batch, "position_ids");
        assert_eq!(shape, [4, 1, 10]);
        let starts: Vec<usize> = (0..10).filter(|&at| positions[at] == 0).collect();
        assert_eq!(starts.len(), 2, "{positions:?}");
        assert!(matches!(batch.get("use_cache"), Some(Column::Flag(false))));
    }
}

#[test]
fn a_chat_that_would_be_cut_is_an_error() {
    let chats = Chats::new(&CHATS);
    let mut cut = loader(&chats, options(PackOptions::new(5, 1), &["position_ids"])).unwrap();
    let message = std::iter::from_fn(|| cut.next_batch().transpose()).find_map(Result::err).unwrap();
    assert!(message.to_string().contains("a record with images is never cut"), "{message}");
    let texts = Chats::new(&[(&[1; 12], &[])]);
    let all: Vec<Batch> = loader(&texts, options(PackOptions::new(5, 1), &["position_ids"]))
        .unwrap()
        .map(Result::unwrap)
        .collect();
    assert_eq!(all.len(), 3, "text is cut as ever");
}

#[test]
fn an_image_without_effect_is_in_the_padding() {
    let texts = Chats::new(&[(&[1, 2, 3], &[]), (&[4], &[])]);
    let vision = VisionBatchOptions { dummy_image: Some(true), ..VisionBatchOptions::default() };
    let fields = ["input_ids", "attention_mask", "labels", "image_grid_thw"];
    let of = |batching: BatchOptions| {
        let options = LoaderOptions { vision: vision.clone(), ..options(batching, &fields) };
        loader(&texts, options).unwrap().next_batch().unwrap().unwrap()
    };
    let image = i64::from(IMAGE);
    let batch = of(in_order(2));
    assert_eq!(numbers(&batch, "input_ids"), (vec![2, 3], vec![1, 2, 3, 4, image, 0]));
    assert_eq!(numbers(&batch, "attention_mask").1, [1, 1, 1, 1, 0, 0]);
    assert_eq!(numbers(&batch, "labels").1, [1, 2, 3, 4, -100, -100]);
    assert_eq!(numbers(&batch, "image_grid_thw").1, [1, 2, 2]);
    let batch = of(BatchOptions { pad_to_multiple_of: 3, ..in_order(1) });
    assert_eq!(numbers(&batch, "input_ids"), (vec![1, 6], vec![1, 2, 3, image, 0, 0]));
}

#[test]
fn a_source_without_a_processor_is_refused() {
    let chats = Chats { vision: None, ..Chats::new(&CHATS) };
    let error = loader(&chats, options(in_order(1), &["input_ids"])).err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    let other = Processor { max_pixels: 5_000_000, ..Processor::qwen2_5_vl() };
    let vision = VisionBatchOptions { processor: Some(other), ..VisionBatchOptions::default() };
    let given = LoaderOptions { vision, ..options(in_order(1), &["input_ids"]) };
    let message = loader(&Chats::new(&CHATS), given).err().unwrap().to_string();
    assert!(message.contains("max_pixels 5000000") && message.contains("max_pixels 12845056"), "{message}");
}
