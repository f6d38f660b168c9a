"""Planes of luma and chroma (`--encode yuv420` and `yuv444`) are those of JPEG, in every format and in other libraries."""

import io
import json
import re

import datasets
import numpy as np
import pytest
from PIL import Image

from conftest import ROOT
from dataset import FORMATS, Dataset

PAGE = (ROOT / "docs/reference/format-records.md").read_text()
SIZES = [(1, 1), (1, 2), (2, 1), (3, 5), (5, 4), (6, 1), (16, 16), (67, 41)]
MODES = {"yuv420": 2, "yuv444": 0}


def documented():
    """The function of the reference page."""
    (block,) = re.findall(r"^```python\n# planes.py\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    names = {}
    exec(block, names)
    return names["planes"]


planes = documented()


def picture(width, height, seed=0):
    """Waves and noise in all colors."""
    noise = np.random.default_rng(seed).integers(0, 60, (height, width, 3))
    y, x, c = np.mgrid[:height, :width, :3]
    return (np.sin(x / (9 + 2 * c) + c) * 50 + np.cos(y / (11 - 2 * c)) * 45 + 100 + noise).clip(0, 255).astype(np.uint8)


def ycc(rgb):
    """ITU T.871 in floating point."""
    r, g, b = np.moveaxis(rgb.astype(float), -1, 0)
    y = 0.299 * r + 0.587 * g + 0.114 * b
    return [y, 128 + (b - y) / 1.772, 128 + (r - y) / 1.402]


def halved(plane):
    """Means of 2×2 samples; the last row and column count twice where the side is odd."""
    plane = np.pad(plane, [(0, side % 2) for side in plane.shape], mode="edge")
    return (plane[::2, ::2] + plane[1::2, ::2] + plane[::2, 1::2] + plane[1::2, 1::2]) / 4


def to_rgb(found):
    """Upsampling and color conversion as libjpeg-turbo does them, in its integers."""
    y, *chroma = (plane.astype(int) for plane in found)
    if not chroma:
        return np.stack([y] * 3, -1).astype(np.uint8)
    height, width = y.shape
    cb, cr = (upsampled(plane, height, width) - 128 for plane in chroma)
    half = 1 << 15
    rgb = [
        y + ((91881 * cr + half) >> 16), y + ((-22554 * cb - 46802 * cr + half) >> 16), y + ((116130 * cb + half) >> 16)
    ]
    return np.stack(rgb, -1).clip(0, 255).astype(np.uint8)


def upsampled(plane, height, width):
    if plane.shape == (height, width):
        return plane
    if plane.shape[1] < 3:
        return plane.repeat(2, 0).repeat(2, 1)[:height, :width]
    above, below = np.vstack([plane[:1], plane[:-1]]), np.vstack([plane[1:], plane[-1:]])
    rows = np.stack([3 * plane + above, 3 * plane + below], 1).reshape(-1, plane.shape[1])
    left, right = np.hstack([rows[:, :1], rows[:, :-1]]), np.hstack([rows[:, 1:], rows[:, -1:]])
    return np.stack([(3 * rows + left + 8) >> 4, (3 * rows + right + 7) >> 4], 2).reshape(len(rows), -1)[
        :height, :width
    ]


@pytest.fixture(scope="module")
def sources(tmp_path_factory):
    """A JPEG and a PNG of each size, and JPEGs of each subsampling."""
    folder = tmp_path_factory.mktemp("planes")
    for number, (width, height) in enumerate(SIZES):
        image = Image.fromarray(picture(width, height, number))
        image.save(folder / f"{width}x{height}.png")
        for name, subsampling in MODES.items():
            image.save(
                folder / f"{width}x{height}-{name}.jpg",
                quality=88,
                subsampling=subsampling,
                progressive=number % 2 == 1,
            )
    Image.fromarray(picture(20, 14)).convert("L").save(folder / "gray.png")
    return folder


@pytest.mark.parametrize("encode", MODES)
def test_planes_are_those_of_the_jpeg_or_of_the_pixels(dsconvert, protobuf, sources, tmp_path, encode):
    dsconvert("images", sources, "--out", tmp_path / "out", "--encode", encode, "--format", "msgpack")
    records = Dataset(tmp_path / "out", protobuf).all_records()
    assert len(records) == 3 * len(SIZES) + 1
    for name, record in records.items():
        image = Image.open(sources / name.split("/")[-1])
        rgb = np.asarray(image.convert("RGB"))
        found = planes(record["image"])
        assert (record["height"], record["width"]) == found[0].shape == rgb.shape[:2]
        if name.endswith(f"{encode}.jpg"):
            assert np.array_equal(to_rgb(found), rgb), f"{name}: the pixels that libjpeg-turbo decodes"
            continue
        expected = ycc(rgb)
        if encode == "yuv420":
            expected = [expected[0], *map(halved, expected[1:])]
        for plane, reference in zip(found, expected, strict=True):
            # Chroma is rounded before and after its mean.
            assert np.abs(plane - reference).max() <= 1.01, name


@pytest.mark.parametrize("fmt", FORMATS)
def test_all_formats_and_datasets_store_plain_bytes(dsconvert, protobuf, sources, tmp_path, fmt):
    dsconvert(
        "images", sources, "--out", tmp_path / "out", "--encode", "yuv420", "--format", fmt, "--resize", "longer:24"
    )
    ours = Dataset(tmp_path / "out", protobuf)
    for record in ours.all_records().values():
        assert planes(record["image"])[0].shape == (record["height"], record["width"])
    if fmt in ("parquet", "arrow"):
        files = [str(shard) for shard in ours.shards("train")]
        table = datasets.load_dataset(fmt, data_files=files, split="train", cache_dir=tmp_path / "cache")
        table = table.cast_column("image", datasets.Image(decode=False))
        assert [row["image"]["bytes"] for row in table] == [record["image"] for record in ours.records("train")]
    report = json.loads(dsconvert("inspect", tmp_path / "out", "--verify", "--json").stdout)
    assert report["ok"] and report["records"] == len(ours.all_records())


def test_golden_planes_open_with_the_documented_function(protobuf):
    for fmt in FORMATS:
        records = Dataset(ROOT / f"fixtures/golden/v3/planes-{fmt}", protobuf).all_records()
        assert len(records) == 3
        for name, record in records.items():
            source = ROOT / "fixtures/golden/v1/source/photos" / name.split("/", 1)[-1]
            rgb = np.asarray(Image.open(source).convert("RGB"))
            assert planes(record["image"])[0].shape == (record["height"], record["width"])
            assert abs(planes(record["image"])[0].mean() - ycc(rgb)[0].mean()) < 1


def test_inspect_shows_and_extracts_planes(dsconvert, sources, tmp_path):
    dsconvert("images", sources, "--out", tmp_path / "out", "--encode", "yuv420")
    dsconvert("inspect", tmp_path / "out", "--contact-sheet", tmp_path / "sheet.png")
    sheet = np.asarray(Image.open(tmp_path / "sheet.png").convert("RGB"))
    assert len(np.unique(sheet.reshape(-1, 3), axis=0)) > 500
    dsconvert("inspect", tmp_path / "out", "--record", "0", "--extract", tmp_path / "first.planes")
    first = planes((tmp_path / "first.planes").read_bytes())
    shown = json.loads(dsconvert("inspect", tmp_path / "out", "--record", "0", "--json").stdout)
    assert "width" in json.dumps(shown) and first[0].ndim == 2
    # Extracted files are sources of another conversion.
    (tmp_path / "again").mkdir()
    (tmp_path / "again/first.planes").write_bytes((tmp_path / "first.planes").read_bytes())
    dsconvert("images", tmp_path / "again", "--out", tmp_path / "png", "--encode", "png", "--format", "msgpack")


@pytest.mark.parametrize("damage", ["cut", "longer", "version", "wide"])
def test_damaged_planes_are_rejected(dsconvert, tmp_path, damage):
    header = b"\x89YUV\x01\x02\x02\0" + np.array([4, 2], "<u4").tobytes()
    file = header + bytes(range(12))
    assert len(planes(file)) == 3
    damaged = {
        "cut": file[:-1],
        "longer": file + b"\0",
        "version": file[:4] + b"\x02" + file[5:],
        "wide": file[:8] + b"\xff\xff\xff\x7f" + file[12:],
    }[damage]
    (tmp_path / "files").mkdir()
    (tmp_path / "files/good.planes").write_bytes(file)
    (tmp_path / "files/bad.planes").write_bytes(damaged)
    dsconvert("images", tmp_path / "files", "--out", tmp_path / "out", "--max-rejects", "50%", "--encode", "yuv420")
    (reject,) = map(json.loads, (tmp_path / "out/rejects.jsonl").read_text().splitlines())
    codes = {"cut": "truncated", "longer": "corrupt", "version": "unsupported", "wide": "too-large"}
    assert reject["code"] == codes[damage] or (damage, reject["code"]) == ("wide", "truncated"), reject


def test_pixels_of_pillow_have_the_documented_planes(dsconvert, protobuf, tmp_path):
    """The example of the page, byte by byte."""
    (tmp_path / "files").mkdir()
    Image.fromarray(np.array([[[255, 0, 0], [90, 90, 90]]], np.uint8)).save(tmp_path / "files/two.png")
    dsconvert("images", tmp_path / "files", "--out", tmp_path / "out", "--encode", "yuv420", "--format", "msgpack")
    (record,) = Dataset(tmp_path / "out", protobuf).all_records().values()
    (example,) = re.findall(r"a red and a gray pixel.*?```\n(.*?)```", PAGE, re.DOTALL)
    shown = "".join(re.split(r" {4,}", line)[0] for line in example.splitlines())
    assert record["image"] == bytes.fromhex(shown)
    assert io.BytesIO(record["image"]).read(4) == b"\x89YUV"
