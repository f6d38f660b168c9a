"""Aspect-ratio buckets: the choice is that of brute force in floating point, and pixels are those of Pillow."""

import io
import json
import math
import random

import numpy as np
import pytest
from PIL import Image

from dataset import Dataset
from image_samples import picture

AREA = [(256, 256), (288, 224), (320, 192), (352, 160), (384, 160)]
AREA = sorted({size for width, height in AREA for size in ((width, height), (height, width))})


def nearest(width, height, sizes):
    """The bucket, or None if two are about as near."""
    distances = sorted((abs(math.log(width / height) - math.log(w / h)), (w, h)) for w, h in sizes)
    return None if len(distances) > 1 and distances[1][0] - distances[0][0] < 1e-9 else distances[0][1]


def sources(folder, count=40):
    """Images of random sizes, by name, a third of them with an orientation that transposes them."""
    choose = random.Random(5)
    folder.mkdir()
    upright = {}
    for number in range(count):
        ratio = math.exp(choose.uniform(-1.2, 1.2))
        pixels = choose.uniform(150**2, 700**2)
        size = round(math.sqrt(pixels * ratio)), round(math.sqrt(pixels / ratio))
        image = Image.fromarray(picture(*size, 3, seed=number))
        name = f"{number:02}.png"
        exif = Image.Exif()
        if number % 3 == 0:
            exif[0x0112] = 6
            image = image.transpose(Image.Transpose.ROTATE_90)
        image.save(folder / name, exif=exif)
        upright[name] = size, Image.open(folder / name)
    return upright


@pytest.mark.parametrize("enlarge", [False, True], ids=["filtered", "enlarged"])
def test_images_have_the_size_of_the_nearest_bucket(enlarge, dsconvert, protobuf, tmp_path):
    upright = sources(tmp_path / "in")
    options = ["--buckets", "area:256x256,step:32,max-ratio:2.5", "--encode", "png", *(["--enlarge"] if enlarge else [])]
    dsconvert("images", tmp_path / "in", "--out", tmp_path / "out", *options)
    dataset = Dataset(tmp_path / "out", protobuf)
    records = dataset.all_records()
    filtered = 0
    for name, ((width, height), stored) in upright.items():
        bucket = nearest(width, height, AREA)
        assert bucket, "a tie"
        if not enlarge and (width < bucket[0] or height < bucket[1]):
            filtered += 1
            assert f"in/{name}" not in records
            continue
        record = records[f"in/{name}"]
        assert (record["width"], record["height"]) == bucket, name
        scale = max(bucket[0] / width, bucket[1] / height)
        resized = [max(int(side * scale + 0.5), least) for side, least in zip((width, height), bucket)]
        left, top = (resized[0] - bucket[0]) // 2, (resized[1] - bucket[1]) // 2
        is_turned = stored.getexif().get(0x0112) == 6
        image = stored.convert("RGB").transpose(Image.Transpose.ROTATE_270) if is_turned else stored
        assert image.size == (width, height)
        # The height first, as documented.
        image = image.resize((width, resized[1]), Image.Resampling.LANCZOS).resize(resized, Image.Resampling.LANCZOS)
        theirs = np.asarray(image.crop((left, top, left + bucket[0], top + bucket[1])), int)
        ours = np.asarray(Image.open(io.BytesIO(record["image"])), int)
        difference = np.abs(ours - theirs)
        # An image is resized before it is turned.
        assert difference.mean() < 1 if is_turned else difference.max() <= 2, name
    counts = dataset.manifest["counts"]
    assert counts["filtered"] == filtered and len(records) == len(upright) - filtered
    assert (filtered > 0) != enlarge
    listed = tmp_path / "out/filtered.jsonl"
    reasons = [json.loads(line)["reason"] for line in listed.read_text().splitlines()] if listed.exists() else []
    assert reasons == ["buckets"] * filtered


def test_buckets_exclude_other_sizes(dsconvert, tmp_path):
    (tmp_path / "in").mkdir()
    Image.new("RGB", (64, 64)).save(tmp_path / "in/a.png")

    def refused(*options):
        return dsconvert("images", tmp_path / "in", "--out", tmp_path / "out", *options, status=2).stderr

    for option, value in [("--resize", "shorter:8"), ("--crop", "center:8x8"), ("--pad", "80x80")]:
        error = refused("--buckets", "32x32", option, value)
        assert "--buckets" in error and option in error and "cannot be used with" in error
    assert "--buckets" in refused("--buckets", "32") and not (tmp_path / "out").exists()
    dsconvert("images", tmp_path / "in", "--out", tmp_path / "one", "--resize", "shorter:8")
    error = refused("--like", tmp_path / "one", "--buckets", "32x32")
    assert "--buckets and --resize exclude each other" in error
    dsconvert(
        "images", tmp_path / "in", "--out", tmp_path / "two", "--like", tmp_path / "one", "--buckets", "32x32", "--resize", "none"
    )
