"""Comparison with Pillow: JPEGs with any sampling factors have the same pixels, the same images are rejected, colors are
converted as by littlecms, and the box filter averages the same pixels."""

import functools
import io
import random
import struct
import zlib
from fractions import Fraction

import numpy as np
import pytest
from PIL import Image, ImageCms

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


def without_damaged_chunks(data):
    """A PNG without ancillary chunks that have a wrong checksum; other data as it is."""
    if not data.startswith(b"\x89PNG\r\n\x1a\n"):
        return data
    out, at = data[:8], 8
    while at + 12 <= len(data):
        end = at + 12 + int.from_bytes(data[at : at + 4])
        kind, checksum = data[at + 4 : at + 8], data[end - 4 : end]
        if kind[:1].isupper() or kind == b"tRNS" or checksum == zlib.crc32(data[at + 4 : end - 4]).to_bytes(4):
            out += data[at:end]
        at = end
    return out


def test_images_that_pillow_rejects_are_rejected(binary, tmp_path):
    rows, differing = mutants.compare(binary, 2700, 1, tmp_path)
    accepted = [line for line in differing if line[0] == "only Pillow rejects"]
    # libpng skips chunks with a wrong checksum that hold no pixels; Pillow does not use libpng.
    data = {line[2]: (tmp_path / "mutants" / line[2]).read_bytes() for line in accepted}
    accepted = [line for line in accepted if mutants.pillow_error(without_damaged_chunks(data[line[2]])) is not None]
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


def profile(space, tags):
    """An ICC profile of version 2."""
    tags = {name: data + bytes(-len(data) % 4) for name, data in tags.items()}
    at, directory = 132 + 12 * len(tags), b""
    for name, data in tags.items():
        directory += name + struct.pack(">II", at, len(data))
        at += len(data)
    white = struct.pack(">3i", 63190, 65536, 54061)
    header = struct.pack(">I4xI4s4s4s12x4s28x12s48x", at, 0x02400000, b"mntr", space, b"XYZ ", b"acsp", white)
    return header + struct.pack(">I", len(tags)) + directory + b"".join(tags.values())


def xyz(*values):
    return b"XYZ \0\0\0\0" + struct.pack(">3i", *(round(value * 65536) for value in values))


def curve(values):
    return b"curv\0\0\0\0" + struct.pack(f">I{len(values)}H", len(values), *values)


def text(name):
    return b"desc\0\0\0\0" + struct.pack(">I", len(name) + 1) + name + bytes(79)


def color_profiles():
    """Profiles by name, each with its mode."""
    common = {b"desc": text(b"test"), b"cprt": b"text\0\0\0\0none\0", b"wtpt": xyz(0.9642, 1, 0.8249)}
    rgb = {
        # The colorants of the profiles that Adobe and Apple publish.
        "adobe": [(0.60974, 0.31111, 0.01947), (0.20528, 0.62567, 0.06087), (0.14919, 0.06322, 0.74457)],
        "p3": [(0.51512, 0.24120, -0.00105), (0.29198, 0.69225, 0.04189), (0.15710, 0.06657, 0.78407)],
    }
    curves = {"gamma": [563], "linear": [], "table": [round(65535 * (i / 1023) ** 1.8) for i in range(1024)]}
    found = {}
    for curve_name, values in curves.items():
        for name, colorants in rgb.items():
            tags = {key: xyz(*color) for key, color in zip([b"rXYZ", b"gXYZ", b"bXYZ"], colorants, strict=True)}
            tags |= {key: curve(values) for key in [b"rTRC", b"gTRC", b"bTRC"]}
            found[f"{name}-{curve_name}"] = ("RGB", profile(b"RGB ", common | tags))
        found[f"gray-{curve_name}"] = ("L", profile(b"GRAY", common | {b"kTRC": curve(values)}))
    return found


def pixels_of(out):
    return {name.split("/")[-1]: record for name, record in
            ((record["key"], record) for record in Dataset(out, None).all_records().values())}


def test_colors_are_converted_as_by_littlecms(dsconvert, tmp_path):
    rng, folder = np.random.default_rng(13), tmp_path / "in"
    folder.mkdir()
    srgb, expected = ImageCms.createProfile("sRGB"), {}
    for name, (mode, data) in color_profiles().items():
        shape = (96, 96, 3) if mode == "RGB" else (16, 16)
        samples = rng.integers(0, 256, shape, np.uint8) if mode == "RGB" else np.arange(256, dtype=np.uint8)
        image = Image.fromarray(samples.reshape(shape))
        image.save(folder / f"{name}.png", icc_profile=data)
        source = ImageCms.ImageCmsProfile(io.BytesIO(data))
        flags = ImageCms.Flags.NOCACHE | ImageCms.Flags.NOOPTIMIZE
        converted = ImageCms.profileToProfile(image, source, srgb, outputMode="RGB", flags=flags)
        expected[f"{name}.png"] = np.asarray(converted).astype(int)
    dsconvert("images", folder, "--out", tmp_path / "out", "--encode", "raw", "--format", "msgpack", "--quiet")
    records = pixels_of(tmp_path / "out")
    assert records.keys() == expected.keys()
    for name, pixels in expected.items():
        found = np.frombuffer(records[name]["image"], np.uint8).reshape(pixels.shape).astype(int)
        difference = found - pixels
        # Truncation would be 0.35 to 0.48 on average.
        assert abs(difference.mean()) < 0.03 and abs(difference).max() <= 2, (name, difference.mean(), difference.max())
        assert (abs(difference) > 1).mean() < 0.001, name


@functools.cache
def box(source, target):
    """The first sample and the number of samples of each pixel: a sample between two pixels belongs to the first."""
    scale, spans = Fraction(source, target), []
    width = max(scale, Fraction(1))
    for n in range(target):
        center = (n + Fraction(1, 2)) * scale
        near = range(max(0, int(center - width / 2) - 1), min(source, int(center + width / 2) + 2))
        inside = [i for i in near if -width / 2 < i + Fraction(1, 2) - center <= width / 2]
        spans.append((inside[0], len(inside)))
    return spans


@functools.cache
def box_of_pillow(source, target):
    """The same as Pillow computes it, with rounding errors."""
    scale, spans = source / target, []
    width = max(scale, 1.0)
    for n in range(target):
        center = (n + 0.5) * scale
        first, end = max(0, int(center - width / 2 + 0.5)), min(source, int(center + width / 2 + 0.5))
        inside = [i for i in range(first, end) if -0.5 < (i - center + 0.5) * (1 / width) <= 0.5]
        spans.append((inside[0], len(inside)))
    return spans


def averaged(pixels, spans):
    return np.stack([pixels[first : first + count].mean(axis=0) for first, count in spans])


def test_the_box_filter_averages_the_pixels_of_pillow(dsconvert, tmp_path):
    rng = np.random.default_rng(14)
    widths = [1, 2, 3, 5, 8, 11, 13, 15, 16, 24, 33, 50]
    images = {f"{w}x{h}.png": rng.integers(0, 256, (h, w, 3), np.uint8) for w in widths for h in (3, 9, 14)}
    (tmp_path / "in").mkdir()
    for name, pixels in images.items():
        Image.fromarray(pixels).save(tmp_path / "in" / name)
    compared = 0
    for width, height in [(1, 3), (4, 6), (10, 14), (12, 9), (14, 20)]:
        out = tmp_path / f"{width}x{height}"
        dsconvert("images", tmp_path / "in", "--out", out, "--resize", f"exact:{width}x{height}", "--enlarge",
                  "--filter", "box", "--encode", "raw", "--format", "msgpack", "--quiet")
        for name, record in pixels_of(out).items():
            source = images[name]
            (h, w), found = source.shape[:2], np.frombuffer(record["image"], np.uint8).reshape(height, width, 3)
            rows, columns = box(h, height), box(w, width)
            exact = averaged(averaged(source.astype(float), rows).swapaxes(0, 1), columns).swapaxes(0, 1)
            # Each of the two axes is rounded.
            assert abs(found - exact).max() <= 1.01, (name, out.name)
            if w == width or h == height:
                assert abs(found - exact).max() <= 0.51, (name, out.name)
            if rows == box_of_pillow(h, height) and columns == box_of_pillow(w, width):
                pillow = np.asarray(Image.fromarray(source).resize((width, height), Image.Resampling.BOX)).astype(int)
                assert abs(found - pillow).max() <= 1, (name, out.name)
                compared += 1
    assert compared > 100


FILTERS = {
    "lanczos3": (Image.Resampling.LANCZOS, 2),
    "catmullrom": (Image.Resampling.BICUBIC, 2),
    "bilinear": (Image.Resampling.BILINEAR, 1),
    "box": (Image.Resampling.BOX, 1),
}


@pytest.mark.parametrize("name", FILTERS)
def test_resizing_equals_pillow_with_the_height_first(dsconvert, tmp_path, name):
    """White noise, which shows every difference. Noise that is not cut off between the steps equals one call, too."""
    filter_, bound = FILTERS[name]
    rng, images = np.random.default_rng(15), {}
    (tmp_path / "in").mkdir()
    for number in range(32):
        height, width = rng.integers(1, 60, 2) if number % 4 else rng.integers(60, 200, 2)
        low, high = (112, 145) if number % 2 else (0, 256)
        images[f"{number}.png"] = Image.fromarray(rng.integers(low, high, (height, width, 3), np.uint8))
        images[f"{number}.png"].save(tmp_path / "in" / f"{number}.png")
    for number, (width, height, crop) in enumerate([(7, 38, 0), (64, 64, 0), (100, 31, 0), (40, 30, 17)]):
        options = ["--crop", f"center:{crop}x{crop}"] if crop else []
        out = tmp_path / f"out-{number}"
        dsconvert("images", tmp_path / "in", "--out", out, "--resize", f"exact:{width}x{height}", "--enlarge",
                  *options, "--filter", name, "--encode", "raw", "--format", "msgpack", "--quiet")
        to = (crop, crop) if crop else (width, height)
        left, top = (width - to[0]) // 2, (height - to[1]) // 2
        for key, record in pixels_of(out).items():
            image = images[key]
            (w, h), found = image.size, np.frombuffer(record["image"], np.uint8).reshape(to[1], to[0], 3).astype(int)
            x, y = [left * w / width, (left + to[0]) * w / width], [top * h / height, (top + to[1]) * h / height]
            tall = image.resize((w, to[1]), filter_, box=(0, y[0], w, y[1]))
            expected = tall.resize(to, filter_, box=(x[0], 0, x[1], to[1]))
            one_call = image.resize(to, filter_, box=(x[0], y[0], x[1], y[1]))
            # Errors of positions decide in Pillow, and those of a crop differ.
            if name == "box" and (
                crop or box(h, height) != box_of_pillow(h, height) or box(w, width) != box_of_pillow(w, width)
            ):
                continue
            assert abs(found - np.asarray(expected)).max() <= bound, (key, out.name)
            if int(key[:-4]) % 2:
                assert abs(found - np.asarray(one_call)).max() <= 3, (key, out.name)
