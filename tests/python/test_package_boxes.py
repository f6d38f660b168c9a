"""Boxes in the Python package: records, and batches that crop and flip them with their images."""

import io
import json

import numpy as np
import pytest
import torch
from PIL import Image, ImageDraw, ImageOps

import dsconvert

WIDTH, HEIGHT = 96, 64


def boxes_of(number):
    """Boxes of integers in separate columns."""
    return [
        [at * 24 + number % 7, number % 11, at * 24 + number % 7 + 12, number % 11 + 20 + 9 * at]
        for at in range(number % 5)
    ]


@pytest.fixture(scope="module", params=["parquet", "arrow", "msgpack", "protobuf"])
def dataset(request, command, tmp_path_factory):
    folder = tmp_path_factory.mktemp("boxes")
    (folder / "images").mkdir()
    images, annotations = [], []
    for number in range(24):
        image = Image.new("RGB", (WIDTH, HEIGHT))
        for at, (x1, y1, x2, y2) in enumerate(boxes_of(number)):
            ImageDraw.Draw(image).rectangle([x1, y1, x2 - 1, y2 - 1], fill=(60 + 60 * at,) * 3)
            annotations.append(
                {"image_id": number, "category_id": 10 + at, "bbox": [x1, y1, x2 - x1, y2 - y1], "iscrowd": at % 2}
            )
        image.save(folder / f"images/{number:02}.png")
        # The last one has no annotations.
        if number < 23:
            images.append({"id": number, "file_name": f"{number:02}.png", "width": WIDTH, "height": HEIGHT})
    annotations = [one for one in annotations if one["image_id"] < 23]
    categories = [{"id": 10 + at, "name": f"class {at}"} for at in range(4)]
    (folder / "a.json").write_text(json.dumps({"images": images, "annotations": annotations, "categories": categories}))
    command(
        "images", folder / "images", "--annotations", folder / "a.json", "--out", folder / "out", "--encode", "png",
        "--format", request.param,
    )
    return dsconvert.open(folder / "out", "train")


def number_of(record):
    return int(record["key"].split("/")[-1].removesuffix(".png"))


def test_records_have_arrays(dataset):
    for record in dataset:
        number = number_of(record)
        if number == 23:
            assert record["boxes"] is record["labels"] is record["iscrowd"] is None
            continue
        assert record["boxes"].dtype == np.float32 and record["boxes"].shape == (number % 5, 4)
        assert record["boxes"].tolist() == boxes_of(number)
        assert record["labels"].dtype == record["iscrowd"].dtype == np.int64
        assert record["labels"].tolist() == list(range(number % 5))
        assert record["iscrowd"].tolist() == [at % 2 for at in range(number % 5)]


@pytest.mark.parametrize("as_torch", [False, True])
def test_batches_flip_boxes_with_their_images(dataset, as_torch):
    mirrored = 0
    loader = dsconvert.Loader(dataset, batch_size=5, hflip=0.5, seed=3, num_threads=2, as_torch=as_torch)
    keys = [number_of(record) for record in dataset]
    batches = list(loader)
    assert list(batches[0]) == ["image", "boxes", "labels", "iscrowd"]
    seen = []
    for batch in batches:
        for image, boxes, labels, crowds in zip(*batch.values(), strict=True):
            if boxes is None:
                assert labels is crowds is None
                continue
            assert isinstance(boxes, torch.Tensor if as_torch else np.ndarray)
            image, boxes, labels = (np.asarray(value) for value in (image, boxes, labels))
            assert boxes.dtype == np.float32 and boxes.shape == (len(labels), 4) and labels.dtype == np.int64
            assert boxes.flags.writeable
            for box, label in zip(boxes, labels):
                rows, columns = np.nonzero(image[:, :, 0] == 60 + 60 * label)
                assert box.tolist() == [columns.min(), rows.min(), columns.max() + 1, rows.max() + 1]
            seen.append(len(labels))
            mirrored += bool(len(labels) and boxes[0, 0] > boxes[-1, 0])
    assert sorted(seen) == sorted(number % 5 for number in keys if number != 23)
    assert 3 < mirrored < 15


def test_crops_drop_boxes_of_which_nothing_is_left(dataset):
    dropped = 0
    plain = {number_of(record): record for record in dataset}
    loader = dsconvert.Loader(dataset, batch_size=4, center_crop=(40, 48), fields=["key", "boxes", "labels", "image"])
    for batch in loader:
        for key, boxes, labels, image in zip(*batch.values(), strict=True):
            record = plain[number_of({"key": key})]
            if boxes is None:
                continue
            left, top = (WIDTH - 48) // 2, (HEIGHT - 40) // 2
            moved = np.clip(record["boxes"] - [left, top, left, top], 0, [48, 40, 48, 40])
            kept = (moved[:, 0] < moved[:, 2]) & (moved[:, 1] < moved[:, 3])
            assert boxes.tolist() == moved[kept].tolist() and labels.tolist() == record["labels"][kept].tolist()
            dropped += (~kept).sum()
            for box, label in zip(boxes, labels):
                rows, columns = np.nonzero(image[:, :, 0] == 60 + 60 * label)
                assert box.tolist() == [columns.min(), rows.min(), columns.max() + 1, rows.max() + 1]
    assert dropped > 10


def test_random_crops_resize_boxes(dataset):
    compared = 0
    loader = dsconvert.Loader(
        dataset, batch_size=4, random_resized_crop=(64, 96), crop_scale=(0.3, 0.8), hflip=0.5, seed=1
    )
    for batch in loader:
        for image, boxes, labels, _ in zip(*batch.values(), strict=True):
            for box, label in zip(*((boxes, labels) if boxes is not None else ((), ()))):
                assert (box >= 0).all() and (box <= [96, 64, 96, 64]).all() and (box[:2] < box[2:]).all()
                if min(box[2] - box[0], box[3] - box[1]) > 8:
                    # The edges of other boxes may have the same color.
                    left, top = np.maximum(box[:2].astype(int) - 4, 0)
                    around = image[top : int(box[3]) + 5, left : int(box[2]) + 5, 0].astype(int)
                    rows, columns = np.nonzero(np.abs(around - (60 + 60 * label)) < 30)
                    found = [columns.min() + left, rows.min() + top, columns.max() + left + 1, rows.max() + top + 1]
                    assert np.abs(box - found).max() <= 2.5, (box, found)
                    compared += 1
    assert compared > 15


def test_batches_of_encoded_images_have_boxes_as_stored(dataset):
    batch = next(iter(dsconvert.Loader(dataset, batch_size=24, decode=False, shuffle=False)))
    for record, boxes, image in zip(dataset, batch["boxes"], batch["image"]):
        assert (record["boxes"] is None) == (boxes is None)
        assert boxes is None or np.array_equal(record["boxes"], boxes)
        assert Image.open(io.BytesIO(image)).size == (WIDTH, HEIGHT)


def test_classes_of_boxes_are_merged_by_name(command, tmp_path):
    paths = []
    for number, names in enumerate([["cat", "dog"], ["ant", "cat", "eel"]]):
        (tmp_path / f"{number}").mkdir()
        Image.new("RGB", (40, 30)).save(tmp_path / f"{number}/{number}.png")
        annotations = [{"image_id": 1, "category_id": at, "bbox": [at, 1, 5, 5]} for at in range(len(names))]
        categories = [{"id": at, "name": name} for at, name in enumerate(names)]
        images = [{"id": 1, "file_name": f"{number}.png", "width": 40, "height": 30}]
        content = {"images": images, "annotations": annotations, "categories": categories}
        (tmp_path / f"{number}.json").write_text(json.dumps(content))
        paths.append(tmp_path / f"out{number}")
        command("images", tmp_path / f"{number}", "--annotations", tmp_path / f"{number}.json", "--out", paths[-1])
    with pytest.raises(dsconvert.UsageError, match="different classes"):
        dsconvert.open(paths)
    merged = dsconvert.open(paths, merge_classes=True)
    found = [[merged.class_names[label] for label in record["labels"]] for record in merged]
    assert found == [["cat", "dog"], ["ant", "cat", "eel"]]


@pytest.fixture(scope="module", params=["objects", "voc", "yolo"])
def one_each(request, command, tmp_path_factory):
    """Turned images with a rectangle each, whose box is in a field of a table, in XML or in labels."""
    folder, rows = tmp_path_factory.mktemp(request.param), []
    (folder / "images").mkdir()
    (folder / "images/data.yaml").write_text("names: [x]\n")
    for number in range(16):
        image = Image.new("RGB", (WIDTH, HEIGHT))
        x, y = 10 + 2 * number, 8 + number
        ImageDraw.Draw(image).rectangle([x, y, x + 29, y + 24], fill="white")
        exif = Image.Exif()
        exif[0x0112] = number % 8 + 1
        path = folder / f"images/{number:02}.png"
        image.save(path, exif=exif)
        with Image.open(path) as stored:
            upright = ImageOps.exif_transpose(stored)
        left, top, right, bottom = upright.convert("L").getbbox()
        rows.append(
            {"file_name": path.name, "objects": {"bbox": [[left, top, right - left, bottom - top]], "category": [0]}}
        )
        box = f"<xmin>{left}</xmin><ymin>{top}</ymin><xmax>{right}</xmax><ymax>{bottom}</ymax>"
        size = f"<size><width>{upright.width}</width><height>{upright.height}</height></size>"
        line = [
            (left + right) / 2 / upright.width,
            (top + bottom) / 2 / upright.height,
            (right - left) / upright.width,
            (bottom - top) / upright.height,
        ]
        if request.param == "voc":
            path.with_suffix(".xml").write_text(
                f"<annotation>{size}<object><name>x</name><bndbox>{box}</bndbox></object></annotation>"
            )
        if request.param == "yolo":
            path.with_suffix(".txt").write_text(" ".join(map(str, [0, *line])))
    if request.param == "objects":
        (folder / "images/metadata.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    options = [] if request.param == "objects" else ["--annotations", folder / "images"]
    command(
        "images", folder / "images", "--out", folder / "out", "--encode", "png", "--resize", "longer:90", "--pad",
        "96x96", *options,
    )
    return dsconvert.open(folder / "out", "train")


@pytest.mark.parametrize("options", [
    {"hflip": 0.5}, {"center_crop": (64, 72), "hflip": 0.5},
    {"random_resized_crop": (80, 80), "crop_scale": (0.4, 0.9), "hflip": 0.5},
], ids=["flip", "crop", "random crop"])
def test_boxes_of_all_sources_are_where_the_pixels_are(one_each, options):
    compared = 0
    for seed in range(4):
        for batch in dsconvert.Loader(one_each, batch_size=4, seed=seed, **options):
            for image, boxes in zip(batch["image"], batch["boxes"], strict=True):
                rows, columns = np.nonzero(image[:, :, 0] > 127)
                for box in boxes:
                    if min(box[2] - box[0], box[3] - box[1]) > 3:
                        found = [columns.min(), rows.min(), columns.max() + 1, rows.max() + 1]
                        assert np.abs(box - found).max() <= 1.01, (box, found)
                        compared += 1
    assert compared > 50
