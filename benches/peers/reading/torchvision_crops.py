"""torch: a DataLoader over the stored JPEGs in memory, with random crops by torchvision."""

import torch
from torch.utils.data import DataLoader, Dataset
from torchvision.io import ImageReadMode, decode_jpeg
from torchvision.transforms import v2

from common import BATCH_IMAGES, CROP


class _Crops(Dataset):
    def __init__(self, records):
        self.records = list(records)
        self.transform = v2.Compose([v2.RandomResizedCrop(CROP, antialias=True), v2.RandomHorizontalFlip()])

    def __len__(self):
        return len(self.records)

    def __getitem__(self, i):
        image, label = self.records[i]
        # The dataset is mapped read-only, which torch does not support.
        jpeg = torch.frombuffer(bytearray(image), dtype=torch.uint8)
        return self.transform(decode_jpeg(jpeg, mode=ImageReadMode.RGB)), label


def images(records, out):
    return records


def crop_epochs(records, workers):
    loader = DataLoader(
        _Crops(records), BATCH_IMAGES, shuffle=True, num_workers=workers, persistent_workers=workers > 0
    )
    return lambda: loader
