//! Panics, signals, threads that cannot be had, output that cannot be printed, sources that change: a run ends soon, with
//! the right exit status, and can be resumed.

use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant, SystemTime};

use crate::support::*;

/// What a command may take to end after a signal, on a machine that is busy with other tests.
const SOON: Duration = Duration::from_secs(8);
/// After this time, a command that should end by itself hangs.
const LONG: Duration = Duration::from_secs(90);
/// A user who may do little, for tests that run as root.
const NOBODY: u32 = 65_534;
/// Another such user: limits on processes count all of one user.
const NOBODY_ELSE: u32 = 65_533;
/// Test-only: names the place that panics (`src/pipeline/testing.rs`).
const PANIC: &str = "DSCONVERT_TEST_PANIC";

/// Waits for a child; one that hangs is killed and fails the test.
#[track_caller]
fn ended(mut child: Child, within: Duration) -> Ran {
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
fn a_panic_anywhere_ends_the_run_with_an_internal_error_and_can_be_resumed() {
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("c.jsonl");
    corpus(&source, 2000);
    let whole = dir.path().join("whole");
    let options = format!("{TEXT} --dedup exact");
    convert("text", &source, &whole, &options).exits(0);
    for place in ["plan", "prepare", "feed", "convert", "write", "close", "commit"] {
        let out = dir.path().join(place);
        let mut command = conversion("text", &source, &out, &options);
        let ran = ended(piped(command.env(PANIC, place)), LONG).exits(3);
        let ran = ran.says(&["a test wants a panic", "report it"]);
        assert_eq!(ran.stderr.matches("a test wants a panic").count(), 1, "{place}: {}", ran.stderr);
        assert!(!ran.stderr.contains("RUST_BACKTRACE"), "{place}: {}", ran.stderr);
        assert!(!out.join("manifest.json").exists(), "{place}");
        convert("text", &source, &out, &format!("{options} --resume")).exits(0);
        assert_same(&tree(&out), &tree(&whole));
    }
}

#[test]
fn a_panic_while_the_progress_is_drawn_ends_the_run() {
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("c.jsonl");
    corpus(&source, 30_000);
    let out = dir.path().join("out");
    let mut command = conversion("text", &source, &out, TEXT);
    ended(piped(command.env(PANIC, "draw")), LONG).exits(3).says(&["drawing the progress", "--resume"]);
    convert("text", &source, &out, &format!("{TEXT} --resume")).exits(0);
}

#[test]
fn a_panic_on_one_item_rejects_that_item() {
    let dir = tempfile::tempdir().unwrap();
    let source = photos(dir.path(), 12);
    let out = dir.path().join("images");
    let mut command = conversion("images", &source, &out, "");
    let ran = ended(piped(command.env(PANIC, "item:photos/7.jpg")), LONG).exits(0);
    assert!(!ran.stderr.contains("panic"), "{}", ran.stderr);
    assert_outcomes(&out, [11, 0, 0, 1]);
    assert_eq!(rejects(&out), [("photos/7.jpg".to_owned(), "decoder-panicked".to_owned())]);

    let source = dir.path().join("c.jsonl");
    corpus(&source, 30);
    let out = dir.path().join("text");
    let mut command = conversion("text", &source, &out, "--tokenizer bytes");
    ended(piped(command.env(PANIC, "item:c.jsonl#0")), LONG).exits(0);
    assert_outcomes(&out, [29, 0, 0, 1]);
    assert_eq!(rejects(&out), [("c.jsonl#0".to_owned(), "decoder-panicked".to_owned())]);
}

/// Four inks, of which the first has twice the samples of the others in both directions: it made a decoder panic.
#[test]
fn a_jpeg_of_four_subsampled_inks_never_hangs_a_run() {
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
    let ran = ended(piped(&mut conversion("images", &source, &out, "--max-rejects 50%")), LONG).exits(0);
    assert!(!ran.stderr.contains("panicked at"), "{}", ran.stderr);
    assert_eq!(manifest(&out)["found"], 5);
}

#[test]
fn a_signal_ends_a_command_that_waits_for_its_input() {
    let dir = tempfile::tempdir().unwrap();
    // While the sources are listed nothing is written yet.
    let mut listing = command(["images", "--files-from", "-"]);
    listing.arg(dir.path()).arg("--out").arg(dir.path().join("listed")).stdin(Stdio::piped());
    // While the first rows are looked at, nothing is written either.
    let mut looking = command(["text", "-", "--input-format", "jsonl", "--tokenizer", "bytes"]);
    looking.arg("--out").arg(dir.path().join("looked")).stdin(Stdio::piped());
    // While the only worker waits for the text.
    let mut reading = command(["text", "-", "--input-format", "txt", "--tokenizer", "bytes"]);
    reading.arg("--out").arg(dir.path().join("read")).stdin(Stdio::piped());
    for (command, message) in [
        (&mut listing, "before anything was written"),
        (&mut looking, "before anything was written"),
        (&mut reading, "stopped before"),
    ] {
        for (name, status) in [("-TERM", 143), ("-INT", 130)] {
            let child = piped(command);
            std::thread::sleep(Duration::from_millis(700));
            signal(&child, name);
            ended(child, SOON).exits(status).says(&[message]);
            std::fs::remove_dir_all(dir.path().join("read")).ok();
        }
    }
}

/// The reader of the messages may have stopped reading.
#[test]
fn a_signal_ends_a_command_whose_messages_nobody_reads() {
    let dir = tempfile::tempdir().unwrap();
    let (reader, mut writer) = std::io::pipe().unwrap();
    rustix::io::ioctl_fionbio(&writer, true).unwrap();
    while let Ok(1..) = writer.write(&[b'x'; 4096]) {}
    rustix::io::ioctl_fionbio(&writer, false).unwrap();
    let mut command = command(["text", "-", "--input-format", "txt", "--tokenizer", "bytes"]);
    command.arg("--out").arg(dir.path().join("out")).stdin(Stdio::piped());
    let child = command.stdout(Stdio::null()).stderr(writer).spawn().unwrap();
    std::thread::sleep(Duration::from_millis(700));
    signal(&child, "-TERM");
    ended(child, SOON).exits(143);
    drop(reader);
}

#[test]
fn output_that_cannot_be_printed_is_no_panic() {
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("c.jsonl");
    corpus(&source, 50);
    let out = dir.path().join("out");
    let full = || File::options().write(true).open("/dev/full").unwrap();
    let status = |command: &mut Command| command.stdout(full()).stderr(full()).status().unwrap().code();
    assert_eq!(status(&mut command(["text", "--no-such-option"])), Some(2));
    assert_eq!(status(&mut conversion("text", &source, &out, "--tokenizer bytes --format none")), Some(2));
    assert_eq!(status(&mut conversion("text", &source, &out, "--tokenizer bytes")), Some(0));
    // The same command again has nothing to do, and says so where it can.
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
fn a_manifest_with_something_twice_is_not_whole() {
    // A manifest of version 1: any edit of a newer one contradicts its digest.
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
    for (manifest, message) in [(twice, "comes twice"), (fields.to_string(), "two fields are called")] {
        std::fs::write(&path, manifest).unwrap();
        for options in [vec!["inspect", "--verify"], vec!["inspect"]] {
            Ran::of(command(options).arg(&out).output().unwrap()).exits(3).says(&[message]);
        }
    }
}

/// A limit on file sizes makes writes fail as a full disk does, here in the middle of a shard.
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
            "trap '' XFSZ; ulimit -f 100; exec {} text {} --out {} {options}",
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
fn a_working_directory_that_stays_is_a_warning() {
    let dir = tempfile::tempdir().unwrap();
    let open = |path: &Path, mode| std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
    open(dir.path(), 0o777);
    let source = dir.path().join("c.jsonl");
    corpus(&source, 50);
    let out = dir.path().join("out");
    let run = |options: &str| {
        let mut command = conversion("text", &source, &out, options);
        if rustix::process::getuid().is_root() {
            // Permissions stop only others.
            command.uid(NOBODY).gid(NOBODY).current_dir("/");
        }
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().map(|child| ended(child, LONG))
    };
    let Ok(first) = run("--tokenizer bytes") else { return }; // That user cannot run the binary.
    first.exits(0);
    let work = out.join(".dsconvert");
    let left = work.join("left");
    std::fs::create_dir_all(&left).unwrap();
    std::fs::write(left.join("x"), "").unwrap();
    open(&work, 0o777);
    open(&left, 0o555);
    let again = run("--tokenizer bytes --resume").unwrap();
    open(&left, 0o755);
    again.exits(0).says(&["warning", "is committed", "working directory is still there"]);
}

#[test]
fn a_source_that_is_written_to_during_the_run_is_a_failure_to_read() {
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("c.jsonl");
    corpus(&source, 20_000);
    let out = dir.path().join("out");
    let child = piped(&mut conversion("text", &source, &out, TEXT));
    while !out.join(".dsconvert/units/000003/done").exists() {
        std::thread::sleep(Duration::from_millis(1));
    }
    // Other bytes in place, as many as before.
    let text = std::fs::read_to_string(&source).unwrap().replace('w', "v");
    let mut file = File::options().write(true).open(&source).unwrap();
    file.write_all(text.as_bytes()).unwrap();
    file.set_modified(SystemTime::now() + Duration::from_secs(3)).unwrap();
    ended(child, LONG).exits(3).says(&["c.jsonl", "written to", "units failed"]);
    assert!(!out.join("manifest.json").exists());
    convert("text", &source, &out, &format!("{TEXT} --resume")).exits(2).says(&["c.jsonl changed"]);
}

#[test]
fn fifos_and_devices_never_block() {
    let dir = tempfile::tempdir().unwrap();
    let pipe = dir.path().join("pipe.jsonl");
    fifo(&pipe);
    let out = dir.path().join("out");
    let run =
        |kind, source: &Path, options: &str| ended(piped(&mut conversion(kind, source, &out, options)), LONG);
    // Named as a source: nothing was written.
    run("text", &pipe, "--tokenizer bytes").exits(2).says(&["pipe.jsonl", "FIFO"]);
    run("images", &pipe, "").exits(2).says(&["pipe.jsonl", "FIFO"]);
    run("text", Path::new("/dev/zero"), "--tokenizer bytes --input-format jsonl").exits(2);
    assert!(!out.exists());
    // Beside others in a folder it is left out.
    let source = photos(dir.path(), 2);
    fifo(&source.join("a.jpg"));
    run("images", &source, "").exits(0);
    assert_eq!(manifest(&out)["sources"]["skipped"], 1);
    // As a list, a table, a tokenizer, a file of a dataset.
    let other = dir.path().join("other");
    let failing = |options: &[&str]| {
        let mut command = command(["images"]);
        command.arg(&source).args(options).arg(&pipe).arg("--out").arg(&other);
        ended(piped(&mut command), LONG).exits(3).says(&["regular file"]);
    };
    failing(&["--files-from"]);
    std::fs::rename(&pipe, dir.path().join("pipe")).unwrap();
    let text = dir.path().join("c.jsonl");
    corpus(&text, 5);
    let tokenizer = dir.path().join("pipe");
    let mut command = conversion("text", &text, &other, "");
    command.arg("--tokenizer").arg(&tokenizer);
    ended(piped(&mut command), LONG).exits(3).says(&["regular file"]);
    let shard = tree(&out).into_keys().find(|name| name.starts_with("train/")).unwrap();
    std::fs::remove_file(out.join(&shard)).unwrap();
    fifo(&out.join(&shard));
    ended(piped(crate::support::command(["inspect", "--verify"]).arg(&out)), LONG).exits(3);
}

/// What a shell makes of `<(…)`, and of a FIFO that is redirected to standard input.
#[test]
fn pipes_that_the_shell_opened_are_read() {
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
    ended(piped(command.args(["-c", &script])), LONG).exits(0);
    assert_outcomes(&dir.path().join("a"), [1, 0, 0, 0]);
    assert_outcomes(&dir.path().join("b"), [5, 0, 0, 0]);
}

/// Only where tests run as root: a limit on processes counts those of a user, and this one has no others.
#[test]
fn a_system_without_threads_to_give_is_no_panic() {
    let dir = tempfile::tempdir().unwrap();
    if !rustix::process::getuid().is_root() {
        return;
    }
    std::fs::set_permissions(dir.path(), PermissionsExt::from_mode(0o777)).unwrap();
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
    let usable = ended(limited(1000, &whole, ""), LONG);
    if usable.status != 0 {
        return; // That user cannot run the binary, or has other processes.
    }
    for threads in 1..9 {
        let out = dir.path().join(threads.to_string());
        let ran = ended(limited(threads, &out, "--dedup exact"), LONG);
        assert!(!ran.stderr.contains("panicked"), "{threads}: {}", ran.stderr);
        match ran.status {
            0 => assert_outcomes(&out, [200, 0, 0, 0]),
            _ => drop(ran.exits(3).says(&["cannot start a thread", "ulimit -u"])),
        }
        assert!(threads < 8 || out.join("manifest.json").exists(), "{threads} threads are enough");
    }
    assert!(!dir.path().join("1/manifest.json").exists(), "one thread is not enough");
}
