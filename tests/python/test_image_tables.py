"""Tables of images and sidecars: the records are those of `ImageFolder` of `datasets`, or of a loop in Python."""

import csv
import io
import json
import zipfile

import datasets
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from dataset import Dataset


def picture(number):
    out = io.BytesIO()
    pixels = np.random.default_rng(number).integers(0, 256, (6 + number, 9, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(out, "PNG")
    return out.getvalue()


def write_table(path, rows):
    if path.suffix == ".csv":
        with path.open("w", newline="") as out:
            writer = csv.DictWriter(out, list(rows[0]))
            writer.writeheader()
            writer.writerows(rows)
    elif path.suffix == ".jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    else:
        pq.write_table(pa.Table.from_pylist(rows), path)


PAIRS = [{"input_file_name": f"{i}.png", "edit_file_name": f"{i + 4}.png", "text": f"row {i}"} for i in range(4)]
NAMED = [{"file_name": f"{i}.png", "depth_file_name": f"{7 - i}.png", "text": f"row {i}"} for i in range(4)]
LISTS = [{"file_names": [f"{j}.png" for j in range(i, i + 3)], "text": f"row {i}"} for i in range(4)]
# Names of the fields in `datasets`, with those of dsconvert. A list has one for each image.
TABLES = {
    "pairs.csv": (PAIRS, {"input": "image", "edit": "edit"}),
    "pairs.parquet": (PAIRS, {"input": "image", "edit": "edit"}),
    "named.jsonl": (NAMED, {"image": "image", "depth": "depth"}),
    "lists.jsonl": (LISTS, {"images": ["image", "images_1", "images_2"]}),
    "lists.parquet": (LISTS, {"images": ["image", "images_1", "images_2"]}),
}


def pixels(image):
    if isinstance(image, dict):
        image = Image.open(io.BytesIO(image["bytes"]))
    return np.asarray(image.convert("RGB"))


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("table", TABLES)
def test_columns_of_paths_are_images_as_in_the_datasets_library(table, packed, dsconvert, protobuf, tmp_path):
    rows, names = TABLES[table]
    source = tmp_path / "source"
    source.mkdir()
    for number in range(8):
        (source / f"{number}.png").write_bytes(picture(number))
    write_table(source / f"metadata.{table.split('.')[1]}", rows)
    if packed:
        with zipfile.ZipFile(tmp_path / "images.zip", "w") as out:
            for path in sorted(source.iterdir()):
                out.write(path, path.name)
                path.unlink()
        (tmp_path / "images.zip").rename(source / "images.zip")
    theirs = datasets.load_dataset("imagefolder", data_dir=str(source), cache_dir=str(tmp_path / "cache"))["train"]
    dsconvert("images", source, "--out", tmp_path / "out", "--encode", "png")
    records = Dataset(tmp_path / "out", protobuf).records("train")
    assert len(records) == len(theirs) == 4
    for record, row in zip(records, theirs, strict=True):
        assert record["text"] == row["text"]
        for name, fields in names.items():
            images = row[name] if isinstance(fields, list) else [row[name]]
            fields = fields if isinstance(fields, list) else [fields]
            for field, image in zip(fields, images, strict=True):
                ours = {"bytes": record[field]} if field == "image" else record[field]
                assert np.array_equal(pixels(ours), pixels(image)), (name, field)


def test_sidecars_are_the_files_with_the_stem_of_an_image(dsconvert, protobuf, tmp_path):
    source = tmp_path / "source"
    stems = ["a", "a.b", "a-b", "a b", "ä", "a.b.c", "B", "x/a", "x/a.txt", "x.y/a"]
    numbers = np.random.default_rng(1)
    for number, stem in enumerate(stems):
        for extension in ["png", "PNG", "jpeg"]:
            if numbers.random() < 0.6:
                path = source / f"{stem}.{extension}"
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(picture(number))
        for extension in ["txt", "caption", "TXT", "json", "md"]:
            if numbers.random() < 0.5:
                path = source / f"{stem}.{extension}"
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(json.dumps(f"{stem} {extension}"))
    images = sorted(p for p in source.rglob("*") if p.suffix.lower() in (".png", ".jpeg"))
    assert len(images) > 12

    def sidecar(image, extension):
        found = [
            p
            for p in image.parent.iterdir()
            if p.name[: -len(p.suffix)] == image.stem and p.suffix.lower() == extension
        ]
        return max(found, key=lambda p: p.suffix, default=None)

    expected = {
        f"source/{image.relative_to(source)}": [
            path and path.read_text() for path in (sidecar(image, extension) for extension in (".txt", ".caption", ".json"))
        ]
        for image in images
    }
    dsconvert("images", source, "--out", tmp_path / "out", "--layout", "flat")
    ours = Dataset(tmp_path / "out", protobuf).records("train")
    found = {record["key"]: [record.get(name) for name in ("txt", "caption", "json")] for record in ours}
    assert found == expected
