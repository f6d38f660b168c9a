"""The Python package: the sizes of images in aspect-ratio buckets, as records and in batches."""

import random

import numpy as np
import pytest
from PIL import Image

import dsconvert

FIELDS = ["original_size", "resized_size", "crop_top_left", "target_size"]


@pytest.fixture(scope="module", params=["parquet", "arrow", "msgpack", "protobuf"])
def split(request, tmp_path_factory):
    """Images of random sizes whose left half is darker than the right one, in buckets."""
    choose, folder = random.Random(2), tmp_path_factory.mktemp("buckets")
    (folder / "in").mkdir()
    for number in range(40):
        size = choose.randrange(60, 200), choose.randrange(60, 200)
        pixels = np.zeros((size[1], size[0], 3), np.uint8)
        pixels[:, size[0] // 2 :] = 200
        Image.fromarray(pixels).save(folder / f"in/{number:02}.png")
    convert = request.getfixturevalue("command")
    options = ["--buckets", "48x48,64x40,40x64", "--encode", "png", "--format", request.param]
    convert("images", folder / "in", "--out", folder / "out", *options)
    return dsconvert.open(folder / "out", "train")


def test_records_have_arrays_of_two(split):
    for record in split:
        for name in FIELDS:
            assert record[name].dtype == np.int32 and record[name].shape == (2,)
        resized, corner, target = (record[name] for name in FIELDS[1:])
        assert target.tolist() == [record["height"], record["width"]]
        assert ((corner >= 0) & (corner + target <= resized)).all() and (resized == target).any()
        assert corner.tolist() == ((resized - target) // 2).tolist()


def test_batches_have_the_sizes_of_their_images_and_flips_mirror_the_corner(split):
    options = {"bucket": "shape", "batch_size": 4, "seed": 3, "hflip": 0.5}
    loader = dsconvert.Loader(split, fields=["image", *FIELDS], **options)
    flipped = {True: 0, False: 0}
    for batch in loader:
        records = split[loader.last.records]
        for name in FIELDS:
            assert batch[name].dtype == np.int32 and batch[name].shape == (len(records), 2)
        for row, record in enumerate(records):
            image = batch["image"][row]
            is_flipped = bool(image[:, 0].mean() > image[:, -1].mean())
            flipped[is_flipped] += 1
            for name in ("original_size", "resized_size", "target_size"):
                assert batch[name][row].tolist() == record[name].tolist()
            y, x = record["crop_top_left"]
            if is_flipped:
                x = record["resized_size"][1] - record["target_size"][1] - x
            assert batch["crop_top_left"][row].tolist() == [y, x]
    assert min(flipped.values()) > 5
    # Where an odd number of columns is cut off, the corner of a mirrored image differs.
    assert any((record["resized_size"] - record["target_size"])[1] % 2 for record in split)
    # Without a flip, and without decoding, they are as stored.
    for more in ({"hflip": 0}, {"decode": False, "hflip": None}):
        given = {name: value for name, value in (options | more).items() if value is not None}
        loader = dsconvert.Loader(split, fields=["image", "crop_top_left"], **given)
        for batch in loader:
            stored = [record["crop_top_left"].tolist() for record in split[loader.last.records]]
            assert batch["crop_top_left"].tolist() == stored


def test_a_flip_of_the_corner_needs_the_other_sizes(split):
    selected = split.select(["image", "width", "height", "crop_top_left"])
    options = {"fields": ["image", "crop_top_left"], "bucket": "shape", "batch_size": 2}
    with pytest.raises(dsconvert.UsageError, match="needs the field \"resized_size\""):
        dsconvert.Loader(selected, hflip=0.5, **options)
    assert "crop_top_left" in next(iter(dsconvert.Loader(selected, **options)))
