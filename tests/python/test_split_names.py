"""A folder in a layout of the Hub, or as people download it, gets the splits that `datasets.load_dataset` finds in it."""

import json
import zipfile

import datasets
import pytest
from PIL import Image

from dataset import Dataset

# Splits of text.
LAYOUTS = {
    "folders": ["train/a.jsonl", "train/b.jsonl", "validation/c.jsonl", "test/d.jsonl"],
    "short folders": ["train/a.jsonl", "val/b.jsonl"],
    "other words": ["training/a.jsonl", "dev/b.jsonl", "eval/c.jsonl"],
    "folders below": ["en/train/a.jsonl", "de/train/b.jsonl", "en/test/c.jsonl"],
    "words in folders": ["train-clean/a.jsonl", "dev.other/b.jsonl", "my_test_1/c.jsonl"],
    "LibriSpeech": [
        "LibriSpeech/train-clean-100/19/a.jsonl", "LibriSpeech/dev-clean/2/b.jsonl", "LibriSpeech/test-other/3/c.jsonl"
    ],
    "IMDB": ["aclImdb/train/pos/a.jsonl", "aclImdb/train/neg/b.jsonl", "aclImdb/test/pos/c.jsonl"],
    "years": ["train2017/a.jsonl", "val2017/b.jsonl", "test2017/c.jsonl"],
    "sets": ["training_set/a.jsonl", "test_set/b.jsonl"],
    "only validation": ["val/a.jsonl", "val/b.jsonl"],
    "depths": ["a/train/a.jsonl", "a/test/b.jsonl", "b/x/train/c.jsonl", "b/x/test/d.jsonl"],
    "files": ["train.jsonl", "validation.jsonl", "test.jsonl"],
    "words in files": ["my-train-00.jsonl", "wiki.valid.jsonl", "x_eval_2.jsonl"],
    "shards": [
        "data/train-00000-of-00002.jsonl", "data/train-00001-of-00002.jsonl", "data/hard-00000-of-00001-abc.jsonl"
    ],
    "one split": ["test.jsonl"],
    "no words": ["retrain.jsonl", "latest.jsonl", "contest/b.jsonl"],
}

# Images, with their classes.
IMAGES = {
    "ImageNet": {"train/n1/1": "n1", "train/n2/2": "n2", "val/n1/3": "n1", "val/n2/4": "n2"},
    "COCO": {"train2017/1": None, "val2017/2": None, "test2017/3": None},
    "YOLO": {"images/train/1": None, "images/val/2": None},
    "Roboflow": {"train/images/1": None, "valid/images/2": None, "test/images/3": None},
    "chest X-rays": {"chest/train/A/1": "A", "chest/train/B/2": "B", "chest/val/A/3": "A", "chest/val/B/4": "B"},
    "sets": {"training_set/cats/1": "cats", "training_set/dogs/2": "dogs", "test_set/cats/3": "cats"},
    "only cats": {"training_set/cats/1": "cats", "test_set/cats/2": "cats"},
    "Intel": {"seg_train/sea/1": "sea", "seg_train/ice/2": "ice", "seg_test/sea/3": "sea", "seg_test/ice/4": "ice"},
    "Intel, nested": {
        "seg_train/seg_train/sea/1": "sea", "seg_train/seg_train/ice/2": "ice",
        "seg_test/seg_test/sea/3": "sea", "seg_test/seg_test/ice/4": "ice",
    },
    "dogs and cats": {"train/train/1": None, "test1/test1/2": None},
    "words": {"train_images/1": None, "test_images/2": None},
    "DIV2K": {"DIV2K_train_HR/1": None, "DIV2K_valid_HR/2": None},
    "numbers": {"train-00/1": None, "train-01/2": None, "val-00/3": None},
    "files": {"train_1": None, "val_2": None, "test_3": None},
    "files in classes": {"a/x_train_1": "a", "b/x_train_2": "b", "a/x_test_3": "a", "b/x_test_4": "b"},
    "only validation": {"val/a/1": "a", "val/b/2": "b"},
    "deep": {"a/b/c/train/x/1": "x", "a/b/c/train/y/2": "y", "a/b/c/test/x/3": "x", "a/b/c/test/y/4": "y"},
    "ADE20K": {"ADE/images/training/1": None, "ADE/images/validation/2": None},
    "Cityscapes": {
        "leftImg8bit/train/aachen/1": "aachen", "leftImg8bit/train/ulm/2": "ulm", "leftImg8bit/val/ulm/3": "ulm"
    },
    "UCF-101": {
        "UCF/train/Archery/v1/1": "Archery", "UCF/val/Archery/v2/2": "Archery", "UCF/test/Diving/v3/3": "Diving"
    },
    "CelebA": {"img_align_celeba/img_align_celeba/1": None, "img_align_celeba/img_align_celeba/2": None},
    "no splits": {"food/images/pizza/1": "pizza", "food/images/sushi/2": "sushi"},
}
# There, folders with the names of splits are classes of files that are in the folders of other splits, folders are
# classes only if all files have the same depth, and the class is the innermost folder.
OTHER_CLASSES = [
    "COCO", "YOLO", "only cats", "dogs and cats", "words", "DIV2K", "numbers", "ADE20K", "UCF-101",
]

# Layouts whose splits differ on purpose, with the splits of dsconvert: see docs/reference/images-sources.md.
DIFFERENT = {
    "upper case": {"Train/1": "train", "Test/2": "test"},
    "unlabeled": {"train/1": "train", "test/2": "test", "unlabeled/3": "unlabeled"},
    "beside": {"train/1": "train", "extra/2": "train"},
    "a noun": {"train_station/1": "train", "cat/2": "train"},
    "nouns": {"bullet_train/1": "train", "train_station/2": "train", "test_tube/3": "train"},
    "a class": {
        "train/train/1": "train", "train/car/2": "train", "val/train/3": "validation", "val/car/4": "validation"
    },
    "a wrapper": {"test-data/train/1": "train", "test-data/val/2": "validation"},
    "a chance": {"1": "train", "2": "train", "test": "train"},
    "two words": {"train_val2018/1": "train", "test2018/2": "test"},
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_splits_are_those_of_the_datasets_library(layout, dsconvert, protobuf, tmp_path):
    source = tmp_path / "corpus"
    for name in LAYOUTS[layout]:
        path = source / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({"text": name}) + "\n")
    theirs = datasets.load_dataset(str(source), cache_dir=str(tmp_path / "cache"))
    expected = {name: sorted(split["text"]) for name, split in theirs.items()}
    for number, given in enumerate([source, *zipped(source, tmp_path)]):
        out = tmp_path / f"out{number}"
        dsconvert("text", given, "--tokenizer", "bytes", "--out", out)
        ours = Dataset(out, protobuf)
        found = {
            split: sorted(bytes(record["input_ids"]).decode() for record in ours.records(split)) for split in ours.splits
        }
        assert found == expected, given


@pytest.mark.parametrize("layout", IMAGES)
def test_splits_and_classes_of_images_are_those_of_imagefolder(layout, dsconvert, protobuf, tmp_path):
    classes = {f"{name}.png": label for name, label in IMAGES[layout].items()}
    source = images(classes, tmp_path)
    theirs = imagefolder(source, tmp_path)
    expected = {split: {name: classes[name] for name in files} for split, files in theirs.items()}
    if layout not in OTHER_CLASSES:
        # The first split has labels only if it alone has several classes at one depth.
        labels = [label for files in theirs.values() for label in files.items()]
        assert all(label in (None, classes[name]) for name, label in labels)
    for given in [source, *zipped(source, tmp_path)]:
        # A zip archive without folders is a class, like a folder.
        if given.is_dir() and given != source and layout == "files":
            continue
        done, found = splits(given, dsconvert, protobuf, tmp_path)
        assert found == expected, given
        # Some classes occur in one split only, and `training` is an unusual name.
        assert ("warning" in done.stderr) == (layout in ("sets", "Cityscapes", "UCF-101", "ADE20K")), done.stderr


@pytest.mark.parametrize("layout", DIFFERENT)
def test_other_splits_are_intended(layout, dsconvert, protobuf, tmp_path):
    expected = {f"{name}.png": split for name, split in DIFFERENT[layout].items()}
    source = images(expected, tmp_path)
    theirs = imagefolder(source, tmp_path)
    done, found = splits(source, dsconvert, protobuf, tmp_path)
    assert {name: split for split, files in found.items() for name in files} == expected
    assert {split: set(files) for split, files in found.items()} != {
        split: set(files) for split, files in theirs.items()
    }
    assert "warning" in done.stderr or layout in ("a wrapper", "a chance", "a class")


def images(names, tmp_path):
    """Writes an image for each name."""
    source = tmp_path / "photos"
    for number, name in enumerate(names):
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (4, 4), (number, 0, 0)).save(source / name)
    return source


def zipped(source, tmp_path):
    """The same tree as a zip archive, and as one in a folder."""
    (tmp_path / "folder").mkdir()
    archives = [tmp_path / "archive.zip", tmp_path / "folder" / "archive.zip"]
    for path in archives:
        with zipfile.ZipFile(path, "w") as archive:
            for file in sorted(source.rglob("*.*")):
                archive.write(file, file.relative_to(source))
    return archives[0], archives[1].parent


def imagefolder(source, tmp_path):
    """The splits of `datasets`, each with its files and their labels."""
    found = {}
    loaded = datasets.load_dataset("imagefolder", data_dir=str(source), cache_dir=str(tmp_path / "cache"))
    for name, split in loaded.items():
        names = split.features["label"].names if "label" in split.features else []
        rows = split.cast_column("image", datasets.Image(decode=False))
        labels = {row["image"]["path"].removeprefix(f"{source}/"): row.get("label") for row in rows}
        found[name] = {file: None if label is None else names[label] for file, label in labels.items()}
    return found


def splits(source, dsconvert, protobuf, tmp_path):
    """The splits of dsconvert, each with its files and their classes."""
    out = tmp_path / "out"
    done = dsconvert("images", source, "--out", out, *(["--overwrite"] if out.exists() else []))
    ours = Dataset(out, protobuf)
    names = ours.manifest["schema"].get("class_names")
    prefix = f"{source.name}/archive.zip/" if source.is_dir() and (source / "archive.zip").exists() else f"{source.name}/"
    found = {}
    for split in ours.splits:
        labels = {record["origin"].removeprefix(prefix): record.get("label") for record in ours.records(split)}
        found[split] = {file: None if label is None else names[label] for file, label in labels.items()}
    return done, found
