"""Helpers that the peers share: cropping, collating, padding and timing."""

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
    """Returns the center crop of a picture (encoded bytes or a PIL image) as an array."""
    if isinstance(image, (bytes, bytearray)):
        image = Image.open(io.BytesIO(image))
    left, top = (image.width - CROP) // 2, (image.height - CROP) // 2
    return np.asarray(image.convert("RGB").crop((left, top, left + CROP, top + CROP)))


def stack(items):
    """Collates pairs of picture and label."""
    return torch.from_numpy(np.stack([crop(image) for image, _ in items])), torch.tensor([label for _, label in items])


def pad(rows):
    """Collates documents into rows padded to one width."""
    out = np.zeros((len(rows), max(map(len, rows))), np.int64)
    for row, ids in zip(out, rows):
        row[: len(ids)] = ids
    return torch.from_numpy(out)


def count_images(batch):
    return len(batch[0]), 0


def count_tokens(batch):
    return len(batch), batch.numel()


def clock(epoch, count, seconds):
    """Returns the records per second in the first epoch, their median in later epochs, and the number of elements of an
    epoch, padding included."""
    rates, until = [], time.perf_counter() + seconds
    while len(rates) < 3 or time.perf_counter() < until:
        start, records, elements = time.perf_counter(), 0, 0
        for batch in epoch():
            batch_records, batch_elements = count(batch)
            records, elements = records + batch_records, elements + batch_elements
        rates.append(records / (time.perf_counter() - start))
    return rates[0], statistics.median(rates[1:]), elements
