"""Functions of the tests of computed fields, in a module, so that other processes find them."""

import os
import time

import numpy as np

import dsconvert


def mean(record):
    """The mean of each channel, the size and the key."""
    image = record["image"]
    assert image.dtype == np.uint8 and image.ndim == 3 and image.shape[2] == 3, image.shape
    assert set(record) >= {"key", "image"}
    return {"mean": image.mean(axis=(0, 1)).astype(np.float32), "size": f"{image.shape[1]}x{image.shape[0]}"}


class Means:
    """The same for batches, made once per worker, and the size of the batch."""

    def __init__(self, shift=0):
        self.shift = shift

    def __call__(self, records):
        shapes = {record["image"].shape for record in records}
        found = [mean(record) for record in records]
        return [{"mean": row["mean"] + np.float32(self.shift), "size": row["size"], "shapes": len(shapes)} for row in found]


def slow(record):
    time.sleep(0.02)
    return mean(record)


def reads(record):
    return {"count": len(record["input_ids"]), "weights": record["input_ids"].astype(np.float32) + 1}


def too_few(record):
    return {"weights": np.ones(len(record["input_ids"]) - 1, np.float32)}


def picky(record):
    if "cat" in record["key"]:
        raise ValueError("no cats")
    if "1" in record["key"]:
        raise dsconvert.Reject("no ones")
    return mean(record)


def dies(record):
    os.kill(os.getpid(), 9)


def wrong(record):
    return {"mean": "three numbers", "size": "1x1"}


def count(record):
    return {"count": len(record["text"])}
