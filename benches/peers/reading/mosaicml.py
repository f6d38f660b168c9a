"""MosaicML StreamingDataset: MDS shards on this disk or in object storage."""

import os

from streaming import MDSWriter, StreamingDataset
from streaming.base.util import clean_stale_shared_memory
from torch.utils.data import DataLoader

from common import BATCH_DOCUMENTS, BATCH_IMAGES, pad, stack


def _write(out, columns, rows):
    with MDSWriter(out=str(out), columns=columns) as writer:
        for row in rows:
            writer.write(row)
    return out


def _epochs(path, workers, batch, collate):
    clean_stale_shared_memory()
    dataset = StreamingDataset(local=str(path), shuffle=True, batch_size=batch)
    loader = DataLoader(
        dataset, batch, num_workers=workers, collate_fn=collate, persistent_workers=workers > 0
    )
    return lambda: loader


def images(records, out):
    rows = ({"image": image, "label": label} for image, label in records)
    return _write(out, {"image": "bytes", "label": "int"}, rows)


def _stack(rows):
    return stack([(row["image"], row["label"]) for row in rows])


def image_epochs(path, workers):
    return _epochs(path, workers, BATCH_IMAGES, _stack)


def tokens(records, out):
    return _write(out, {"input_ids": "ndarray:uint16"}, ({"input_ids": ids} for ids in records))


def _pad(rows):
    return pad([row["input_ids"] for row in rows])


def token_epochs(path, workers):
    return _epochs(path, workers, BATCH_DOCUMENTS, _pad)


def _bytes(rows):
    return [row["image"] for row in rows]


def remote_epochs(url, endpoint, cache, workers):
    clean_stale_shared_memory()
    os.environ["S3_ENDPOINT_URL"] = endpoint
    dataset = StreamingDataset(remote=url, local=str(cache), shuffle=True, batch_size=BATCH_IMAGES)
    loader = DataLoader(
        dataset, BATCH_IMAGES, num_workers=workers, collate_fn=_bytes, persistent_workers=workers > 0
    )
    return lambda: loader
