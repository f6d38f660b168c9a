"""Sizes, grids and numbers of tokens of images equal those of the image processors of `transformers`."""

import json
import random
import subprocess

import pytest

from conftest import ROOT

pytest.importorskip("transformers")

import vision_models  # noqa: E402

CASES = {
    "qwen2_5_vl": ("qwen2_5_vl", {}),
    "qwen3_vl": ("qwen3_vl", {}),
    "max_pixels": ("qwen2_5_vl", {"min_pixels": 4 * 784, "max_pixels": 602112}),
}


@pytest.fixture(scope="session")
def program():
    """The example `plans` of dsconvert-vision."""
    build = subprocess.run(
        ["cargo", "build", "--locked", "-p", "dsconvert-vision", "--example", "plans", "--message-format=json"],
        cwd=ROOT, stdout=subprocess.PIPE, check=True,
    )
    messages = map(json.loads, build.stdout.splitlines())
    return next(m["executable"] for m in messages if m.get("executable"))


def sizes(factor):
    rng = random.Random(factor)
    for _ in range(4000):
        yield rng.randrange(1, 5000), rng.randrange(1, 5000)
    for _ in range(3000):
        near = lambda most: max(1, rng.randrange(1, most) * factor // 2 + rng.choice([-1, 0, 1]))  # noqa: E731
        yield near(200), near(200)
    for _ in range(3000):
        short = rng.randrange(1, 60)
        long = max(1, int(short * rng.uniform(150, 205)))
        yield (short, long) if rng.random() < 0.5 else (long, short)


@pytest.mark.parametrize("case", CASES)
def test_plans_equal_those_of_transformers(program, tmp_path, case):
    from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import smart_resize

    family, parameters = CASES[case]
    folder = vision_models.folder(tmp_path / "model", family, **parameters)
    processor = vision_models.image_processor(folder)
    factor = processor.patch_size * processor.merge_size
    all_sizes = list(sizes(factor))
    assert len(all_sizes) == 10_000
    lines = "".join(f"{h} {w}\n" for h, w in all_sizes)
    args = [program, str(folder / "preprocessor_config.json")]
    ours = subprocess.run(args, input=lines, capture_output=True, text=True, check=True).stdout.splitlines()
    assert len(ours) == len(all_sizes)
    refused = 0
    for (h, w), line in zip(all_sizes, ours):
        try:
            height, width = smart_resize(h, w, factor, processor.size["shortest_edge"], processor.size["longest_edge"])
        except ValueError:
            assert line == "refused", (h, w)
            refused += 1
            continue
        rows, columns = height // processor.patch_size, width // processor.patch_size
        tokens = rows * columns // processor.merge_size**2
        assert line == f"{height} {width} {rows} {columns} {tokens} {rows * columns}", (h, w)
    assert refused > 10


def test_arguments_win(program, tmp_path):
    folder = vision_models.folder(tmp_path / "model", "qwen3_vl")
    args = [program, str(folder / "preprocessor_config.json")]
    run = lambda *more: subprocess.run([*args, *more], input="1080 1920\n", capture_output=True, text=True)  # noqa: E731
    assert run().stdout != run("max_pixels=262144").stdout
    assert run("patch_size=14").returncode != 0
