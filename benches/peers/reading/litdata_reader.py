"""LitData: chunks that `litdata.optimize` writes, on this disk or in object storage."""

import litdata
import numpy as np
from litdata.streaming import downloader

from common import BATCH_DOCUMENTS, BATCH_IMAGES, pad, stack

# LitData has no option for servers without TLS. Spawned worker processes import this module, too.
getattr(downloader, "_OBSTORE_CLIENT_OPTIONS", {})["allow_http"] = "true"


def _write(rows, out):
    litdata.optimize(fn=_same, inputs=rows, output_dir=str(out), num_workers=1, chunk_bytes="64MB")
    return out


def _same(row):
    return row


def _epochs(path, workers, batch, collate):
    dataset = litdata.StreamingDataset(str(path), shuffle=True)
    loader = litdata.StreamingDataLoader(dataset, batch_size=batch, num_workers=workers, collate_fn=collate)
    return lambda: loader


def images(records, out):
    return _write([{"image": image, "label": label} for image, label in records], out)


def _stack(rows):
    return stack([(row["image"], row["label"]) for row in rows])


def image_epochs(path, workers):
    return _epochs(path, workers, BATCH_IMAGES, _stack)


def tokens(records, out):
    return _write([{"input_ids": np.array(ids)} for ids in records], out)


def _pad(rows):
    return pad([np.asarray(row["input_ids"]) for row in rows])


def token_epochs(path, workers):
    return _epochs(path, workers, BATCH_DOCUMENTS, _pad)


def _bytes(rows):
    return [row["image"] for row in rows]


def remote_epochs(url, endpoint, cache, workers):
    options = {"endpoint_url": endpoint, "region_name": "us-east-1"}
    # By default, little of the cache is used on a disk with less than 50 GB free.
    dataset = litdata.StreamingDataset(
        url, str(cache), shuffle=True, storage_options=options, max_cache_size="10GB"
    )
    loader = litdata.StreamingDataLoader(
        dataset, batch_size=BATCH_IMAGES, num_workers=workers, collate_fn=_bytes
    )
    return lambda: loader
