"""Zip archives, written by the real `zipfile`, are read like folders of images."""

import io
import json
import zipfile

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

STORED, DEFLATED = zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED


def picture(i, form="PNG"):
    file = io.BytesIO()
    Image.new("RGB", (8 + i % 5, 12), (i * 40 % 256, i, 7)).save(file, form)
    return file.getvalue()


def archive(path, files, method=DEFLATED):
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w", method) as out:
        for name, content in files.items():
            out.writestr(name, content)
    return path


def records(out, split="train"):
    found = pa.concat_tables([pq.read_table(file) for file in sorted((out / split).glob("*.parquet"))]).to_pylist()
    return [{**record, "image": record["image"]["bytes"]} for record in found]


def pets(prefix="", count=6):
    return {f"{prefix}{['dog', 'cat'][i % 2]}/{i}.png": picture(i) for i in range(count)}


@pytest.mark.parametrize("method", [STORED, DEFLATED])
def test_an_archive_gives_the_records_of_its_folder(method, dsconvert, tmp_path):
    files = {**pets(), "cat/readme.txt": b"text", "__MACOSX/cat/._1.png": b"mac"}
    archive(tmp_path / "pets.zip", files, method)
    with zipfile.ZipFile(tmp_path / "pets.zip") as packed:
        packed.extractall(tmp_path / "pets")
    options = ["--shuffle", "--seed", "3", "--quiet"]
    dsconvert("images", f"pets={tmp_path / 'pets.zip'}", "--out", tmp_path / "packed", *options)
    dsconvert("images", tmp_path / "pets", "--out", tmp_path / "unpacked", *options)
    packed, unpacked = records(tmp_path / "packed"), records(tmp_path / "unpacked")
    assert packed == unpacked and len(packed) == 6
    assert {record["key"] for record in packed} == {f"pets/{name}" for name in pets()}
    manifest = json.loads((tmp_path / "packed/manifest.json").read_text())
    assert manifest["schema"]["class_names"] == ["cat", "dog"]
    assert manifest["sources"]["skipped"] == 2


def test_archives_in_a_folder_become_splits_or_classes(dsconvert, tmp_path):
    # As `zip -r` writes it: everything is in a folder of the archive's name.
    archive(tmp_path / "data/train.zip", pets("train/"))
    archive(tmp_path / "data/val.zip", pets(count=2))
    dsconvert("images", tmp_path / "data", "--out", tmp_path / "out", "--quiet")
    manifest = json.loads((tmp_path / "out/manifest.json").read_text())
    assert {name: split["records"] for name, split in manifest["splits"].items()} == {"train": 6, "validation": 2}
    assert manifest["schema"]["class_names"] == ["cat", "dog"]
    assert records(tmp_path / "out")[0]["key"] == "data/train.zip/train/cat/1.png"
    assert [record["label"] for record in records(tmp_path / "out", "validation")] == [0, 1]
    archive(tmp_path / "kinds/cat.zip", {"1.png": picture(1)})
    archive(tmp_path / "kinds/dog.zip", {"2.png": picture(2)})
    dsconvert("images", tmp_path / "kinds", "--out", tmp_path / "kinds-out", "--quiet")
    manifest = json.loads((tmp_path / "kinds-out/manifest.json").read_text())
    assert manifest["schema"]["class_names"] == ["cat", "dog"]


def test_archives_beside_images_are_left_out_unless_named(dsconvert, tmp_path):
    archive(tmp_path / "data/pets.zip", pets())
    (tmp_path / "data/1.png").write_bytes(picture(1))
    done = dsconvert("images", tmp_path / "data", "--out", tmp_path / "out")
    assert "archives next to images are not read, such as data/pets.zip" in done.stderr
    assert [record["key"] for record in records(tmp_path / "out")] == ["data/1.png"]
    dsconvert(
        "images", tmp_path / "data", tmp_path / "data/pets.zip", "--out", tmp_path / "both", "--quiet", "--layout",
        "flat",
    )
    assert len(records(tmp_path / "both")) == 7


def test_unreadable_members_and_archives_are_named(dsconvert, tmp_path):
    path = archive(
        tmp_path / "a.zip", {**pets(), "metadata.csv": b"file_name\n", "x.heic": b"\0\0\0\x18ftypheic" + bytes(40)}
    )
    with zipfile.ZipFile(path, "a", zipfile.ZIP_LZMA) as out:
        out.writestr("cat/lzma.png", picture(1))
    data = bytearray(path.read_bytes())
    data[data.index(b"dog/0.png") + 20] ^= 0xFF
    path.write_bytes(data)
    dsconvert("images", path, "--out", tmp_path / "out", "--max-rejects", "3", "--metadata", "none")
    rejects = [json.loads(line) for line in (tmp_path / "out/rejects.jsonl").read_text().splitlines()]
    assert [(reject["origin"], reject["code"]) for reject in rejects] == [
        ("a.zip/cat/lzma.png", "unsupported"), ("a.zip/dog/0.png", "corrupt"), ("a.zip/x.heic", "unsupported"),
    ]
    refused = dsconvert("images", path, "--out", tmp_path / "twice", "--dedup", "bytes", "--metadata", "none", status=2)
    assert "not the contents of tar, Parquet, Arrow, TFRecord or zip files" in refused.stderr
    path.write_bytes(data[:-30])
    refused = dsconvert("images", path, "--out", tmp_path / "cut", status=2)
    assert "the zip archive cannot be read: it has no directory at its end" in refused.stderr


@pytest.mark.parametrize("writer", [pa.ipc.new_file, pa.ipc.new_stream])
def test_a_changed_bit_in_an_arrow_file_is_damage(writer, dsconvert, tmp_path):
    table = pa.table({"text": [f"document {i}" for i in range(10)]})
    file = io.BytesIO()
    with writer(file, table.schema) as out:
        out.write_table(table)
    path = archive(tmp_path / "a.zip", {"a.arrow": file.getvalue()}, STORED)
    options = ["--tokenizer", "bytes", "--max-rejects", "1", "--quiet"]
    dsconvert("text", path, "--out", tmp_path / "whole", *options)
    data = bytearray(path.read_bytes())
    data[data.index(b"document 5")] ^= 1
    path.write_bytes(data)
    dsconvert("text", path, "--out", tmp_path / "out", *options)
    manifests = [json.loads((tmp_path / out / "manifest.json").read_text()) for out in ("whole", "out")]
    assert [(m["converted"], m["rejected"]) for m in manifests] == [(10, 0), (10, 1)]
    (reject,) = [json.loads(line) for line in (tmp_path / "out/rejects.jsonl").read_text().splitlines()]
    assert reject["code"] == "corrupt"


def test_a_plan_is_predicted_and_converted_in_parts(dsconvert, tmp_path):
    path = archive(tmp_path / "pets.zip", pets(count=30))
    dry = dsconvert("images", path, "--out", tmp_path / "dry", "--dry-run", "--sample", "20")
    assert "dog" in dry.stdout
    dsconvert("images", path, "--out", tmp_path / "whole", "--quiet")
    dsconvert("plan", "images", path, "--out", tmp_path / "parts", "--unit-bytes", "4KiB")
    for part in ["1/2", "2/2"]:
        dsconvert("run", tmp_path / "parts", "--part", part)
    dsconvert("merge", tmp_path / "parts")
    assert records(tmp_path / "parts") == records(tmp_path / "whole")
