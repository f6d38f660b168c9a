//! Records the commit, the crate features and the target for `dsconvert --version`, and the versions of all dependencies
//! (a hash of `Cargo.lock`) for the identity of the build.
//!
//! The commit is that of a crate package (`.cargo_vcs_info.json`) or of the Git repository whose root is this package.
//! Without either it is `unknown`. Development builds do not record it, because every commit would then recompile the
//! crate.

#![allow(clippy::print_stdout, reason = "this is how a build script talks to Cargo")]

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// File that `cargo package` writes into crate packages.
const PACKAGE_INFO: &str = ".cargo_vcs_info.json";

fn main() {
    let root = env::var_os("CARGO_MANIFEST_DIR").map(PathBuf::from).unwrap_or_default();
    let target = env::var("TARGET").unwrap_or_default();
    let is_release = env::var("PROFILE").is_ok_and(|profile| profile == "release");
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-env=DSCONVERT_TARGET={target}");
    println!("cargo::rustc-env=DSCONVERT_FEATURES={}", features().join(", "));
    let commit = match is_release {
        true => packaged_commit(&root).or_else(|| git_commit(&root)).unwrap_or_else(|| "unknown".to_owned()),
        false => "not recorded (development build)".to_owned(),
    };
    println!("cargo::rustc-env=DSCONVERT_COMMIT={commit}");
    let lock = root.join("Cargo.lock");
    let dependencies = fs::read(&lock).map(|lock| format!("{:016x}", fnv_1a(&lock)));
    if dependencies.is_ok() {
        println!("cargo::rerun-if-changed={}", lock.display());
    }
    let dependencies = dependencies.unwrap_or_else(|_| "unknown".to_owned());
    println!("cargo::rustc-env=DSCONVERT_DEPENDENCIES={dependencies}");
}

/// Returns the FNV-1a hash, which only has to differ for different files.
fn fnv_1a(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

/// Returns the enabled crate features.
fn features() -> Vec<String> {
    let names = env::vars_os().filter_map(|(name, _)| name.into_string().ok());
    let mut features: Vec<String> = names
        .filter_map(|name| {
            name.strip_prefix("CARGO_FEATURE_").map(|name| name.to_lowercase().replace('_', "-"))
        })
        .filter(|name| name != "default")
        .collect();
    features.sort();
    features
}

/// Returns the commit from which a crate package was created.
fn packaged_commit(root: &Path) -> Option<String> {
    let info = fs::read_to_string(root.join(PACKAGE_INFO)).ok()?;
    let (_, after) = info.split_once("\"sha1\"")?;
    let hash = after.split('"').nth(1)?;
    let is_hash = hash.len() >= 40 && hash.bytes().all(|byte| byte.is_ascii_hexdigit());
    let modified = if info.contains("\"dirty\": true") { " (modified)" } else { "" };
    is_hash.then(|| format!("{hash}{modified}"))
}

/// Returns the checked-out commit; `None` for a package that was unpacked inside another repository.
fn git_commit(root: &Path) -> Option<String> {
    let top = PathBuf::from(git(root, &["rev-parse", "--show-toplevel"])?);
    if fs::canonicalize(top).ok()? != fs::canonicalize(root).ok()? {
        return None;
    }
    let hash = git(root, &["rev-parse", "HEAD"])?;
    let is_modified = git(root, &["status", "--porcelain", "--untracked-files=no"]).is_some();
    // A new commit changes one of these refs; an edit changes one of the sources.
    let branch = git(root, &["symbolic-ref", "-q", "HEAD"]);
    let names = ["HEAD".to_owned(), "packed-refs".to_owned()].into_iter().chain(branch);
    let refs = names.filter_map(|name| git(root, &["rev-parse", "--git-path", &name]));
    let sources = ["src", "crates", "lab", "Cargo.toml", "Cargo.lock"].map(str::to_owned);
    for path in refs.chain(sources).map(|path| root.join(path)) {
        // Cargo would rerun this script at every build if a listed file were missing.
        if path.try_exists().unwrap_or(false) {
            println!("cargo::rerun-if-changed={}", path.display());
        }
    }
    Some(if is_modified { format!("{hash} (modified)") } else { hash })
}

/// Returns Git's trimmed output; `None` if Git fails or prints nothing.
fn git(root: &Path, arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").arg("-C").arg(root).args(arguments).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?.trim().to_owned();
    (output.status.success() && !text.is_empty()).then_some(text)
}
