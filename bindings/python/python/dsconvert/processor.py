"""Image processors of vision-language models: what a loader compares with its dataset, and the normalization of patches."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from .errors import UsageError

FILES = {
    "processor": "processor_config.json",
    "preprocessor": "preprocessor_config.json",
    "tokenizer": "tokenizer_config.json",
    "model": "config.json",
}
"""The files of a model that its processor depends on."""


def processor_files(processor: Any) -> str:
    """Returns the files of a model folder, or what a processor or image processor of transformers would save, as JSON."""
    if isinstance(processor, (str, os.PathLike)):
        return json.dumps(_of_folder(Path(processor)))
    image = getattr(processor, "image_processor", processor)
    if not hasattr(image, "to_json_string"):
        raise UsageError(
            f"processor is {processor!r}, neither the folder of a model nor a processor of transformers",
            remedy="pass the folder that was given to dsconvert text as --tokenizer, or AutoProcessor.from_pretrained(…)",
        )
    found: dict[str, Any] = {"preprocessor": json.loads(image.to_json_string())}
    found["preprocessor"].pop("processor_class", None)
    if image is not processor:
        found["processor"] = {"processor_class": type(processor).__name__}
        if token := getattr(processor, "image_token", None):
            found["tokenizer"] = {"image_token": str(token)}
        if (token_id := getattr(processor, "image_token_id", None)) is not None:
            found["image_token_id"] = int(token_id)
    return json.dumps(found)


def _of_folder(folder: Path) -> dict[str, Any]:
    def read(name: str) -> Any:
        try:
            return json.loads((folder / name).read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            raise UsageError(f"processor: {name} of {folder} cannot be read: {error}") from error

    files = {key: read(name) for key, name in FILES.items()}
    if files["processor"] is None and files["preprocessor"] is None:
        raise UsageError(
            f"processor: the folder {folder} has neither processor_config.json nor preprocessor_config.json",
            remedy="pass the folder of a vision-language model",
        )
    return files


def normalize(patches: Any, processor: Mapping[str, Any]) -> Any:
    """Returns the `pixel_values` of a batch with `pixels="uint8"` as a model takes them: normalized, with all frames."""
    scale = 1 / processor["rescale_factor"]
    mean, deviation = ([value * scale for value in processor[name]] for name in ("image_mean", "image_std"))
    frames, shape = processor["temporal_patch_size"], (len(patches), 3, 1, processor["patch_size"] ** 2)
    if isinstance(patches, np.ndarray):
        of_channels = [np.array(values, np.float32).reshape(3, 1, 1) for values in (mean, deviation)]
        values = (patches.reshape(shape).astype(np.float32) - of_channels[0]) / of_channels[1]
        return np.repeat(values, frames, axis=2).reshape(len(patches), -1)
    import torch

    of_channel = [torch.tensor(values, device=patches.device).view(3, 1, 1) for values in (mean, deviation)]
    values = (patches.view(shape).float() - of_channel[0]) / of_channel[1]
    return values.expand(-1, -1, frames, -1).reshape(len(patches), -1)
