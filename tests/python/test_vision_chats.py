"""Ids, masks and grids of chats with images equal those of `apply_chat_template` of the processors of `transformers`."""

import base64
import io
import json
import os
import random
import subprocess

import pytest

import tier
from conftest import ROOT
from dataset import Dataset

pytest.importorskip("transformers")

import vision_models  # noqa: E402
from PIL import Image  # noqa: E402

COUNT = int(os.environ.get("DSCONVERT_VISION_CHATS", "100"))


def picture(rng):
    width, height = rng.randrange(1, 160), rng.randrange(1, 160)
    if max(width, height) > 190 * min(width, height):
        width = height
    pixels = rng.randbytes(3) * (width * height)
    return Image.frombytes("RGB", (width, height), pixels)


def chat(rng, folder, number):
    """A random chat: the row, and the messages that transformers gets."""
    images, parts_row, messages = [], [], []
    style = rng.choice(["column", "own", "markers", "front"])
    turns = rng.randrange(1, 4)
    for turn in range(turns):
        content, row = [], []
        for part in range(rng.randrange(1, 5)):
            is_image = style != "front" and rng.random() < 0.4 or style == "front" and turn == 0 and part == 0
            for _ in range(rng.randrange(1, 3) if style == "front" and is_image else 1):
                if is_image:
                    image = picture(rng)
                    content.append({"type": "image", "image": image})
                    name = f"images/{number}-{len(images)}.png"
                    image.save(folder / name)
                    images.append(name)
                    data = io.BytesIO()
                    image.save(data, "PNG")
                    data = base64.b64encode(data.getvalue()).decode()
                    row.append(rng.choice([
                        {"type": "image", "path": name}, {"type": "image", "image": name},
                        {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{data}"}},
                        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": data}},
                    ]) if style == "own" else {"type": "image"})
            if not is_image or style == "front":
                words = vision_models.text(rng)
                if style in ("markers", "front"):
                    words = words.replace("<image", "<im")
                content.append({"type": "text", "text": words})
                row.append({"type": "text", "text": words})
        messages.append({"role": "user", "content": content})
        if style in ("markers", "front"):
            # In front, only the text is in the row.
            row = "".join(p.get("text", "<image>" if style == "markers" else "") for p in row)
            if style == "front":
                texts = [part for part in content if part["type"] == "text"]
                pictures = [part for part in content if part["type"] == "image"]
                content[:] = [*pictures, {"type": "text", "text": "".join(p["text"] for p in texts)}]
        parts_row.append({"role": "user", "content": row})
        answer = vision_models.text(rng)
        messages.append({"role": "assistant", "content": answer})
        parts_row.append({"role": "assistant", "content": answer})
    row = {"messages": parts_row}
    if style != "own":
        row["images"] = images
    return row, messages


@pytest.mark.parametrize("family", vision_models.FAMILIES)
def test_ids_and_masks_equal_those_of_transformers(binary, protobuf, tmp_path, family):
    # Small limits, so that images are small.
    limits = {"min_pixels": 4 * 28 * 28, "max_pixels": 40 * 28 * 28}
    model = vision_models.folder(tmp_path / "model", family, **limits)
    (tmp_path / "images").mkdir()
    rng = random.Random(tier.SEED)
    rows, expected = zip(*(chat(rng, tmp_path, number) for number in range(COUNT)))
    source, out = tmp_path / "chats.jsonl", tmp_path / "out"
    source.write_text("".join(json.dumps(row) + "\n" for row in rows))
    options = ["--messages-field", "messages", "--images-field", "images", "--tokenizer", str(model), "--verify-ids", "all"]
    subprocess.run([binary, "text", str(source), "--out", str(out), *options], check=True)
    dataset = Dataset(out, protobuf)
    records = list(dataset.records("train"))
    assert len(records) == COUNT
    processor = vision_models.processor(model)
    image_token, total = 0, 0
    for record, messages in zip(records, expected):
        made = processor.apply_chat_template(messages, tokenize=True, return_dict=True, return_assistant_tokens_mask=True)
        ids = made["input_ids"][0]
        assert list(record["input_ids"]) == ids, messages
        assert list(record["assistant_masks"]) == made["assistant_masks"][0], messages
        grids = made["image_grid_thw"].tolist() if "image_grid_thw" in made else []
        assert [list(grid) for grid in record["image_grids"]] == grids
        assert record["patches"] == sum(t * h * w for t, h, w in grids)
        assert len(record["images"]) == len(grids)
        image_token += ids.count(processor.image_token_id)
        total += len(grids)
    assert total > COUNT and image_token > total


def test_images_in_tables_and_files_of_llava_are_read(dsconvert, protobuf, tmp_path):
    import pyarrow as pa
    import pyarrow.parquet as pq

    model = vision_models.folder(tmp_path / "model", "qwen2_5_vl", max_pixels=40 * 28 * 28)
    rng = random.Random(7)
    files = []
    for at in range(3):
        data = io.BytesIO()
        picture(rng).save(data, "PNG")
        (tmp_path / f"{at}.png").write_bytes(data.getvalue())
        files.append(data.getvalue())
    struct = [{"bytes": data, "path": None} for data in files]
    answer = {"role": "assistant", "content": "yes"}
    messages = [[{"role": "user", "content": "a <image>"}, answer], [{"role": "user", "content": "<image><image>"}, answer]]
    lists = [struct[:1], struct[1:]]
    parts = [
        [{"role": "user", "content": [{"type": "image", "image": image, "text": None} for image in images]},
         {"role": "assistant", "content": [{"type": "text", "image": None, "text": "yes"}]}]
        for images in lists
    ]
    expected = None
    for name, table, field in [
        ("structs", {"messages": messages, "images": lists}, "images"),
        ("bytes", {"messages": messages, "images": [[image["bytes"] for image in images] for images in lists]}, "images"),
        ("parts", {"messages": parts}, "none"),
    ]:
        pq.write_table(pa.table(table), tmp_path / f"{name}.parquet")
        out = tmp_path / name
        dsconvert("text", tmp_path / f"{name}.parquet", "--out", out, "--messages-field", "messages", "--images-field", field, "--tokenizer", model)
        records = list(Dataset(out, protobuf).records("train"))
        stored = [[image["bytes"] for image in record["images"]] for record in records]
        assert stored == [[image["bytes"] for image in images] for images in lists]
        if name == "parts":
            assert [record["patches"] for record in records] == [record["patches"] for record in expected]
            continue
        expected = expected or records
        assert [record["input_ids"] for record in records] == [record["input_ids"] for record in expected]
    # Without the option, nobody reads bytes as text.
    dsconvert("text", tmp_path / "parts.parquet", "--out", tmp_path / "text", "--messages-field", "messages", "--tokenizer", model, status=2)
    llava = [
        {"id": str(at), "image": f"{at}.png", "conversations": [
            {"from": "human", "value": "<image>\nWhat is it?"}, {"from": "gpt", "value": "A picture."}]}
        for at in range(3)
    ] + [{"id": "3", "conversations": [{"from": "human", "value": "hi"}, {"from": "gpt", "value": "ho"}]}]
    (tmp_path / "llava.json").write_text(json.dumps(llava))
    out = tmp_path / "llava"
    dsconvert(
        "text", tmp_path / "llava.json", "--out", out, "--messages-field", "conversations", "--images-field", "image",
        "--key-field", "id", "--keep-fields", "conversations:json", "--tokenizer", model, "--format", "parquet",
    )
    records = list(Dataset(out, protobuf).records("train"))
    assert [record["key"] for record in records] == ["0", "1", "2", "3"]
    assert [[image["bytes"] for image in record["images"]] for record in records] == [[data] for data in files] + [[]]
    # `datasets` opens the column as images.
    datasets = pytest.importorskip("datasets")
    opened = datasets.Dataset.from_parquet([str(path) for path in (out / "train").glob("*.parquet")], cache_dir=str(tmp_path / "cache"))
    assert opened[0]["images"][0].size == Image.open(io.BytesIO(files[0])).size
    # Trainers that tokenize again get the messages and the images; files of ids alone are refused.
    dsconvert("export", out, "--to", "hf", "--out", tmp_path / "hf")
    exported = datasets.load_dataset(str(tmp_path / "hf"), split="train", cache_dir=str(tmp_path / "hub"))
    assert isinstance(exported.features["images"].feature, datasets.Image) and exported[3]["images"] == []
    assert json.loads(exported[1]["conversations"]) == llava[1]["conversations"]
    refused = dsconvert("export", out, "--to", "tokens", "--out", tmp_path / "tokens", status=2)
    assert "images" in refused.stderr
