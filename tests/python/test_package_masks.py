"""Masks in tar files: conversion, and loading together with their images."""

import io
import tarfile

import numpy as np
import pytest
from PIL import Image

import dsconvert

SIDE = 96


def png(array, palette=None):
    image = Image.fromarray(array)
    if palette is not None:
        image.putpalette(palette)
    out = io.BytesIO()
    image.save(out, "PNG")
    return out.getvalue()


def classes(number):
    """A mask of blocks of 32 × 32 pixels, each of one class."""
    y, x = np.mgrid[:SIDE, :SIDE] // 32
    return ((x + 3 * y + number) % 40).astype(np.uint8)


@pytest.fixture(scope="module")
def dataset(command, tmp_path_factory):
    folder = tmp_path_factory.mktemp("masks")
    with tarfile.open(folder / "s.tar", "w", format=tarfile.USTAR_FORMAT) as tar:
        for number in range(12):
            seg = classes(number)
            members = {"png": png(np.repeat(seg[:, :, None] * 6, 3, 2))}
            if number % 4 != 3:
                members["seg.png"] = png(seg, [v for i in range(256) for v in (i, 255 - i, 0)])
            for extension, content in members.items():
                info = tarfile.TarInfo(f"{number:02}.{extension}")
                info.size = len(content)
                tar.addfile(info, io.BytesIO(content))
    command(
        "images", folder / "s.tar", "--out", folder / "out", "--encode", "png", "--resize", "exact:48x48", "--filter",
        "box",
    )
    return dsconvert.open(folder / "out", "train")


def test_masks_are_stored_with_their_palette(dataset):
    for number, record in enumerate(dataset):
        if number % 4 == 3:
            assert record["seg"] is None
            continue
        mask = Image.open(io.BytesIO(record["seg"]))
        assert mask.mode == "P" and mask.size == (48, 48)
        assert np.array_equal(np.asarray(mask), classes(number)[::2, ::2])


@pytest.mark.parametrize("crop", [{}, {"center_crop": 40}, {"random_resized_crop": 32}])
def test_masks_are_cropped_and_flipped_with_their_images(dataset, crop):
    seen = 0
    loader = dsconvert.Loader(dataset, batch_size=4, hflip=0.5, seed=3, **crop)
    for batch in loader:
        assert list(batch)[:3] == ["image", "seg", "seg.valid"]
        images, masks = batch["image"], batch["seg"]
        assert masks.dtype == np.uint8 and masks.shape == images.shape[:3]
        for image, mask, valid, number in zip(images, masks, batch["seg.valid"], loader.last.records):
            assert valid == (number % 4 != 3)
            if not valid:
                assert not mask.any()
                continue
            # Away from the edges of blocks, a pixel of the image is six times its class.
            inner = mask[3:-3, 3:-3]
            around = [
                mask[3 + dy : mask.shape[0] - 3 + dy, 3 + dx : mask.shape[1] - 3 + dx]
                for dy in (-3, 3)
                for dx in (-3, 3)
            ]
            same = np.all([inner == other for other in around], axis=0)
            shown = image[3:-3, 3:-3, 0].astype(int)
            assert same.sum() > 20
            assert (np.abs(shown - inner.astype(int) * 6)[same] <= 6).all()
            seen += 1
    assert seen == 9
