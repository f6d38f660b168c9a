"""dsconvert: a `Loader`, with threads in this process."""

import dsconvert

from common import BATCH_DOCUMENTS, BATCH_IMAGES, CROP

IN_PROCESS_ONLY = True


def images(records, out):
    return records.path


def image_epochs(path, workers):
    loader = dsconvert.Loader(path, batch_size=BATCH_IMAGES, center_crop=CROP, as_torch=True)
    return lambda: ((batch["image"], batch["label"]) for batch in loader)


def crop_epochs(path, workers):
    loader = dsconvert.Loader(path, batch_size=BATCH_IMAGES, random_resized_crop=CROP, hflip=True, as_torch=True)
    return lambda: ((batch["image"], batch["label"]) for batch in loader)


def tokens(records, out):
    return records.path


def token_epochs(path, workers):
    loader = dsconvert.Loader(
        path, batch_size=BATCH_DOCUMENTS, bucket="none", fields=["input_ids"], as_torch=True
    )
    return lambda: (batch["input_ids"] for batch in loader)


def remote_epochs(url, endpoint, cache, workers):
    options = {"endpoint_url": endpoint, "region": "us-east-1", "aws_access_key_id": "test", "aws_secret_access_key": "test"}
    split = dsconvert.open(url, "train", storage_options=options, cache_dir=cache)
    loader = dsconvert.Loader(split, batch_size=BATCH_IMAGES, seed=1, fields=["image"], decode=False)
    return lambda: (batch["image"] for batch in loader)
