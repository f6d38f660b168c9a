"""The expected contents of datasets made from the fixtures, computed without dsconvert."""

import json
from pathlib import Path

from PIL import Image, ImageOps

FIXTURES = Path(__file__).parents[2] / "fixtures"


def files(name):
    """Files of a source in byte order of their full paths, with their origins."""
    root = FIXTURES / name
    found = [path for path in root.rglob("*") if path.is_file()]
    found.sort(key=lambda path: str(path.relative_to(root)).encode())
    return [(path, f"{name}/{path.relative_to(root)}") for path in found]


def documents():
    """Origin and text of every document, in order; the text is None if the line is not a document."""
    for path, origin in files("corpus"):
        data = path.read_bytes()
        if path.suffix == ".txt":
            yield origin, data.decode() or None
            continue
        offset = 0
        for line in data.splitlines(keepends=True) if b"\r" not in data else crlf_lines(data):
            try:
                text = json.loads(line)["text"] or None
            except json.JSONDecodeError:
                text = None
            yield f"{origin}#{offset}", text
            offset += len(line)


def crlf_lines(data):
    """The lines of `data`, split at LF only; `splitlines` would also split at CR."""
    return [line + b"\n" for line in data.removesuffix(b"\n").split(b"\n")]


def photos():
    """Origin and upright RGB image, composited over white, of every photo; None if Pillow cannot decode it."""
    for path, origin in files("photos"):
        if path.suffix == ".txt":
            continue
        try:
            with Image.open(path) as image:
                upright = ImageOps.exif_transpose(image)
                if upright.mode == "RGBA":
                    ground = Image.new("RGBA", upright.size, "white")
                    upright = Image.alpha_composite(ground, upright)
                yield origin, upright.convert("RGB")
        except OSError:
            yield origin, None


def shorter(size, target):
    """The size after --resize shorter:TARGET, which rounds half up and never enlarges."""
    side = min(size)
    if side <= target:
        return size
    return tuple((2 * s * target + side) // (2 * side) for s in size)
