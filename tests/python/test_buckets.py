"""Aspect-ratio buckets: the choice is that of brute force in floating point, and pixels are those of Pillow."""

import io
import json
import math
import random
import tarfile
import zipfile

import datasets
import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from google.protobuf import proto
from PIL import Image

from dataset import FORMATS, Dataset
from image_samples import picture

AREA = [(256, 256), (288, 224), (320, 192), (352, 160), (384, 160)]
FIELDS = ["original_size", "resized_size", "crop_top_left", "target_size"]
AREA = sorted({size for width, height in AREA for size in ((width, height), (height, width))})


def nearest(width, height, sizes):
    """The bucket, or None if two are about as near."""
    distances = sorted((abs(math.log(width / height) - math.log(w / h)), (w, h)) for w, h in sizes)
    return None if len(distances) > 1 and distances[1][0] - distances[0][0] < 1e-9 else distances[0][1]


def sources(folder, count=40):
    """Images of random sizes, by name, a third of them with an orientation that transposes them."""
    choose = random.Random(5)
    folder.mkdir()
    upright = {}
    for number in range(count):
        ratio = math.exp(choose.uniform(-1.2, 1.2))
        pixels = choose.uniform(150**2, 700**2)
        size = round(math.sqrt(pixels * ratio)), round(math.sqrt(pixels / ratio))
        image = Image.fromarray(picture(*size, 3, seed=number))
        name = f"{number:02}.png"
        exif = Image.Exif()
        if number % 3 == 0:
            exif[0x0112] = 6
            image = image.transpose(Image.Transpose.ROTATE_90)
        image.save(folder / name, exif=exif)
        upright[name] = size, Image.open(folder / name)
    return upright


@pytest.mark.parametrize("enlarge", [False, True], ids=["filtered", "enlarged"])
def test_images_have_the_size_of_the_nearest_bucket(enlarge, dsconvert, protobuf, tmp_path):
    upright = sources(tmp_path / "in")
    options = [
        "--buckets", "area:256x256,step:32,max-ratio:2.5", "--encode", "png", *(["--enlarge"] if enlarge else [])
    ]
    dsconvert("images", tmp_path / "in", "--out", tmp_path / "out", *options)
    dataset = Dataset(tmp_path / "out", protobuf)
    records = dataset.all_records()
    filtered = 0
    for name, ((width, height), stored) in upright.items():
        bucket = nearest(width, height, AREA)
        assert bucket, "a tie"
        if not enlarge and (width < bucket[0] or height < bucket[1]):
            filtered += 1
            assert f"in/{name}" not in records
            continue
        record = records[f"in/{name}"]
        assert (record["width"], record["height"]) == bucket, name
        scale = max(bucket[0] / width, bucket[1] / height)
        resized = [max(int(side * scale + 0.5), least) for side, least in zip((width, height), bucket)]
        left, top = (resized[0] - bucket[0]) // 2, (resized[1] - bucket[1]) // 2
        is_turned = stored.getexif().get(0x0112) == 6
        image = stored.convert("RGB").transpose(Image.Transpose.ROTATE_270) if is_turned else stored
        assert image.size == (width, height)
        # The height first, as documented.
        image = image.resize((width, resized[1]), Image.Resampling.LANCZOS).resize(resized, Image.Resampling.LANCZOS)
        theirs = np.asarray(image.crop((left, top, left + bucket[0], top + bucket[1])), int)
        ours = np.asarray(Image.open(io.BytesIO(record["image"])), int)
        difference = np.abs(ours - theirs)
        # An image is resized before it is turned.
        assert difference.mean() < 1 if is_turned else difference.max() <= 2, name
    counts = dataset.manifest["splits"]["train"]
    assert counts["filtered"] == filtered and len(records) == len(upright) - filtered
    assert (filtered > 0) != enlarge
    listed = tmp_path / "out/filtered.jsonl"
    reasons = [json.loads(line)["reason"] for line in listed.read_text().splitlines()] if listed.exists() else []
    assert reasons == ["buckets"] * filtered


def test_buckets_exclude_other_sizes(dsconvert, tmp_path):
    (tmp_path / "in").mkdir()
    Image.new("RGB", (64, 64)).save(tmp_path / "in/a.png")

    def refused(*options):
        return dsconvert("images", tmp_path / "in", "--out", tmp_path / "out", *options, status=2).stderr

    for option, value in [("--resize", "shorter:8"), ("--crop", "center:8x8"), ("--pad", "80x80")]:
        error = refused("--buckets", "32x32", option, value)
        assert f"--buckets and {option} exclude each other" in error
    assert "--buckets" in refused("--buckets", "32") and not (tmp_path / "out").exists()
    dsconvert("images", tmp_path / "in", "--out", tmp_path / "one", "--resize", "shorter:8")
    error = refused("--like", tmp_path / "one", "--buckets", "32x32")
    assert "--buckets and --resize exclude each other" in error
    dsconvert(
        "images", tmp_path / "in", "--out", tmp_path / "two", "--like", tmp_path / "one", "--buckets", "32x32",
        "--resize", "none"
    )


def test_small_buckets_are_left_out_before_the_run(dsconvert, protobuf, tmp_path):
    upright = sources(tmp_path / "in")
    options = ["--buckets", "area:256x256,step:32,max-ratio:2.5", "--min-bucket", "4"]
    # Brute force: the bucket with the fewest images is left out, and its images are moved, until all have enough.
    sizes = [size for size, _ in upright.values()]

    def images_of(buckets):
        chosen = [(nearest(*size, buckets), size) for size in sizes]
        return {b: sum(c == b and s[0] >= b[0] and s[1] >= b[1] for c, s in chosen) for b in buckets}

    buckets, counts = AREA, images_of(AREA)
    while min(counts.values()) < 4:
        least = min(counts, key=lambda bucket: (counts[bucket], bucket))
        buckets = [bucket for bucket in buckets if bucket != least]
        counts = images_of(buckets)
    assert 1 < len(buckets) < len(AREA)

    ran = dsconvert("images", tmp_path / "in", "--dry-run", *options)
    for (width, height), count in counts.items():
        assert f"  {f'{width}x{height}':<11} {count} (" in ran.stdout, ran.stdout
    assert f"{len(AREA) - len(buckets)} buckets with too few images left out" in ran.stdout
    ran = dsconvert("images", tmp_path / "in", "--out", tmp_path / "one", *options, "--threads", "1")
    assert f"buckets: {len(AREA) - len(buckets)} buckets with too few images left out" in ran.stdout
    dataset = Dataset(tmp_path / "one", protobuf)
    found = [(record["width"], record["height"]) for record in dataset.all_records().values()]
    assert {bucket: found.count(bucket) for bucket in buckets} == counts and len(found) == sum(counts.values())
    stored = dataset.manifest["options"]["image"]
    assert stored["min_bucket"] == 4
    assert stored["buckets"] == "area:256x256,step:32,max-ratio:2.5=" + ",".join(f"{w}x{h}" for w, h in buckets)

    # The same dataset in parts, with more threads, and again from its own recipe.
    dsconvert("plan", "images", tmp_path / "in", "--out", tmp_path / "parts", *options, "--unit-bytes", "300KiB")
    for part in (2, 1, 3):
        dsconvert("run", tmp_path / "parts", "--part", f"{part}/3")
    dsconvert("merge", tmp_path / "parts")
    parts = Dataset(tmp_path / "parts", protobuf)
    assert parts.manifest["plan"]["units"] > 3
    assert parts.all_records() == dataset.all_records()
    dsconvert("images", tmp_path / "in", "--out", tmp_path / "like", "--like", tmp_path / "one", "--threads", "3")
    dsconvert("images", tmp_path / "in", "--out", tmp_path / "one", *options, "--resume")
    like = Dataset(tmp_path / "like", protobuf)
    assert like.manifest["fingerprint"] == dataset.manifest["fingerprint"]
    assert like.all_records() == dataset.all_records()


def test_headers_of_all_kinds_of_sources_are_counted(dsconvert, protobuf, tmp_path):
    upright = sources(tmp_path / "in")
    (tmp_path / "in/broken.png").write_bytes(b"\x89PNG\r\n\x1a\n")
    (tmp_path / "in/notes.txt").write_bytes(b"no image")
    with tarfile.open(tmp_path / "in.tar", "w") as tar, zipfile.ZipFile(tmp_path / "in.zip", "w") as archive:
        for name in sorted([*upright, "broken.png"]):
            tar.add(tmp_path / "in" / name, name)
            archive.write(tmp_path / "in" / name, name)
    images = [{"bytes": (tmp_path / "in" / name).read_bytes(), "path": None} for name in [*upright, "broken.png"]]
    pq.write_table(pa.table({"image": images}), tmp_path / "in.parquet")
    (tmp_path / "list").write_text("\n".join([*upright, "broken.png"]))
    options = ["--buckets", "area:256x256,step:32,max-ratio:2.5", "--min-bucket", "4", "--dry-run"]

    def counted(*sources):
        text = dsconvert("images", *sources, *options).stdout
        return text[text.index("buckets ") :]

    expected = counted(tmp_path / "in", "--sidecar", "none")
    assert "1 image is without a readable header" in expected
    for source in ("in.tar", "in.zip", "in.parquet"):
        assert counted(tmp_path / source) == expected, source
    assert counted(tmp_path / "in", "--files-from", tmp_path / "list") == expected


def test_the_minimum_of_a_bucket_needs_buckets(dsconvert, tmp_path):
    (tmp_path / "in").mkdir()
    Image.new("RGB", (64, 64)).save(tmp_path / "in/a.png")
    error = dsconvert("images", tmp_path / "in", "--out", tmp_path / "out", "--min-bucket", "2", status=2).stderr
    assert "--buckets" in error
    error = dsconvert(
        "images", tmp_path / "in", "--out", tmp_path / "out", "--buckets", "8x8", "--min-bucket", "0", status=2
    ).stderr
    assert "--min-bucket must be at least 1" in error


def sizes_of(width, height, bucket):
    """The values of the four fields, from the rule in the documentation."""
    scale = max(bucket[0] / width, bucket[1] / height)
    resized = [max(int(side * scale + 0.5), least) for side, least in zip((width, height), bucket)]
    left, top = (resized[0] - bucket[0]) // 2, (resized[1] - bucket[1]) // 2
    return {
        "original_size": [height, width],
        "resized_size": [resized[1], resized[0]],
        "crop_top_left": [top, left],
        "target_size": [bucket[1], bucket[0]],
    }


@pytest.fixture(scope="module")
def bucketed(dsconvert, tmp_path_factory):
    """The same images in all formats, and the sizes of each."""
    folder = tmp_path_factory.mktemp("bucketed")
    upright = sources(folder / "in", 20)
    for fmt in FORMATS:
        options = [
            "--buckets", "area:256x256,step:32,max-ratio:2.5", "--enlarge", "--format", fmt, "--shard-records", "7"
        ]
        dsconvert("images", folder / "in", "--out", folder / fmt, *options)
    sizes = {f"in/{name}": sizes_of(*size, nearest(*size, AREA)) for name, (size, _) in upright.items()}
    return folder, sizes


@pytest.mark.parametrize("fmt", FORMATS)
def test_records_have_the_sizes_of_their_image(bucketed, fmt, protobuf):
    folder, sizes = bucketed
    dataset = Dataset(folder / fmt, protobuf)
    if fmt == "protobuf":
        found = {}
        for shard in dataset.shards("train"):
            stream = io.BytesIO(shard.read_bytes())
            while (message := proto.parse_length_prefixed(protobuf.Record, stream)) is not None:
                pairs = {field.name: np.frombuffer(field.int32_pair_value, "<i4").tolist() for field in message.extra}
                found[message.key] = pairs
    else:
        decode = (lambda pair: np.frombuffer(pair, "<i4").tolist()) if fmt == "msgpack" else list
        records = dataset.all_records()
        found = {key: {name: decode(record[name]) for name in FIELDS} for key, record in records.items()}
    assert found == sizes


@pytest.mark.parametrize("fmt", ["parquet", "arrow"])
def test_other_libraries_read_pairs_as_lists(bucketed, fmt):
    folder, sizes = bucketed
    shards = sorted((folder / fmt / "train").iterdir())
    expected = [sizes[key] for key in sorted(sizes)]
    read = {"parquet": pl.read_parquet, "arrow": pl.read_ipc}[fmt]
    frame = pl.concat([read(shard, columns=["key", *FIELDS]) for shard in shards])
    assert [dict(zip(FIELDS, row[1:])) for row in frame.sort("key").iter_rows()] == expected
    data = datasets.load_dataset(fmt, data_files=list(map(str, shards)), split="train", cache_dir=str(folder / "cache"))
    assert [{name: row[name] for name in FIELDS} for row in data.select_columns(["key", *FIELDS])] == expected
    if fmt == "parquet":
        columns = ", ".join(["key", *FIELDS])
        rows = duckdb.sql(f"SELECT {columns} FROM read_parquet({list(map(str, shards))}) ORDER BY key").fetchall()
        assert [dict(zip(FIELDS, row[1:])) for row in rows] == expected


@pytest.mark.parametrize("fmt", FORMATS)
def test_inspect_shows_buckets_and_the_share_that_is_cropped(bucketed, fmt, dsconvert):
    folder, sizes = bucketed
    found = {}
    for of in sizes.values():
        records, resized, kept = found.get(tuple(of["target_size"]), (0, 0, 0))
        pixels = [of[name][0] * of[name][1] for name in ("resized_size", "target_size")]
        found[tuple(of["target_size"])] = (records + 1, resized + pixels[0], kept + pixels[1])
    described = json.loads(dsconvert("inspect", folder / fmt, "--json").stdout)
    buckets = described["splits"]["train"]["buckets"]
    assert [(b["width"], b["height"]) for b in buckets] == sorted((w, h) for h, w in found)
    for bucket in buckets:
        records, resized, kept = found[bucket["height"], bucket["width"]]
        assert bucket["records"] == records and bucket["cropped"] == pytest.approx(1 - kept / resized)
    text = dsconvert("inspect", folder / fmt).stdout
    _, resized, kept = map(sum, zip(*found.values()))
    assert f"  {len(found)} buckets; {100 * (1 - kept / resized):.1f}% of the pixels cropped" in text, text
    assert "buckets" not in dsconvert("inspect", "fixtures/golden/v3/images-arrow").stdout
