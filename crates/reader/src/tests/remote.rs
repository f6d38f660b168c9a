//! Tests of datasets in object storage, on a loopback server that injects faults.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use dsconvert_dataset::error::ErrorKind;
use dsconvert_dataset::storage::interrupt::interruptible;
use objects::{Fault, Faults, Server};

use super::*;
use crate::batch::{BatchOptions, BatchSize};
use crate::loader::{Loader, LoaderOptions};

fn upload(server: &Server, dir: &Path) {
    for file in files(dir) {
        let key = format!("bucket/set/{}", file.strip_prefix(dir).unwrap().to_str().unwrap());
        server.put(&key, std::fs::read(&file).unwrap());
    }
}

fn options(server: &Server) -> OpenOptions {
    let set = |options: OpenOptions, (name, value): (&str, String)| {
        options.storage_option(name.to_ascii_lowercase(), value)
    };
    server.environment().into_iter().fold(OpenOptions::new(), set)
}

const ADDRESS: &str = "s3://bucket/set";

#[test]
fn remote_datasets_read_like_local_ones() {
    for (number, (format, kind)) in all().enumerate() {
        let dir = pristine(format, kind);
        let local = Dataset::open(&dir).unwrap();
        let server = Server::start(0, Faults::usual(25, number as u64)).unwrap();
        upload(&server, &dir);
        let cache = tempfile::tempdir().unwrap();
        for options in [
            options(&server),
            options(&server).cache_dir(cache.path()),
            options(&server).cache_dir(cache.path()).cache_bytes(1),
        ] {
            let remote = options.open(ADDRESS).unwrap();
            assert_eq!(remote.path(), Path::new(ADDRESS));
            for (here, there) in local.splits().zip(remote.splits()) {
                let order: Vec<u64> = (0..here.len()).rev().chain(0..here.len()).collect();
                let records = |split: &Split| -> Vec<_> {
                    split.get_many(&order).unwrap().into_iter().map(Record::into_inner).collect()
                };
                assert_eq!(records(&here), records(&there), "{format} {kind:?}");
                let in_order = |split: &Split| split.iter().map(inner).collect::<Vec<_>>();
                assert_eq!(in_order(&here), in_order(&there));
                if let Some(last) = here.len().checked_sub(1) {
                    assert_eq!(inner(here.get(last)), inner(there.get(last)));
                }
                assert_eq!(here.describe().unwrap().histogram, there.describe().unwrap().histogram);
            }
            let report = verify(&remote, &VerifyOptions::default());
            assert!(report.is_ok(), "{format} {kind:?}: {:?}", report.problems);
        }
        assert!(server.counts().faults > 0);
    }
}

#[test]
fn cached_files_are_not_fetched_again() {
    let dir = pristine(Format::Msgpack, Kind::Text);
    let server = Server::start(0, Faults::default()).unwrap();
    upload(&server, &dir);
    let cache = tempfile::tempdir().unwrap();
    let read = || {
        let before = server.counts().requests;
        let dataset = options(&server).cache_dir(cache.path()).open(ADDRESS).unwrap();
        let count: usize = dataset.splits().map(|split| split.iter().map(inner).count()).sum();
        assert!(count > 0);
        server.counts().requests - before
    };
    assert!(read() > 1);
    assert_eq!(read(), 1, "only the manifest is read again");
}

#[test]
fn a_damaged_object_is_an_error_never_a_wrong_record() {
    for format in Format::ALL {
        let dir = pristine(format, Kind::Images);
        let server = Server::start(0, Faults::default()).unwrap();
        upload(&server, &dir);
        let dataset = options(&server).open(ADDRESS).unwrap();
        let shard = dataset.shards().shards().next().unwrap().path();
        let key = format!("bucket/set/{shard}");
        let whole = server.get(&key).unwrap();
        let good: Vec<_> = dataset.split("train").unwrap().iter().map(inner).collect();
        for at in (0..whole.len()).step_by(97) {
            let mut damaged = whole.clone();
            damaged[at] ^= 4;
            server.put(&key, damaged);
            let dataset = options(&server).open(ADDRESS).unwrap();
            for (record, good) in dataset.split("train").unwrap().iter().zip(&good) {
                match record {
                    Ok(record) => assert_eq!(&record.into_inner(), good, "{format} byte {at}"),
                    Err(e) => assert!(matches!(e.kind(), ErrorKind::Corrupt | ErrorKind::Unsupported), "{e}"),
                }
            }
        }
        server.put(&key, whole[..whole.len() - 1].to_vec());
        let dataset = options(&server).open(ADDRESS).unwrap();
        assert_eq!(dataset.split("train").unwrap().get(0).unwrap_err().kind(), ErrorKind::Corrupt);
        server.delete(&key);
        let dataset = options(&server).open(ADDRESS).unwrap();
        assert_eq!(dataset.split("train").unwrap().get(0).unwrap_err().kind(), ErrorKind::Io);
    }
}

#[test]
fn bytes_damaged_on_the_way_are_fetched_again() {
    for (format, kind) in all() {
        let dir = pristine(format, kind);
        let local = Dataset::open(&dir).unwrap();
        let server = Server::start(0, Faults::default()).unwrap();
        upload(&server, &dir);
        let expected: Vec<_> =
            local.splits().flat_map(|split| split.iter().map(inner).collect::<Vec<_>>()).collect();
        let read = |options: &OpenOptions| -> dsconvert_dataset::error::Result<Vec<sample::Record>> {
            let mut records = Vec::new();
            for split in options.open(ADDRESS)?.splits() {
                for ordinal in 0..split.len() {
                    records.push(split.get(ordinal)?.into_inner());
                }
                let many = split.get_many(&(0..split.len()).collect::<Vec<_>>())?;
                assert!(
                    many.into_iter().map(Record::into_inner).eq(records
                        .iter()
                        .rev()
                        .take(split.len() as usize)
                        .rev()
                        .cloned())
                );
            }
            Ok(records)
        };
        for has_cache in [false, true] {
            let before = server.counts().requests;
            read(&options(&server)).unwrap();
            let requests = server.counts().requests - before;
            // Each response but the first, which is the manifest: without a checksum of its own, it may only not parse.
            for nth in 1..requests {
                let cache = tempfile::tempdir().unwrap();
                let options = match has_cache {
                    true => options(&server).cache_dir(cache.path()),
                    false => options(&server),
                };
                server.set_faults(Faults {
                    nth: Some((server.counts().requests + nth, Fault::Damaged)),
                    ..Faults::default()
                });
                assert!(read(&options).unwrap() == expected, "{format} {kind:?}, response {nth}");
                server.set_faults(Faults::default());
                let dataset = options.open(ADDRESS).unwrap();
                assert!(
                    verify(&dataset, &VerifyOptions::default()).is_ok(),
                    "{format} {kind:?}, response {nth}"
                );
            }
        }
    }
}

#[test]
fn datasets_are_read_from_servers_with_weak_entity_tags_and_without_ranges() {
    for format in Format::ALL {
        let dir = pristine(format, Kind::Text);
        for faults in [
            Faults { weak_etags: true, ..Faults::default() },
            Faults { ignores_ranges: true, ..Faults::default() },
        ] {
            let server = Server::start(0, faults).unwrap();
            upload(&server, &dir);
            let web = format!("{}/bucket/set", server.endpoint());
            for (options, address) in [(options(&server), ADDRESS), (OpenOptions::new(), &web)] {
                let dataset = options.open(address).unwrap();
                let report = verify(&dataset, &VerifyOptions::default());
                assert!(report.is_ok(), "{format} {address}: {:?}", report.problems);
            }
        }
    }
}

#[test]
fn an_unavailable_store_is_no_damage() {
    let (server, _) = opened(Format::Parquet);
    let dataset = options(&server).open(ADDRESS).unwrap();
    server.set_faults(shards_fail(Fault::Denied));
    let report = verify(&dataset, &VerifyOptions::default());
    assert!(!report.is_ok() && report.is_incomplete(), "{:?}", report.problems);
    let shard = dataset.shards().shards().next().unwrap().path();
    server.set_faults(Faults::default());
    server.delete(&format!("bucket/set/{shard}"));
    let report = verify(&dataset, &VerifyOptions::default());
    assert!(!report.is_ok() && !report.is_incomplete(), "{:?}", report.problems);
}

#[test]
fn errors_suggest_a_remedy() {
    let server = Server::start(0, Faults::default()).unwrap();
    let said = |result: dsconvert_dataset::error::Result<Dataset>| {
        let error = result.unwrap_err();
        (error.kind(), format!("{error} {}", error.remedy().unwrap_or_default()))
    };
    let (kind, text) = said(options(&server).open("s3://bucket/none"));
    assert!(
        kind == ErrorKind::Io && text.contains("not a dataset") && text.contains("s3://bucket/none"),
        "{text}"
    );
    let (kind, text) = said(OpenOptions::new().open("ftp://host/set"));
    assert!(kind == ErrorKind::Usage && text.contains("ftp://"), "{text}");
    let (kind, text) = said(OpenOptions::new().cache_dir("x").open("set"));
    assert!(kind == ErrorKind::Usage && text.contains("object storage"), "{text}");
    for (dir, what) in [("", "the path is empty"), ("s3://bucket/cache", "is a URL")] {
        let (kind, text) = said(options(&server).cache_dir(dir).open(ADDRESS));
        assert!(kind == ErrorKind::Usage && text.contains(what) && text.contains("cache_dir"), "{text}");
    }
    let (kind, text) = said(options(&server).cache_bytes(1).open(ADDRESS));
    assert!(kind == ErrorKind::Usage && text.contains("cache_dir"), "{text}");
    assert!(!Path::new("x").try_exists().unwrap(), "no directory was created");
}

/// Returns faults of every request for a shard of the split `train`.
fn shards_fail(fault: Fault) -> Faults {
    Faults { one_in: 1, kinds: vec![fault], only: Some("/train/".to_owned()), ..Faults::default() }
}

/// Returns a dataset on a server, of which everything is known but the shards.
fn opened(format: Format) -> (Server, Split) {
    let server = Server::start(0, Faults::default()).unwrap();
    upload(&server, &pristine(format, Kind::Text));
    let split = options(&server).open(ADDRESS).unwrap().split("train").unwrap();
    split.length(0).unwrap();
    (server, split)
}

#[test]
fn an_outage_is_one_error_for_all_records_and_loses_none() {
    for format in Format::ALL {
        let (server, split) = opened(format);
        // Refused requests are not retried, which makes the test fast.
        server.set_faults(shards_fail(Fault::Denied));
        let all: Vec<u64> = (0..split.len()).collect();
        // Of 23 records. A batch is fetched with up to 16 concurrent requests.
        for most in [16, 16, 1] {
            let before = server.counts().requests;
            let error = match most {
                1 => split.get(0).unwrap_err(),
                _ => split.get_many(&all).unwrap_err(),
            };
            assert_eq!(error.kind(), ErrorKind::Io, "{format} {error}");
            assert!(error.remedy().is_some(), "{format} {error}");
            assert!(server.counts().requests - before <= most, "{format}");
        }
        let mut records = split.iter();
        for _ in 0..3 {
            let before = server.counts().requests;
            assert_eq!(records.next().unwrap().unwrap_err().kind(), ErrorKind::Io, "{format}");
            assert!(server.counts().requests - before <= 16, "{format}");
        }
        server.set_faults(Faults::default());
        let found: Vec<u64> = records.map(|record| record.unwrap().ordinal()).collect();
        assert_eq!(found, all, "{format}");
    }
}

#[test]
fn a_read_that_waits_for_the_store_can_be_interrupted() {
    for format in [Format::Parquet, Format::Msgpack] {
        let (server, split) = opened(format);
        server.set_faults(shards_fail(Fault::Held));
        let stop = Arc::new(AtomicBool::new(false));
        for records in [&[0][..], &[0, 5, 11]] {
            let before = server.counts().requests;
            std::thread::scope(|scope| {
                let condition = {
                    let stop = Arc::clone(&stop);
                    move || stop.load(Ordering::Relaxed)
                };
                let reading = scope.spawn(|| interruptible(condition, || split.get_many(records)));
                while server.counts().requests == before {
                    std::thread::yield_now();
                }
                stop.store(true, Ordering::Relaxed);
                let error = reading.join().unwrap().unwrap_err();
                assert!(matches!(error.kind(), ErrorKind::Interrupted(_)), "{format} {error}");
            });
            stop.store(false, Ordering::Relaxed);
        }
        server.set_faults(Faults::default());
        assert_eq!(split.get_many(&[0, 5]).unwrap().len(), 2);
    }
}

#[test]
fn a_dropped_loader_cancels_its_requests() {
    let (server, split) = opened(Format::Msgpack);
    server.set_faults(shards_fail(Fault::Held));
    let batches = BatchOptions::new(BatchSize::BatchSize(2));
    let mut loader = Loader::new(split, LoaderOptions { threads: 2, ..LoaderOptions::new(batches) }).unwrap();
    let before = server.counts().requests;
    assert!(matches!(loader.next_within(Duration::ZERO).unwrap(), crate::loader::Next::NotYet));
    while server.counts().requests == before {
        std::thread::yield_now();
    }
    let (sender, dropped) = mpsc::channel();
    std::thread::spawn(move || {
        drop(loader);
        sender.send(()).unwrap();
    });
    // Without a response, the client itself gives up after 30 seconds, and only to try again.
    dropped.recv_timeout(Duration::from_secs(20)).unwrap();
}
