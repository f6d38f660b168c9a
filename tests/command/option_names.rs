//! The library names options as in its API (`max_length`); only the command writes flags.

use std::collections::BTreeMap;
use std::path::Path;

use crate::tree::tree;

/// Returns the string literals in Rust code, each with its line, without those in comments and unit tests.
fn string_literals(code: &str) -> Vec<(usize, String)> {
    let code = code.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
    let mut found = Vec::new();
    let (mut line, mut rest) = (1, code);
    while let Some(first) = rest.chars().next() {
        let raw =
            rest.strip_prefix('r').map(|raw| raw.trim_start_matches('#')).filter(|raw| raw.starts_with('"'));
        let len = if rest.starts_with("//") {
            rest.find('\n').unwrap_or(rest.len())
        } else if let Some(quote) = ["'\"'", "'\\\"'"].iter().find(|quote| rest.starts_with(**quote)) {
            quote.len()
        } else if let Some(raw) = raw {
            let hashes = rest.len() - raw.len() - 1;
            let end = raw[1..].find(&format!("\"{}", "#".repeat(hashes))).unwrap();
            found.push((line, raw[1..=end].to_owned()));
            hashes + end + 3 + hashes
        } else if first == '"' {
            let mut is_escaped = false;
            let end = rest[1..].find(|c| {
                let is_end = c == '"' && !is_escaped;
                is_escaped = c == '\\' && !is_escaped;
                is_end
            });
            let end = end.unwrap();
            found.push((line, rest[1..=end].to_owned()));
            end + 2
        } else {
            first.len_utf8()
        };
        line += rest[..len].matches('\n').count();
        rest = &rest[len..];
    }
    found
}

/// Returns whether `text` contains a flag outside the commands that it quotes: `` `dsconvert status` `` in a message,
/// and `<code>dsconvert inspect</code>` in HTML.
fn has_flag(text: &str) -> bool {
    let text = text.replace("<code>", "`").replace("</code>", "`");
    let pieces: Vec<&str> = text.split('`').collect();
    pieces.iter().enumerate().any(|(i, piece)| {
        let is_command = i % 2 == 1 && !piece.starts_with('-');
        let flags = piece.match_indices("--").filter(|(at, dashes)| {
            let starts_word = !piece[..*at].ends_with(|c: char| c.is_alphanumeric() || c == '-');
            starts_word && piece[at + dashes.len()..].starts_with(|c: char| c.is_ascii_lowercase())
        });
        !is_command && flags.count() > 0
    })
}

#[test]
fn the_library_names_options_not_flags() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let files: BTreeMap<_, _> = ["src", "crates", "lab", "bindings/python/src"]
        .iter()
        .flat_map(|dir| {
            tree(&root.join(dir)).into_iter().map(move |(name, bytes)| (format!("{dir}/{name}"), bytes))
        })
        .filter(|(name, _)| name.ends_with(".rs") && !name.starts_with("src/cli/"))
        .filter(|(name, _)| !name.ends_with("/tests.rs") && !name.contains("/tests/"))
        .collect();
    assert!(files.len() > 300, "only {} files", files.len());
    let mut found = Vec::new();
    for (name, bytes) in &files {
        let code = std::str::from_utf8(bytes).unwrap();
        let lines: Vec<&str> = code.lines().collect();
        for (line, text) in string_literals(code) {
            // Arguments of other programs are not messages.
            if has_flag(&text) && !lines[line - 1].contains(".args([") {
                found.push(format!("{name}:{line}: {text}"));
            }
        }
    }
    assert!(found.is_empty(), "write `option` instead of --option in\n{}", found.join("\n"));
}

#[test]
fn the_check_finds_flags_in_literals_only() {
    let code = "// \"--a\"\nlet a = '\"'; let b = \"x \\\"--b\\\"\n\";\nlet c = r#\"\"--c\"#; f(\"`d`\");\n#[cfg(test)]\nmod tests { \"--e\" }";
    let literals = string_literals(code);
    assert_eq!(literals, [(2, "x \\\"--b\\\"\n".to_owned()), (4, "\"--c".to_owned()), (4, "`d`".to_owned())]);
    for text in ["--max-length", "use --resume", "(--a)", "`--a`", "`dsconvert run` --part", "\\\"--b"] {
        assert!(has_flag(text), "{text}");
    }
    for text in
        ["", "a--b", "`dsconvert status --json`", "---", "`max_length`", "<code>dsconvert --x</code>", "--"]
    {
        assert!(!has_flag(text), "{text}");
    }
}
