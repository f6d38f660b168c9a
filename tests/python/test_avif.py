"""AVIF files have the pixels of Pillow, within the rounding of the color conversion."""

import io
import json
import random
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageCms, ImageOps, features

import mutants
from dataset import Dataset
from image_samples import exif, picture

pytestmark = pytest.mark.skipif(not features.check("avif"), reason="this Pillow has no AVIF")

FIXTURES = Path(__file__).parents[2] / "fixtures/avif"
SIZE = (37, 23)


def encoded(array, **options):
    out = io.BytesIO()
    options = {"quality": 90, "speed": 8} | options
    image = Image.fromarray(array.squeeze())
    image.save(out, "AVIF", **options)
    return out.getvalue()


def made():
    """Files by name."""
    width, height = SIZE
    rgb, rgba, gray = picture(width, height, 3), picture(width, height, 4), picture(width, height, 1)
    smooth = np.stack(np.broadcast_arrays(*np.mgrid[:height, :width], 90), 2).astype(np.uint8) * np.array(
        [10, 6, 1], np.uint8
    )
    found = {}
    for name, subsampling in [("420", "4:2:0"), ("422", "4:2:2"), ("444", "4:4:4"), ("400", "4:0:0")]:
        for level_range in ["full", "limited"]:
            options = {"subsampling": subsampling, "range": level_range}
            found[f"{name}-{level_range}"] = encoded(rgb, **options)
            found[f"{name}-{level_range}-alpha"] = encoded(rgba, **options)
            found[f"{name}-{level_range}-even"] = encoded(picture(32, 16, 3), **options)
            found[f"{name}-{level_range}-smooth"] = encoded(smooth, **options, quality=100)
    for side in [1, 2, 3]:
        found[f"tiny-{side}"] = encoded(picture(side, 4 - side, 3), subsampling="4:2:0")
    found["large"] = encoded(picture(300, 200, 3), subsampling="4:2:0")
    found["gray"] = encoded(gray)
    found["lossless"] = encoded(rgb, quality=100, subsampling="4:4:4")
    found["premultiplied"] = encoded(rgba, alpha_premultiplied=True, subsampling="4:4:4")
    found["frames"] = encoded(rgb, save_all=True, append_images=[Image.fromarray(255 - rgb)])
    for orientation in range(1, 9):
        found[f"turned-{orientation}"] = encoded(rgb, exif=exif(orientation))
    found |= {path.stem: path.read_bytes() for path in FIXTURES.glob("*.avif")}
    return found


def pillow(data):
    with Image.open(io.BytesIO(data)) as image:
        upright = ImageOps.exif_transpose(image)
        return np.asarray(upright.convert("RGBA"))


def convert(dsconvert, folder, out, files, *options, suffix=".avif"):
    folder.mkdir()
    for name, data in files.items():
        (folder / f"{name}{suffix}").write_bytes(data)
    return dsconvert("images", folder, "--out", out, "--format", "msgpack", "--quiet", "--layout", "flat", *options)


def records(out):
    return {
        record["key"].split("/")[-1].rpartition(".")[0]: record for record in Dataset(out, None).all_records().values()
    }


def test_pixels_are_those_of_pillow(dsconvert, tmp_path):
    files = made()
    convert(dsconvert, tmp_path / "in", tmp_path / "out", files, "--encode", "raw", "--color", "rgba", "--strict")
    found = records(tmp_path / "out")
    assert found.keys() == files.keys()
    wrong, equal = {}, 0
    for name, data in files.items():
        expected = pillow(data)
        assert (found[name]["height"], found[name]["width"]) == expected.shape[:2], name
        pixels = np.frombuffer(found[name]["image"], np.uint8).reshape(expected.shape)
        differences = np.abs(pixels.astype(float) - expected)
        # Division by alpha enlarges differences. Transparent pixels may have any color.
        alpha = expected[..., 3:]
        differences *= (alpha / 255) if name == "premultiplied" else (alpha > 0)
        equal += not differences.any()
        # libyuv, which Pillow uses, computes colors with 6 bits of precision, and reduces 10 bits of chroma to 8 before.
        if differences.max() > 2:
            wrong[name] = (float(differences.max()), round(float(differences.mean()), 3))
    assert not wrong, wrong
    assert equal > 5


def test_kept_files_become_png_that_loses_nothing(dsconvert, tmp_path):
    files = made()
    convert(dsconvert, tmp_path / "in", tmp_path / "raw", files, "--encode", "raw", "--strict")
    dsconvert(
        "images", tmp_path / "in", "--out", tmp_path / "keep", "--format", "msgpack", "--layout", "flat", "--encode",
        "keep", "--strict",
    )
    raw = records(tmp_path / "raw")
    for name, record in records(tmp_path / "keep").items():
        image = Image.open(io.BytesIO(record["image"]))
        assert image.format == "PNG"
        assert np.asarray(image.convert("RGB")).tobytes() == raw[name]["image"], name
    dsconvert("inspect", tmp_path / "keep", "--verify")


def test_the_first_frame_is_used_or_the_file_is_rejected(dsconvert, tmp_path):
    files = {name: data for name, data in made().items() if name in ("frames", "444-full")}
    convert(dsconvert, tmp_path / "in", tmp_path / "out", files, "--animated", "reject", "--max-rejects", "100%")
    assert {name: reason.split(":")[0] for name, reason in mutants.read_rejects(tmp_path / "out").items()} == {
        "frames.avif": "animated"
    }


def test_profiles_are_converted_and_exif_is_kept_upright(dsconvert, tmp_path):
    rgb = picture(*SIZE, 3)
    srgb = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB"))
    block = Image.Exif()
    block[0x0112], block[0x010F] = 6, "maker"
    files = {"srgb": encoded(rgb, icc_profile=srgb.tobytes()), "exif": encoded(rgb, exif=block.tobytes())}
    files["plain"] = encoded(rgb)
    # An RGB profile whose red and blue are exchanged.
    profile = bytearray(srgb.tobytes())
    red, blue = profile.index(b"rXYZ"), profile.index(b"bXYZ")
    profile[red : red + 4], profile[blue : blue + 4] = b"bXYZ", b"rXYZ"
    files["exchanged"] = encoded(rgb, icc_profile=bytes(profile))
    convert(dsconvert, tmp_path / "in", tmp_path / "out", files, "--encode", "png", "--keep-metadata", "--strict")
    images = {name: Image.open(io.BytesIO(record["image"])) for name, record in records(tmp_path / "out").items()}
    pixels = {name: np.asarray(image).astype(int) for name, image in images.items()}
    assert np.array_equal(pixels["srgb"], pixels["plain"])
    assert np.abs(pixels["exchanged"] - pixels["plain"][..., ::-1]).max() <= 2
    assert images["exif"].size == SIZE[::-1]
    block = images["exif"].getexif()
    assert (block.get(0x0112, 1), block[0x010F]) == (1, "maker")


@pytest.mark.parametrize("name", ["420", "alpha", "frames", "libavif-grid", "libavif-12-bit-frames"])
def test_a_file_that_ends_early_is_rejected(dsconvert, tmp_path, name):
    data = (FIXTURES / f"{name}.avif").read_bytes()
    # Of a sequence, only the first frame is needed.
    end = 600 if "frames" in name else len(data)
    cuts = sorted({*range(12, 60), *random.Random(1).sample(range(12, end), 40), end - 1})
    files = {f"{cut:06}": data[:cut] for cut in cuts} | {"whole": data}
    convert(dsconvert, tmp_path / "in", tmp_path / "out", files, "--encode", "raw", "--max-rejects", "100%")
    rejected = mutants.read_rejects(tmp_path / "out")
    assert set(rejected) == {f"{file}.avif" for file in files} - {"whole.avif"}
    assert {reason.split(":")[0] for reason in rejected.values()} <= {"truncated", "unsupported", "unknown-type"}


def test_mutants_neither_panic_nor_abort(dsconvert, tmp_path):
    rng, files = random.Random(3), {"whole": (FIXTURES / "444.avif").read_bytes()}
    for path in sorted(FIXTURES.glob("*.avif")):
        data = path.read_bytes()
        for number in range(40):
            mutant = bytearray(data)
            for _ in range(rng.randint(1, 3)):
                mutant[rng.randrange(12, len(data))] = rng.choice([0, 1, 127, 128, 255, rng.randrange(256)])
            files[f"{number:03}-{path.stem}"] = bytes(mutant)
    convert(dsconvert, tmp_path / "in", tmp_path / "out", files, "--encode", "raw", "--max-rejects", "100%")
    reasons = mutants.read_rejects(tmp_path / "out").values()
    assert len(reasons) > 100
    assert not [reason for reason in reasons if "panic" in reason]


def test_large_and_other_files_are_refused_by_name(dsconvert, tmp_path):
    data = (FIXTURES / "444.avif").read_bytes()
    at = data.index(b"ispe") + 8
    matrix = data.index(b"nclx") + 9
    files = {
        "huge": data[:at] + b"\0\1\0\0\0\1\0\0" + data[at + 8 :],
        "wide": data[:at] + b"\0\0\x40\0\0\0\x20\0" + data[at + 8 :],
        "constant-luminance": data[:matrix] + b"\x0a" + data[matrix + 1 :],
        "heic": b"\0\0\0\x18ftypheic\0\0\0\0mif1heic" + data[32:],
        "ok": data,
    }
    convert(dsconvert, tmp_path / "in", tmp_path / "out", files, "--max-rejects", "100%")
    lines = (tmp_path / "out/rejects.jsonl").read_text().splitlines()
    rejects = {
        reject["origin"].rpartition("/")[2]: (reject["code"], reject["message"]) for reject in map(json.loads, lines)
    }
    assert {name: code for name, (code, _) in rejects.items()} == {
        "huge.avif": "too-large",
        "wide.avif": "too-large",
        "constant-luminance.avif": "unsupported",
        "heic.avif": "unsupported",
    }
    assert "matrix coefficients 10" in rejects["constant-luminance.avif"][1]
    assert "HEIF" in rejects["heic.avif"][1]


def test_names_in_archives_and_without_extension(dsconvert, tmp_path):
    data = (FIXTURES / "444.avif").read_bytes()
    folder = tmp_path / "in"
    folder.mkdir()
    for name in ["a.avif", "b.AVIF", "c.avifs", "d", "e.jpg"]:
        (folder / name).write_bytes(data)
    dsconvert("images", folder, "--out", tmp_path / "out", "--strict", "--quiet")
    keys = [record["key"] for record in Dataset(tmp_path / "out", None).all_records().values()]
    assert len(keys) == 5
