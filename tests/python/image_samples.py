"""Generates small images in every format that dsconvert reads, and JPEGs with any sampling factors."""

import io
import random
import struct
import zlib

import numpy as np
from PIL import Image, ImageCms

# Numbers of codes per length, and symbols, of the Huffman tables in ITU-T T.81, annex K.3.
DC_COUNTS = bytes.fromhex("00010501010101010100000000000000")
DC_SYMBOLS = bytes(range(12))
AC_COUNTS = bytes.fromhex("0002010303020403050504040000017d")
AC_SYMBOLS = bytes.fromhex(
    "01020300041105122131410613516107227114328191a1082342b1c11552d1f02433627282090a161718191a25262728292a"
    "3435363738393a434445464748494a535455565758595a636465666768696a737475767778797a838485868788898a929394"
    "95969798999aa2a3a4a5a6a7a8a9aab2b3b4b5b6b7b8b9bac2c3c4c5c6c7c8c9cad2d3d4d5d6d7d8d9dae1e2e3e4e5e6e7e8"
    "e9eaf1f2f3f4f5f6f7f8f9fa"
)


def picture(width, height, channels, seed=0):
    """A pattern of waves with some noise."""
    rng = np.random.default_rng(seed)
    y, x, c = np.mgrid[:height, :width, :channels]
    waves = np.sin((x * (c + 1)) / 7) + np.cos((y * 2 + c) / 11)
    return (waves * 60 + 110 + rng.integers(0, 30, waves.shape)).clip(0, 255).astype(np.uint8)


def saved(array, kind, mode=None, **options):
    image = Image.fromarray(array.squeeze(), mode) if mode else Image.fromarray(array.squeeze())
    out = io.BytesIO()
    image.save(out, kind, **options)
    return out.getvalue()


def exif(orientation):
    block = Image.Exif()
    block[0x0112] = orientation
    return block.tobytes()


# JPEG with any sampling factors.


class BitWriter:
    """A writer of entropy-coded data."""

    def __init__(self):
        self.out, self.value, self.count = bytearray(), 0, 0

    def put(self, value, count):
        self.value, self.count = self.value << count | value, self.count + count
        while self.count >= 8:
            self.count -= 8
            byte = self.value >> self.count
            self.value &= (1 << self.count) - 1
            self.out += b"\xff\0" if byte == 0xFF else bytes([byte])

    def align(self):
        if self.count:
            self.put((1 << (8 - self.count)) - 1, 8 - self.count)

    def number(self, value):
        size = abs(value).bit_length()
        if size:
            self.put(value if value > 0 else value + (1 << size) - 1, size)


def codes(counts, symbols):
    """The Huffman code and its length for each symbol."""
    found, code, place = {}, 0, 0
    for length, count in enumerate(counts, 1):
        for symbol in symbols[place : place + count]:
            found[symbol] = (code, length)
            code += 1
        place += count
        code <<= 1
    return found


DC_CODES, AC_CODES = codes(DC_COUNTS, DC_SYMBOLS), codes(AC_COUNTS, AC_SYMBOLS)


def segment(marker, payload):
    return struct.pack(">BBH", 0xFF, marker, len(payload) + 2) + payload


def put_ac(bits, block, first, last, low):
    run = 0
    for k in range(first, last + 1):
        # Successive approximation divides AC coefficients towards zero.
        value = int(block[k] / (1 << low))
        if value == 0:
            run += 1
            continue
        while run > 15:
            bits.put(*AC_CODES[0xF0])
            run -= 16
        bits.put(*AC_CODES[run << 4 | abs(value).bit_length()])
        bits.number(value)
        run = 0
    if run:
        bits.put(*AC_CODES[0])


def jpeg(size, factors, seed=0, adobe=None, jfif=False, interleaved=True, progressive=False, restart=0,
         groups=None):
    """A JPEG of random coefficients whose components have the sampling `factors`, as pairs. `groups` are the components of
    each scan."""
    rng = random.Random(seed)
    (width, height), count = size, len(factors)
    max_h, max_v = max(h for h, _ in factors), max(v for _, v in factors)
    mcus = (-(-width // (8 * max_h)), -(-height // (8 * max_v)))
    planes = []
    for h, v in factors:
        blocks = {}
        for y in range(mcus[1] * v):
            for x in range(mcus[0] * h):
                block = [rng.randint(-60, 60)] + [0] * 63
                for _ in range(rng.choice([0, 1, 4, 12])):
                    block[min(63, int(rng.expovariate(0.15)) + 1)] = rng.randint(-9, 9)
                blocks[x, y] = block
        planes.append(blocks)
    out = b"\xff\xd8"
    if jfif:
        out += segment(0xE0, b"JFIF\0\1\1\0\0\1\0\1\0\0")
    if adobe is not None:
        out += segment(0xEE, b"Adobe\0\x64\0\0\0\0" + bytes([adobe]))
    out += segment(0xDB, bytes([0] + [6 + n // 6 for n in range(64)]))
    frame = b"".join(bytes([n + 1, h << 4 | v, 0]) for n, (h, v) in enumerate(factors))
    out += segment(0xC2 if progressive else 0xC0, struct.pack(">BHHB", 8, height, width, count) + frame)
    out += segment(0xC4, b"\0" + DC_COUNTS + DC_SYMBOLS) + segment(0xC4, b"\x10" + AC_COUNTS + AC_SYMBOLS)
    if restart:
        out += segment(0xDD, struct.pack(">H", restart))
    interleaved = interleaved and sum(h * v for h, v in factors) <= 10 and count > 1
    groups = groups or ([range(count)] if interleaved else [[n] for n in range(count)])
    if progressive:
        scans = [(group, 0, 0, 0, 1) for group in groups] + [(group, 0, 0, 1, 0) for group in groups]
        scans += [([n], first, last, 0, 0) for n in range(count) for first, last in ((1, 5), (6, 63))]
    else:
        scans = [(group, 0, 63, 0, 0) for group in groups]
    for members, first, last, high, low in scans:
        header = b"".join(bytes([n + 1, 0]) for n in members)
        out += segment(0xDA, bytes([len(members)]) + header + bytes([first, last, high << 4 | low]))
        out += scan(size, planes, factors, mcus, list(members), (first, last, high, low), restart)
    return out + b"\xff\xd9"


def scan(size, planes, factors, mcus, members, parameters, restart):
    first, last, high, low = parameters
    max_h, max_v = max(h for h, _ in factors), max(v for _, v in factors)
    if len(members) == 1:
        h, v = factors[members[0]]
        columns, rows = -(-size[0] * h // (8 * max_h)), -(-size[1] * v // (8 * max_v))
        if len(factors) == 1:
            columns, rows = -(-size[0] // 8), -(-size[1] // 8)
        units = [[(members[0], x, y)] for y in range(rows) for x in range(columns)]
    else:
        units = [
            [(n, mx * factors[n][0] + x, my * factors[n][1] + y)
             for n in members for y in range(factors[n][1]) for x in range(factors[n][0])]
            for my in range(mcus[1]) for mx in range(mcus[0])
        ]
    bits, predictors = BitWriter(), {}
    for number, unit in enumerate(units):
        if restart and number and number % restart == 0:
            bits.align()
            bits.out += bytes([0xFF, 0xD0 + (number // restart - 1) % 8])
            predictors = {}
        for n, x, y in unit:
            block = planes[n][x, y]
            if first == 0 and high:
                bits.put(block[0] >> low & 1, 1)
            elif first == 0:
                dc = block[0] >> low
                difference = dc - predictors.get(n, 0)
                predictors[n] = dc
                bits.put(*DC_CODES[abs(difference).bit_length()])
                bits.number(difference)
            if last > 0:
                put_ac(bits, block, max(first, 1), last, low)
    bits.align()
    return bytes(bits.out)


def png_chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def interlaced_png(array):
    height, width, _ = array.shape
    rows = b""
    for x, y, dx, dy in [(0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2)]:
        part = array[y::dy, x::dx]
        if part.size:
            rows += b"".join(b"\0" + row.tobytes() for row in part)
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 1)
    data = zlib.compress(rows)
    chunks = [(b"IHDR", header), (b"IDAT", data[:500]), (b"IDAT", data[500:]), (b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(png_chunk(*chunk) for chunk in chunks)


def rle_bmp(array):
    """A run-length encoded BMP with a palette of 256 colors."""
    height, width = array.shape
    data = b""
    for row in array[::-1]:
        for value in row:
            data += bytes([1, value])
        data += b"\0\0"
    data += b"\0\1"
    palette = b"".join(bytes([n, 255 - n, n // 2, 0]) for n in range(256))
    offset = 54 + len(palette)
    header = struct.pack("<2sIHHI", b"BM", offset + len(data), 0, 0, offset)
    header += struct.pack("<IiiHHIIiiII", 40, width, height, 1, 8, 1, len(data), 0, 0, 256, 0)
    return header + palette + data


def runs_bmp(width, height):
    """A run-length encoded BMP with long runs and pixels in absolute mode."""
    rows = b""
    for y in range(height):
        left = width - 6
        rows += bytes([left // 2, y, left - left // 2, 255 - y]) + bytes([0, 6, 1, 2, 3, 4, 5, 6]) + b"\0\0"
    rows += b"\0\1"
    palette = b"".join(bytes([n, 255 - n, n // 2, 0]) for n in range(256))
    offset = 54 + len(palette)
    header = struct.pack("<2sIHHI", b"BM", offset + len(rows), 0, 0, offset)
    header += struct.pack("<IiiHHIIiiII", 40, width, height, 1, 8, 1, len(rows), 0, 0, 256, 0)
    return header + palette + rows


def samples():
    """Valid files by name; the part of a name before the dash is the extension."""
    rgb, gray, cmyk, rgba = (picture(61, 47, n) for n in (3, 1, 4, 4))
    profile = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
    with_exif = {"exif": exif(8)}
    found = {
        "jpg-420": saved(rgb, "JPEG", quality=85, subsampling="4:2:0", **with_exif),
        "jpg-422": saved(rgb, "JPEG", quality=85, subsampling="4:2:2"),
        "jpg-444": saved(rgb, "JPEG", quality=85, subsampling="4:4:4", optimize=True),
        "jpg-gray": saved(gray, "JPEG", quality=85),
        "jpg-cmyk": saved(cmyk, "JPEG", "CMYK", quality=85),
        "jpg-progressive": saved(rgb, "JPEG", quality=85, progressive=True),
        "jpg-restart": saved(rgb, "JPEG", quality=85, restart_marker_blocks=3),
        "jpg-factors": jpeg((61, 47), [(4, 1), (1, 1), (2, 1)], jfif=True),
        "jpg-scans": jpeg((61, 47), [(2, 2), (1, 1), (1, 1)], jfif=True, interleaved=False),
        "png-rgb": saved(rgb, "PNG", **with_exif),
        "png-rgba": saved(rgba, "PNG"),
        "png-palette": palette_image(rgb, "PNG"),
        "png-16": saved(gray.astype(np.uint16) * 200, "PNG"),
        "png-interlaced": interlaced_png(rgb),
        "webp-lossy": saved(rgb, "WEBP", quality=80),
        "webp-alpha": saved(rgba, "WEBP", quality=80),
        "webp-lossless": saved(rgb, "WEBP", lossless=True),
        "webp-icc": saved(rgb, "WEBP", quality=80, icc_profile=profile, **with_exif),
        "gif-one": palette_image(rgb, "GIF"),
        "bmp-rgb": saved(rgb, "BMP"),
        "bmp-palette": palette_image(rgb, "BMP"),
        "bmp-rle": rle_bmp(gray.squeeze()),
        "bmp-runs": runs_bmp(61, 47),
        "tif-none": saved(rgb, "TIFF", **with_exif),
        "tif-lzw": saved(rgb, "TIFF", compression="tiff_lzw"),
        "tif-deflate": saved(rgb, "TIFF", compression="tiff_adobe_deflate"),
        "tif-packbits": saved(gray, "TIFF", compression="packbits"),
    }
    return found


def palette_image(array, kind):
    out = io.BytesIO()
    Image.fromarray(array).quantize(32).save(out, kind)
    return out.getvalue()


def gray_jpeg(values, precision):
    """A JPEG of 8 or 12 bits with one gray value for each block of 8 × 8 pixels."""
    bits, last = [], 0
    for value in (value for row in values for value in row):
        difference, last = value - last, value
        size = abs(difference).bit_length()
        bits.append(f"{size:05b}")
        if size:
            bits.append(f"{difference if difference > 0 else difference + (1 << size) - 1:0{size}b}")
        bits.append("0")  # no further coefficients
    data = "".join(bits)
    data += "1" * (-len(data) % 8)
    scan = int(data, 2).to_bytes(len(data) // 8, "big").replace(b"\xff", b"\xff\0")

    def segment(marker, content):
        return bytes([0xFF, marker]) + (len(content) + 2).to_bytes(2, "big") + content

    def table(kind, lengths, symbols):
        return segment(0xC4, bytes([kind << 4]) + bytes(lengths.get(length, 0) for length in range(1, 17)) + symbols)

    size = (8 * len(values)).to_bytes(2, "big") + (8 * len(values[0])).to_bytes(2, "big")
    return b"".join([
        b"\xff\xd8",
        segment(0xDB, b"\0" + bytes([8]) * 64),
        segment(0xC0 if precision == 8 else 0xC1, bytes([precision]) + size + bytes([1, 1, 0x11, 0])),
        table(0, {5: 16}, bytes(range(16))),
        table(1, {1: 1}, b"\0"),
        segment(0xDA, bytes([1, 1, 0, 0, 63, 0])), scan,
        b"\xff\xd9",
    ])
