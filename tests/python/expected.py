"""What the fixtures must become, worked out here without dsconvert."""

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
    """Origin and text of every document, in order; the text is None where the line is no document."""
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
    """Lines that end in CR LF; nothing else ends a line of JSON."""
    return [line + b"\n" for line in data.removesuffix(b"\n").split(b"\n")]


def photos():
    """Origin and upright RGB picture, laid on white, of every photograph; None where Pillow cannot decode it."""
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
    """The rule of --resize shorter:TARGET: rounded half up, never larger."""
    side = min(size)
    if side <= target:
        return size
    return tuple((2 * s * target + side) // (2 * side) for s in size)
