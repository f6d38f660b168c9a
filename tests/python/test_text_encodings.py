"""Text in other encodings than UTF-8, compared with the codecs of Python."""

import bz2
import codecs
import csv
import gzip
import io
import json
import subprocess
import tarfile
import zipfile

import msgpack
import pytest
from PIL import Image

LATIN = ["café €", "naïve – “quoted”", "Übergröße", "line, with comma"]
JAPANESE = ["日本語テスト", "カタカナ", "ascii", "漢字と、かな"]
ANY = ["plain", "naïve 😀", "日本語", "Привет, \"мир\"", "x" * 300]

# Encoding, texts that it can hold, and the value of --encoding.
CODECS = [
    ("utf-16", ANY, None),
    ("utf-16-be", ANY, None),
    ("utf-16-le", ANY, "utf-16le"),
    ("utf-16-be", ANY, "utf-16be"),
    ("utf-8-sig", ANY, "windows-1252"),
    ("cp1252", LATIN, "windows-1252"),
    ("cp1252", LATIN, "latin1"),
    ("cp932", JAPANESE, "shift_jis"),
    ("euc_jp", JAPANESE, "euc-jp"),
    ("iso2022_jp", JAPANESE, "iso-2022-jp"),
    ("gb18030", ANY, "gb18030"),
    ("koi8_r", ["Привет", "мир"], "koi8-r"),
]


def encoded(text, codec, option):
    mark = codecs.BOM_UTF16_BE if codec == "utf-16-be" and option is None else b""
    return mark + text.encode(codec)


def table(texts, delimiter):
    rows = io.StringIO()
    if delimiter == "\t":
        return "".join(f"{i}\t{text}\n" for i, text in [("id", "text"), *enumerate(texts)])
    writer = csv.writer(rows)
    writer.writerows([("id", "text"), *enumerate(texts)])
    return rows.getvalue()


FILES = {
    "a.txt": (lambda texts: "\r\n".join(texts), ["--documents", "line"]),
    "b.txt": (lambda texts: "\n\n".join(texts) + "\n", ["--documents", "blank-line"]),
    "c.txt": (lambda texts: "é--".join(texts) if texts is LATIN else "--".join(texts), ["--documents", "separator:--"]),
    "d.csv": (lambda texts: table(texts, ","), []),
    "e.tsv": (lambda texts: table(texts, "\t"), []),
    "f.jsonl": (lambda texts: "".join(json.dumps({"text": t}, ensure_ascii=False) + "\n" for t in texts), []),
    "g.json": (lambda texts: json.dumps([{"text": t} for t in texts], ensure_ascii=False), []),
}


def records(out):
    found = []
    for shard in sorted((out / "train").iterdir()):
        for record in msgpack.Unpacker(shard.open("rb")):
            ids = memoryview(record["input_ids"]).cast("H")
            found.append((record["origin"], bytes(ids.tolist()).decode()))
    return found


def texts(out):
    return [text for _, text in records(out)]


def convert(dsconvert, source, out, *options, status=0):
    done = dsconvert(
        "text", source, "--out", out, "--tokenizer", "bytes", "--format", "msgpack", *options, status=status
    )
    return done.stdout + done.stderr


def rejects(out):
    return [json.loads(line) for line in (out / "rejects.jsonl").open()]


@pytest.mark.parametrize(("codec", "content", "option"), CODECS)
def test_every_kind_of_text_is_decoded(dsconvert, tmp_path, codec, content, option):
    flags = [] if option is None else ["--encoding", option]
    for number, (name, (write, options)) in enumerate(FILES.items()):
        source, out = tmp_path / name, tmp_path / f"out{number}"
        source.write_bytes(encoded(write(content), codec, option))
        convert(dsconvert, source, out, *flags, *options)
        expected = (write(content).split("--") if name == "c.txt" else list(content))
        assert texts(out) == expected, (name, codec)
        manifest = json.loads((out / "manifest.json").read_text())
        assert manifest["options"].get("encoding") == {"latin1": "windows-1252"}.get(option, option)
    for extension, pack in [(".gz", gzip.compress), (".bz2", bz2.compress)]:
        source, out = tmp_path / f"f.jsonl{extension}", tmp_path / f"out{extension}"
        source.write_bytes(pack(encoded(FILES["f.jsonl"][0](content), codec, option)))
        convert(dsconvert, source, out, *flags)
        assert texts(out) == list(content)
    archive, out = tmp_path / "z.zip", tmp_path / "zip"
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("x.txt", encoded("\n".join(content), codec, option))
    convert(dsconvert, archive, out, *flags)
    assert texts(out) == ["\n".join(content)]


@pytest.mark.parametrize("options", [[], ["--shuffle"], ["--dedup", "exact"]])
def test_a_large_file_is_not_divided_at_bytes(dsconvert, tmp_path, options):
    """Of U+0A0D, U+0D0A and U+2E0A, each has a byte that looks like a line end."""
    lines = [f"line number {i} of the file \u0a0d\u0d0a\u2e0a" for i in range(3000)]
    for codec in ["utf-16-le", "utf-16-be"]:
        source, out = tmp_path / f"{codec}.txt", tmp_path / codec
        source.write_bytes(("\ufeff" + "\n".join(lines)).encode(codec))
        split = ["--documents", "line", "--unit-bytes", "20000", "--threads", "2", *options]
        convert(dsconvert, source, out, *split)
        found = records(out)
        assert sorted(text for _, text in found) == sorted(lines)
        # Origins have the offsets of the file that iconv -t UTF-8 writes.
        starts, at = {}, 0
        for line in lines:
            starts[line] = at
            at += len(line.encode()) + 1
        assert all(origin == f"{source.name}#{starts[text]}" for origin, text in found)
        done = dsconvert("text", source, "--tokenizer", "bytes", *split[:4], "--dry-run", "--sample", "100000")
        assert "records" in done.stdout
        # With the option, the units need no check of the mark.
        again = tmp_path / f"{codec}-named"
        convert(dsconvert, source, again, *split, "--encoding", "utf-16le")
        assert sorted(texts(again)) == sorted(lines)


def test_malformed_text_is_rejected_or_replaced(dsconvert, tmp_path):
    lone = "good\nbad ".encode("utf-16") + b"\x00\xd8" + "\nlast".encode("utf-16-le")
    (tmp_path / "t").mkdir()
    (tmp_path / "t/a.txt").write_bytes(lone)
    (tmp_path / "t/b.jsonl").write_bytes(
        '{"text": "good"}\n{"text": "'.encode("utf-16") + b"\x00\xdc" + '"}\n'.encode("utf-16-le"))
    (tmp_path / "t/c.csv").write_bytes("text\ngood\nx".encode("utf-16") + b"\x00\xdcy")
    strict, lossy = tmp_path / "strict", tmp_path / "lossy"
    convert(dsconvert, tmp_path / "t", strict, "--documents", "line", "--max-rejects", "100%")
    assert texts(strict) == ["good", "last", "good", "good"]
    assert [r["code"] for r in rejects(strict)] == ["invalid-utf8"] * 3
    convert(dsconvert, tmp_path / "t", lossy, "--documents", "line", "--invalid-utf8", "replace")
    # The last byte of the table is half a character.
    assert texts(lossy) == ["good", "bad \ufffd", "last", "good", "\ufffd", "good", "x\ufffd\ufffd"]
    whole = tmp_path / "whole"
    convert(dsconvert, tmp_path / "t/a.txt", whole, "--invalid-utf8", "replace")
    assert texts(whole) == [lone.decode("utf-16", "replace")]


def test_utf32_and_unknown_encodings_are_refused(dsconvert, tmp_path):
    for codec in ["utf-32-le", "utf-32-be"]:
        for name in ["a.txt", "a.jsonl", "a.csv", "a.jsonl.gz"]:
            source = tmp_path / name
            bytes_ = '\ufeff{"text": "a"}\n'.encode(codec)
            source.write_bytes(gzip.compress(bytes_) if name.endswith("gz") else bytes_)
            message = convert(dsconvert, source, tmp_path / "out", status=3)
            assert "UTF-32" in message and "iconv -f UTF-32 -t UTF-8" in message, message
    source.write_bytes(b"x")
    assert "iconv" in convert(dsconvert, source, tmp_path / "out", "--encoding", "utf-32", status=2)
    assert not (tmp_path / "out/manifest.json").exists()


def test_text_without_a_mark_that_is_mostly_nul_is_refused_or_warns(dsconvert, tmp_path):
    source = tmp_path / "a.txt"
    for content in ["plain text".encode("utf-16-le"), "Привет, мир".encode("utf-16-le"), bytes(1000)]:
        source.write_bytes(content)
        out = tmp_path / f"out{len(content)}"
        # One or two in a short text are accepted.
        if content.count(0) > 2:
            message = convert(dsconvert, source, out, status=3)
            assert "are NUL" in message and "--encoding utf-16le" in message and "--allow-nul" in message
        message = convert(dsconvert, source, out, "--allow-nul")
        assert "warning: 1 document consists mostly of NUL or control characters" in message
        assert "--encoding utf-16le" in message
        assert json.loads((out / "manifest.json").read_text())["notes"]["control_characters"] == 1
    for nul, status in [(3, 0), (4, 3)]:
        source.write_bytes(b"x" * (300 - nul) + bytes(nul))
        convert(dsconvert, source, tmp_path / f"share{nul}", status=status)
    source.write_bytes(b"a\tb\r\n\x1b[1mbold\x1b[0m and more text\0")
    assert "control characters" not in convert(dsconvert, source, tmp_path / "plain")


def test_standard_input_is_decoded(binary, tmp_path):
    for codec, flags in [("utf-16", []), ("cp1252", ["--encoding", "windows-1252"])]:
        out = tmp_path / codec
        command = [binary, "text", "-", "--out", out, "--tokenizer", "bytes", "--format", "msgpack", *flags,
                   "--input-format", "txt", "--documents", "line"]
        subprocess.run(command, input="\n".join(LATIN).encode(codec), check=True, capture_output=True)
        assert texts(out) == LATIN


def test_units_are_converted_by_other_processes_and_repaired(dsconvert, tmp_path):
    source, out, plan = tmp_path / "a.txt", tmp_path / "out", tmp_path / "plan"
    source.write_bytes("\n".join(LATIN * 500).encode("cp1252"))
    options = ["--documents", "line", "--encoding", "windows-1252"]
    convert(dsconvert, source, out, *options)
    assert texts(out) == LATIN * 500
    dsconvert("plan", "text", source, "--out", plan, "--tokenizer", "bytes", "--format", "msgpack", *options)
    dsconvert("run", plan)
    dsconvert("merge", plan)
    assert texts(plan) == LATIN * 500
    shard = next((out / "train").iterdir())
    bytes_ = shard.read_bytes()
    shard.write_bytes(bytes_[:-1] + bytes([bytes_[-1] ^ 1]))
    dsconvert("inspect", out, "--verify", "--repair", source)
    assert shard.read_bytes() == bytes_


def test_tables_of_images_and_lists_of_files_are_decoded(dsconvert, tmp_path):
    folder = tmp_path / "d"
    folder.mkdir()
    for name in ["ä.png", "b.png"]:
        Image.new("RGB", (8, 8)).save(folder / name)
    rows = [("file_name", "caption"), ("ä.png", "Übergröße"), ("b.png", "日本語")]
    for codec in ["utf-8-sig", "utf-16", "utf-16-be"]:
        for extension in ["csv", "tsv", "jsonl"]:
            if extension == "jsonl":
                text = "".join(json.dumps(dict(zip(rows[0], row)), ensure_ascii=False) + "\n" for row in rows[1:])
            else:
                text = "".join({"csv": ",", "tsv": "\t"}[extension].join(row) + "\n" for row in rows)
            path = tmp_path / f"m.{extension}"
            path.write_bytes(encoded(text, codec, None))
            out = tmp_path / f"{codec}{extension}"
            dsconvert("images", folder, "--metadata", path, "--out", out, "--format", "msgpack")
            found = [r for shard in (out / "train").iterdir() for r in msgpack.Unpacker(shard.open("rb"))]
            assert [r["caption"] for r in found] == ["Übergröße", "日本語"]
        listed = tmp_path / "list.txt"
        listed.write_bytes(encoded("b.png\r\nä.png\r\n", codec, None))
        out = tmp_path / f"{codec}list"
        dsconvert("images", folder, "--files-from", listed, "--out", out, "--format", "msgpack")
        found = [r for shard in (out / "train").iterdir() for r in msgpack.Unpacker(shard.open("rb"))]
        assert [r["origin"] for r in found] == ["d/b.png", "d/ä.png"]


def test_text_beside_images_and_in_samples_is_decoded(dsconvert, tmp_path):
    folder = tmp_path / "d"
    folder.mkdir()
    png = io.BytesIO()
    Image.new("RGB", (8, 8)).save(png, "PNG")
    values = {"a": "Übergröße\n", "b": "日本語 😀", "c": " \n", "d": "x"}
    contents = {}
    for (name, value), codec in zip(values.items(), ["utf-16-le", "utf-16-be", "utf-16", "utf-8-sig"]):
        mark = codecs.BOM_UTF16_LE if codec == "utf-16-le" else b""
        text = lambda value: mark + encoded(value, codec, None)
        contents |= {
            f"{name}.png": png.getvalue(),
            f"{name}.txt": text(value),
            f"{name}.json": text(json.dumps([value], ensure_ascii=False)),
        }
    for name, content in contents.items():
        (folder / name).write_bytes(content)
    with tarfile.open(tmp_path / "t.tar", "w") as tar:
        for name, content in contents.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    for source in ["d", "t.tar"]:
        out = tmp_path / f"out-{source}"
        dsconvert("images", tmp_path / source, "--out", out, "--format", "msgpack")
        found = [r for shard in (out / "train").iterdir() for r in msgpack.Unpacker(shard.open("rb"))]
        assert [r["txt"] for r in found] == list(values.values()), source
        assert [json.loads(r["json"]) for r in found] == [[value] for value in values.values()]
    assert json.loads((tmp_path / "out-d/manifest.json").read_text())["notes"]["blank_sidecars"] == 1
    # UTF-32 is refused with the command that converts it.
    (folder / "d.txt").write_bytes("x".encode("utf-32"))
    dsconvert("images", folder, "--out", tmp_path / "utf32", "--max-rejects", "50%")
    assert [(reject["origin"], reject["code"]) for reject in rejects(tmp_path / "utf32")] == [
        ("d/d.png", "unsupported")
    ]
