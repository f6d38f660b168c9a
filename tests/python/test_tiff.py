"""TIFF files that Pillow writes have the pixels that Pillow reads, or those that they were made from."""

import io
import json
import struct

import numpy as np
import pytest
from PIL import Image

from dataset import Dataset
from image_samples import picture

SIZE = (53, 37)
COMPRESSIONS = ["raw", "tiff_lzw", "tiff_adobe_deflate", "packbits"]
FAX = ["tiff_ccitt", "group3", "group4"]
T4_OPTIONS, ROWS_PER_STRIP = 292, 278


def saved(image, **options):
    out = io.BytesIO()
    image.save(out, "TIFF", **options)
    return out.getvalue()


def files():
    """File and expected RGBA pixels by name."""
    width, height = SIZE
    rgb, rgba = (Image.fromarray(picture(width, height, channels)) for channels in (3, 4))
    gray = rgb.convert("L")
    images = {
        "bits": gray.point(lambda value: 255 * (value > 110), mode="1"),
        "gray": gray,
        "palette": rgb.quantize(64),
        "gray-alpha": rgba.convert("LA"),
        "rgb": rgb,
        "rgba": rgba,
        "cmyk": rgb.convert("CMYK"),
        "ycbcr": rgb.convert("YCbCr"),
    }
    found = {}
    for name, image in images.items():
        for compression in COMPRESSIONS + (FAX if name == "bits" else []):
            # Strips of 16 rows.
            data = saved(image, compression=compression, tiffinfo={ROWS_PER_STRIP: 16})
            found[f"{name}-{compression}"] = (data, read(data))
    for options in (0, 1, 4, 5):
        data = saved(images["bits"], compression="group3", tiffinfo={T4_OPTIONS: options})
        found[f"bits-group3-{options}"] = (data, read(data))
    for quality in (30, 95):
        for name in ("gray", "rgb", "ycbcr"):
            data = saved(images[name], compression="jpeg", quality=quality)
            found[f"{name}-jpeg-{quality}"] = (data, read(data))
    values = np.asarray(gray).astype(np.uint16) * 257
    expected = np.dstack([np.asarray(gray)] * 3 + [np.full_like(np.asarray(gray), 255)])
    found["gray-16"] = (saved(Image.fromarray(values)), expected)
    found["float"] = (saved(Image.fromarray((np.asarray(gray) / 255).astype(np.float32))), expected)
    found["signed-32"] = (saved(Image.fromarray(values.astype(np.int32) << 15)), expected)
    pages = [rgb, gray, images["bits"]]
    stack = io.BytesIO()
    pages[0].save(stack, "TIFF", save_all=True, append_images=pages[1:])
    found["pages"] = (stack.getvalue(), np.asarray(rgb.convert("RGBA")))
    return found


def read(data):
    with Image.open(io.BytesIO(data)) as image:
        return np.asarray(image.convert("RGBA"))


@pytest.fixture(scope="module")
def made():
    return files()


def test_pixels_are_those_of_pillow(dsconvert, tmp_path, made):
    folder, out = tmp_path / "files", tmp_path / "out"
    folder.mkdir()
    for name, (data, _) in made.items():
        (folder / f"{name}.tif").write_bytes(data)
    dsconvert("images", folder, "--out", out, "--encode", "png", "--color", "rgba", "--quiet", "--strict")
    found = {key.split("/")[-1]: record["image"] for key, record in Dataset(out, None).all_records().items()}
    assert sorted(found) == sorted(f"{name}.tif" for name in made)
    for name, (_, expected) in made.items():
        got = np.asarray(Image.open(io.BytesIO(found[f"{name}.tif"])).convert("RGBA"))
        assert got.shape == expected.shape, name
        difference = np.abs(got.astype(int) - expected.astype(int)).max()
        assert difference <= 1, f"{name}: by {difference}"


def test_files_without_their_last_strip_are_rejected(dsconvert, tmp_path, made):
    folder, out = tmp_path / "files", tmp_path / "out"
    folder.mkdir()
    Image.new("RGB", (4, 4)).save(folder / "whole.png")
    expected = set()
    for name, (data, _) in made.items():
        with Image.open(io.BytesIO(data)) as image:
            start, count = image.tag_v2[273][-1], image.tag_v2[279][-1]
        order = "<" if data[:2] == b"II" else ">"
        offset = struct.pack(order + "I", start)
        if count < 8 or data.count(offset) != 1:
            continue
        # It starts at the end of the file.
        (folder / f"{name}.tif").write_bytes(data.replace(offset, struct.pack(order + "I", len(data))))
        expected.add(f"{name}.tif")
    assert len(expected) > 20
    dsconvert("images", folder, "--out", out, "--max-rejects", "100%", "--quiet")
    rejects = map(json.loads, (out / "rejects.jsonl").open())
    codes = {reject["origin"].split("/")[-1]: reject["code"] for reject in rejects}
    assert codes.keys() == expected and set(codes.values()) <= {"truncated", "corrupt"}
