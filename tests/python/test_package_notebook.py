"""The Python package: the HTML representation of a dataset in a notebook."""

import html.parser
import re
import shutil
from pathlib import Path

import dsconvert

PHOTO = Path(__file__).parents[2] / "fixtures/photos/dunes/ridge.jpg"
# Elements without an end tag.
VOID = {"br", "img"}
HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(1)>\u202e'\""


class Checker(html.parser.HTMLParser):
    """Elements, attributes and text of a fragment, which must be balanced."""

    def __init__(self, text):
        super().__init__()
        self.open, self.tags, self.attributes, self.text = [], [], [], ""
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] != "style":
            self.text += data


def shown(path):
    """The fragment of a dataset, checked: no script, nothing from elsewhere."""
    fragment = dsconvert.open(path)._repr_html_()
    found = Checker(fragment)
    assert not {"script", "iframe", "object", "link"} & set(found.tags)
    assert not [name for name, _ in found.attributes if name.startswith("on") or name == "style"]
    sources = [value for name, value in found.attributes if name in ("src", "href")]
    assert all(source.startswith("data:image/jpeg;base64,") for source in sources)
    assert re.findall(r"\w+://[^\"']*", fragment) == ["http://www.w3.org/2000/svg"] * fragment.count("<svg")
    return fragment, found


def test_a_notebook_shows_counts_splits_fields_and_a_plot(anything):
    fragment, found = shown(anything.path)
    records = sum(split["records"] for split in anything.manifest["splits"].values())
    for part in [anything.path.name, anything.format, f"{records:,}", *anything.splits]:
        assert part in found.text
    for field in anything.manifest["schema"]["fields"]:
        assert field["name"] in found.text
    assert found.tags.count("svg") >= 1
    pictures = [value for name, value in found.attributes if name == "src"]
    assert bool(pictures) == (anything.kind == "images")
    assert len(fragment) < 600_000


def test_every_string_is_escaped(command, tmp_path):
    folder = tmp_path / "source" / HOSTILE.replace("/", "∕")
    folder.mkdir(parents=True)
    shutil.copy(PHOTO, folder / "a.jpg")
    out = tmp_path / "<b>out</b>".replace("/", "∕")
    command("images", tmp_path / "source", "--out", out, "--resize", "longer:64")
    fragment, found = shown(out)
    assert "<script>alert(1)" in found.text
    assert "\u202e" not in fragment and "\\u{202e}" in fragment


def test_damaged_files_are_left_out(anything, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(anything.path, copy)
    for shard in (copy / anything.splits[0]).iterdir():
        shard.write_bytes(b"")
    for index in (copy / "index").glob("*.histogram*"):
        index.write_bytes(b"\0" * index.stat().st_size)
    _, found = shown(copy)
    assert "length index" in found.text
    if anything.kind == "images":
        assert "cannot be read" in found.text
