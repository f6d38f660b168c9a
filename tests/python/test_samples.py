"""Samples of tar files, as WebDataset and img2dataset write them, compared with a plain reading of the tar file."""

import io
import json
import random
import tarfile

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image


def encoded(number, kind, mode="RGB"):
    draw = np.random.default_rng(number)
    height, width = draw.integers(3, 40, 2)
    out = io.BytesIO()
    Image.fromarray(draw.integers(0, 256, (height, width, 3), np.uint8)).convert(mode).save(out, kind)
    return out.getvalue()


def smooth(number):
    """An image without edges, which all exact filters resize to nearly the same pixels."""
    draw = np.random.default_rng(number)
    width, height = map(int, draw.integers(20, 60, 2))
    image = Image.fromarray(draw.integers(0, 256, (3, 3, 3), np.uint8)).resize(
        (width, height), Image.Resampling.BICUBIC
    )
    out = io.BytesIO()
    image.save(out, "PNG")
    return out.getvalue()


def written(path, members):
    with tarfile.open(path, "w") as tar:
        for name, content in members:
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))


def samples_of(path):
    """The members of each sample by extension, in lower case."""
    samples = {}
    with tarfile.open(path) as tar:
        for member in tar:
            name, _, extension = member.name.partition(".")
            samples.setdefault(name, {})[extension.lower()] = tar.extractfile(member).read()
    return samples


def records_of(out):
    tables = [pq.read_table(file) for file in sorted((out / "train").glob("*.parquet"))]
    return {record["key"].split("#")[1]: record for record in pa.concat_tables(tables).to_pylist()}


def pixels(file):
    return np.asarray(Image.open(io.BytesIO(file)).convert("RGB"))


@pytest.mark.parametrize("seed", range(4))
def test_every_member_is_a_field_or_counted(seed, dsconvert, tmp_path):
    choice = random.Random(seed)
    main, further = [("jpg", ["crop.jpg", "thumb.jpg"]), ("0.jpg", ["1.jpg", "2.JPG", "10.jpg"]),
                     ("input.png", ["output.jpg"]), ("JPG", ["left.jpg"])][seed]
    texts = {
        "caption": "caption", "txt": "txt", "en.txt": "en_txt", "meta.json": "meta_json", "json": "json", "url": "url"
    }
    others = ["npy", "PTH"]
    members = []
    for number in range(30):
        sample = [(main, encoded(number, "PNG" if "png" in main else "JPEG"))]
        sample += [
            (name, encoded(number + 100 * i + 100, "JPEG")) for i, name in enumerate(further) if choice.random() < 0.6
        ]
        for name in texts:
            if choice.random() < 0.5:
                sample.append(
                    (name, json.dumps({"n": number}).encode() if "json" in name else f"{name} é {number}".encode())
                )
        sample += [(name, b"\x93NUMPY\0" + bytes([number])) for name in others if choice.random() < 0.5]
        choice.shuffle(sample)
        members += [(f"{number:04}.{name}", content) for name, content in sample]
    tar, out = tmp_path / "s.tar", tmp_path / "out"
    written(tar, members)
    done = dsconvert("images", tar, "--out", out, "--encode", "png")
    assert '"npy", "pth"' in done.stderr and "--keep-fields" in done.stderr
    samples, records = samples_of(tar), records_of(out)
    assert sorted(samples) == sorted(records)
    left_out = 0
    images = {name.lower(): name.lower().rsplit(".", 1)[0] for name in further} | {main.lower(): "image"}
    for name, sample in samples.items():
        record = records[name]
        for member, field in images.items():
            found = record[field] and record[field]["bytes"]
            assert (found is None) == (member not in sample), (name, member)
            if found:
                assert np.array_equal(pixels(found), pixels(sample[member])), (name, member)
        for member, field in texts.items():
            expected = sample.get(member)
            found = record[field]
            if expected is None:
                assert found is None
            elif "json" in member:
                assert json.loads(found) == json.loads(expected)
            else:
                assert found == expected.decode()
        left_out += sum(other.lower() in sample for other in others)
    assert json.loads((out / "manifest.json").read_text())["sources"]["skipped"] == left_out
    assert f"{left_out} sample members are left out" in done.stdout
    # The others are read on request.
    kept = ["--keep-fields", "array=npy:binary,pth:binary"]
    dsconvert("images", tar, "--out", tmp_path / "kept", "--encode", "png", *kept)
    for name, record in records_of(tmp_path / "kept").items():
        assert (record["array"], record["pth"]) == (samples[name].get("npy"), samples[name].get("pth"))


def test_images_of_other_sizes_are_resized_on_their_own(dsconvert, tmp_path):
    members = []
    for number in range(8):
        members += [(f"{number}.left.png", smooth(number)), (f"{number}.right.png", smooth(number + 50))]
    tar, out = tmp_path / "s.tar", tmp_path / "out"
    written(tar, members)
    options = ["--image-fields", "right.png:image", "--encode", "png", "--resize", "longer:16", "--filter", "lanczos3"]
    dsconvert("images", tar, "--out", out, *options)
    samples = samples_of(tar)
    for name, record in records_of(out).items():
        for member, field in [("left.png", "image"), ("right.png", "right")]:
            given = Image.open(io.BytesIO(samples[name][member]))
            longer = max(given.size)
            size = tuple(max(1, (2 * side * 16 + longer) // (2 * longer)) for side in given.size)
            expected = np.asarray(given.resize(size, Image.Resampling.LANCZOS), int)
            found = pixels(record[field]["bytes"])
            assert found.shape == expected.shape
            assert np.abs(found - expected).max() <= 3, (name, member)
        assert (record["width"], record["height"]) == Image.open(io.BytesIO(record["image"]["bytes"])).size
