"""Helpers that the peers share: the crop, batches, padding, and the clock."""

import io
import statistics
import time

import numpy as np
import torch
from PIL import Image

BATCH_IMAGES = 64
BATCH_DOCUMENTS = 32
CROP = 224


def crop(image):
    """Returns the middle of a picture (a file or a PIL image) as an array."""
    if isinstance(image, (bytes, bytearray)):
        image = Image.open(io.BytesIO(image))
    left, top = (image.width - CROP) // 2, (image.height - CROP) // 2
    return np.asarray(image.convert("RGB").crop((left, top, left + CROP, top + CROP)))


def stack(items):
    """Returns a batch of pairs of picture and label."""
    return torch.from_numpy(np.stack([crop(image) for image, _ in items])), torch.tensor([label for _, label in items])


def pad(rows):
    """Returns a batch of documents, padded with numpy to rows of one width."""
    out = np.zeros((len(rows), max(map(len, rows))), np.int64)
    for row, ids in zip(out, rows):
        row[: len(ids)] = ids
    return torch.from_numpy(out)


def count_images(batch):
    return len(batch[0]), 0


def count_tokens(batch):
    return len(batch), batch.numel()


def clock(epoch, count, seconds):
    """Returns records per second in the first epoch and, as the median, in later ones, and the elements of a padded
    epoch."""
    rates, until = [], time.perf_counter() + seconds
    while len(rates) < 3 or time.perf_counter() < until:
        begin, records, elements = time.perf_counter(), 0, 0
        for batch in epoch():
            more = count(batch)
            records, elements = records + more[0], elements + more[1]
        rates.append(records / (time.perf_counter() - begin))
    return rates[0], statistics.median(rates[1:]), elements
