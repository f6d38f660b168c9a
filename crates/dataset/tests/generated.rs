//! Checks that the committed protobuf code matches `proto/`. Needs no `protoc`: protox compiles the proto file in Rust.

use std::path::Path;

#[test]
fn generated_code_matches_the_proto_file() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let proto = root.join("../../proto");
    let files = protox::compile(["dsconvert/v1/record.proto"], [proto]).unwrap();
    let out = tempfile::tempdir().unwrap();
    prost_build::Config::new().bytes(["."]).out_dir(out.path()).compile_fds(files).unwrap();
    let fresh = std::fs::read_to_string(out.path().join("dsconvert.v1.rs")).unwrap();
    let committed = root.join("src/format/generated/dsconvert.v1.rs");
    if std::env::var_os("DSCONVERT_REGENERATE").is_some() {
        std::fs::write(&committed, &fresh).unwrap();
    }
    let committed = std::fs::read_to_string(committed).unwrap();
    assert!(
        fresh == committed,
        "run this test with DSCONVERT_REGENERATE=1 and commit crates/dataset/src/format/generated"
    );
}
