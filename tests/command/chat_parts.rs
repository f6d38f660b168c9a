//! `--train-parts`: parts of turns. What they are is compared with a reference in `tests/python/test_chat_parts.py`.

use serde_json::json;

use crate::chats::{CHATML, chat, model, options, trained_texts, write_lines};
use crate::support::*;

#[test]
fn parts_of_turns_are_trained_alone() {
    let dir = tempfile::tempdir().unwrap();
    let model = model(dir.path(), CHATML);
    let source = write_lines(
        &dir.path().join("chats.jsonl"),
        &[
            chat(&[("user", "hi"), ("assistant", "<think>\nplan\n</think>\n\nhello")]),
            chat(&[("user", "hi <think>a</think>"), ("assistant", "bye")]),
        ],
    );
    let out = dir.path().join("out");
    let converted = |more: &str| {
        let more = options(&model, &format!("{more} --max-rejects 100% --overwrite"));
        convert("text", &source, &out, &more).exits(0);
        let codes: Vec<_> = rejects(&out).into_iter().map(|(_, code)| code).collect();
        let trained: Vec<_> = trained_texts(&out, &model).into_iter().map(|(trained, _)| trained).collect();
        (trained, codes)
    };
    let stored = || manifest(&out)["options"]["chat"]["train_parts"].clone();
    let (whole, none) = converted("");
    assert_eq!(whole, ["<think>\nplan\n</think>\n\nhello<|im_end|>\n", "bye<|im_end|>\n"]);
    assert!(none.is_empty() && stored().is_null());
    let (all, _) = converted("--train-parts tool_calls,reasoning,content");
    assert!(all == whole && stored().is_null());
    let (content, _) = converted("--train-parts tool_calls,content");
    assert_eq!(content, ["hello<|im_end|>\n", "bye<|im_end|>\n"]);
    assert_eq!(stored(), "content,tool_calls");
    // The text of others is content.
    let (users, _) = converted("--train-parts content --train-on user");
    assert_eq!(users[1], "hi <think>a</think><|im_end|>\n");
    let (reasoning, codes) = converted("--train-parts reasoning");
    assert_eq!(
        (reasoning.concat().as_str(), codes.concat().as_str()),
        ("<think>\nplan\n</think>\n\n", "nothing-to-train")
    );
    // The end of the turn is left out on purpose.
    let verify = Ran::of(command(["inspect"]).arg(&out).arg("--verify").output().unwrap()).exits(0);
    assert!(!verify.stdout.contains("does not learn to stop"), "{}", verify.stdout);
    let (like, more) = (dir.path().join("like"), format!("--like {} --max-rejects 100%", out.display()));
    convert("text", &source, &like, &more).exits(0);
    assert_eq!(manifest(&like)["fingerprint"], manifest(&out)["fingerprint"]);
}

#[test]
fn parts_are_of_turns_of_messages() {
    let dir = tempfile::tempdir().unwrap();
    let model = model(dir.path(), CHATML);
    let pairs = write_lines(&dir.path().join("pairs.jsonl"), &[json!({"p": "a", "c": "b"})]);
    let out = dir.path().join("out");
    let of_pairs = format!("--prompt-field p --completion-field c --tokenizer {}", model.display());
    let ran = convert("text", &pairs, &out, &format!("{of_pairs} --train-parts content")).exits(3);
    assert!(ran.stderr.contains("a pair of texts has no parts"), "{}", ran.stderr);
    for (more, message) in [
        ("--train-parts content --train-on all", "--train-parts excludes --train-on all"),
        ("--train-parts thoughts", "use one or more of content, reasoning and tool_calls"),
    ] {
        let ran = convert("text", &pairs, &dir.path().join("no"), &options(&model, more)).exits(2);
        assert!(ran.stderr.contains(message), "{}", ran.stderr);
    }
}
