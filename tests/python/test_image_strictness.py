"""Comparison with Pillow: JPEGs with any sampling factors have the same pixels, and the same images are rejected."""

import io
import random

import numpy as np
import pytest
from PIL import Image

import image_samples
import mutants
from dataset import Dataset


def factor_files(count, seed):
    """JPEGs with random sampling factors: data, factors and Adobe transform by name."""
    rng, found = random.Random(seed), {}
    while len(found) < count:
        components = rng.choice([1, 3, 3, 3, 4, 4, 4])
        # Factors of 3 mostly give ratios that are not integers.
        choices = [1, 1, 2, 2, 4] if rng.random() < 0.8 else [1, 2, 3, 4]
        factors = [(rng.choice(choices), rng.choice(choices)) for _ in range(components)]
        size = (rng.randint(1, 70), rng.randint(1, 70))
        adobe = rng.choice({1: [None], 3: [None, 0, 1], 4: [None, 0, 2]}[components])
        options = {"interleaved": rng.random() < 0.6, "progressive": rng.random() < 0.3,
                   "restart": rng.choice([0, 0, 1, 5]), "adobe": adobe}
        name = f"{len(found):04}.jpg"
        found[name] = (image_samples.jpeg(size, factors, seed=len(found), **options), factors, adobe)
    return found


def expected_rgb(data, adobe):
    """The pixels of Pillow as RGB. Pillow takes all CMYK for inverted, which is right only with an Adobe segment."""
    with Image.open(io.BytesIO(data)) as image:
        pixels = np.asarray(image).astype(np.int64)
    if pixels.ndim == 2:
        return np.repeat(pixels[..., None], 3, axis=2)
    if pixels.shape[2] == 3:
        return pixels
    cmyk = pixels if adobe is not None else 255 - pixels
    return ((255 - cmyk[..., :3]) * (255 - cmyk[..., 3:]) + 127) // 255


@pytest.mark.parametrize("count", [300])
def test_jpegs_of_any_sampling_factors_have_the_pixels_of_pillow(dsconvert, tmp_path, count):
    folder, files = tmp_path / "files", factor_files(count, 15)
    folder.mkdir()
    for name, (data, _, _) in files.items():
        (folder / name).write_bytes(data)
    out = tmp_path / "out"
    options = ["--encode", "raw", "--format", "msgpack", "--max-rejects", "100%", "--quiet"]
    dsconvert("images", folder, "--out", out, *options)
    records = {record["key"].split("/")[-1]: record for record in Dataset(out, None).all_records().values()}
    rejects = {name: reason for name, reason in mutants.read_rejects(out).items()}
    wrong, unsupported = [], 0
    for name, (data, factors, adobe) in files.items():
        error = mutants.pillow_error(data)
        if error is not None:
            text = ",".join(f"{h}x{v}" for h, v in factors)
            if name not in rejects or not rejects[name].startswith("unsupported") or text not in rejects[name]:
                wrong.append(f"{name} {factors}: Pillow says {error}, dsconvert {rejects.get(name, 'nothing')}")
            unsupported += 1
            continue
        if name not in records:
            wrong.append(f"{name} {factors}: {rejects[name]}")
            continue
        pixels = expected_rgb(data, adobe)
        found = np.frombuffer(records[name]["image"], np.uint8).reshape(pixels.shape)
        if (difference := np.abs(found - pixels).max()) > 0:
            wrong.append(f"{name} {factors} adobe={adobe}: differs by up to {difference}")
    assert not wrong, "\n".join(wrong)
    assert unsupported < count / 3, "most factors are valid"


@pytest.mark.parametrize("progressive", [False, True])
def test_jpegs_with_some_components_in_a_scan_have_the_pixels_of_pillow(dsconvert, tmp_path, progressive):
    folder, files = tmp_path / "files", {}
    folder.mkdir()
    for number, factors in enumerate([[(2, 2), (1, 1), (1, 1)], [(2, 1), (1, 1), (1, 1)], [(1, 1)] * 3, [(1, 2), (1, 1), (1, 1)]]):
        for groups in [[[0, 1], [2]], [[1, 2], [0]], [[2], [0, 1]], [[0, 2], [1]]]:
            for restart in [0, 3]:
                size, seed = (61 - number * 7, 33 + number), len(files)
                data = image_samples.jpeg(size, factors, seed, progressive=progressive, restart=restart, groups=groups)
                files[f"{seed:03}.jpg"] = data
                (folder / f"{seed:03}.jpg").write_bytes(data)
    for encode in ["png", "keep"]:
        out = tmp_path / encode
        dsconvert("images", folder, "--out", out, "--encode", encode, "--format", "msgpack", "--quiet", "--strict")
        records = Dataset(out, None).all_records().values()
        assert len(records) == len(files)
        for record in records:
            data = files[record["key"].split("/")[-1]]
            assert encode == "png" or record["image"] == data
            found, expected = (np.asarray(Image.open(io.BytesIO(bytes_))) for bytes_ in (record["image"], data))
            assert np.array_equal(found, expected), record["key"]


def test_images_that_pillow_rejects_are_rejected(binary, tmp_path):
    rows, differing = mutants.compare(binary, 2700, 1, tmp_path)
    accepted = [line for line in differing if line[0] == "only Pillow rejects"]
    total = sum(sum(row.values()) for row in rows.values())
    assert len(accepted) <= total / 1000, "\n".join(map(str, accepted))
    for name, row in rows.items():
        assert row["both accept"] + row["both reject"] > 0, name


def test_valid_files_are_accepted(dsconvert, tmp_path):
    folder, out = tmp_path / "files", tmp_path / "out"
    folder.mkdir()
    samples = image_samples.samples()
    for name, data in samples.items():
        (folder / f"{name}.{name.split('-')[0]}").write_bytes(data)
    dsconvert("images", folder, "--out", out, "--encode", "keep", "--quiet", "--strict")
    assert len(Dataset(out, None).all_records()) == len(samples)


def test_cmyk_never_passes_through(dsconvert, tmp_path):
    folder, out = tmp_path / "files", tmp_path / "out"
    folder.mkdir()
    Image.new("CMYK", (8, 8), (0, 200, 40, 0)).save(folder / "print.tif")
    Image.new("RGB", (8, 8), (1, 2, 3)).save(folder / "screen.tif")
    dsconvert("images", folder, "--out", out, "--encode", "keep", "--quiet")
    stored = [Image.open(io.BytesIO(record["image"])) for record in Dataset(out, None).all_records().values()]
    assert sorted((image.mode, image.format) for image in stored) == [("RGB", "PNG"), ("RGB", "TIFF")]
