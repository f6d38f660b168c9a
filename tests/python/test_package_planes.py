"""The Python package: images that are stored as planes, as RGB and as planes, cropped, resized and flipped."""

import re

import numpy as np
import pytest
import torch
from PIL import Image

import dsconvert
from test_package_examples import PROGRAMS, run  # noqa: F401
from test_planes import picture, planes, to_rgb

# Odd, even, and too small for some crops.
SIZES = [(97, 61), (64, 48), (51, 90), (130, 77)]


@pytest.fixture(scope="module")
def paths(command, tmp_path_factory):
    """JPEGs of each size, as planes and as JPEG, resized or not."""
    folder = tmp_path_factory.mktemp("planes")
    (folder / "files").mkdir()
    for number in range(12):
        width, height = SIZES[number % len(SIZES)]
        image = Image.fromarray(picture(width, height, number))
        image.save(folder / f"files/{number:02}.jpg", quality=92, subsampling=2 if number % 2 else 0)

    def path(encode, *options):
        out = folder / "-".join([encode, *options]).replace(":", "-")
        if not out.exists():
            command("images", folder / "files", "--out", out, "--encode", encode, "--format", "arrow", *options)
        return out

    return path


@pytest.fixture
def stored(paths):
    return lambda *options: dsconvert.open(paths(*options), "train")


def psnr(a, b):
    return 10 * np.log10(255**2 / max(np.square(a.astype(float) - b).mean(), 1e-9))


def images(split, **options):
    loader = dsconvert.Loader(split, batch_size=1, shuffle=False, **options)
    return [batch["image"][0] for batch in loader]


def test_whole_images_are_the_planes_in_rgb(stored):
    for encode in ("yuv420", "yuv444"):
        split = stored(encode)
        for record, image, gray in zip(split, images(split), images(split, channels=1), strict=True):
            found = planes(record["image"])
            assert np.array_equal(image, to_rgb(found))
            assert np.array_equal(gray[..., 0], found[0])


@pytest.mark.parametrize("layout", ["hwc", "chw"])
def test_crops_are_parts_of_the_image(stored, layout):
    split = stored("yuv420")
    for crop in [(31, 40), (32, 32), 48]:
        height, width = crop if isinstance(crop, tuple) else (crop, crop)
        cropped = images(split, center_crop=crop, layout=layout)
        for record, image in zip(split, cropped, strict=True):
            whole = to_rgb(planes(record["image"]))
            if whole.shape[0] < height or whole.shape[1] < width:
                continue
            top, left = (whole.shape[0] - height) // 2, (whole.shape[1] - width) // 2
            expected = whole[top : top + height, left : left + width]
            assert np.array_equal(image if layout == "hwc" else image.transpose(1, 2, 0), expected)


@pytest.mark.parametrize("encode", ["yuv420", "yuv444"])
def test_resized_crops_are_those_of_the_rgb_pixels(command, stored, tmp_path, encode):
    """The same pixels, stored without loss, go through RGB."""
    split = stored(encode)
    (tmp_path / "rgb").mkdir()
    for number, record in enumerate(split):
        Image.fromarray(to_rgb(planes(record["image"]))).save(tmp_path / f"rgb/{number:02}.png")
    command("images", tmp_path / "rgb", "--out", tmp_path / "png", "--encode", "png", "--format", "arrow")
    rgb = dsconvert.open(tmp_path / "png", "train")
    for options in [
        {"random_resized_crop": 40, "hflip": True, "seed": 3},
        {"random_resized_crop": (24, 90), "crop_scale": (0.5, 1.0), "layout": "chw"},
        {"center_crop": 100},
    ]:
        ours, expected = images(split, **options), images(rgb, **options)
        assert psnr(np.stack(ours), np.stack(expected)) >= 50


def test_planes_are_returned_as_they_are_stored(stored):
    split = stored("yuv420")
    for record, image in zip(split, images(split, center_crop=(32, 40), color="yuv"), strict=True):
        y, cb, cr = planes(record["image"])
        top, left = ((side - crop) // 2 // 2 * 2 for side, crop in zip(y.shape, (32, 40)))
        assert image.shape == (48, 40) and image.dtype == np.uint8
        assert np.array_equal(image[:32], y[top : top + 32, left : left + 40])
        chroma = image[32:].reshape(2, 16, 20)
        for found, plane in zip(chroma, (cb, cr)):
            assert np.array_equal(found, plane[top // 2 : top // 2 + 16, left // 2 : left // 2 + 20])
    split = stored("yuv444")
    for record, image in zip(split, images(split, color="yuv", hflip=1.0), strict=True):
        assert np.array_equal(image, np.stack(planes(record["image"]))[:, :, ::-1])
    split = stored("yuv420", "--color", "gray")
    for record, image in zip(split, images(split, color="yuv"), strict=True):
        assert np.array_equal(image[0], planes(record["image"])[0])


def test_torch_converts_planes_on_the_device(stored):
    names = {"__name__": "load_planes"}
    exec(PROGRAMS["load_planes.py"], names)
    split = stored("yuv420")
    for options, limit in [({"center_crop": (32, 40)}, 48), ({"random_resized_crop": 32, "hflip": True}, 34)]:
        rgb = dsconvert.Loader(split, batch_size=4, shuffle=False, layout="chw", as_torch=True, **options)
        yuv = dsconvert.Loader(split, batch_size=4, shuffle=False, color="yuv", as_torch=True, **options)
        for pixels, converted in zip(rgb, yuv, strict=True):
            normalized = names["normalized_rgb"](converted["image"], "cpu")
            found = normalized * names["STD"] + names["MEAN"]
            assert found.shape == pixels["image"].shape and torch.isfinite(found).all()
            # Odd crops of RGB start one pixel further on, and resized chroma has half the resolution.
            shifted = psnr(pixels["image"].numpy(), found.numpy())
            assert shifted > (20 if "center_crop" in options else limit - 10)


def test_an_even_center_crop_is_converted_to_the_same_pixels(command, tmp_path):
    (tmp_path / "files").mkdir()
    for number in range(3):
        Image.fromarray(picture(96, 64, number)).save(tmp_path / f"files/{number}.jpg", quality=90)
    command("images", tmp_path / "files", "--out", tmp_path / "out", "--encode", "yuv420")
    names = {"__name__": "load_planes"}
    exec(PROGRAMS["load_planes.py"], names)
    options = {"batch_size": 3, "shuffle": False, "as_torch": True}
    (rgb,) = dsconvert.Loader(tmp_path / "out", layout="chw", **options)
    (yuv,) = dsconvert.Loader(tmp_path / "out", color="yuv", **options)
    found = names["normalized_rgb"](yuv["image"], "cpu") * names["STD"] + names["MEAN"]
    # libjpeg rounds chroma before the conversion, and the result.
    assert (found - rgb["image"]).abs().max() < 2.5


def test_the_program_of_the_guide_runs(run, paths):  # noqa: F811
    output = run("load_planes.py", paths("yuv420"))
    assert re.search(r"^12 images, the last batch is \(4, 3, 224, 224\) on (cpu|cuda)$", output, re.MULTILINE)


@pytest.mark.parametrize(("options", "message"), [
    ({"center_crop": (31, 40)}, "sides must be even"),
    ({}, "sides must be even"),
    ({"layout": "chw"}, "layout does not apply"),
    ({"channels": 1}, "channels does not apply"),
])
def test_what_planes_cannot_do_is_an_error(stored, options, message):
    with pytest.raises(dsconvert.UsageError, match=message):
        images(stored("yuv420"), color="yuv", **options)


def test_images_of_other_types_have_no_planes(stored):
    with pytest.raises(dsconvert.Error, match="stored as jpeg.*encode yuv420"):
        images(stored("jpeg"), center_crop=32, color="yuv")
    blank = dsconvert.Loader(stored("jpeg"), batch_size=12, center_crop=32, color="yuv", undecodable="blank")
    (batch,) = blank
    assert not batch["valid"].any() and not batch["image"].any()
