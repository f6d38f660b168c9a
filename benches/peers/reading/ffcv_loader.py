"""FFCV: a beton file. Its pipeline is compiled in the first epoch."""

import numpy as np
from ffcv.fields import IntField, RGBImageField
from ffcv.fields.basics import IntDecoder
from ffcv.fields.rgb_image import CenterCropRGBImageDecoder, RandomResizedCropRGBImageDecoder
from ffcv.loader import Loader, OrderOption
from ffcv.transforms import RandomHorizontalFlip, ToTensor
from ffcv.writer import DatasetWriter
from PIL import Image

from common import BATCH_IMAGES, CROP

IN_PROCESS_ONLY = True


class _Pictures:
    def __init__(self, records):
        self.records = list(records)

    def __len__(self):
        return len(self.records)

    def __getitem__(self, i):
        import io

        image, label = self.records[i]
        return np.asarray(Image.open(io.BytesIO(image)).convert("RGB")), label


def images(records, out):
    fields = {"image": RGBImageField(write_mode="jpg", jpeg_quality=90), "label": IntField()}
    DatasetWriter(str(out / "data.beton"), fields).from_indexed_dataset(_Pictures(records))
    return out


def image_epochs(path, workers):
    return _epochs(path, [CenterCropRGBImageDecoder((CROP, CROP), CROP / 256)])


def crop_epochs(path, workers):
    return _epochs(path, [RandomResizedCropRGBImageDecoder((CROP, CROP)), RandomHorizontalFlip()])


def _epochs(path, pipeline):
    loader = Loader(
        str(path / "data.beton"), batch_size=BATCH_IMAGES, num_workers=2, order=OrderOption.RANDOM, drop_last=False,
        pipelines={"image": [*pipeline, ToTensor()], "label": [IntDecoder(), ToTensor()]},
    )
    return lambda: loader
