"""torch: a DataLoader over the folder of originals, which resizes them when it reads them."""

from pathlib import Path

from PIL import Image
from torch.utils.data import DataLoader, Dataset

from common import BATCH_IMAGES, stack


class Folder(Dataset):
    def __init__(self, root):
        self.files = sorted(path for path in Path(root).rglob("*") if path.suffix.lower() in (".jpg", ".jpeg", ".png"))
        self.labels = {name: i for i, name in enumerate(sorted({path.parent.name for path in self.files}))}

    def __len__(self):
        return len(self.files)

    def __getitem__(self, i):
        image = Image.open(self.files[i]).convert("RGB")
        scale = 256 / min(image.size)
        image = image.resize((max(224, round(image.width * scale)), max(224, round(image.height * scale))))
        return image, self.labels[self.files[i].parent.name]


def images(records, out):
    return records.originals


def image_epochs(path, workers):
    loader = DataLoader(
        Folder(path), BATCH_IMAGES, shuffle=True, num_workers=workers, collate_fn=stack, persistent_workers=workers > 0
    )
    return lambda: loader
