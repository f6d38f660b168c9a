//! Panics, signals, thread limits, blocked output and changing sources: a run ends promptly, with the right exit
//! status, and can be resumed.

use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant, SystemTime};

use crate::support::*;

/// Time allowed for a command to end after a signal, on a machine that is busy with other tests.
const SOON: Duration = Duration::from_secs(8);
/// Time after which a command that should end by itself counts as hung.
const LONG: Duration = Duration::from_secs(90);
/// A second unprivileged user, because a process limit counts all processes of a user.
const NOBODY_ELSE: u32 = 65_533;
/// The environment variable that names the place of a test panic (`crates/dataset/src/testing.rs`).
const PANIC: &str = "DSCONVERT_TEST_PANIC";

/// Waits for a child and returns what it printed; a child that hangs is killed and fails the test.
#[track_caller]
fn finish(mut child: Child, within: Duration) -> Ran {
    let (mut stdout, mut stderr) = (child.stdout.take(), child.stderr.take());
    let started = Instant::now();
    while child.try_wait().unwrap().is_none() {
        let hangs = started.elapsed() > within;
        if hangs {
            child.kill().unwrap();
            child.wait().unwrap();
        }
        assert!(!hangs, "the command hangs");
        std::thread::sleep(Duration::from_millis(5));
    }
    let (mut out, mut err) = (Vec::new(), Vec::new());
    if let Some(stdout) = &mut stdout {
        stdout.read_to_end(&mut out).unwrap();
    }
    if let Some(stderr) = &mut stderr {
        stderr.read_to_end(&mut err).unwrap();
    }
    Ran::of(std::process::Output { status: child.wait().unwrap(), stdout: out, stderr: err })
}

fn piped(command: &mut Command) -> Child {
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

/// `dsconvert KIND SOURCE --out OUT OPTIONS…`, ready to be run.
fn conversion(kind: &str, source: &Path, out: &Path, options: &str) -> Command {
    let mut command = command([kind]);
    command.arg(source).arg("--out").arg(out).args(options.split_whitespace());
    command
}

/// Writes to the standard input of a child, and waits until it has read that: then, it waits for more.
#[track_caller]
fn feed(child: &mut Child, bytes: &[u8]) {
    let input = child.stdin.as_mut().unwrap();
    input.write_all(bytes).unwrap();
    let started = Instant::now();
    while rustix::io::ioctl_fionread(&*input).unwrap() > 0 {
        assert!(started.elapsed() < LONG, "the command does not read its input");
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn signal(child: &Child, name: &str) {
    assert!(Command::new("kill").args([name, &child.id().to_string()]).status().unwrap().success());
}

fn fifo(path: &Path) {
    assert!(Command::new("mkfifo").arg(path).status().unwrap().success());
}

/// A folder with `count` photos.
fn photos(dir: &Path, count: usize) -> PathBuf {
    let source = dir.join("photos");
    std::fs::create_dir(&source).unwrap();
    let photo = tree(&fixture("photos")).into_iter().find(|(name, _)| name.ends_with(".jpg")).unwrap().1;
    (0..count).for_each(|i| std::fs::write(source.join(format!("{i}.jpg")), &photo).unwrap());
    source
}

const TEXT: &str = "--tokenizer bytes --unit-bytes 16k";

#[test]
fn a_panic_anywhere_is_an_internal_error_and_the_run_can_be_resumed() {
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("c.jsonl");
    corpus(&source, 2000);
    let whole = dir.path().join("whole");
    let options = format!("{TEXT} --dedup exact");
    convert("text", &source, &whole, &options).exits(0);
    for place in ["plan", "prepare", "feed", "convert", "write", "close", "commit"] {
        let out = dir.path().join(place);
        let mut command = conversion("text", &source, &out, &options);
        let ran = finish(piped(command.env(PANIC, place)), LONG).exits(3);
        let ran = ran.says(&["a test requested a panic", "report it"]);
        assert_eq!(ran.stderr.matches("a test requested a panic").count(), 1, "{place}: {}", ran.stderr);
        assert!(!ran.stderr.contains("RUST_BACKTRACE"), "{place}: {}", ran.stderr);
        assert!(!out.join("manifest.json").exists(), "{place}");
        convert("text", &source, &out, &format!("{options} --resume")).exits(0);
        assert_same(&tree(&out), &tree(&whole));
    }
}

#[test]
fn a_panic_while_drawing_progress_ends_the_run() {
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("c.jsonl");
    corpus(&source, 30_000);
    let out = dir.path().join("out");
    let mut command = conversion("text", &source, &out, TEXT);
    finish(piped(command.env(PANIC, "draw")), LONG).exits(3).says(&["drawing the progress", "--resume"]);
    convert("text", &source, &out, &format!("{TEXT} --resume")).exits(0);
}

#[test]
fn a_panic_on_one_item_rejects_that_item() {
    let dir = tempfile::tempdir().unwrap();
    let source = photos(dir.path(), 12);
    let out = dir.path().join("images");
    let mut command = conversion("images", &source, &out, "");
    let ran = finish(piped(command.env(PANIC, "item:photos/7.jpg")), LONG).exits(0);
    assert!(!ran.stderr.contains("panic"), "{}", ran.stderr);
    assert_outcomes(&out, [11, 0, 0, 1]);
    assert_eq!(rejects(&out), [("photos/7.jpg".to_owned(), "decoder-panicked".to_owned())]);

    let source = dir.path().join("c.jsonl");
    corpus(&source, 30);
    let out = dir.path().join("text");
    let mut command = conversion("text", &source, &out, "--tokenizer bytes");
    finish(piped(command.env(PANIC, "item:c.jsonl#0")), LONG).exits(0);
    assert_outcomes(&out, [29, 0, 0, 1]);
    assert_eq!(rejects(&out), [("c.jsonl#0".to_owned(), "decoder-panicked".to_owned())]);
}

/// The first of the four components is sampled twice as densely as the others in both directions. Such a file once made
/// a decoder panic.
#[test]
fn a_cmyk_jpeg_with_subsampled_components_never_hangs_a_run() {
    let dir = tempfile::tempdir().unwrap();
    let source = photos(dir.path(), 3);
    for (name, color) in
        [("cmyk.jpg", jpeg_encoder::ColorType::Cmyk), ("ycck.jpg", jpeg_encoder::ColorType::CmykAsYcck)]
    {
        let mut bytes = Vec::new();
        let mut encoder = jpeg_encoder::Encoder::new(&mut bytes, 90);
        encoder.set_sampling_factor(jpeg_encoder::SamplingFactor::F_2_2);
        encoder.encode(&[90; 65 * 33 * 4], 65, 33, color).unwrap();
        std::fs::write(source.join(name), bytes).unwrap();
    }
    let out = dir.path().join("out");
    let ran = finish(piped(&mut conversion("images", &source, &out, "--max-rejects 50%")), LONG).exits(0);
    assert!(!ran.stderr.contains("panicked at"), "{}", ran.stderr);
    assert_eq!(manifest(&out)["found"], 5);
}

#[test]
fn a_signal_ends_a_command_that_waits_for_its_input() {
    let dir = tempfile::tempdir().unwrap();
    // Waits for the file list; nothing is written yet.
    let mut listing = command(["images", "--files-from", "-"]);
    listing.arg(dir.path()).arg("--out").arg(dir.path().join("listed")).stdin(Stdio::piped());
    // Waits for the first rows, which planning inspects; nothing is written yet.
    let mut planning = command(["text", "-", "--input-format", "jsonl", "--tokenizer", "bytes"]);
    planning.arg("--out").arg(dir.path().join("planned")).stdin(Stdio::piped());
    // Waits for text in its only unit, whose directory exists.
    let unit = dir.path().join("read/.dsconvert/units");
    let mut reading = command(["text", "-", "--input-format", "txt", "--tokenizer", "bytes"]);
    reading.arg("--out").arg(dir.path().join("read")).stdin(Stdio::piped());
    for (command, message, is_written) in [
        (&mut listing, "before anything was written", None),
        (&mut planning, "before anything was written", None),
        (&mut reading, "stopped before", Some(&unit)),
    ] {
        for (name, status) in [("-TERM", 143), ("-INT", 130)] {
            let mut child = piped(command);
            // Not a whole line.
            feed(&mut child, b"{");
            while is_written.is_some_and(|unit| !unit.exists()) {
                std::thread::sleep(Duration::from_millis(1));
            }
            signal(&child, name);
            finish(child, SOON).exits(status).says(&[message]);
            std::fs::remove_dir_all(dir.path().join("read")).ok();
        }
    }
}

/// Standard error is a full pipe whose reader has stopped reading.
#[test]
fn a_signal_ends_a_command_whose_standard_error_is_blocked() {
    let dir = tempfile::tempdir().unwrap();
    let (reader, mut writer) = std::io::pipe().unwrap();
    rustix::io::ioctl_fionbio(&writer, true).unwrap();
    while let Ok(1..) = writer.write(&[b'x'; 4096]) {}
    rustix::io::ioctl_fionbio(&writer, false).unwrap();
    let mut command = command(["text", "-", "--input-format", "txt", "--tokenizer", "bytes"]);
    command.arg("--out").arg(dir.path().join("out")).stdin(Stdio::piped());
    let mut child = command.stdout(Stdio::null()).stderr(writer).spawn().unwrap();
    feed(&mut child, b"text");
    signal(&child, "-TERM");
    finish(child, SOON).exits(143);
    drop(reader);
}

#[test]
fn a_write_error_on_standard_output_is_no_panic() {
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("c.jsonl");
    corpus(&source, 50);
    let out = dir.path().join("out");
    let full = || File::options().write(true).open("/dev/full").unwrap();
    let status = |command: &mut Command| command.stdout(full()).stderr(full()).status().unwrap().code();
    assert_eq!(status(&mut command(["text", "--no-such-option"])), Some(2));
    assert_eq!(status(&mut conversion("text", &source, &out, "--tokenizer bytes --format none")), Some(2));
    assert_eq!(status(&mut conversion("text", &source, &out, "--tokenizer bytes")), Some(0));
    // The resumed run has nothing to do, and reports on standard error that it cannot print.
    let mut again = conversion("text", &source, &out, "--tokenizer bytes --resume");
    let ran =
        Ran::of(again.stdout(full()).stderr(Stdio::piped()).spawn().unwrap().wait_with_output().unwrap());
    ran.exits(0).says(&["warning", "is committed", "cannot print"]);
    for options in [
        vec!["inspect"],
        vec!["inspect", "--json"],
        vec!["inspect", "--verify"],
        vec!["inspect", "--head", "2"],
    ] {
        let mut inspect = command(&options);
        inspect.arg(&out).stdout(full()).stderr(Stdio::piped());
        Ran::of(inspect.output().unwrap()).exits(3).says(&["cannot print"]);
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let mut inspect = command(&options);
        inspect.arg(&out).stdout(writer).stderr(Stdio::piped());
        Ran::of(inspect.output().unwrap()).exits(0);
    }
    let mut plan = conversion("text", &source, &dir.path().join("b"), "--tokenizer bytes --dry-run");
    Ran::of(plan.stdout(full()).stderr(Stdio::piped()).output().unwrap()).exits(3).says(&["cannot print"]);
    Ran::of(command(["--help"]).stdout(full()).stderr(Stdio::piped()).output().unwrap()).exits(3);
}

#[test]
fn a_manifest_with_a_duplicate_key_or_field_is_refused() {
    // Version 1 has no digest: in a later version, the digest would reveal any edit first.
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/golden/v1/text-arrow");
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("out");
    copy_dir(&golden, &out);
    let path = out.join("manifest.json");
    let whole = std::fs::read_to_string(&path).unwrap();
    let mut fields: serde_json::Value = serde_json::from_str(&whole).unwrap();
    let list = fields["schema"]["fields"].as_array_mut().unwrap();
    list.push(list[1].clone());
    let twice = whole.replacen("\"converted\":", "\"converted\": 50, \"converted\":", 1);
    for (manifest, message) in [(twice, "duplicate field"), (fields.to_string(), "two fields are called")] {
        std::fs::write(&path, manifest).unwrap();
        for options in [vec!["inspect", "--verify"], vec!["inspect"]] {
            Ran::of(command(options).arg(&out).output().unwrap()).exits(3).says(&[message]);
        }
    }
}

/// A file size limit makes writes fail as on a full disk, here in the middle of a shard.
#[test]
fn a_shard_that_cannot_be_written_is_named_in_every_format() {
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("c.jsonl");
    let mut state = 1u64;
    let mut lines = String::new();
    for _ in 0..600 {
        let words: String = std::iter::repeat_with(|| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            format!("{state:016x}")
        })
        .take(60)
        .collect();
        lines.push_str(&format!("{{\"text\": \"{words}\"}}\n"));
    }
    std::fs::write(&source, lines).unwrap();
    for format in FORMATS {
        let out = dir.path().join(format);
        let options = format!("--tokenizer bytes --format {format}");
        let script = format!(
            "ulimit -f 100; exec {} text {} --out {} {options}",
            env!("CARGO_BIN_EXE_dsconvert"),
            source.display(),
            out.display()
        );
        let ran = Ran::of(Command::new("bash").args(["-c", &script]).output().unwrap());
        ran.exits(3).says(&["cannot write", "train-000000-00"]);
        convert("text", &source, &out, &format!("{options} --resume")).exits(0);
    }
}

#[test]
fn a_working_directory_that_cannot_be_removed_is_a_warning() {
    let dir = tempfile::tempdir().unwrap();
    set_mode(dir.path(), 0o777);
    let source = dir.path().join("c.jsonl");
    corpus(&source, 50);
    let out = dir.path().join("out");
    let run = |options: &str| unprivileged(&mut conversion("text", &source, &out, options));
    let Some(first) = run("--tokenizer bytes") else { return };
    first.exits(0);
    let work = out.join(".dsconvert");
    let left = work.join("left");
    std::fs::create_dir_all(&left).unwrap();
    std::fs::write(left.join("x"), "").unwrap();
    set_mode(&work, 0o777);
    set_mode(&left, 0o555);
    let again = run("--tokenizer bytes --resume").unwrap();
    set_mode(&left, 0o755);
    again.exits(0).says(&["warning", "is committed", "working directory could not be removed"]);
}

#[test]
fn a_source_that_changes_during_the_run_fails_its_units() {
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("c.jsonl");
    corpus(&source, 20_000);
    let out = dir.path().join("out");
    let child = piped(&mut conversion("text", &source, &out, TEXT));
    while !out.join(".dsconvert/units/000003/done").exists() {
        std::thread::sleep(Duration::from_millis(1));
    }
    // It waits while the file changes.
    signal(&child, "-STOP");
    // Overwritten in place, with the same size.
    let text = std::fs::read_to_string(&source).unwrap().replace('w', "v");
    let mut file = File::options().write(true).open(&source).unwrap();
    file.write_all(text.as_bytes()).unwrap();
    file.set_modified(SystemTime::now() + Duration::from_secs(3)).unwrap();
    signal(&child, "-CONT");
    finish(child, LONG).exits(3).says(&["c.jsonl", "written to", "units failed"]);
    assert!(!out.join("manifest.json").exists());
    convert("text", &source, &out, &format!("{TEXT} --resume"))
        .exits(2)
        .says(&["c.jsonl was written to since"]);
}

#[test]
fn fifos_and_devices_never_block() {
    let dir = tempfile::tempdir().unwrap();
    let pipe = dir.path().join("pipe.jsonl");
    fifo(&pipe);
    let out = dir.path().join("out");
    let run = |kind, source: &Path, options: &str| {
        finish(piped(&mut conversion(kind, source, &out, options)), LONG)
    };
    // As a source: refused before anything is written.
    run("text", &pipe, "--tokenizer bytes").exits(2).says(&["pipe.jsonl", "FIFO"]);
    run("images", &pipe, "").exits(2).says(&["pipe.jsonl", "FIFO"]);
    run("text", Path::new("/dev/zero"), "--tokenizer bytes --input-format jsonl").exits(2);
    assert!(!out.exists());
    // In a folder of sources: skipped.
    let source = photos(dir.path(), 2);
    fifo(&source.join("a.jpg"));
    run("images", &source, "").exits(0);
    assert_eq!(manifest(&out)["sources"]["skipped"], 1);
    // As a file list, a tokenizer or a shard: an error.
    let other = dir.path().join("other");
    let failing = |options: &[&str]| {
        let mut command = command(["images"]);
        command.arg(&source).args(options).arg(&pipe).arg("--out").arg(&other);
        finish(piped(&mut command), LONG).exits(3).says(&["regular file"]);
    };
    failing(&["--files-from"]);
    std::fs::rename(&pipe, dir.path().join("pipe")).unwrap();
    let text = dir.path().join("c.jsonl");
    corpus(&text, 5);
    let tokenizer = dir.path().join("pipe");
    let mut command = conversion("text", &text, &other, "");
    command.arg("--tokenizer").arg(&tokenizer);
    finish(piped(&mut command), LONG).exits(3).says(&["regular file"]);
    let shard = tree(&out).into_keys().find(|name| name.starts_with("train/")).unwrap();
    std::fs::remove_file(out.join(&shard)).unwrap();
    fifo(&out.join(&shard));
    finish(piped(crate::support::command(["inspect", "--verify"]).arg(&out)), LONG).exits(3);
}

/// Process substitution (`<(…)`), and a FIFO redirected to standard input.
#[test]
fn pipes_opened_by_the_shell_are_read() {
    let dir = tempfile::tempdir().unwrap();
    let source = photos(dir.path(), 3);
    let (pipe, text) = (dir.path().join("pipe"), dir.path().join("c.jsonl"));
    fifo(&pipe);
    corpus(&text, 5);
    let script = format!(
        "{bin} images {source} --files-from <(sleep 0.3; echo 1.jpg) --out {dir}/a && \
         (cat {text} > {pipe} &) && {bin} text - --input-format jsonl --tokenizer bytes --out {dir}/b < {pipe}",
        bin = env!("CARGO_BIN_EXE_dsconvert"),
        source = source.display(),
        dir = dir.path().display(),
        text = text.display(),
        pipe = pipe.display(),
    );
    let mut command = Command::new("bash");
    finish(piped(command.args(["-c", &script])), LONG).exits(0);
    assert_outcomes(&dir.path().join("a"), [1, 0, 0, 0]);
    assert_outcomes(&dir.path().join("b"), [5, 0, 0, 0]);

    // As a source, a pipe is refused.
    for (command, status) in [("images", 2), ("text --tokenizer bytes", 2)] {
        let script = format!(
            "{} {command} <(cat {}) --out {}/c",
            env!("CARGO_BIN_EXE_dsconvert"),
            text.display(),
            dir.path().display()
        );
        let ran = finish(piped(Command::new("bash").args(["-c", &script])), LONG).exits(status);
        ran.says(&["/dev/fd/", "FIFO", "standard input when the source is -"]);
    }
}

/// Runs only as root: a process limit counts all processes of a user, so the test needs a user that has no others.
#[test]
fn a_failure_to_start_threads_is_no_panic() {
    let dir = tempfile::tempdir().unwrap();
    if !rustix::process::getuid().is_root() {
        return;
    }
    set_mode(dir.path(), 0o777);
    let source = dir.path().join("c.jsonl");
    corpus(&source, 200);
    let limited = |threads: usize, out: &Path, options: &str| {
        let script = format!(
            "ulimit -u {threads}; exec {} text {} --out {} --tokenizer bytes --threads 8 {options}",
            env!("CARGO_BIN_EXE_dsconvert"),
            source.display(),
            out.display()
        );
        let mut command = Command::new("bash");
        piped(command.args(["-c", &script]).uid(NOBODY_ELSE).gid(NOBODY).current_dir("/"))
    };
    let whole = dir.path().join("whole");
    let usable = finish(limited(1000, &whole, ""), LONG);
    if usable.status != 0 {
        return; // That user cannot run the binary, or has other processes.
    }
    for threads in 1..9 {
        let out = dir.path().join(threads.to_string());
        let ran = finish(limited(threads, &out, "--dedup exact"), LONG);
        assert!(!ran.stderr.contains("panicked"), "{threads}: {}", ran.stderr);
        match ran.status {
            0 => assert_outcomes(&out, [200, 0, 0, 0]),
            _ => drop(ran.exits(3).says(&["cannot start a thread", "ulimit -u"])),
        }
        assert!(threads < 8 || out.join("manifest.json").exists(), "{threads} threads are enough");
    }
    assert!(!dir.path().join("1/manifest.json").exists(), "one thread is not enough");
}
