"""Chats with images for tests: image processors and tiny models of Qwen-VL, and datasets of chosen ids.

`vision_models.py` has the folders of models for conversions.
"""

import io
import json
import random
import subprocess

import numpy as np
import torch
import transformers
from PIL import Image

import vision_models

IMAGE, START, END, VIDEO, VOCABULARY = 90, 91, 92, 93, 100
TOKENS = {"image_token_id": IMAGE, "video_token_id": VIDEO, "vision_start_token_id": START, "vision_end_token_id": END}
MEAN, STD = [0.48145466, 0.4578275, 0.40821073], [0.26862954, 0.26130258, 0.27577711]

# The published parameters, but for the limits of pixels: the models of the tests are small.
FAMILIES = {
    "qwen2_vl": {"processor_class": "Qwen2VLProcessor", "patch_size": 14, "image_mean": MEAN, "image_std": STD},
    "qwen2_5_vl": {"processor_class": "Qwen2_5_VLProcessor", "patch_size": 14, "image_mean": MEAN, "image_std": STD},
    "qwen3_vl": {"processor_class": "Qwen3VLProcessor", "patch_size": 16, "image_mean": [0.5] * 3, "image_std": [0.5] * 3},
}


def resolved(family, least=1, most=12):
    """The processor of a family as a manifest has it. An image has from `least` to `most` tokens."""
    rule = FAMILIES[family]
    token = (2 * rule["patch_size"]) ** 2
    return {
        "processor_class": rule["processor_class"], "image_processor_type": "Qwen2VLImageProcessor", "model_type": family,
        "patch_size": rule["patch_size"], "merge_size": 2, "temporal_patch_size": 2, "min_pixels": least * token,
        "max_pixels": most * token, "resample": 3, "rescale_factor": 1 / 255, "image_mean": rule["image_mean"],
        "image_std": rule["image_std"], "image_token": "<|image_pad|>", "image_token_id": IMAGE,
    }


def image_processor(rule):
    """The image processor of transformers with the parameters `rule`, in its backend of Pillow."""
    names = ("patch_size", "merge_size", "temporal_patch_size", "min_pixels", "max_pixels", "image_mean", "image_std")
    return transformers.Qwen2VLImageProcessorPil(**{name: rule[name] for name in names})


def patches_of_torch(rule, pictures):
    """What the image processor returns with its backend of torchvision, which resizes bytes with this function of torch."""
    found, patch, merge = [], rule["patch_size"], rule["merge_size"]
    mean, std = (torch.tensor(rule[name]).view(3, 1, 1) * (1.0 / rule["rescale_factor"]) for name in ("image_mean", "image_std"))
    for picture, (_, rows, columns) in pictures:
        pixels = torch.from_numpy(np.array(picture.convert("RGB"))).permute(2, 0, 1)
        size = (rows * patch, columns * patch)
        if pixels.shape[1:] != size:
            pixels = torch.nn.functional.interpolate(pixels[None], size, mode="bicubic", antialias=True)[0]
        values = (pixels.float() - mean) / std
        values = values.reshape(3, rows // merge, merge, patch, columns // merge, merge, patch).permute(1, 4, 2, 5, 0, 3, 6)
        frames = values.unsqueeze(5).expand(-1, -1, -1, -1, -1, rule["temporal_patch_size"], -1, -1)
        found.append(frames.reshape(rows * columns, -1))
    return torch.cat(found)


def photograph(width, height, seed=0):
    """An image with edges, gradients and noise."""
    generator = np.random.default_rng(seed)
    y, x = np.mgrid[:height, :width]
    planes = [127 + 100 * np.sin(x / (5 + 3 * c) + seed) * np.cos(y / (9 - 2 * c)) for c in range(3)]
    pixels = np.stack(planes, axis=-1) + generator.normal(0, 12, (height, width, 3))
    pixels[(x // 17 + y // 13) % 5 == 0] = [250, 10, 60]
    return Image.fromarray(pixels.clip(0, 255).astype(np.uint8))


def encoded(image, fmt="PNG"):
    file = io.BytesIO()
    image.save(file, fmt)
    return file.getvalue()


def document(processor, parts, seed=0):
    """Ids and masks of a chat: `parts` are texts, as numbers of tokens, and images, as paths."""
    rng = random.Random(seed)
    ids, masks, images, grids = [], [], [], []
    for part in parts:
        if isinstance(part, int):
            masks += [int(rng.random() < 0.7) for _ in range(part)]
            ids += [rng.randrange(1, IMAGE) for _ in range(part)]
            continue
        grid = processor([Image.open(part)], return_tensors="pt")["image_grid_thw"][0].tolist()
        tokens = grid[1] * grid[2] // processor.merge_size**2
        ids += [START] + [IMAGE] * tokens + [END]
        masks += [0] * (tokens + 2)
        images.append(str(part))
        grids.append(grid)
    return {"ids": ids, "masks": masks, "images": images, "grids": grids}


def joined(documents):
    """A row of several documents."""
    row = {name: sum((document[name] for document in documents), []) for name in documents[0]}
    ends = np.cumsum([0, *(len(document["ids"]) for document in documents)]).tolist()
    return {**row, "cu_seqlens": ends}


def write(binary, out, rule, lines, fmt="arrow", *row):
    """Writes a dataset with the example of the crate `writer`."""
    program = binary.parent / "examples" / "write_chat_images"
    text = "".join(json.dumps(line) + "\n" for line in lines)
    subprocess.run([program, out, fmt, json.dumps(rule), *map(str, row)], input=text, text=True, check=True)
    return out


def tiny_model(family, seed=0, tokens=TOKENS, vocabulary=VOCABULARY):
    """A random model of a family with two layers."""
    text = {
        "vocab_size": vocabulary, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 2,
        "num_key_value_heads": 2, "max_position_embeddings": 4096, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
    }
    rope = {"rope_type": "default", "rope_theta": 10_000.0, "mrope_section": [2, 3, 3]}
    vision = {"depth": 2, "num_heads": 2, "patch_size": FAMILIES[family]["patch_size"]}
    match family:
        case "qwen2_vl":
            vision |= {"embed_dim": 32, "hidden_size": 32, "mlp_ratio": 2}
            config = transformers.Qwen2VLConfig(text_config=text | {"rope_parameters": rope}, vision_config=vision, **tokens)
            kind = transformers.Qwen2VLForConditionalGeneration
        case "qwen2_5_vl":
            vision |= {"hidden_size": 32, "intermediate_size": 48, "out_hidden_size": 32, "window_size": 56, "fullatt_block_indexes": [1]}
            config = transformers.Qwen2_5_VLConfig(text_config=text | {"rope_parameters": rope}, vision_config=vision, **tokens)
            kind = transformers.Qwen2_5_VLForConditionalGeneration
        case _:
            vision |= {
                "hidden_size": 32, "intermediate_size": 48, "out_hidden_size": 32, "num_position_embeddings": 64,
                "deepstack_visual_indexes": [0],
            }
            rope = rope | {"mrope_interleaved": True}
            config = transformers.Qwen3VLConfig(
                text_config=text | {"head_dim": 16, "rope_parameters": rope}, vision_config=vision, **tokens
            )
            kind = transformers.Qwen3VLForConditionalGeneration
    torch.manual_seed(seed)
    model = kind(config)
    model.train()
    return model


def save_model(folder, family, **limits):
    """Saves a tiny model with the files that a conversion reads."""
    vision_models.folder(folder, family, **limits)
    ids = vision_models.tokenizer().get_vocab()
    names = {"image_token_id": "image_pad", "video_token_id": "video_pad", "vision_start_token_id": "vision_start", "vision_end_token_id": "vision_end"}
    tokens = {name: ids[f"<|{token}|>"] for name, token in names.items()}
    tiny_model(family, tokens=tokens, vocabulary=len(ids)).save_pretrained(folder)
    return folder
