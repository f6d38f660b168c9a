//! Tests that reading damaged shards returns errors or records, never panics, and never allocates out of proportion to
//! the file.

#![allow(unsafe_code)] // For the counting allocator.
#![allow(clippy::unwrap_used)] // The exemption for tests does not cover helper functions.

mod common;

use std::alloc::{GlobalAlloc, Layout, System};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use common::{any_record, images_with_everything, write};
use dsconvert_dataset::format::{Format, Placed, infer_schema, open, sniff};
use dsconvert_dataset::sample::{Record, Value};
use dsconvert_dataset::schema::{FieldType, IdWidth, Schema};
use dsconvert_dataset::storage::Blob;
use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::{RngAlgorithm, TestRng, TestRunner};

/// Allocator that records the largest request.
struct Counting;

static LARGEST: AtomicUsize = AtomicUsize::new(0);

// SAFETY: every call is passed to the system allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        LARGEST.fetch_max(layout.size(), Ordering::Relaxed);
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        unsafe { System.dealloc(ptr, layout) }
    }

    unsafe fn realloc(&self, ptr: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        LARGEST.fetch_max(new_size, Ordering::Relaxed);
        unsafe { System.realloc(ptr, layout, new_size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Allocations that libraries make regardless of the file (zstd contexts, buffers of one batch).
const FIXED_BYTES: usize = 16 << 20;

/// Reads a shard in every way that the API offers. Ignores errors and returns the number of records read.
fn read_shard(format: Format, schema: &Arc<Schema>, bytes: Bytes, placed: &[Placed]) -> usize {
    let blob = Blob::from_bytes(Path::new("damaged"), bytes);
    let _ = sniff(&blob);
    let _ = infer_schema(format, &blob);
    let Ok(reader) = open(format, schema.clone(), blob) else { return 0 };
    let scanned = reader.scan().map_or(0, |records| records.filter(Result::is_ok).count());
    let _ = reader.get_many(placed);
    scanned + placed.iter().filter(|&&at| reader.get(at).is_ok()).count()
}

type Shard = (Format, Arc<Schema>, Vec<u8>, Vec<Placed>);

fn shards() -> Vec<Shard> {
    let mut runner = TestRunner::new_with_rng(
        proptest::test_runner::Config::default(),
        TestRng::from_seed(RngAlgorithm::ChaCha, &[7; 32]),
    );
    let dir = tempfile::tempdir().unwrap();
    let mut shards = Vec::new();
    let text = Schema::text(IdWidth::U16, vec![]).unwrap();
    for schema in [images_with_everything(), text.clone(), text.with_assistant_masks().unwrap()] {
        let any = any_record(&schema);
        let records: Vec<Record> = (0..40).map(|_| any.new_tree(&mut runner).unwrap().current()).collect();
        for format in Format::ALL {
            let path = dir.path().join("shard");
            let placed = write(format, &schema, &records, &path);
            shards.push((format, Arc::new(schema.clone()), std::fs::read(&path).unwrap(), placed));
        }
    }
    shards
}

/// A small generator that makes failing cases reproducible.
struct Xorshift(u64);

impl Xorshift {
    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % end as u64) as usize
    }
}

/// Number of damaged variants to try per shard. For a long search, set `DSCONVERT_DAMAGE_CASES=200000`.
fn cases() -> usize {
    std::env::var("DSCONVERT_DAMAGE_CASES").ok().and_then(|n| n.parse().ok()).unwrap_or(1500)
}

#[test]
fn damaged_shards_return_errors_or_records() {
    for (format, schema, whole, placed) in shards() {
        assert_eq!(read_shard(format, &schema, whole.clone().into(), &placed), 2 * placed.len());
        let few: Vec<Placed> = placed.iter().step_by(9).copied().collect();
        let mut random = Xorshift(0x9e37_79b9_7f4a_7c15);
        for case in 0..cases() {
            let mut bytes = whole.clone();
            for _ in 0..1 + random.below(3) {
                // Half of the damage goes to the end, where footers are.
                let from = if random.below(2) == 0 { 0 } else { bytes.len().saturating_sub(3000) };
                let at = from + random.below(bytes.len() - from);
                match random.below(4) {
                    0 => bytes[at] ^= 1 << random.below(8),
                    1 => bytes[at] = [0, 0xff, 0x7f, 0x80][random.below(4)],
                    2 => bytes[at] = random.below(256) as u8,
                    _ => {
                        let end = (at + 8).min(bytes.len());
                        bytes[at..end].fill([0, 0xff, 0x7f][random.below(3)]);
                    }
                }
            }
            if random.below(10) == 0 {
                bytes.truncate(random.below(bytes.len()));
            }
            let limit = 64 * bytes.len() + FIXED_BYTES;
            LARGEST.store(0, Ordering::Relaxed);
            read_shard(format, &schema, bytes.into(), &few);
            let largest = LARGEST.load(Ordering::Relaxed);
            assert!(largest <= limit, "{format}, case {case}: {largest} bytes allocated at once");
        }
    }
}

#[test]
fn every_truncation_is_detected() {
    for (format, schema, whole, placed) in shards() {
        for len in (0..whole.len()).rev().step_by(1 + whole.len() / 200) {
            let blob = Blob::from_bytes(Path::new("short"), Bytes::copy_from_slice(&whole[..len]));
            let read =
                open(format, schema.clone(), blob).and_then(|r| r.scan()?.collect::<Result<Vec<_>, _>>());
            // A cut may fall between frames: fewer records are then read, which the record index detects.
            let detected = read.map_or(true, |records| records.len() < placed.len());
            assert!(detected, "{format} truncated to {len} bytes");
        }
    }
}

/// In a list column whose page has fewer levels than its header claims, skipping rows used to never return.
#[test]
fn a_page_with_too_few_levels_is_an_error() {
    let bytes = Bytes::from_static(include_bytes!("common/short-levels.parquet"));
    // The file predates masks and pairs.
    let mut schema = images_with_everything();
    schema.fields.retain(|field| !matches!(field.ty, FieldType::Mask | FieldType::Int32Pair));
    let reader =
        open(Format::Parquet, Arc::new(schema), Blob::from_bytes(Path::new("short-levels.parquet"), bytes))
            .unwrap();
    assert!((0..40).any(|row| reader.get(Placed::in_group(0, row, 0)).is_err()));
    assert!(reader.scan().unwrap().any(|record| record.is_err()));
}

/// After skipping a value longer than its page, the `parquet` crate used to allocate a negative size.
#[test]
fn a_value_longer_than_its_page_is_an_error() {
    let schema = Schema::images(None, vec![]).unwrap();
    let image = |i: u8| -> Bytes { (0..500u32).map(|k| (k * k) as u8 ^ i).collect() };
    let record = |i: u8| Record {
        values: vec![
            Value::Text(format!("key-{i}").as_str().into()),
            Value::Bytes(image(i)),
            Value::UInt(1),
            Value::UInt(1),
            Value::Text("origin".into()),
        ],
    };
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("shard");
    let placed = write(Format::Parquet, &schema, &(0..20).map(record).collect::<Vec<_>>(), &path);
    let whole = std::fs::read(&path).unwrap();
    let at = whole.windows(500).position(|w| w == &image(3)[..]).unwrap();
    for (byte, xor) in [(at - 1, 0x40), (at - 2, 0x10), (at - 3, 0x40), (at - 4, 0x01)] {
        let mut bytes = whole.clone();
        bytes[byte] ^= xor;
        let blob = Blob::from_bytes(Path::new("long-value.parquet"), bytes.into());
        let reader = open(Format::Parquet, Arc::new(schema.clone()), blob).unwrap();
        assert!(reader.get(placed[4]).is_err(), "byte {byte}");
        assert!(reader.get_many(&[placed[0], placed[6]]).is_err(), "byte {byte}");
        assert!(reader.get_columns(&[placed[9]], &[0, 1]).is_err(), "byte {byte}");
        assert!(reader.get_columns(&[placed[9]], &[0]).is_ok(), "the other columns are intact");
    }
}
