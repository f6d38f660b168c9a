//! Tests against a loopback server that fails on purpose.

use std::io::Write;
use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use objects::{Fault, Faults, Server};

use super::cache::Cache;
use super::remote_file::{BlockStore, RemoteFile};
use super::*;
use crate::error::ErrorKind;
use crate::storage::ObjectUrl;

fn url(text: &str) -> ObjectUrl {
    ObjectUrl::parse(Path::new(text)).unwrap().unwrap()
}

fn bucket(server: &Server) -> Bucket {
    bucket_at(server, "s3://bucket")
}

fn bucket_at(server: &Server, address: &str) -> Bucket {
    let settings =
        server.environment().into_iter().map(|(name, value)| (name.to_ascii_lowercase(), value)).collect();
    Bucket::with(&url(address), &settings).unwrap()
}

fn started(faults: Faults) -> (Server, Bucket) {
    let server = Server::start(0, faults).unwrap();
    let bucket = bucket(&server);
    (server, bucket)
}

/// Returns non-periodic bytes, so that wrong offsets are detected.
fn content(len: usize) -> Vec<u8> {
    let mut state = 7u32;
    std::iter::repeat_with(|| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as u8
    })
    .take(len)
    .collect()
}

/// Returns a store without a cache directory.
fn in_memory() -> BlockStore {
    BlockStore::new(None, 1 << 30)
}

fn sha256(bytes: &[u8]) -> String {
    use sha2::Digest;
    crate::storage::hex(&sha2::Sha256::digest(bytes))
}

#[test]
fn objects_are_written_read_listed_and_deleted_despite_faults() {
    let (server, bucket) = started(Faults { page: 3, ..Faults::usual(4, 1) });
    for (name, len) in [("a/b.bin", 10), ("a-b", 0), ("a/ä &<ö>", 100_000), ("a/c", 1), ("b", 5), ("a/d", 2)]
    {
        let url = url(&format!("s3://bucket/set/{name}"));
        let bytes = Bytes::from(content(len));
        assert_ne!(bucket.create(&url, &bytes).unwrap(), Created::Other, "{name}");
        assert_eq!(server.get(&format!("bucket/set/{name}")).unwrap(), bytes);
        assert_eq!(bucket.get(&url, 1 << 20).unwrap().0, bytes);
        assert_eq!(bucket.head(&url).unwrap().unwrap().bytes, len as u64);
        assert_eq!(bucket.create(&url, &Bytes::from_static(b"other")).unwrap(), Created::Other);
    }
    let list = |folder: &str| -> Vec<String> {
        let objects = bucket.list(&url(folder)).unwrap();
        objects.iter().map(|object| object.url.key().to_owned()).collect()
    };
    assert_eq!(
        list("s3://bucket/set"),
        ["set/a-b", "set/a/b.bin", "set/a/c", "set/a/d", "set/a/ä &<ö>", "set/b"]
    );
    assert_eq!(list("s3://bucket/set/a").len(), 4, "keys that only share the prefix are not listed");
    let gone = url("s3://bucket/set/b");
    bucket.delete(&gone).unwrap();
    bucket.delete(&gone).unwrap();
    assert_eq!(bucket.head(&gone).unwrap(), None);
    assert_eq!(bucket.get(&gone, 9).unwrap_err().kind(), ErrorKind::Io);
    assert!(server.counts().faults > 0);
}

#[test]
fn a_multipart_object_appears_when_it_is_complete() {
    for faults in [Faults::default(), Faults::usual(5, 3)] {
        let (server, bucket) = started(faults);
        let bytes = content((20 << 20) + 17);
        let at = url("s3://bucket/large");
        let mut upload = bucket.upload(&at).unwrap();
        for piece in bytes.chunks(1_000_003) {
            upload.write_all(piece).unwrap();
        }
        assert_eq!(server.get("bucket/large"), None);
        let written = upload.finish().unwrap();
        assert_eq!((written.bytes, written.sha256), (bytes.len() as u64, sha256(&bytes)));
        assert!(server.get("bucket/large").unwrap() == bytes);
        let mut dropped = bucket.upload(&url("s3://bucket/never")).unwrap();
        dropped.write_all(&bytes).unwrap();
        drop(dropped);
        assert_eq!(server.get("bucket/never"), None);
    }
}

#[test]
fn files_are_read_in_blocks_with_and_without_a_cache() {
    let bytes = content((5 << 20) + 123);
    let end = bytes.len() as u64;
    let sha256 = sha256(&bytes);
    let ranges = [0..10, end - 5..end, (1 << 20) - 3..(1 << 20) + 3, 0..end, 7..7, (3 << 20)..(3 << 20) + 1];
    for seed in 0..3 {
        let (server, bucket) = started(Faults::default());
        server.put("bucket/x", bytes.clone());
        server.set_faults(Faults::usual(if seed == 0 { 0 } else { 4 }, seed));
        let dir = tempfile::tempdir().unwrap();
        let cache = Cache::open(dir.path(), 1 << 30).unwrap();
        for store in [in_memory(), BlockStore::new(Some(cache), 0)] {
            let open = || RemoteFile::open(&bucket, url("s3://bucket/x"), end, &sha256, &store).unwrap();
            let file = open();
            let mut before = 0;
            for _ in 0..2 {
                before = server.counts().requests;
                for range in &ranges[..2] {
                    let wanted = &bytes[range.start as usize..range.end as usize];
                    assert_eq!(file.read(range.clone()).unwrap(), wanted);
                }
            }
            assert_eq!(server.counts().requests, before, "fetched blocks are kept");
            for range in &ranges {
                let wanted = &bytes[range.start as usize..range.end as usize];
                assert!(file.read(range.clone()).unwrap() == wanted, "{range:?}");
            }
            let again = open();
            let before = server.counts().requests;
            assert!(again.read(0..end).unwrap() == bytes);
            assert_eq!(server.counts().requests, before, "another reader of the object uses the same blocks");
        }
    }
}

#[test]
fn damaged_cache_blocks_are_fetched_again() {
    let bytes = content(3 << 20);
    let (server, bucket) = started(Faults::default());
    server.put("bucket/x", bytes.clone());
    let (dir, sha256) = (tempfile::tempdir().unwrap(), sha256(&bytes));
    let cache = Cache::open(dir.path(), 1 << 30).unwrap();
    let open = || {
        let store = BlockStore::new(Some(cache.clone()), 0);
        RemoteFile::open(&bucket, url("s3://bucket/x"), 3 << 20, &sha256, &store).unwrap()
    };
    assert!(open().read(0..3 << 20).unwrap() == bytes);
    let data = dir.path().join(format!("{sha256}.data"));
    let mut damaged = bytes.clone();
    damaged[(1 << 20) + 5] ^= 1;
    std::fs::write(&data, &damaged).unwrap();
    let before = server.counts().requests;
    assert!(open().read(0..3 << 20).unwrap() == bytes);
    assert_eq!(server.counts().requests, before + 1);
    std::fs::write(&data, b"short").unwrap();
    assert!(open().read(0..3 << 20).unwrap() == bytes);
}

#[test]
fn the_cache_stays_within_its_limit() {
    let (server, bucket) = started(Faults::default());
    let dir = tempfile::tempdir().unwrap();
    let store = BlockStore::new(Some(Cache::open(dir.path(), 4 << 20).unwrap()), 0);
    for number in 0..6u8 {
        let bytes = [content(1 << 20), vec![number]].concat();
        server.put(&format!("bucket/{number}"), bytes.clone());
        let end = bytes.len() as u64;
        let at = url(&format!("s3://bucket/{number}"));
        let file = RemoteFile::open(&bucket, at, end, &sha256(&bytes), &store).unwrap();
        assert!(file.read(0..end).unwrap() == bytes);
    }
    let used: u64 = std::fs::read_dir(dir.path())
        .unwrap()
        .map(|entry| std::os::unix::fs::MetadataExt::blocks(&entry.unwrap().metadata().unwrap()) * 512)
        .sum();
    assert!(used <= 5 << 20, "{used}");
    assert!(used >= 2 << 20, "{used}");
}

#[test]
fn bytes_of_a_replaced_object_are_never_mixed() {
    let (server, bucket) = started(Faults::default());
    let bytes = content(3 << 20);
    server.put("bucket/x", bytes.clone());
    let opened = || RemoteFile::open(&bucket, url("s3://bucket/x"), 3 << 20, "", &in_memory()).unwrap();
    let file = opened();
    file.read(0..1).unwrap();
    let mut other = bytes;
    other.reverse();
    server.put("bucket/x", other);
    let error = file.read(2 << 20..(2 << 20) + 1).unwrap_err();
    assert!(error.kind() == ErrorKind::Io && error.to_string().contains("replaced"), "{error}");
    server.put("bucket/x", b"short".to_vec());
    assert!(opened().read(0..1).is_err());
}

#[test]
fn failures_have_help_texts() {
    let (server, bucket) = started(Faults { one_in: 1, kinds: vec![Fault::Denied], ..Faults::default() });
    let error = bucket.head(&url("s3://bucket/x")).unwrap_err();
    assert!(error.remedy().unwrap().contains("AWS_ACCESS_KEY_ID"), "{error}");
    server.set_faults(Faults { latency: Duration::ZERO, ..Faults::default() });
    let error = bucket.get(&url("s3://bucket/x"), 1).unwrap_err();
    assert!(error.to_string().contains("no such object"), "{error}");
    let unknown = [("endpoint".to_owned(), server.endpoint()), ("color".to_owned(), "red".to_owned())].into();
    assert_eq!(Bucket::with(&url("s3://bucket"), &unknown).unwrap_err().kind(), ErrorKind::Usage);
}

#[test]
fn requests_work_inside_another_runtime() {
    let (server, bucket) = started(Faults::default());
    server.put("bucket/x", b"hello".to_vec());
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let read = runtime.block_on(async { bucket.get(&url("s3://bucket/x"), 9).unwrap().0 });
    assert_eq!(&read[..], b"hello");
}

#[test]
fn threads_that_need_the_same_block_send_one_request() {
    let bytes = content(3 << 20);
    let (server, bucket) = started(Faults { latency: Duration::from_millis(50), ..Faults::default() });
    server.put("bucket/x", bytes.clone());
    let (dir, sha256) = (tempfile::tempdir().unwrap(), sha256(&bytes));
    let cache = Cache::open(dir.path(), 1 << 30).unwrap();
    for (store, cached) in [(in_memory(), false), (BlockStore::new(Some(cache), 0), true)] {
        let before = server.counts().sent;
        std::thread::scope(|scope| {
            for thread in 0..8u64 {
                let (bytes, sha256, store, bucket) = (&bytes, &sha256, &store, &bucket);
                scope.spawn(move || {
                    let at = url("s3://bucket/x");
                    let file = RemoteFile::open(bucket, at, 3 << 20, sha256, store).unwrap();
                    for range in [thread * 7..(thread + 1) << 10, 0..3 << 20, thread..(1 << 20) + thread] {
                        assert!(
                            file.read(range.clone()).unwrap()
                                == bytes[range.start as usize..range.end as usize]
                        );
                    }
                });
            }
        });
        assert_eq!(server.counts().sent - before, 3 << 20, "cached: {cached}");
    }
}

/// Opens the object `name` for reading.
fn opened(bucket: &Bucket, name: &str) -> ObjectReader {
    let object = bucket.head(&url(&format!("s3://bucket/{name}"))).unwrap().unwrap();
    ObjectReader::open(bucket, object).unwrap()
}

#[test]
fn objects_are_read_like_files() {
    let (server, bucket) = started(Faults::usual(6, 3));
    let all = content((13 << 20) + 7);
    server.put("bucket/big", all.clone());
    // From start to end with a small buffer.
    let reader = opened(&bucket, "big");
    let (mut found, mut buffer) = (Vec::new(), vec![0; 300_001]);
    loop {
        match reader.read_next(&mut buffer).unwrap() {
            0 => break,
            read => found.extend_from_slice(&buffer[..read]),
        }
    }
    assert!(found == all);
    // At any position, announced or not, with a small or large limit.
    let reader = opened(&bucket, "big");
    let mut state = 5u64;
    for round in 0..60 {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let offset = (state >> 33) as usize % all.len();
        let most = 1 + (state >> 20) as usize % 2_000_000;
        if round % 7 == 3 {
            reader.will_read(offset as u64..(offset + most) as u64).unwrap();
        }
        reader.hold(if round % 20 < 10 { 0 } else { 64 << 20 });
        let bytes = reader.bytes_at(offset as u64, most).unwrap();
        assert!(!bytes.is_empty() && bytes.len() <= most);
        assert!(bytes == all[offset..offset + bytes.len()], "{offset} {most}");
    }
    assert!(reader.bytes_at(all.len() as u64, 1).unwrap().is_empty());
    assert!(server.counts().faults > 0);
}

#[test]
fn reads_need_few_requests_and_few_extra_bytes() {
    let (server, bucket) = started(Faults::default());
    let all = content(9 << 20);
    server.put("bucket/big", all.clone());
    server.put("bucket/small", all[..50_000].to_vec());
    server.put("bucket/empty", Vec::new());
    let cost = |read: &dyn Fn()| {
        let before = server.counts();
        read();
        let after = server.counts();
        (after.requests - before.requests, after.sent - before.sent)
    };
    let (small, empty, big) = (opened(&bucket, "small"), opened(&bucket, "empty"), opened(&bucket, "big"));
    let mut buffer = vec![0; 100];
    assert_eq!(cost(&|| assert_eq!(small.read_next(&mut [0; 100]).unwrap(), 100)), (1, 50_000));
    assert_eq!(empty.read_next(&mut buffer).unwrap(), 0);
    assert_eq!(cost(&|| assert_eq!(big.read_at(&mut [0; 8], (9 << 20) - 8).unwrap(), 8)), (1, 64 << 10));
    // The bytes read to find a footer contain it.
    assert_eq!(cost(&|| assert_eq!(big.bytes_at((9 << 20) - 60_000, 9).unwrap().len(), 9)), (0, 0));
    let range = 1_000_000u64..1_300_000;
    let announced = || {
        big.will_read(range.clone()).unwrap();
        let mut at = range.start;
        while at < range.end {
            at += big.bytes_at(at, (range.end - at) as usize).unwrap().len() as u64;
        }
    };
    assert_eq!(cost(&announced), (1, 300_000));
}

#[test]
fn a_replaced_object_is_not_read() {
    let (server, bucket) = started(Faults::default());
    server.put("bucket/x", content(6 << 20));
    let reader = opened(&bucket, "x");
    assert_eq!(reader.bytes_at(0, 10).unwrap().len(), 10);
    let mut other = content(6 << 20);
    other[5 << 20] ^= 1;
    server.put("bucket/x", other);
    let error = reader.bytes_at(5 << 20, 10).unwrap_err();
    assert!(error.kind() == ErrorKind::Io && error.to_string().contains("replaced"), "{error}");
    server.delete("bucket/x");
    let error = reader.bytes_at(3 << 20, 10).unwrap_err();
    assert!(error.kind() == ErrorKind::Io && error.to_string().contains("no such object"), "{error}");
}

#[test]
fn folder_markers_are_not_files() {
    let (server, bucket) = started(Faults { page: 2, ..Faults::default() });
    for key in ["p/", "p/a-b", "p/a/", "p/a/x", "p/empty", "p/none/", "p/z", "p/z-", "p/z/"] {
        server.put(&format!("bucket/{key}"), if key == "p/a-b" { vec![1] } else { Vec::new() });
    }
    let listing = bucket.list_files(&url("s3://bucket/p")).unwrap();
    let keys: Vec<&str> = listing.objects.iter().map(|object| object.url.key()).collect();
    assert_eq!(keys, ["p/a-b", "p/a/x", "p/empty", "p/z", "p/z-"]);
    assert!(listing.unusable.is_empty());
}

#[test]
fn small_objects_are_read_from_servers_without_ranges() {
    let server = Server::start(0, Faults { ignores_ranges: true, ..Faults::default() }).unwrap();
    let root = url(&format!("{}/bucket", server.endpoint()));
    let bucket = Bucket::of(&root).unwrap();
    let open = |name: &str, bytes: u64| {
        RemoteFile::open(&bucket, root.join(name).unwrap(), bytes, "", &in_memory()).unwrap()
    };
    let bytes = content(3 << 20);
    server.put("bucket/small", bytes.clone());
    let at = (2 << 20) + 5;
    assert!(open("small", 3 << 20).read(at..at + 7).unwrap() == bytes[at as usize..][..7]);
    server.put("bucket/large", content(9 << 20));
    let error = open("large", 9 << 20).read(at..at + 7).unwrap_err();
    assert!(error.to_string().contains("does not support range requests"), "{error}");
    assert!(error.remedy().unwrap().contains("local copy") && !error.is_unavailable(), "{error}");
    // Sources are read in pieces of 4 MiB.
    let found = bucket.head(&root.join("small").unwrap()).unwrap().unwrap();
    let reader = ObjectReader::open(&bucket, found).unwrap();
    assert!(reader.bytes_at(at, 7).unwrap() == bytes[at as usize..][..7]);
}

#[test]
fn a_folder_marker_alone_is_no_content() {
    let (server, bucket) = started(Faults { page: 1, ..Faults::default() });
    let holds = |folder: &str| bucket.holds(&url(folder)).unwrap();
    server.put("bucket/set/", "");
    server.put("bucket/set-2/", "not empty");
    assert!(!holds("s3://bucket/set") && !holds("s3://bucket/none"));
    assert!(holds("s3://bucket/set-2") && holds("s3://bucket"));
    server.put("bucket/set/x/", "");
    assert!(holds("s3://bucket/set") && !holds("s3://bucket/set/x"));
}

#[test]
fn keys_that_are_not_valid_paths_are_skipped() {
    let (server, bucket) = started(Faults { page: 400, ..Faults::usual(9, 1) });
    for number in 0..1000 {
        server.put(&format!("bucket/p/{number:04}"), vec![1]);
    }
    let bad = ["p//x", "p/0000/../y", "p/0399//z", "p/0399//zz", "p/0500/.", "p/9//"];
    for key in bad {
        server.put(&format!("bucket/{key}"), vec![2]);
    }
    let listing = bucket.list_files(&url("s3://bucket/p")).unwrap();
    let keys: Vec<&str> = listing.objects.iter().map(|object| object.url.key()).collect();
    let good: Vec<String> = (0..1000).map(|number| format!("p/{number:04}")).collect();
    assert_eq!(keys, good);
    assert_eq!(listing.unusable, bad);
}

#[test]
fn files_are_not_requested_from_a_store_that_counts_as_unavailable() {
    let server = Server::start(0, Faults::default()).unwrap();
    let bucket = bucket_at(&server, "s3://unavailable");
    server.put("unavailable/x", content(10));
    let at = url("s3://unavailable/x");
    let file = RemoteFile::open(&bucket, at.clone(), 10, "", &in_memory()).unwrap();
    let outages = &runtime::current().unwrap().outages;
    for _ in 0..3 {
        outages.add(at.root(), &crate::error::Error::new(ErrorKind::Io, "no response"));
    }
    let before = server.counts().requests;
    let error = file.read(0..10).unwrap_err();
    assert!(error.kind() == ErrorKind::Io && error.to_string().contains("no response"), "{error}");
    assert_eq!(server.counts().requests, before);
    // A response ends the outage.
    bucket.get(&at, 10).unwrap();
    assert_eq!(file.read(0..10).unwrap(), content(10));
}
