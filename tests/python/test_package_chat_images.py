"""The Python package: batches of chats with images, compared with the processors and models of transformers."""

import json

import numpy as np
import pytest
import torch
import transformers
from PIL import Image

import dsconvert
import vision_models
from chat_images import (
    FAMILIES, IMAGE, STD, document, encoded, image_processor, joined, patches_of_torch, photograph, resolved, tiny_model, write,
)

PACKED = ["qwen2_5_vl", "qwen3_vl"]
SIZES = [(64, 48), (120, 40), (57, 93), (28, 28), (200, 150)]


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    """Paths of images of several sizes and types."""
    folder, paths = tmp_path_factory.mktemp("images"), []
    for number, (width, height) in enumerate(SIZES):
        fmt = ["png", "jpeg"][number % 2]
        path = folder / f"{number}.{fmt}"
        photograph(width, height, number).save(path, fmt.upper())
        paths.append(path)
    return paths


def three_documents(family, images):
    """One with two images, one of text, one with an image."""
    processor = image_processor(resolved(family))
    parts = [[3, images[0], 5, images[1], 9], [14], [2, images[2], 7]]
    return [document(processor, of_document, seed) for seed, of_document in enumerate(parts)]


@pytest.fixture(scope="module")
def chats(binary, images, tmp_path_factory):
    """Datasets of three documents, or of a row that holds them, for each family."""
    made = {}

    def path(family, packed=False):
        if (family, packed) not in made:
            lines = three_documents(family, images)
            out = tmp_path_factory.mktemp("chats") / family
            row = [200] if packed else []
            made[family, packed] = write(binary, out, resolved(family), [joined(lines)] if packed else lines, "arrow", *row)
        return made[family, packed]

    return path


def batches(source, **options):
    return list(dsconvert.Loader(source, **{"shuffle": False, "as_torch": True, "num_threads": 1, **options}))


def difference(found, expected):
    """Samples that differ by more than one level of 255, as a share, and the largest difference in levels."""
    levels = (found - expected).abs()
    return (levels > 1.001).float().mean().item(), levels.max().item()


@pytest.mark.parametrize("family", ["qwen2_5_vl", "qwen3_vl"])
@pytest.mark.parametrize("fmt", ["PNG", "JPEG"])
def test_patches_are_as_near_to_the_processor_as_its_backends_are_to_each_other(binary, tmp_path, family, fmt):
    rule = resolved(family, 4, 200)
    processor = image_processor(rule)
    sizes = [(640, 480), (300, 451), (100, 37), (33, 40), (1001, 333), (112, 112), (64, 64), (250, 1300)]
    lines, pictures = [], []
    for number, size in enumerate(sizes):
        path = tmp_path / f"{number}.{fmt}"
        path.write_bytes(encoded(photograph(*size, number), fmt))
        pictures.append(Image.open(path))
        lines.append(document(processor, [2, path, 2], number))
    source = write(binary, tmp_path / "out", rule, lines)
    found = batches(source, batch_size=len(lines))[0]
    expected = processor(pictures, return_tensors="pt")
    assert torch.equal(found["image_grid_thw"], expected["image_grid_thw"])
    of_torch = patches_of_torch(rule, zip(pictures, expected["image_grid_thw"].tolist(), strict=True))
    assert found["pixel_values"].dtype == torch.float32
    # In levels of 8 bits.
    scale = torch.tensor(rule["image_std"]).view(3, 1) * 255
    all_values = (found["pixel_values"], of_torch, expected["pixel_values"])
    values = [values.view(len(values), 3, -1) * scale for values in all_values]
    own, between = [difference(values[0], other) for other in values[1:]], difference(values[1], values[2])
    print(family, fmt, "found", own, "backends", between)
    assert min(share for share, _ in own) <= between[0] and min(most for _, most in own) <= between[1]
    assert all(most <= between[1] + 1.01 for _, most in own)


def test_images_that_are_not_resized_are_equal(binary, tmp_path):
    rule = resolved("qwen2_5_vl", 1, 200)
    processor = image_processor(rule)
    path = tmp_path / "image.png"
    photograph(28 * 5, 28 * 3).save(path)
    source = write(binary, tmp_path / "out", rule, [document(processor, [2, path, 3])])
    (found,) = batches(source, batch_size=1)
    expected = processor([Image.open(path)], return_tensors="pt")
    assert torch.allclose(found["pixel_values"], expected["pixel_values"], atol=1e-5)
    grid = expected["image_grid_thw"].tolist()
    assert torch.equal(found["pixel_values"], patches_of_torch(rule, zip([Image.open(path)], grid)))


@pytest.mark.parametrize("mode", ["RGBA", "L", "LA", "P", "CMYK", "1"])
def test_other_modes_become_rgb_as_in_the_processor(binary, tmp_path, mode):
    rule = resolved("qwen2_5_vl", 1, 200)
    processor = image_processor(rule)
    picture = photograph(84, 56)
    if mode in ("RGBA", "LA"):
        picture.putalpha(photograph(84, 56, 7).convert("L"))
    picture = picture.convert(mode)
    path = tmp_path / ("image.tiff" if mode == "CMYK" else "image.png")
    transparent = {"transparency": picture.getpixel((4, 3))} if mode == "P" else {}
    picture.save(path, **transparent)
    source = write(binary, tmp_path / "out", rule, [document(processor, [2, path, 3])])
    (found,) = batches(source, batch_size=1)
    expected = processor([Image.open(path)], return_tensors="pt")["pixel_values"]
    assert (found["pixel_values"] - expected).abs().max() * 255 * max(STD) < 1.01


@pytest.mark.parametrize("family", FAMILIES)
def test_patches_of_bytes_become_the_same_on_the_accelerator(chats, family):
    source = chats(family)
    (expected,) = batches(source, batch_size=3)
    (found,) = batches(source, batch_size=3, pixels="uint8")
    loader = dsconvert.Loader(source, batch_size=3, pixels="uint8")
    assert found["pixel_values"].dtype == torch.uint8
    assert 2 * found["pixel_values"].numel() == expected["pixel_values"].numel()
    values = loader.normalize(found["pixel_values"])
    assert torch.allclose(values, expected["pixel_values"], atol=1e-6)
    assert np.allclose(loader.normalize(found["pixel_values"].numpy()), values, atol=1e-6)
    assert {**loader.processor, "rescale_factor": 0} == {**resolved(family), "rescale_factor": 0}


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("side", ["right", "left"])
def test_positions_are_those_of_the_model(chats, family, side):
    names = ["input_ids", "attention_mask", "labels", "mm_token_type_ids", "pixel_values", "image_grid_thw", "position_ids"]
    (batch,) = batches(chats(family), batch_size=3, fields=names, pad_side=side)
    assert list(batch) == names
    model = tiny_model(family).model
    kept = ("input_ids", "mm_token_type_ids", "image_grid_thw", "attention_mask")
    expected, _ = model.get_rope_index(**{name: batch[name] for name in kept})
    assert torch.equal(batch["position_ids"], expected)
    assert torch.equal(batch["mm_token_type_ids"], (batch["input_ids"] == IMAGE).long())


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("packed", [False, True], ids=["packed by the loader", "packed on disk"])
def test_positions_of_packed_rows_restart_in_each_document(chats, images, family, packed):
    options = {"batch_size": 1} if packed else {"batch_size": 3, "packed": "flash"}
    (batch,) = batches(chats(family, packed), **options)
    names = ["input_ids", "position_ids", "labels", "mm_token_type_ids", "pixel_values", "image_grid_thw", "use_cache"]
    assert list(batch) == names and batch["use_cache"] is False
    model, start = tiny_model(family).model, 0
    for line in three_documents(family, images):
        end = start + len(line["ids"])
        assert batch["input_ids"][0, start:end].tolist() == line["ids"]
        assert torch.equal(batch["position_ids"][0, 0, start:end], torch.arange(end - start))
        grids = torch.tensor(line["grids"]) if line["grids"] else None
        ids = torch.tensor([line["ids"]])
        expected, _ = model.get_rope_index(ids, mm_token_type_ids=(ids == IMAGE).long(), image_grid_thw=grids)
        assert torch.equal(batch["position_ids"][1:, :, start:end], expected)
        start = end
    padding = batch["input_ids"].shape[1] - start
    assert padding == (200 - start if packed else 0)
    assert torch.equal(batch["position_ids"][:, 0, start:], torch.arange(padding).expand(4, -1))
    first = {0} | set(np.cumsum([len(line["ids"]) for line in three_documents(family, images)]).tolist())
    assert all(batch["labels"][0, at] == -100 for at in first if at < batch["labels"].shape[1])
    assert (batch["labels"][batch["input_ids"] == IMAGE] == -100).all()


def losses(model, batch):
    """The sum of the losses of the labels of a batch."""
    labels = batch["labels"]
    logits = model(**{name: value for name, value in batch.items() if name != "labels"}).logits
    return torch.nn.functional.cross_entropy(
        logits[:, :-1].flatten(0, 1).double(), labels[:, 1:].flatten(), ignore_index=-100, reduction="sum"
    )


def gradients(model, all_batches):
    model.zero_grad()
    total = sum(losses(model, batch) for batch in all_batches)
    total.backward()
    return total.item(), {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


@pytest.mark.parametrize("family", PACKED)
@pytest.mark.parametrize("packed", [False, True], ids=["packed by the loader", "packed on disk"])
def test_packed_training_equals_single_documents(chats, family, packed):
    model = tiny_model(family).double()
    options = {"batch_size": 1} if packed else {"batch_size": 3, "packed": "flash"}
    row = batches(chats(family, packed), **options)
    single = batches(chats(family), batch_size=1)
    assert len(row) == 1 and len(single) == 3
    assert "pixel_values" not in single[1] and "image_grid_thw" not in single[1]
    (loss, found), (expected_loss, expected) = gradients(model, row), gradients(model, single)
    assert loss == pytest.approx(expected_loss, rel=1e-4) and loss > 1
    assert set(found) == set(expected)
    tower = [name for name in found if ".visual." in name]
    assert len(tower) > 20 and all(expected[name].abs().max() > 0 for name in tower if name.endswith("qkv.weight"))
    for name, gradient in found.items():
        assert torch.allclose(gradient, expected[name], rtol=1e-4, atol=1e-4 * expected[name].abs().max().item()), name


@pytest.mark.parametrize("family", PACKED)
def test_a_document_does_not_change_the_next_one(chats, family, images):
    model = tiny_model(family)
    (batch,) = batches(chats(family, packed=True), batch_size=1)
    lengths = [len(line["ids"]) for line in three_documents(family, images)]
    second, third = lengths[0], lengths[0] + lengths[1]
    with torch.no_grad():
        width = batch.pop("labels").shape[1]
        before = model(**batch).logits
        changed = {**batch, "input_ids": batch["input_ids"].clone(), "pixel_values": batch["pixel_values"].clone()}
        changed["input_ids"][0, 0] += 1
        changed["pixel_values"][: batch["image_grid_thw"][:2].prod(1).sum()] *= -1
        after = model(**changed).logits
    assert (before[:, :second] - after[:, :second]).abs().max() > 1e-3
    assert torch.allclose(before[:, second:], after[:, second:], atol=1e-5)
    assert second < third < width


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("options", [
    {"batch_size": 1}, {"batch_size": 1, "pad_to_multiple_of": 8}, {"batch_size": 1, "pad_side": "left"},
    {"batch_size": 1, "packed": "flash"}, {"seq_len": 14, "batch_size": 1}, {"seq_len": 28, "batch_size": 1}, {"seq_len": 14, "batch_size": 2, "packed": "flash"},
], ids=str)
def test_an_image_without_effect_keeps_ranks_together(binary, tmp_path, family, options):
    rule = resolved(family)
    lines = [document(image_processor(rule), [14], seed) for seed in range(2)]
    source = write(binary, tmp_path / "out", rule, lines)
    model = tiny_model(family)
    plain = batches(source, **options)
    found = batches(source, dummy_image=True, **options)
    # The default with several ranks.
    ranks = [batches(source, rank=rank, world_size=2, micro_batches=2, **options) for rank in range(2)]
    assert all("pixel_values" in batch for of_rank in ranks for batch in of_rank if batch["input_ids"].numel())
    assert len(found) == len(plain)
    for with_image, without in zip(found, plain, strict=True):
        assert "pixel_values" not in without and with_image["image_grid_thw"].tolist() == [[1, 2, 2]]
        assert (with_image["input_ids"] == IMAGE).sum() == with_image["mm_token_type_ids"].sum() == 1
        at = with_image["input_ids"] == IMAGE
        assert (with_image["labels"][at] == -100).all()
        if "attention_mask" in with_image:
            assert (with_image["attention_mask"][at] == 0).all()
        if options.get("pad_to_multiple_of"):
            assert with_image["input_ids"].shape[1] % 8 == 0
        (loss, gradient), (expected_loss, expected) = gradients(model, [with_image]), gradients(model, [without])
        assert loss == pytest.approx(expected_loss, rel=1e-5)
        tower = {name: value for name, value in gradient.items() if ".visual." in name}
        assert tower and all((value == 0).all() for value in tower.values())
        assert not any(".visual." in name for name in expected)
        for name, value in expected.items():
            assert torch.allclose(gradient[name], value, rtol=1e-4, atol=1e-5), name


def test_another_processor_is_refused_with_both_values(chats, tmp_path):
    source, rule = chats("qwen2_5_vl"), resolved("qwen2_5_vl")
    dsconvert.Loader(source, batch_size=1, processor=image_processor(rule))
    other = image_processor({**rule, "max_pixels": 99_999})
    for refused in (other, dsconvert.Loader):
        with pytest.raises(dsconvert.UsageError, match=r"max_pixels 99999, and .* with max_pixels 9408|neither the folder"):
            dsconvert.Loader(source, batch_size=1, processor=refused)
    image_processor(rule).save_pretrained(tmp_path)
    config = {"processor_class": "Qwen2_5_VLProcessor"}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    dsconvert.Loader(source, batch_size=1, processor=tmp_path)
    saved = json.loads((tmp_path / "preprocessor_config.json").read_text())
    (tmp_path / "preprocessor_config.json").write_text(json.dumps({**saved, "patch_size": 16}))
    with pytest.raises(dsconvert.UsageError, match="patch_size 16, .* with patch_size 14"):
        dsconvert.Loader(source, batch_size=1, processor=str(tmp_path))
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"processor_class": "Qwen3VLProcessor"}))
    with pytest.raises(dsconvert.UsageError, match="Qwen3VLProcessor"):
        dsconvert.Loader(source, batch_size=1, processor=tmp_path)
    with pytest.raises(dsconvert.UsageError, match="neither processor_config.json nor"):
        dsconvert.Loader(source, batch_size=1, processor=tmp_path / "missing")


@pytest.mark.parametrize(("change", "message"), [
    (lambda line: line["ids"].remove(IMAGE), "image 0 has 3 image tokens, and its grid has 4"),
    (lambda line: line["ids"].append(IMAGE), "there are image tokens after those of its 2 images"),
    (lambda line: line.update(ids=[1 if i == IMAGE else i for i in line["ids"]]), "it has 2 images, and .* stands for 0"),
    (lambda line: line["images"].reverse(), r"image 0 has the grid .*, and its \d+ × \d+ pixels give"),
    (lambda line: line["images"].pop(), "it has 1 images, and the grids of 2"),
    (lambda line: line["images"].__setitem__(1, __file__), "image 1 has no size in its header"),
], ids=["token missing", "more tokens", "no tokens", "other order", "image missing", "no image"])
def test_a_record_whose_tokens_do_not_fit_is_named(binary, images, tmp_path, change, message):
    rule = resolved("qwen2_5_vl")
    processor = image_processor(rule)
    lines = [document(processor, parts) for parts in ([3], [1, images[0], 2, images[1], 4], [5])]
    change(lines[1])
    lines[1]["masks"] = [0] * len(lines[1]["ids"])
    source = write(binary, tmp_path / "out", rule, lines)
    loader = iter(dsconvert.Loader(source, batch_size=1, shuffle=False))
    next(loader)
    with pytest.raises(dsconvert.CorruptError, match=f"record 1 of split 'train', key 'line-1': {message}".replace("'", '"')):
        next(loader)
    assert len(next(loader)["input_ids"]) == 1, "the next batch follows"


def test_a_damaged_image_is_named(binary, images, tmp_path):
    rule = resolved("qwen2_5_vl")
    damaged = tmp_path / "damaged.png"
    damaged.write_bytes(images[0].read_bytes()[:900])
    line = document(image_processor(rule), [1, images[0], 2])
    line["images"] = [str(damaged)]
    source = write(binary, tmp_path / "out", rule, [line])
    with pytest.raises(dsconvert.CorruptError, match='record 0 of split "train", key "line-0": image 0 cannot be decoded'):
        batches(source, batch_size=1)


@pytest.mark.parametrize(("options", "message"), [
    ({"max_tokens": 9, "oversize": "truncate"}, "truncate"),
    ({"seq_len": 300, "batch_size": 1, "packing": "concat"}, "concat"),
    ({"max_tokens_unpadded": 300}, "flash"),
    ({"batch_size": 1, "labels_for": "megatron"}, "megatron"),
    ({"batch_size": 3, "packed": "flash", "fields": ["input_ids", "attention_mask"]}, "mixes the documents"),
    ({"batch_size": 1, "fields": ["input_ids", "key", "no_such"]}, "no_such"),
    ({"seq_len": 300, "batch_size": 2}, "several packed rows"),
], ids=str)
def test_what_would_break_a_chat_is_refused(chats, options, message):
    with pytest.raises(dsconvert.UsageError, match=message):
        batches(chats("qwen2_5_vl"), **options)


def test_a_row_that_is_too_short_for_images_is_an_error(chats):
    with pytest.raises(dsconvert.UsageError, match="documents are packed whole"):
        batches(chats("qwen2_5_vl"), seq_len=16, batch_size=1)


def test_models_that_mix_documents_are_not_packed(binary, tmp_path, images):
    rule = {**resolved("qwen3_vl"), "model_type": "qwen3_5"}
    source = write(binary, tmp_path / "out", rule, [document(image_processor(rule), [1, images[0], 3])])
    assert "attention_mask" in batches(source, batch_size=1)[0]
    for options in ({"batch_size": 1, "packed": "flash"}, {"batch_size": 1, "seq_len": 300}):
        with pytest.raises(dsconvert.UsageError, match="linear attention"):
            batches(source, **options)


def test_options_of_chats_with_images_are_refused_elsewhere(text):
    for option in ({"pixels": "uint8"}, {"dummy_image": True}, {"processor": image_processor(resolved("qwen2_vl"))}):
        with pytest.raises(dsconvert.UsageError, match="no chats with images"):
            dsconvert.Loader(text, batch_size=1, **option)
    loader = dsconvert.Loader(text, batch_size=1)
    assert loader.processor is None
    with pytest.raises(dsconvert.UsageError, match="no chats with images"):
        loader.normalize(None)


def test_several_ranks_and_threads_give_the_same_batches(chats):
    source = chats("qwen3_vl")
    expected = batches(source, batch_size=1, num_threads=0, micro_batches=3)
    for threads, world in [(3, 1), (2, 3)]:
        found = [batches(source, batch_size=1, num_threads=threads, rank=rank, world_size=world, micro_batches=3, dummy_image=False) for rank in range(world)]
        for index, batch in enumerate(expected):
            other = found[index % world][index // world]
            assert list(other) == list(batch) and all(torch.equal(other[name], batch[name]) for name in batch)


def test_parquet_gives_the_same_batches(binary, chats, images, tmp_path):
    (expected,) = batches(chats("qwen2_5_vl"), batch_size=3)
    source = write(binary, tmp_path / "out", resolved("qwen2_5_vl"), three_documents("qwen2_5_vl", images), "parquet")
    (found,) = batches(source, batch_size=3)
    assert all(torch.equal(found[name], expected[name]) for name in expected)


@pytest.mark.parametrize("family", PACKED)
def test_converted_chats_are_what_the_processor_makes_of_them(command, tmp_path, images, family):
    limits = {"min_pixels": 4 * 28 * 28, "max_pixels": 40 * 28 * 28}
    model = vision_models.folder(tmp_path / "MODEL", family, **limits)
    chats = [
        [{"role": "user", "content": [image(0), {"type": "text", "text": "and"}, image(1)]}, answer("yes\n")],
        [{"role": "user", "content": "no image"}, answer("no")],
        [{"role": "user", "content": [{"type": "text", "text": "look: "}, image(3)]}, answer("so"), user("why?"), answer("because")],
    ]
    with (tmp_path / "chats.jsonl").open("w") as file:
        for messages in chats:
            named = [part["path"] for m in messages for part in m["content"] if isinstance(part, dict) and part["type"] == "image"]
            without = [{**m, "content": [{"type": p["type"], **({"text": p["text"]} if "text" in p else {})} for p in m["content"]]} if isinstance(m["content"], list) else m for m in messages]
            for at, name in enumerate(named):
                (tmp_path / name).write_bytes(images[int(name.split(".")[0])].read_bytes())
            file.write(json.dumps({"messages": without, "images": named}) + "\n")
    options = ["--messages-field", "messages", "--images-field", "images", "--tokenizer", model]
    command("text", tmp_path / "chats.jsonl", *options, "--out", tmp_path / "chats")
    processor = vision_models.processor(model)
    found = batches(tmp_path / "chats", batch_size=1, processor=processor)
    assert len(found) == 3
    for batch, messages in zip(found, chats, strict=True):
        opened = [{**m, "content": [{**p, "path": str(tmp_path / p["path"])} if "path" in p else p for p in m["content"]]} if isinstance(m["content"], list) else m for m in messages]
        expected = processor.apply_chat_template(
            opened, tokenize=True, return_dict=True, return_tensors="pt", return_assistant_tokens_mask=True
        )
        assert torch.equal(batch["input_ids"], expected["input_ids"])
        labels = expected["input_ids"].masked_fill(expected["assistant_masks"] == 0, -100)
        assert torch.equal(batch["labels"], labels)
        assert torch.equal(batch["mm_token_type_ids"], expected["mm_token_type_ids"])
        assert ("pixel_values" in batch) == ("pixel_values" in expected)
        if "pixel_values" in batch:
            assert torch.equal(batch["image_grid_thw"], expected["image_grid_thw"])
            assert (batch["pixel_values"] - expected["pixel_values"]).abs().mean() < 0.01
    for options in ({"batch_size": 3}, {"batch_size": 3, "packed": "flash"}, {"seq_len": 300, "batch_size": 1, "packed": "flash"}):
        (batch,) = batches(tmp_path / "chats", **options)
        assert torch.equal(batch["pixel_values"], torch.cat([one["pixel_values"] for one in found if "pixel_values" in one]))


def image(number):
    return {"type": "image", "path": f"{number}.image"}


def answer(text):
    return {"role": "assistant", "content": text}


def user(text):
    return {"role": "user", "content": text}


@pytest.mark.parametrize("family", PACKED)
def test_the_trainer_of_hugging_face_takes_two_steps(chats, tmp_path, family):
    loader = dsconvert.Loader(chats(family), batch_size=3, packed="flash", as_torch=True)

    class WithLoader(transformers.Trainer):
        def get_train_dataloader(self):
            return loader

    arguments = transformers.TrainingArguments(
        str(tmp_path), max_steps=2, report_to=[], use_cpu=True, save_strategy="no", disable_tqdm=True, logging_steps=1
    )
    trainer = WithLoader(tiny_model(family), arguments)
    trainer.train()
    assert trainer.state.global_step == 2
    logged = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    assert len(logged) == 2 and all(np.isfinite(logged))
