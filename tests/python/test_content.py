"""Records match the fixtures as the reference tokenizer and Pillow read them, and are the same in every format."""

import io
import json

import numpy as np
import pyarrow.parquet as pq
import pytest
from PIL import Image
from tokenizers import Tokenizer

import expected
from dataset import FORMATS, Dataset
from conftest import FIXTURES

CLASSES = ["dunes", "flowers", "forest", "night", "signs"]


def rejects(dataset):
    lines = (dataset.path / "rejects.jsonl").read_text().splitlines()
    return {reject["origin"]: reject["code"] for reject in map(json.loads, lines)}


@pytest.mark.parametrize("fmt", FORMATS[1:])
def test_all_formats_hold_the_same_records(kind, fmt, photos_in, corpus_in):
    dataset_in = photos_in if kind == "images" else corpus_in
    ours, parquet = dataset_in(fmt), dataset_in("parquet")
    assert ours.splits == parquet.splits
    for split in parquet.splits:
        assert ours.records(split) == parquet.records(split)


@pytest.mark.parametrize("tokenizer", ["bpe", "char-bpe", "wordpiece", "unigram"])
def test_ids_are_those_of_the_reference_tokenizer(tokenizer, corpus_in):
    reference = Tokenizer.from_file(str(FIXTURES / "tokenizers" / f"{tokenizer}.json"))
    reference.no_truncation()
    reference.no_padding()
    corpus = corpus_in("parquet", tokenizer)
    records, rejected = corpus.all_records(), rejects(corpus)
    for origin, text in expected.documents():
        ids = reference.encode(text, add_special_tokens=False).ids if text else []
        if ids:
            record = records.pop(origin)
            assert record["input_ids"] == ids, f"{origin}: {text[:100]!r}"
            assert record["length"] == len(ids)
            assert record["origin"] == origin
        else:
            assert rejected.pop(origin) in ("empty", "invalid-json")
    assert not records and not rejected, "records or rejects that are not documents"


def test_records_keep_the_order_of_the_sources(corpus, photos_in):
    for dataset, origins in [
        (corpus, [origin for origin, _ in expected.documents()]),
        (photos_in(corpus.format), [origin for origin, _ in expected.photos()]),
    ]:
        ordinal = {origin: i for i, origin in enumerate(origins)}
        for split in dataset.splits:
            ordinals = [ordinal[record["origin"]] for record in dataset.records(split)]
            assert ordinals == sorted(ordinals)


def test_the_tokenizer_is_in_the_dataset(corpus_in):
    corpus = corpus_in("parquet")
    kept, given = (
        Tokenizer.from_file(str(path)) for path in (corpus.path / "tokenizer.json", FIXTURES / "tokenizers/bpe.json")
    )
    for tokenizer in (kept, given):
        tokenizer.no_truncation()
        tokenizer.no_padding()
    record = corpus.all_records()["corpus/books/hindi.txt"]
    text = (FIXTURES / "corpus/books/hindi.txt").read_text()
    assert kept.encode(text, add_special_tokens=False).ids == given.encode(text, add_special_tokens=False).ids
    assert kept.decode(record["input_ids"], skip_special_tokens=False) == text


def test_the_tokenizer_called_bytes_gives_utf8(dsconvert, tmp_path, protobuf):
    from dataset import Dataset

    dsconvert("text", "fixtures/corpus/books", "--tokenizer", "bytes", "--out", tmp_path / "out")
    records = Dataset(tmp_path / "out", protobuf).all_records()
    for path in (FIXTURES / "corpus/books").glob("*.txt"):
        if path.stat().st_size:
            assert bytes(records[f"books/{path.name}"]["input_ids"]) == path.read_bytes()


def as_jpeg(image):
    """The image after encoding and decoding as with `--encode jpeg:90`."""
    encoded = io.BytesIO()
    image.save(encoded, "JPEG", quality=90, subsampling="4:2:0")
    return Image.open(encoded)


def difference_of(a, b):
    return np.abs(np.asarray(a.convert("RGB"), int) - np.asarray(b.convert("RGB"), int)).mean()


def test_images_match_those_of_pillow(photos_in):
    photos = photos_in("parquet")
    records, rejected = photos.all_records(), rejects(photos)
    for origin, upright in expected.photos():
        if upright is None:
            assert rejected.pop(origin) in ("truncated", "corrupt")
            continue
        record = records.pop(origin)
        size = expected.shorter(upright.size, 96)
        assert (record["width"], record["height"]) == size, origin
        ours = Image.open(io.BytesIO(record["image"]))
        assert ours.format == "JPEG"
        assert ours.size == size
        # Differences are in levels of 0 to 255. Resampling differs slightly. Without resampling, both encode the image
        # again, or keep its encoded pixels if the file already conforms.
        resampled = size != upright.size
        theirs = [as_jpeg(upright.resize(size, Image.Resampling.LANCZOS))] + ([] if resampled else [upright])
        difference = min(difference_of(ours, picture) for picture in theirs)
        assert difference < (3 if resampled else 0.5), f"{origin}: {difference:.2f} levels on average"
        assert record["label"] == CLASSES.index(origin.split("/")[1])
    assert not records and not rejected, "records or rejects that are not photos"


def test_all_eight_orientations_come_out_upright(photos_in):
    records = photos_in("parquet").all_records()
    names = [f"photos/signs/orientation-{i}.jpg" for i in range(1, 9)] + ["photos/signs/turned.png"]
    pictures = [np.asarray(Image.open(io.BytesIO(records[name]["image"])), int) for name in names]
    for name, picture in zip(names[1:], pictures[1:]):
        assert picture.shape == pictures[0].shape == (96, 144, 3)
        assert np.abs(picture - pictures[0]).mean() < 3, name
    for name in names:
        tags = Image.open(io.BytesIO(records[name]["image"])).getexif()
        assert tags.get(0x0112, 1) == 1, f"{name} would be rotated twice"


def test_untouched_files_keep_their_bytes(dsconvert, tmp_path, protobuf):
    from dataset import Dataset

    dsconvert("images", "fixtures/photos/dunes", "--layout", "flat", "--encode", "keep", "--out", tmp_path / "out")
    records = Dataset(tmp_path / "out", protobuf).all_records()
    for name in ("morning.jpg", "half-clear.png"):
        assert records[f"dunes/{name}"]["image"] == (FIXTURES / "photos/dunes" / name).read_bytes()


@pytest.mark.parametrize(
    "options", [["--encode", "keep"], ["--resize", "shorter:40"], ["--color", "gray"]], ids=" ".join
)
def test_restart_markers_change_no_pixel(options, dsconvert, protobuf, tmp_path):
    def stored(name, *more):
        dsconvert("images", "fixtures/photos", "--out", tmp_path / name, "--format", "arrow", *options, *more)
        dataset = Dataset(tmp_path / name, protobuf)
        return json.loads((tmp_path / name / "manifest.json").read_text()), dataset.all_records()

    (manifest, records), (with_manifest, with_records) = stored("without"), stored("with", "--restart-interval", "3")
    assert "restart_interval" not in json.dumps(manifest) and '"restart_interval": 3' in json.dumps(with_manifest)
    assert records.keys() == with_records.keys()
    marked = 0
    for key, record in records.items():
        images = [Image.open(io.BytesIO(r["image"])) for r in (record, with_records[key])]
        assert np.array_equal(*[np.asarray(image) for image in images]), key
        marked += b"\xff\xdd\x00\x04\x00\x03" in with_records[key]["image"]
    assert marked > len(records) / 3


def test_progressive_files_become_baseline_files_with_the_same_pixels(dsconvert, protobuf, tmp_path):
    folder = tmp_path / "in"
    folder.mkdir()
    picture = Image.open(FIXTURES / "photos/dunes/morning.jpg").convert("RGB")
    for name, mode, options in [
        ("color", "RGB", {}),
        ("fine", "RGB", {"subsampling": 0}),
        ("gray", "L", {}),
        ("cmyk", "CMYK", {}),
    ]:
        picture.convert(mode).save(folder / f"{name}.jpg", progressive=True, **options)
    options = ["--layout", "flat", "--encode", "keep"]
    ran = dsconvert("images", folder, *options, "--out", tmp_path / "kept")
    assert "3 progressive JPEGs are slow to decode: --baseline" in ran.stdout
    ran = dsconvert("images", folder, *options, "--baseline", "--out", tmp_path / "out")
    assert "--baseline" not in ran.stdout
    records = Dataset(tmp_path / "out", protobuf).all_records()
    assert '"baseline": true' in json.dumps(json.loads((tmp_path / "out/manifest.json").read_text()))
    for path in folder.iterdir():
        source, stored = Image.open(path), Image.open(io.BytesIO(records[f"in/{path.name}"]["image"]))
        assert "progressive" in source.info and "progressive" not in stored.info, path.name
        # A CMYK image is converted to RGB, and therefore re-encoded.
        if path.name != "cmyk.jpg":
            assert np.array_equal(np.asarray(source), np.asarray(stored)), path.name


def test_restart_intervals_are_refused_for_other_encodings_than_jpeg(dsconvert, tmp_path):
    ran = dsconvert(
        "images", "fixtures/photos", "--out", tmp_path / "out", "--encode", "png", "--restart-interval", "4", status=2
    )
    assert "--restart-interval applies only to JPEG" in ran.stderr


@pytest.mark.parametrize("extension", ["png", "jpg"])
def test_the_box_filter_decides_ties_like_pillow(dsconvert, tmp_path, extension):
    """A pixel whose center is exactly between two results: at two thirds of the size, every third one."""
    generator = np.random.default_rng(0)
    (tmp_path / "in").mkdir()
    for width, to in [(300, 200), (600, 400), (500, 200), (99, 66), (1500, 1000)]:
        image = Image.fromarray(generator.integers(0, 256, (32, width, 3), dtype=np.uint8))
        file = tmp_path / f"in/a.{extension}"
        image.save(file, **({"quality": 95, "subsampling": 0} if extension == "jpg" else {}))
        out = tmp_path / f"out-{width}"
        dsconvert(
            "images", tmp_path / "in", "--resize", f"exact:{to}x32", "--filter", "box", "--encode", "png", "--out", out
        )
        (shard,) = (out / "train").iterdir()
        (row,) = pq.read_table(shard).to_pylist()
        got = np.asarray(Image.open(io.BytesIO(row["image"]["bytes"]))).astype(int)
        expected = np.asarray(Image.open(file).resize((to, 32), Image.Resampling.BOX)).astype(int)
        assert np.abs(got - expected).max() <= 1
