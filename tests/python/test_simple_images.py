"""PNM, PAM, TGA and QOI files have the pixels of Pillow, or of the array that they were made from."""

import io
import random
import struct

import numpy as np
import pytest
from PIL import Image

import mutants
from dataset import Dataset
from image_samples import picture, saved

SIZE = (37, 23)
EXTENSION_BYTES, FOOTER_BYTES = 495, 26


def header(magic, *numbers, comment=False):
    lines = [magic, *(["# a comment 7 8 9"] if comment else []), *map(str, numbers)]
    return "\n".join(lines).encode() + b"\n"


def ascii_map(magic, array, *maximum):
    height, width = array.shape[:2]
    numbers = array.reshape(height, -1)
    body = "\n".join("  ".join(map(str, row)) for row in numbers)
    return header(magic, width, height, *maximum, comment=True) + body.encode() + b"\n"


def pam(array, kind, maximum):
    height, width, depth = array.shape
    lines = [f"WIDTH {width}", f"HEIGHT {height}", f"DEPTH {depth}", f"MAXVAL {maximum}"]
    lines += [f"TUPLTYPE {kind}"] if kind else []
    wide = maximum > 255
    return ("P7\n" + "\n".join(lines) + "\nENDHDR\n").encode() + array.astype(">u2" if wide else np.uint8).tobytes()


def qoi(array):
    """Encodes as the specification does, with every kind of chunk."""
    height, width, channels = array.shape
    out = bytearray(b"qoif" + struct.pack(">IIBB", width, height, channels, 0))
    seen, last, run = [(0, 0, 0, 0)] * 64, (0, 0, 0, 255), 0

    def difference(a, b):
        return (a - b + 128) % 256 - 128

    for values in [*array.reshape(-1, channels).tolist(), None]:
        pixel = None if values is None else (*values[:3], values[3] if channels == 4 else 255)
        if run and (pixel != last or run == 62):
            out.append(0xC0 | run - 1)
            run = 0
        if pixel is None:
            break
        if pixel == last:
            run += 1
            continue
        r, g, b, a = pixel
        place = (r * 3 + g * 5 + b * 7 + a * 11) % 64
        dr, dg, db = (difference(x, y) for x, y in zip(pixel[:3], last[:3]))
        if seen[place] == pixel:
            out.append(place)
        elif a != last[3]:
            out += bytes([0xFF, *pixel])
        elif max(abs(2 * d + 1) for d in (dr, dg, db)) <= 3:
            out.append(0x40 | dr + 2 << 4 | dg + 2 << 2 | db + 2)
        elif -32 <= dg < 32 and max(abs(2 * (d - dg) + 1) for d in (dr, db)) <= 15:
            out += bytes([0x80 | dg + 32, dr - dg + 8 << 4 | db - dg + 8])
        else:
            out += bytes([0xFE, r, g, b])
        seen[place], last = pixel, pixel
    return bytes(out) + bytes(7) + b"\1"


def tga(kind, depth, descriptor, data, entry=0, palette=b"", first=0, identification=b""):
    count = len(palette) // ((entry + 7) // 8) if palette else 0
    head = struct.pack(
        "<BBBHHBHHHHBB", len(identification), bool(palette), kind, first, count, entry, 3, 4, *SIZE, depth, descriptor
    )
    return head + identification + palette + data


def packets(rows, pixel_bytes):
    """Run-length encodes, without regard to rows."""
    pixels = [rows[i : i + pixel_bytes] for i in range(0, len(rows), pixel_bytes)]
    out, at = bytearray(), 0
    while at < len(pixels):
        run = 1
        while at + run < len(pixels) and run < 128 and pixels[at + run] == pixels[at]:
            run += 1
        if run > 1:
            out += bytes([127 + run]) + pixels[at]
        else:
            while at + run < len(pixels) and run < 128 and pixels[at + run] != pixels[at + run - 1]:
                run += 1
            out += bytes([run - 1]) + b"".join(pixels[at : at + run])
        at += run
    return bytes(out)


def to_rgb(array, maximum=255):
    """RGB or RGBA samples of 8 bits."""
    array = np.round(array.astype(np.float64) * 255 / maximum).astype(np.uint8)
    if array.shape[2] in (1, 2):
        array = np.concatenate([np.repeat(array[..., :1], 3, axis=2), array[..., 1:]], axis=2)
    return array


def files():
    """File and expected RGB or RGBA pixels by name; None for those of Pillow."""
    width, height = SIZE
    rgb, rgba, gray = picture(width, height, 3), picture(width, height, 4), picture(width, height, 1)
    bits = (gray > 110).astype(np.uint8)
    deep = rgb.astype(np.uint16) * 257 - 31
    low = rgb % 8
    flat = np.repeat(np.repeat(rgb[::4, ::9], 4, axis=0), 9, axis=1)[:height, :width]
    found = {
        "bits.pbm": (saved((bits * 255).astype(bool), "PPM"), None),
        "bits-text.pbm": (ascii_map("P1", 1 - bits), to_rgb(bits, 1)),
        "gray.pgm": (saved(gray, "PPM"), None),
        "gray-text.pgm": (ascii_map("P2", gray, 255), to_rgb(gray)),
        "gray-16.pgm": (
            header("P5", width, height, 65535) + deep[..., :1].astype(">u2").tobytes(), to_rgb(deep[..., :1], 65535)
        ),
        "rgb.ppm": (saved(rgb, "PPM"), None),
        "rgb-comment.ppm": (header("P6", width, height, 255, comment=True) + rgb.tobytes(), None),
        "rgb-text.ppm": (ascii_map("P3", rgb, 255), None),
        "rgb-low.ppm": (header("P6", width, height, 7) + low.tobytes(), None),
        "rgb-16.ppm": (header("P6", width, height, 65535) + deep.astype(">u2").tobytes(), None),
        "rgb-12.pnm": (
            header("P6", width, height, 4095) + (deep >> 4).astype(">u2").tobytes(), to_rgb(deep >> 4, 4095)
        ),
        "rgb.pam": (pam(rgb, "RGB", 255), to_rgb(rgb)),
        "untyped.pam": (pam(rgb, None, 255), to_rgb(rgb)),
        "rgba.pam": (pam(rgba, "RGB_ALPHA", 255), rgba),
        "rgb-16.pam": (pam(deep, "RGB", 65535), to_rgb(deep, 65535)),
        "gray-alpha.pam": (pam(rgba[..., :2], "GRAYSCALE_ALPHA", 255), to_rgb(rgba[..., :2])),
        "bits.pam": (pam(bits, "BLACKANDWHITE", 1), to_rgb(bits, 1)),
        "rgb.tga": (saved(rgb, "TGA"), None),
        "rgb-rle.tga": (saved(rgb, "TGA", compression="tga_rle"), None),
        "flat-rle.tga": (saved(flat, "TGA", compression="tga_rle"), flat),
        "across-rows.tga": (tga(10, 24, 0x20, packets(flat[..., ::-1].tobytes(), 3)), flat),
        "rgba.tga": (saved(rgba, "TGA"), rgba),
        "rgba-rle.tga": (saved(rgba, "TGA", compression="tga_rle"), rgba),
        "bottom-up.tga": (tga(2, 24, 0, rgb[::-1, :, ::-1].tobytes(), identification=b"made by hand"), rgb),
        "right-left.tga": (tga(2, 24, 0x30, rgb[:, ::-1, ::-1].tobytes()), rgb),
        "gray.tga": (saved(gray, "TGA"), None),
        "gray-rle.tga": (saved(gray, "TGA", compression="tga_rle"), None),
        "15.tga": (tga(2, 16, 0x20, fifteen_bits(rgb).tobytes()), to_rgb(rgb >> 3, 31)),
        "unused-alpha.tga": (unused_alpha(rgb), rgb),
        "palette.tga": palette_tga(rgb, 24),
        "palette-first.tga": palette_tga(rgb, 24, first=5),
        "rgb.qoi": (qoi(rgb), rgb),
        "rgba.qoi": (qoi(rgba), rgba),
        "flat.qoi": (qoi(flat), flat),
    }
    return found


def unused_alpha(rgb):
    """32 bits, of which the extension area says that 8 are unused."""
    data = np.dstack([rgb[..., ::-1], np.zeros(rgb.shape[:2], np.uint8)]).tobytes()
    whole = tga(2, 32, 0x20, data)
    return whole + bytes(EXTENSION_BYTES) + struct.pack("<II", len(whole), 0) + b"TRUEVISION-XFILE.\0"


def fifteen_bits(rgb):
    r, g, b = (rgb[..., i].astype("<u2") >> 3 for i in range(3))
    return (r << 10 | g << 5 | b).astype("<u2")


def palette_tga(rgb, entry, first=0):
    quantized = Image.fromarray(rgb).quantize(64)
    palette = np.array(quantized.getpalette()[: 64 * 3], np.uint8).reshape(-1, 3)
    places = np.asarray(quantized)
    data = (places + first).astype(np.uint8).tobytes()
    return tga(1, 8, 0x20, data, entry, palette[:, ::-1].tobytes(), first), palette[places]


def pillow(data):
    with Image.open(io.BytesIO(data)) as image:
        return np.asarray(image.convert("RGBA" if "A" in image.getbands() else "RGB"))


def convert(dsconvert, folder, out, made, *options):
    folder.mkdir()
    for name, data in made.items():
        (folder / name).write_bytes(data)
    return dsconvert("images", folder, "--out", out, "--format", "msgpack", "--quiet", "--layout", "flat", *options)


def records(out):
    return {record["key"].split("/")[-1]: record for record in Dataset(out, None).all_records().values()}


def test_pixels_are_those_of_pillow_or_of_the_array(dsconvert, tmp_path):
    made = files()
    convert(dsconvert, tmp_path / "in", tmp_path / "out", {name: data for name, (data, _) in made.items()},
            "--encode", "raw", "--color", "rgba", "--strict")
    found = records(tmp_path / "out")
    assert found.keys() == made.keys()
    for name, (data, expected) in made.items():
        expected = pillow(data) if expected is None else expected
        if expected.shape[2] == 3:
            expected = np.dstack([expected, np.full(expected.shape[:2], 255, np.uint8)])
        pixels = np.frombuffer(found[name]["image"], np.uint8).reshape(expected.shape)
        # Transparent pixels may have any color.
        difference = np.abs(pixels.astype(int) - expected)[expected[..., 3] > 0].max()
        # 16 bits are rounded.
        assert difference <= (1 if "16" in name or "12" in name else 0), f"{name}: {difference}"


def test_they_pass_through_and_are_decoded_by_the_loader(dsconvert, tmp_path):
    made = {name: data for name, (data, _) in files().items()}
    convert(dsconvert, tmp_path / "in", tmp_path / "out", made, "--encode", "keep", "--strict")
    assert {name: record["image"] for name, record in records(tmp_path / "out").items()} == made
    dsconvert("inspect", tmp_path / "out", "--verify")
    # The output is a source again, whatever the name of a file.
    renamed = {f"{number}.png": data for number, data in enumerate(made.values())}
    convert(dsconvert, tmp_path / "renamed", tmp_path / "again", renamed, "--strict")


@pytest.mark.parametrize("name", list(files()))
def test_a_file_that_ends_early_is_rejected(dsconvert, tmp_path, name):
    data, _ = files()[name]
    # The last number of a text may be shorter, and no reader can notice. The footer of a TGA is not needed.
    end = len(data.rstrip()) - 4 if "text" in name else len(data)
    end -= FOOTER_BYTES if data.endswith(b"TRUEVISION-XFILE.\0") else 0
    end -= EXTENSION_BYTES if name == "unused-alpha.tga" else 0
    # Nor is the end marker of a QOI.
    end -= 8 if name.endswith(".qoi") else 0
    cuts = sorted({*range(3, min(end, 60)), *random.Random(1).sample(range(3, end), min(40, end - 3)), end - 1})
    suffix = name.rpartition(".")[2]
    made = {f"{cut:06}.{suffix}": data[:cut] for cut in cuts} | {f"whole.{suffix}": data}
    convert(dsconvert, tmp_path / "in", tmp_path / "out", made, "--encode", "raw", "--max-rejects", "100%")
    assert set(mutants.read_rejects(tmp_path / "out")) == set(made) - {f"whole.{suffix}"}
    codes = {reason.split(":")[0] for reason in mutants.read_rejects(tmp_path / "out").values()}
    assert codes <= {"truncated", "corrupt", "unknown-type"}, codes


def test_mutants_neither_panic_nor_need_much_memory(dsconvert, tmp_path):
    rng, made = random.Random(3), {"whole.png": saved(picture(4, 4, 3), "PNG")}
    for name, (data, _) in files().items():
        for number in range(40):
            mutant = bytearray(data)
            for _ in range(rng.randint(1, 3)):
                at = rng.randrange(2, min(len(data), 60)) if rng.random() < 0.8 else rng.randrange(len(data))
                mutant[at] = rng.choice([0, 1, 9, 32, 35, 48, 57, 127, 128, 255, rng.randrange(256)])
            made[f"{number:03}-{name}"] = bytes(mutant)
    convert(dsconvert, tmp_path / "in", tmp_path / "out", made, "--encode", "raw", "--max-rejects", "100%")
    reasons = mutants.read_rejects(tmp_path / "out").values()
    assert len(reasons) > 100
    assert not [reason for reason in reasons if "panicked" in reason]


def test_declared_pixels_without_data_are_refused_before_they_are_allocated(dsconvert, tmp_path):
    made = {
        "a.ppm": header("P6", 60000, 60000, 255),
        "b.pbm": header("P4", 4294967295, 4294967295),
        "c.tga": struct.pack("<BBBHHBHHHHBB", 0, 0, 10, 0, 0, 0, 0, 0, 65535, 65535, 32, 8) + b"\xff\0\0\0\0",
        "d.qoi": b"qoif" + struct.pack(">IIBB", 4294967295, 4294967295, 4, 0) + b"\xfd" * 100,
        "e.pam": pam(np.zeros((1, 1, 3), np.uint16), None, 65535),
        "ok.png": saved(picture(4, 4, 3), "PNG"),
    }
    convert(dsconvert, tmp_path / "in", tmp_path / "out", made, "--max-rejects", "100%")
    codes = {name: reason.split(":")[0] for name, reason in mutants.read_rejects(tmp_path / "out").items()}
    assert codes == {
        "a.ppm": "truncated", "b.pbm": "truncated", "c.tga": "truncated", "d.qoi": "truncated", "e.pam": "unsupported"
    }


def test_other_files_are_not_mistaken_for_images(dsconvert, tmp_path):
    """TGA has no signature, so a file needs its name; text that starts like PNM is none."""
    data = files()["rgb.tga"][0]
    made = {
        "picture": data,
        "picture.bin": data,
        "notes.md": b"P2 is the second priority\n",
        "image.dat": files()["rgb.ppm"][0],
        "named.tga": data,
    }
    convert(dsconvert, tmp_path / "in", tmp_path / "out", made, "--strict")
    assert set(records(tmp_path / "out")) == {"image.dat", "named.tga"}
