"""The documentation: links and anchors resolve, options exist, and the tutorial shows the real output."""

import os
import re
import shlex
import subprocess
import unicodedata
from pathlib import Path

import pytest

from conftest import FIXTURES, ROOT

PAGES = [
    *sorted(ROOT.glob("*.md")),
    *sorted((ROOT / "crates").glob("*/README.md")),
    *sorted((ROOT / "lab").rglob("README.md")),
    ROOT / "bindings/python/README.md",
    *sorted((ROOT / "docs").rglob("*.md")),
]
FENCE = re.compile(r"^(`{3,}|~{3,})([\w-]*)[^\n]*\n(.*?)^\1[ \t]*$", re.MULTILINE | re.DOTALL)
# Words that end a command in a shell line.
SHELL_OPERATORS = {"|", "||", "&&", ";", "(", ")", ">", "<", "&"}
# Lines of output that differ from run to run: they contain a duration.
VARIES = re.compile(r"\d s: |loss \d")


def name(page):
    return str(page.relative_to(ROOT))


def slug(heading):
    """The anchor of a heading, as GitHub and the site make it."""
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
    text = unicodedata.normalize("NFC", text).strip().lower()
    return re.sub(r"[^\w\- ]", "", text).replace(" ", "-")


def anchors(page):
    headings = re.findall(r"^#{1,6} +(.+?) *$", FENCE.sub("", page.read_text()), re.MULTILINE)
    found, seen = set(), {}
    for heading in map(slug, headings):
        count = seen.get(heading, 0)
        seen[heading] = count + 1
        found.add(f"{heading}-{count}" if count else heading)
    return found


def links(page):
    text = re.sub(r"`[^`\n]*`", "", FENCE.sub("", page.read_text()))
    return [target for target in re.findall(r"\]\(([^)\s]+)\)", text) if not re.match(r"[a-z]+:", target)]


def dead_links(page):
    for link in links(page):
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if not target.exists():
            yield f"{link}: no such file"
        elif anchor and anchor not in anchors(target):
            yield f"{link}: no such heading; there are {sorted(anchors(target))}"


def shell_lines(text):
    """Every command line of the shell and console blocks of a page."""
    for _, language, block in FENCE.findall(text):
        if language not in ("sh", "bash", "console"):
            continue
        lines = block.replace("\\\n", " ").splitlines()
        for line in lines:
            if language != "console":
                yield line
            elif line.startswith("$ "):
                yield line[2:]


def commands(text):
    """The arguments of every `dsconvert …` command in the code blocks and the inline code of a page."""
    lines = [*shell_lines(text), *re.findall(r"`(dsconvert [^`\n]*)`", FENCE.sub("", text))]
    for line in lines:
        words = shlex.shlex(line, posix=True, punctuation_chars=True)
        words.whitespace_split = True
        words.commenters = "#"
        current = []
        for word in [*words, ";"]:
            if word not in SHELL_OPERATORS:
                current.append(word)
                continue
            while current and re.fullmatch(r"[A-Z_]+=.*", current[0]):
                current.pop(0)
            if current[:1] == ["dsconvert"] and len(current) > 1:
                yield current[1:]
            current = []


@pytest.fixture(scope="session")
def options_of(dsconvert):
    """The options of a subcommand, from its `--help`."""
    known = {}

    def get(subcommand):
        if subcommand not in known:
            output = dsconvert(subcommand, "--help").stdout
            lines = [line for line in output.splitlines() if re.match(r" +-", line)]
            known[subcommand] = {
                option for line in lines for option in re.findall(r"(?<![\w-])--?[A-Za-z0-9][\w-]*", line.split("  <")[0])
            }
            known[subcommand] |= {f"--{alias}" for alias in re.findall(r"\[alias: --([\w-]+)\]", output)}
        return known[subcommand]

    return get


def wrong_options(text, options_of):
    for args in commands(text):
        subcommand, *rest = args
        if subcommand == "plan" and rest[:1] in (["images"], ["text"]):
            # It takes the options of the conversion that it plans.
            subcommand = rest[0]
        if subcommand.startswith("-") or subcommand.isupper():
            continue
        for arg in rest:
            option = arg.split("=")[0]
            if re.fullmatch(r"--?[A-Za-z0-9][\w-]*", option) and option not in options_of(subcommand):
                yield f"dsconvert {shlex.join(args)}: {subcommand} has no {option}"


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_links_resolve(page):
    assert not list(dead_links(page))


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_options_exist(page, options_of):
    assert not list(wrong_options(page.read_text(), options_of))


def test_the_checks_find_mistakes(tmp_path, options_of):
    page = tmp_path / "page.md"
    page.write_text("# One\n\n[a](gone.md) [b](#one) [c](#two) `[d](gone.md)`\n")
    assert [found.split(":")[0] for found in dead_links(page)] == ["gone.md", "#two"]
    shown = "```sh\ncat x | dsconvert text - --input-fromat txt \\\n    --dedup=exact  # a comment\n```\n`dsconvert inspect x --hed 3`\n"
    assert [found.rpartition(" ")[2] for found in wrong_options(shown, options_of)] == ["--input-fromat", "--hed"]
    assert len([line for page in PAGES for line in commands(page.read_text())]) > 40, "the pages show commands"


def test_the_navigation_lists_every_page():
    listed = set(re.findall(r": ([\w/-]+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE))
    pages = {str(page.relative_to(ROOT / "docs")) for page in (ROOT / "docs").rglob("*.md")}
    assert listed == pages
    index = (ROOT / "docs/index.md").read_text()
    assert not [page for page in pages - {"index.md"} if f"({page})" not in index], "the index links to every page"


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_the_files_that_a_page_names_exist(page):
    """Paths such as `src/lib.rs`; one with NAME stands for a file that the reader creates."""
    if page.name == "CHANGELOG.md":
        return  # It names files of older versions.
    text = FENCE.sub("", page.read_text())
    paths = re.findall(r"`((?:src|crates|lab|bindings|tests|benches|fixtures|docs|proto|tools)/[^`\s]*)`", text)
    if page.name == "architecture.md":
        assert len(paths) > 40
    assert not [path for path in paths if "NAME" not in path and not list(ROOT.glob(path))]


DEFINED = r"\b(?:fn|def|struct|enum|trait|type|class) "


def test_the_walks_name_what_exists():
    """A function, written with parentheses, is one of the file that is named last. A type may be in any file."""
    page = (ROOT / "docs/explanation/four-walks.md").read_text()
    sources = [path for folder in ("src", "crates", "bindings") for path in (ROOT / folder).rglob("*.*") if path.suffix in (".rs", ".py")]
    types = set(re.findall(DEFINED + r"([A-Z]\w+)", "".join(path.read_text() for path in sources)))
    file, functions, wrong = None, 0, []
    for word in re.findall(r"`([^`\n]+)`", FENCE.sub("", page)):
        if re.fullmatch(r"(?:src|crates|bindings)/\S+\.(?:rs|py)", word):
            file = (ROOT / word).read_text()
        elif word.endswith("()"):
            functions += 1
            wrong += [word] if file is None or not re.search(DEFINED + word[:-2] + r"\b", file) else []
        elif re.fullmatch(r"[A-Z][a-z]\w+", word):
            wrong += [] if word in types else [word]
    assert functions > 60 and not wrong, wrong


def rows_of_files():
    """The rows of the table in architecture.md: what is added, the files, and the numbers of new and changed files."""
    page = (ROOT / "docs/explanation/architecture.md").read_text()
    table = page.partition("## Which files to touch")[2].partition("\n## ")[0]
    return re.findall(r"^\| (an? .*?) \| (.*) \| (\d+) \+ (\d+) \|$", table, re.MULTILINE)


def test_the_files_to_touch_are_counted():
    """Parts are separated by semicolons: a new file or directory, or a file that changes."""
    rows = rows_of_files()
    assert len(rows) > 20
    before = [0, 0]
    for what, files, new, changed in rows:
        parts = re.sub(r"\(.*?\)", "", files).split(";")
        is_new = [part.strip().startswith("new ") for part in parts]
        found = [sum(is_new), len(parts) - sum(is_new)]
        if files.startswith("in addition"):
            found = [a + b for a, b in zip(found, before)]
        assert found == [int(new), int(changed)], what
        before = found


def test_the_command_calls_the_lab_through_one_file():
    crates = re.compile(r"\bdsconvert_(?:measure|simulate)\b")
    files = [path for folder in ("src", "crates", "bindings") for path in (ROOT / folder).rglob("*.rs")]
    naming = [str(path.relative_to(ROOT)) for path in files if crates.search(path.read_text())]
    assert naming == ["src/lab/mod.rs"]
    # Nothing but the commands of the lab needs it.
    users = re.compile(r"\bcrate::lab\b|\bdsconvert::lab\b")
    using = [path.relative_to(ROOT).parts[:3] for path in files if users.search(path.read_text())]
    assert set(using) == {("src", "cli", "lab")}


@pytest.mark.parametrize("crate", ["src", "crates/writer/src"])
def test_only_the_crates_for_programs_show_their_modules(crate):
    """The command is an application, and the writer has two types. What is public for others here is hidden."""
    face = (ROOT / crate / "lib.rs").read_text()
    assert re.findall(r"^pub mod \w+;", face, re.MULTILINE)
    assert not re.findall(r"(?<!#\[doc\(hidden\)\]\n)^pub mod \w+;", face, re.MULTILINE)


def enums_in(path):
    """The enums of a file of options, with the attributes before each."""
    return re.findall(r"((?:^#\[.*\]\n)+)^pub enum (\w+)", (ROOT / path).read_text(), re.MULTILINE)


def test_options_can_get_further_values():
    """Except those whose values the command must match completely, so that none is ignored."""
    complete = {"Exhausted", "MixtureEpoch"}
    files = ["crates/reader/src/batch/options.rs", "crates/reader/src/loader/options.rs", "crates/reader/src/mixture/options.rs"]
    found = [option for path in files for option in enums_in(path)]
    assert len(found) > 15
    assert {name for attributes, name in found if "#[non_exhaustive]" not in attributes} == complete


# Something of each kind that exists, as code names it.
EXISTING = {
    "a shard format": r'Format::Msgpack\b|"msgpack"',
    "a compression of text files": r"Compression::Bzip2\b|\bBzip2Stream\b",
    "a container of images": r"Self::Examples\(|= find_examples\(|find_examples\(&",
    "a kind of text file": r"TextFormat::Delimited\b",
    "an image encoding": r"\bWebpLossless\b",
    "a warning": r'"stray-folders"',
    "a reject code": r"RejectCode::TooLong\b|Self::TooLong\b",
    "a text option": r"\.invalid_utf8\b|\binvalid_utf8: InvalidUtf8|\breplaces_invalid_utf8\b",
    "an image option": r"\bmax_aspect\b",
    "a type of fields whose values are lists of numbers": r"FieldType::BoxInts\b",
}


@pytest.mark.parametrize("what", EXISTING)
def test_no_other_file_is_touched(what):
    files, changed = next((row[1], int(row[3])) for row in rows_of_files() if row[0] == what)
    listed = {path for path in re.findall(r"`([\w/]+\.rs)`", files) if "NAME" not in path}
    sources = [path for folder in ("src", "crates", "lab", "bindings") for path in (ROOT / folder).rglob("*.rs")]
    # Files of modules that are only compiled for tests.
    for_tests = {
        (path.parent if path.name in ("mod.rs", "lib.rs", "main.rs") else path.with_suffix("")) / f"{module}.rs"
        for path in sources
        for module in re.findall(r"^#\[cfg\(test\)\]\nmod (\w+);", path.read_text(), flags=re.MULTILINE)
    }
    using = set()
    for path in sources:
        if path in for_tests or {"tests", "benches", "target"} & set(path.relative_to(ROOT).parts):
            continue
        code = re.split(r"^#\[cfg\(test\)\]\nmod \w+ \{", path.read_text(), flags=re.MULTILINE)[0]
        code = re.sub(r"^\s*//.*", "", code, flags=re.MULTILINE)
        if re.search(EXISTING[what], code):
            using.add(str(path.relative_to(ROOT)))
    assert len(using) == changed and listed <= using, using


def test_the_tutorials_write_different_datasets():
    """A reader follows them in one clone, and a command refuses a directory that another page has filled."""
    written = {}
    for page in sorted((ROOT / "docs/tutorial").glob("*.md")):
        for args in commands(page.read_text()):
            if "--out" in args and "--dry-run" not in args:
                out = args[args.index("--out") + 1]
                assert out not in written, f"{name(page)} and {written[out]} write {out}"
                written[out] = name(page)
    assert len(written) >= 4


def test_the_tutorial_shows_the_real_output(binary, tmp_path):
    """Runs its commands in order, and compares their output with the page."""
    page = (ROOT / "docs/tutorial/first-dataset.md").read_text()
    (tmp_path / "fixtures").symlink_to(FIXTURES)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/dsconvert").symlink_to(binary)
    ran = 0
    for _, language, block in FENCE.findall(page):
        if language == "python":
            (tmp_path / re.match(r"# (\w+\.py)\n", block)[1]).write_text(block)
        if language != "console":
            continue
        command, *expected = block.replace("\\\n", " ").splitlines()
        words = shlex.split(command.removeprefix("$ "))
        if words[0] == "python":
            continue  # `test_package_examples.py` runs these with the package.
        environment = {**os.environ, "PATH": f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}"}
        done = subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stderr
        output = done.stdout.splitlines()
        missing = [line for line in expected if not VARIES.search(line) and line not in output]
        assert not missing, f"{command}\n{done.stdout}"
        ran += 1
    assert ran >= 6


def test_no_guide_divides_a_loss_by_zero_labels():
    """The mean over no labels is NaN, and a batch may have none."""
    calls = [call for page in sorted((ROOT / "docs/how-to").glob("*.md")) for call in re.findall(r".*cross_entropy\(.*", page.read_text())]
    assert len(calls) >= 8
    assert not [call for call in calls if 'reduction="sum"' not in call]


def test_there_is_an_entry_for_every_error_and_reject():
    """Kinds of errors and codes of rejects, as the source names them."""
    page = (ROOT / "docs/how-to/troubleshoot.md").read_text()
    errors = (ROOT / "crates/dataset/src/error.rs").read_text() + (ROOT / "bindings/python/src/error.rs").read_text()
    kinds = set(re.findall(r'ErrorKind::\w+(?:\(_\))? => \("([\w-]+)"', errors))
    assert len(kinds) >= 8
    assert kinds == set(re.findall(r"^### `([\w-]+)`$", page, re.MULTILINE))
    codes = set(re.findall(r'RejectCode::\w+ => "([\w-]+)"', (ROOT / "crates/dataset/src/sample.rs").read_text()))
    assert len(codes) >= 17
    assert codes == set(re.findall(r"^\| `([\w-]+)` \|", page.partition("## Rejected items")[2], re.MULTILINE))


def test_the_page_of_warnings_lists_every_code():
    """A code is used in one place of the source; others may only compare with it."""
    source = "".join(path.read_text() for path in (ROOT / "src").rglob("*.rs"))
    used = re.findall(r'Warning::new\(\s*"([a-z-]+)"', source)
    assert len(used) >= 49 and len(used) == source.count("Warning::new("), "codes are literals"
    assert len(used) == len(set(used)), "a code is used once"
    compared = re.findall(r'(?:\bwarns_of\(|\.code == )"([a-z-]+)"', source)
    assert len(compared) >= 3 and set(compared) <= set(used)
    page = (ROOT / "docs/reference/warnings.md").read_text()
    listed = re.findall(r"^\| `([a-z-]+)` \|", page, re.MULTILINE)
    assert sorted(listed) == sorted(used)


def test_the_messages_that_the_troubleshooting_page_quotes_exist():
    page = (ROOT / "docs/how-to/troubleshoot.md").read_text()
    table = page.partition("| message | do this |\n|---|---|\n")[2].partition("\n\n")[0]
    roots = ["src", "crates", "lab", "bindings/python"]
    source = "".join(
        path.read_text() for root in roots for suffix in ("rs", "py") for path in (ROOT / root).rglob(f"*.{suffix}")
    )
    quoted = [part for cell in re.findall(r"^\| `([^`]+)`", table, re.MULTILINE) for part in cell.split("…")]
    parts = [part.strip() for part in quoted if len(part.strip()) > 8]
    assert len(parts) >= 6
    assert not [part for part in parts if part not in source]
