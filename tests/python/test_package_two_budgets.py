"""Budgets of tokens and of patches for chats with images: packed by the loader and by the command, compared with the rows that
`docs/reference/batching.md` specifies, and with a count of the records."""

import itertools
import json
import random

import numpy as np
import pytest

import dsconvert

pytest.importorskip("transformers")

import vision_models  # noqa: E402
from PIL import Image  # noqa: E402

from batch_plan import BatchPlan, PackPlan  # noqa: E402

pytestmark = pytest.mark.usefixtures("no_ranks")

SEQ_LEN, PATCHES, PADDING = 600, 400, 10**6
FIELDS = ["input_ids", "images", "image_grids", "patches"]
ONE = {"rank": 0, "world_size": 1}


@pytest.fixture(scope="module")
def chats(tmp_path_factory, request):
    """240 chats with up to four images each: the folder of the chats, the model, and the dataset of single chats."""
    folder, choose = tmp_path_factory.mktemp("budgets"), random.Random(6)
    for name in range(12):
        size = (choose.randrange(20, 260), choose.randrange(20, 260))
        Image.new("RGB", size, (name * 20, 0, 9)).save(folder / f"{name}.png")
    rows = []
    for _ in range(240):
        images = [f"{choose.randrange(12)}.png" for _ in range(choose.choice([0, 0, 1, 1, 2, 4]))]
        content = [{"type": "image"}] * len(images) + [{"type": "text", "text": vision_models.text(choose, 60)}]
        answer = {"role": "assistant", "content": vision_models.text(choose, 60)}
        rows.append({"messages": [{"role": "user", "content": content}, answer], "images": images})
    (folder / "chats.jsonl").write_text("\n".join(map(json.dumps, rows)))
    model = vision_models.folder(folder / "model", min_pixels=784, max_pixels=15680)
    command = request.getfixturevalue("dsconvert")

    def convert(name, *more):
        command(
            "text", folder / "chats.jsonl", "--messages-field", "messages", "--images-field", "images", "--tokenizer", model,
            "--out", folder / name, *more,
        )
        return dsconvert.open(folder / name, "train")

    return convert


@pytest.fixture(scope="module")
def single(chats):
    return chats("single")


@pytest.fixture(scope="module")
def counts(single):
    """Tokens and patches of each chat."""
    patches = [int(np.prod(record["image_grids"], axis=1).sum()) if record["images"] else 0 for record in single]
    assert single.index_column("patches").tolist() == patches and max(patches) <= PATCHES
    return single.lengths().tolist(), patches


def joined(single, row):
    """What a row of whole chats has."""
    records = [single[record] for record, start, end in row if start == 0 and end == len(single[record]["input_ids"])]
    assert len(records) == len(row)
    ids = np.concatenate([record["input_ids"] for record in records]).tolist()
    grids = np.concatenate([np.asarray(record["image_grids"]).reshape(-1, 3) for record in records])
    return ids, [image for record in records for image in record["images"]], grids.tolist()


@pytest.mark.parametrize("seed", range(6))
def test_packed_rows_are_those_of_the_specification(single, counts, seed):
    choose = random.Random(seed)
    lengths, patches = counts
    options = {
        "seq_len": SEQ_LEN, "max_patches": choose.choice([PATCHES, 600, 10**9]), "batch_size": choose.choice([1, 3]),
        "pack_window": choose.choice([None, 30]), "shuffle": choose.choice([True, False]), "seed": seed,
        "micro_batches": choose.choice([1, 2]), "last": choose.choice(["short", "wrap"]),
    }
    specified = PackPlan(lengths, patches=patches, **options)
    loader = dsconvert.Loader(single, fields=FIELDS, pad_id=PADDING, **ONE, **options)
    for epoch in range(2):
        for batch, rows in zip(loader, specified.micro_batches(epoch), strict=True):
            for row, documents in enumerate(rows):
                ids, images, grids = joined(single, documents)
                assert batch["input_ids"][row].tolist() == ids + [PADDING] * (SEQ_LEN - len(ids))
                assert batch["images"][row] == images
                assert np.asarray(batch["image_grids"][row]).reshape(-1, 3).tolist() == grids
                assert batch["patches"][row] == sum(patches[record] for record, *_ in documents) <= options["max_patches"]


def test_rows_resume_at_each_step_and_with_other_ranks(single, counts):
    lengths, patches = counts
    options = {
        "seq_len": SEQ_LEN, "max_patches": PATCHES, "batch_size": 2, "micro_batches": 6, "seed": 3, "fields": ["input_ids", "patches"],
    }
    whole = dsconvert.Loader(single, **ONE, **options)
    batches, states, totals = [], [whole.state_dict()], []
    for _ in whole:
        batches.append(whole.last.records)
        states.append(whole.state_dict())
        totals.append(whole.totals())
    assert sorted(itertools.chain(*batches)) == list(range(len(single)))
    for step in range(0, len(batches), 6):
        records = list(itertools.chain(*batches[step : step + 6]))
        found = totals[step]
        assert found == totals[min(step + 5, len(batches) - 1)]
        assert found.tokens == sum(lengths[record] for record in records)
        assert found.columns == {"patches": sum(patches[record] for record in records)}
        for world_size in (1, 2, 3):
            rest = []
            for rank in range(world_size):
                loader = dsconvert.Loader(single, rank=rank, world_size=world_size, num_threads=rank, **options)
                loader.load_state_dict(states[step])
                rest += [(loader.last.step, loader.last.micro_batch, loader.last.records) for _ in loader]
            assert [records for *_, records in sorted(rest)] == batches[step:]


@pytest.mark.parametrize("world_size", [1, 2, 5])
@pytest.mark.parametrize("size", [{"max_tokens": 700, "max_patches": PATCHES}, {"seq_len": SEQ_LEN, "batch_size": 1, "max_patches": PATCHES}])
def test_evaluation_holds_each_chat_once(single, counts, world_size, size):
    lengths, patches = counts
    seen, number = [], set()
    for rank in range(world_size):
        loader = dsconvert.Loader(
            single, rank=rank, world_size=world_size, shuffle=False, fields=["input_ids"], **size
        )
        number.add(len(loader))
        for batch in loader:
            records = loader.last.records
            seen += records
            assert sum(patches[record] for record in records) <= PATCHES
            if "max_tokens" in size:
                assert batch["input_ids"].size <= 700
                assert len(records) * max([lengths[record] for record in records], default=0) <= 700
            else:
                assert sum(lengths[record] for record in records) <= SEQ_LEN
    assert sorted(seen) == list(range(len(single)))
    assert len(number) == 1, "every rank has as many batches"


def test_batches_with_two_budgets_are_those_of_the_specification(single, counts):
    lengths, patches = counts
    options = {"max_tokens": 2000, "max_patches": 1500, "seed": 2, "micro_batches": 2}
    loader = dsconvert.Loader(single, fields=["input_ids"], **ONE, **options)
    specified = BatchPlan(lengths, patches=patches, **options)
    for epoch in range(2):
        assert [loader.last.records for _ in loader] == specified.micro_batches(epoch)


def test_stored_rows_are_those_of_the_specification(chats, single, counts):
    lengths, patches = counts
    packed = chats("packed", "--pack", SEQ_LEN, "--pack-patches", PATCHES)
    # The chats are one unit, and one window.
    rows = list(PackPlan(lengths, patches=patches, seq_len=SEQ_LEN, max_patches=PATCHES, batch_size=1, shuffle=False).rows(0))
    assert len(packed) == len(rows)
    for row, documents in zip(packed, rows, strict=True):
        ids, images, grids = joined(single, documents)
        assert row["input_ids"].tolist() == ids and row["images"] == images
        assert np.asarray(row["image_grids"]).reshape(-1, 3).tolist() == grids
        assert row["patches"] == sum(patches[record] for record, *_ in documents) <= PATCHES
        ends = list(itertools.accumulate((lengths[record] for record, *_ in documents), initial=0))
        assert row["cu_seqlens"].tolist() == ends and not row["piece_starts"].any()
    # Rows are loaded with both budgets as well.
    loader = dsconvert.Loader(packed, max_tokens=2 * SEQ_LEN, max_patches=PATCHES + 100, fields=["input_ids", "patches"], **ONE)
    seen = []
    for batch in loader:
        seen += loader.last.records
        assert batch["input_ids"].size <= 2 * SEQ_LEN and batch["patches"].sum() <= PATCHES + 100
    assert sorted(seen) == list(range(len(rows)))


def test_what_would_cut_an_image_is_refused(single):
    for options, message in [
        ({"max_tokens": 200, "oversize": "truncate"}, "never cut"),
        ({"seq_len": 100, "batch_size": 1}, "records exceed a budget"),
        ({"seq_len": SEQ_LEN, "batch_size": 1, "max_patches": 100}, "records exceed a budget"),
        ({"seq_len": SEQ_LEN, "batch_size": 1, "packing": "concat"}, "cut"),
    ]:
        with pytest.raises(dsconvert.UsageError, match=message):
            dsconvert.Loader(single, **ONE, **options)
