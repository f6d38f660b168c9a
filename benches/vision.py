"""How fast chats with images are loaded: run it with the Python package, torch and transformers installed, on an otherwise idle
machine.

    python benches/vision.py FOLDER [--max-pixels N] [--batch-size N] [--runs N]

Converts one chat for each JPEG or PNG below FOLDER, and prints photographs per second (medians of the runs, in turns) of the
loader with two threads, with `pixels="float32"` and `"uint8"`, and of the image processor of transformers in
`DataLoader(num_workers=2)`, all on the same two cores. The processor gets the token ids for free. It has the backend of
torchvision if that is installed, else that of Pillow.
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch
import transformers
from PIL import Image
from tokenizers import Tokenizer, models, pre_tokenizers
from torch.utils.data import DataLoader, Dataset

import dsconvert

CORES = 2
TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{% if m.content is string %}{{ m.content }}{% else %}{% for part in m.content %}"
    "{% if part.type == 'image' %}<|vision_start|><|image_pad|><|vision_end|>{% else %}{{ part.text }}{% endif %}{% endfor %}{% endif %}"
    "<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
SPECIAL = ["<|im_start|>", "<|im_end|>", "<|vision_start|>", "<|vision_end|>", "<|image_pad|>"]


def save_model(folder, max_pixels):
    """The files of Qwen2.5-VL that a conversion reads, with a tokenizer of single bytes."""
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE({letter: at for at, letter in enumerate(letters)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.add_special_tokens(SPECIAL)
    folder.mkdir()
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps({"processor_class": "Qwen2_5_VLProcessor", "eos_token": "<|im_end|>"}))
    (folder / "chat_template.jinja").write_text(TEMPLATE)
    (folder / "config.json").write_text(json.dumps({"model_type": "qwen2_5_vl"}))
    processor = transformers.Qwen2VLImageProcessor(
        min_pixels=3136, max_pixels=max_pixels, patch_size=14, merge_size=2, temporal_patch_size=2
    )
    processor.save_pretrained(folder)
    return processor


class Photographs(Dataset):
    def __init__(self, paths, processor):
        self.paths, self.processor = paths, processor

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, at):
        with Image.open(self.paths[at]) as image:
            return self.processor([image], return_tensors="pt")


def collate(items):
    return {name: torch.cat([item[name] for item in items]) for name in ("pixel_values", "image_grid_thw")}


def images_per_second(batches):
    start, count = time.perf_counter(), 0
    for batch in batches:
        count += len(batch["image_grid_thw"])
    return count / (time.perf_counter() - start)


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("folder", type=Path)
    arguments.add_argument("--max-pixels", type=int, default=12_845_056, help="limit of the processor (default: as published)")
    arguments.add_argument("--batch-size", type=int, default=4)
    arguments.add_argument("--runs", type=int, default=5)
    given = arguments.parse_args()
    if not hasattr(os, "sched_setaffinity"):
        raise SystemExit("it sets the cores of its processes, which only Linux can")
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:CORES])
    torch.set_num_threads(1)
    found = sorted(path for path in given.folder.rglob("*") if path.suffix.lower() in (".jpg", ".jpeg", ".png"))
    with tempfile.TemporaryDirectory() as scratch:
        model, chats, out = (Path(scratch) / name for name in ("model", "chats.jsonl", "chats"))
        # Paths in chats stay inside the folder of their file.
        paths = [Path(shutil.copy(path, Path(scratch) / f"{at}{path.suffix}")) for at, path in enumerate(found)]
        processor = save_model(model, given.max_pixels)
        with chats.open("w") as file:
            for path in paths:
                question = {"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "What is this?"}]}
                messages = [question, {"role": "assistant", "content": "A photograph."}]
                file.write(json.dumps({"messages": messages, "images": [path.name]}) + "\n")
        command = ["text", chats, "--messages-field", "messages", "--images-field", "images", "--tokenizer", model, "--out", out, "--quiet"]
        subprocess.run([sys.executable, "-m", "dsconvert", *map(str, command)], check=True)

        def loader(pixels):
            return dsconvert.Loader(
                out, batch_size=given.batch_size, shuffle=False, num_threads=CORES, pixels=pixels, as_torch=True
            )

        ways = {
            "loader, float32": lambda: loader("float32"),
            "loader, uint8": lambda: loader("uint8"),
            f"{type(processor).__name__} in DataLoader({CORES})": lambda: DataLoader(
                Photographs(paths, processor), batch_size=given.batch_size, num_workers=CORES, collate_fn=collate
            ),
        }
        all_rates = {name: [] for name in ways}
        for _ in range(given.runs):
            for name, batches in ways.items():
                all_rates[name].append(images_per_second(batches()))
    for name, rates in all_rates.items():
        print(f"{name}: {statistics.median(rates):.1f} images/s ({min(rates):.1f} to {max(rates):.1f})")


if __name__ == "__main__":
    main()
