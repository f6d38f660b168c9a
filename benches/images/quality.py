"""Measures the quality of conversions from JPEG to JPEG against the same conversion in floating point.

    python benches/images/quality.py FOLDER DSCONVERT [DSCONVERT ...] [--resize shorter:256] [--quality 90]

Needs Pillow, numpy, scipy and pyarrow. FOLDER holds photographs; each DSCONVERT is a build of the command, such as one
before and one after a change. The reference is computed in 64-bit floating point: luma, and chroma upsampled as in
libjpeg, are resized with Lanczos over three lobes, without conversion to RGB or rounding. The output is decoded with
chroma at the resolution of luma. Figures are means over all photographs with three components.
"""

import argparse
import io
import pathlib
import subprocess
import tempfile

import numpy as np
import pyarrow as pa
from PIL import Image, ImageOps
from scipy.ndimage import gaussian_filter


def ycbcr(data):
    """Returns the components of a JPEG at full resolution, upright; None for other files."""
    image = Image.open(io.BytesIO(data))
    if image.format != "JPEG" or image.mode != "RGB":
        return None
    image.draft("YCbCr", image.size)
    image = ImageOps.exif_transpose(image)
    return np.asarray(image, np.float64) if image.mode == "YCbCr" else None


def lanczos(length, target):
    """Returns the matrix that resizes `length` samples to `target`."""
    scale = length / target
    stretch = max(scale, 1.0)
    centers = (np.arange(target) + 0.5) * scale
    x = (np.arange(length)[None, :] + 0.5 - centers[:, None]) / stretch
    weights = np.where(np.abs(x) < 3, np.sinc(x) * np.sinc(x / 3), 0.0)
    return weights / weights.sum(1, keepdims=True)


def psnr(a, b):
    return 10 * np.log10(255**2 / max(np.mean((a - b) ** 2), 1e-9))


def ssim(a, b):
    """Returns the structural similarity with a Gaussian window of sigma 1.5 (Wang et al., 2004)."""
    mean = lambda image: gaussian_filter(image, 1.5, truncate=3.5)
    ma, mb = mean(a), mean(b)
    va, vb, cov = mean(a * a) - ma * ma, mean(b * b) - mb * mb, mean(a * b) - ma * mb
    c1, c2 = (0.01 * 255) ** 2, (0.03 * 255) ** 2
    return np.mean((2 * ma * mb + c1) * (2 * cov + c2) / ((ma * ma + mb * mb + c1) * (va + vb + c2)))


def converted(binary, folder, resize, quality):
    """Converts a folder, and returns the images by key."""
    with tempfile.TemporaryDirectory() as scratch:
        out = pathlib.Path(scratch) / "out"
        command = [binary, "images", folder, "--out", out, "--format", "arrow", "--resize", resize]
        subprocess.run([*command, "--encode", f"jpeg:{quality}"], check=True, capture_output=True)
        images = {}
        for shard in sorted(out.glob("train/*.arrow")):
            table = pa.ipc.open_file(shard).read_all()
            for key, image in zip(table["key"].to_pylist(), table["image"].to_pylist()):
                images[key.split("/", 1)[1]] = image["bytes"]
        return images


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("binaries", nargs="+")
    parser.add_argument("--resize", default="shorter:256")
    parser.add_argument("--quality", type=int, default=90)
    args = parser.parse_args()
    runs = [converted(binary, args.folder, args.resize, args.quality) for binary in args.binaries]
    rows = [[] for _ in runs]
    for path in sorted(args.folder.rglob("*")):
        key = path.relative_to(args.folder).as_posix()
        if not path.is_file() or not all(key in run for run in runs):
            continue
        source = ycbcr(path.read_bytes())
        outputs = [ycbcr(run[key]) for run in runs]
        # Images that are not resized pass through unchanged.
        if source is None or any(output is None or output.shape == source.shape for output in outputs):
            continue
        height, width = outputs[0].shape[:2]
        down, across = lanczos(source.shape[0], height), lanczos(source.shape[1], width)
        reference = [np.clip(down @ source[:, :, c] @ across.T, 0, 255) for c in range(3)]
        for row, output, run in zip(rows, outputs, runs):
            planes = [output[:, :, c] for c in range(3)]
            row.append(
                [psnr(planes[0], reference[0])]
                + [np.mean([psnr(planes[c], reference[c]) for c in (1, 2)])]
                + [ssim(planes[0], reference[0])]
                + [np.mean([ssim(planes[c], reference[c]) for c in (1, 2)])]
                + [len(run[key])]
            )
    print(f"{len(rows[0])} photographs, {args.resize}, quality {args.quality}")
    print(f"{'build':<50} {'luma dB':>8} {'chroma dB':>9} {'luma SSIM':>10} {'chroma SSIM':>11} {'bytes':>8}")
    for binary, row in zip(args.binaries, rows):
        luma, chroma, luma_ssim, chroma_ssim, size = np.mean(row, axis=0)
        print(f"{binary[-50:]:<50} {luma:8.2f} {chroma:9.2f} {luma_ssim:10.5f} {chroma_ssim:11.5f} {size:8.0f}")
    if len(rows) == 2:
        better = np.mean(np.array(rows[1])[:, :4] >= np.array(rows[0])[:, :4], axis=0)
        print("share of photographs for which the second is not worse:", " ".join(f"{share:.2f}" for share in better))


if __name__ == "__main__":
    main()
