"""Hugging Face datasets: parquet files."""

import datasets
from torch.utils.data import DataLoader

from common import BATCH_DOCUMENTS, BATCH_IMAGES, pad, stack


def _open(rows, features, out):
    table = datasets.Dataset.from_dict(rows, features=datasets.Features(features))
    table.to_parquet(out / "data.parquet")
    return out


def _load(path):
    return datasets.load_dataset(
        "parquet", data_files=str(path / "data.parquet"), split="train", cache_dir=str(path / "cache")
    )


def images(records, out):
    rows = {"image": [{"bytes": image, "path": None} for image, _ in records], "label": [label for _, label in records]}
    return _open(rows, {"image": datasets.Image(), "label": datasets.Value("int64")}, out)


def _collate(rows):
    return stack([(row["image"], row["label"]) for row in rows])


def image_epochs(path, workers):
    loader = DataLoader(
        _load(path), BATCH_IMAGES, shuffle=True, num_workers=workers, collate_fn=_collate, persistent_workers=workers > 0
    )
    return lambda: loader


def tokens(records, out):
    return _open({"input_ids": list(records)}, {"input_ids": datasets.List(datasets.Value("uint16"))}, out)


def _pad(rows):
    return pad([row["input_ids"] for row in rows])


def token_epochs(path, workers):
    loader = DataLoader(
        _load(path).with_format("numpy"), BATCH_DOCUMENTS, shuffle=True, num_workers=workers, collate_fn=_pad,
        persistent_workers=workers > 0,
    )
    return lambda: loader
