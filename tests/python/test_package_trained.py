"""The Python package: datasets that mark the tokens to train on, in all layouts.

The labels of every batch are made again from the records and the documented plan.
"""

import importlib.util
import json
import os
import pickle
import random
import subprocess
import warnings
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import dsconvert
from batch_plan import BatchPlan, PackPlan

IGNORED = -100
ROW = 24
SEED = 5
CONVENTIONS = ["huggingface", "next_token"]

# Of the loader, and those in which the plan differs from it.
MODES = {
    "padded": ({"batch_size": 7}, {"bucket": "none"}),
    "left": ({"batch_size": 7, "pad_side": "left"}, {"bucket": "none"}),
    "filled": ({"batch_size": 7, "last": "pad"}, {"bucket": "none"}),
    "bucketed": ({"max_tokens": 320, "pad_to_multiple_of": 8}, {}),
    "truncated": ({"max_tokens": 40, "oversize": "truncate"}, {}),
    "flat": ({"max_tokens_unpadded": 300}, {}),
    "flat, truncated": ({"max_tokens_unpadded": 30, "oversize": "truncate"}, {}),
    "best fit": ({"batch_size": 3, "seq_len": ROW}, {}),
    "concat": ({"batch_size": 3, "seq_len": ROW, "packing": "concat"}, {}),
}


def random_documents(count, seed=1, least=0):
    """Ids from 1, and masks of runs: also none, all, and such that start with 1."""
    rng = random.Random(seed)
    documents = []
    for number in range(count):
        length = rng.choice([least, 1, 2, rng.randrange(3, 20), rng.randrange(3, 60), 3 * ROW])
        share, masks = rng.choice([0, 0.5, 1]), []
        while len(masks) < length:
            masks += [int(rng.random() < share)] * rng.randrange(1, 9)
        documents.append(([rng.randrange(1, 70_000) for _ in range(length)], masks[:length]))
    return documents


@pytest.fixture(scope="module")
def write(binary, tmp_path_factory):
    """Writes a dataset of documents, or of rows of documents, with the example of the crate `writer`."""

    def write(lines, fmt="arrow", *more):
        out = tmp_path_factory.mktemp("masked") / "out"
        program = binary.parent / "examples" / "write_masks"
        text = "".join(json.dumps(line) + "\n" for line in lines)
        subprocess.run([program, out, fmt, *map(str, more)], input=text, text=True, check=True)
        return out

    return write


DOCUMENTS = random_documents(230)


def lines_of(documents):
    return [{"ids": ids, "masks": masks} for ids, masks in documents]


@pytest.fixture(scope="module")
def masked(write):
    """Paths of datasets with the same documents in each format."""
    made = {}

    def path(fmt="arrow"):
        if fmt not in made:
            made[fmt] = write(lines_of(DOCUMENTS), fmt)
        return made[fmt]

    return path


def labels_of(document, start, end, convention):
    """The labels of the positions of a piece, from the definitions."""
    ids, masks = document
    if convention == "huggingface":
        return [ids[i] if masks[i] and i > start else IGNORED for i in range(start, end)]
    return [ids[i + 1] if i + 1 < len(ids) and masks[i + 1] else IGNORED for i in range(start, end)]


def planned(mode, documents=DOCUMENTS, micro_batches=1):
    """The pieces of each row of each micro-batch of epoch 0."""
    options, differs = MODES[mode]
    options = {name: value for name, value in options.items() if name not in ("pad_side", "oversize")}
    options = {**options, **differs, "seed": SEED, "micro_batches": micro_batches}
    lengths = [len(ids) for ids, _ in documents]
    if "seq_len" in options:
        return PackPlan(lengths, **options).micro_batches(0)
    ranked = sorted(range(len(lengths)), key=lambda record: (lengths[record], record))
    if "truncated" in mode:
        most = options.get("max_tokens", options.get("max_tokens_unpadded"))
        lengths = [min(length, most) for length in lengths]
    plan = BatchPlan(lengths, **options)
    plan.ranked = ranked  # by what the records have, not by what is used of them
    batches = plan.micro_batches(0)
    return [[[(record, 0, lengths[record])] for record in batch] for batch in batches]


def expected(rows, mode, convention):
    """Ids, labels and masks of a batch, and the number of labels that a model predicts."""
    options = MODES[mode][0]
    of_rows = [([], [], []) for _ in rows]
    trained = 0
    for row, (ids, labels, masks) in zip(rows, of_rows):
        for record, start, end in row:
            ids += DOCUMENTS[record][0][start:end]
            labels += labels_of(DOCUMENTS[record], start, end, convention)
            masks += DOCUMENTS[record][1][start:end]
        trained += sum(label != IGNORED for label in labels)
    if "flat" in mode:
        return *(np.array(sum(column, [])) for column in zip(*of_rows)), trained
    multiple = options.get("pad_to_multiple_of", 1)
    width = options.get("seq_len") or -(-max(1, *(len(ids) for ids, *_ in of_rows)) // multiple) * multiple
    count = options["batch_size"] if options.get("last") == "pad" else len(rows)
    columns = [np.full((count, width), pad) for pad in (0, IGNORED, 0)]
    for at, row in enumerate(of_rows):
        size = len(row[0])
        place = slice(width - size, width) if mode == "left" else slice(0, size)
        for column, values in zip(columns, row):
            column[at, place] = values
    return *columns, trained


@pytest.mark.parametrize("convention", CONVENTIONS)
@pytest.mark.parametrize("mode", MODES)
def test_labels_are_those_of_the_records_and_the_documented_plan(masked, mode, convention):
    options = {**MODES[mode][0], "labels_for": convention, "seed": SEED}
    names = ["input_ids", "labels", "assistant_masks"]
    loader = dsconvert.Loader(masked(), **options, fields=names)
    every = planned(mode)
    assert len(every) > 5
    for rows, batch in zip(every, loader, strict=True):
        ids, labels, masks, trained = expected(rows, mode, convention)
        assert np.array_equal(batch["input_ids"], ids) and np.array_equal(batch["labels"], labels)
        assert np.array_equal(batch["assistant_masks"], masks) and batch["assistant_masks"].dtype == np.int8
        assert loader.last.trained == trained == loader.totals().trained == (batch["labels"] != IGNORED).sum()
        assert loader.last.records == [record for row in rows for record, *_ in row]
        if "seq_len" in options:
            assert loader.totals().labels == trained


@pytest.mark.parametrize("mode", ["padded", "truncated", "flat", "concat"])
def test_totals_are_exact_over_ranks_and_after_a_resume(masked, mode):
    options = {**MODES[mode][0], "seed": SEED, "micro_batches": 4}
    ranks = [dsconvert.Loader(masked("msgpack"), **options, rank=rank, world_size=2) for rank in range(2)]
    steps, state = {}, None
    for batches in zip(*ranks, strict=True):
        at = ranks[0].last.step
        for loader, batch in zip(ranks, batches):
            count = (batch["labels"] != IGNORED).sum()
            assert loader.last.trained == count
            steps.setdefault(at, []).append(int(count))
            steps[at, "totals"] = loader.totals()
        assert ranks[0].totals() == ranks[1].totals()
        if at == 2 and state is None:
            state = ranks[0].state_dict()
    for at in range(ranks[0].steps):
        assert steps[at, "totals"].trained == sum(steps[at]), "the sum over the micro-batches of all ranks"
    alone = dsconvert.Loader(masked("msgpack"), **options, rank=0, world_size=2)
    alone.load_state_dict(state)
    assert alone.totals() is None
    resumed = [(alone.last.step, alone.totals()) for _ in alone]
    assert resumed and all(steps[at, "totals"] == totals for at, totals in resumed)


def test_every_format_has_the_same_masks_and_batches(masked):
    batches = {}
    for fmt in ("arrow", "parquet", "msgpack", "protobuf"):
        train = dsconvert.open(masked(fmt), "train")
        assert train.fields["assistant_masks"] == "flags" and len(train) == len(DOCUMENTS)
        for record, (ids, masks) in zip(train, DOCUMENTS, strict=True):
            found = record["assistant_masks"]
            assert found.dtype == np.int8 and found.tolist() == masks and record["input_ids"].tolist() == ids
            assert not found.flags.writeable
        only = dsconvert.open(masked(fmt), "train", fields=["assistant_masks"])
        assert only[5]["assistant_masks"].tolist() == DOCUMENTS[5][1] and list(only[5]) == ["assistant_masks"]
        loader = dsconvert.Loader(train, seq_len=ROW, batch_size=4, seed=1, num_threads=3)
        batches[fmt] = [(loader.last.trained, batch["labels"].tolist()) for batch in loader]
    assert all(found == batches["arrow"] for found in batches.values())


@pytest.mark.parametrize("packed_row", [False, True])
def test_rows_that_are_packed_on_disk(write, packed_row):
    rng = random.Random(3)
    rows, documents = [], iter(random_documents(300, seed=2, least=1))
    for row in iter(lambda: next(documents, None), None):
        parts = [row]
        while rng.random() < 0.7 and (more := next(documents, None)):
            parts.append(more)
        ids, masks = (sum((part[i] for part in parts), [])[: 4 * ROW] for i in range(2))
        ends = [end for end in np.cumsum([len(part[0]) for part in parts]).tolist() if end < len(ids)]
        rows.append({"ids": ids, "masks": masks, "cu_seqlens": [0, *ends, len(ids)]})
    path = write(rows, "arrow", 4 * ROW)
    for convention in CONVENTIONS:
        for options in ({"batch_size": 5}, {"max_tokens_unpadded": 8 * ROW}, {"max_tokens": 2 * ROW, "oversize": "truncate"}):
            layout = {"packed": "flash"} if packed_row else {}
            loader = dsconvert.Loader(path, **options, **layout, labels_for=convention, seed=1, last="drop")
            for batch in loader:
                want, longest = [], 0
                most = 2 * ROW if "oversize" in options else 4 * ROW
                is_flat = packed_row or "max_tokens_unpadded" in options
                width = 4 * ROW if "batch_size" in options else max(min(most, len(rows[r]["ids"])) for r in loader.last.records)
                for record in loader.last.records:
                    row = rows[record]
                    labels = []
                    for start, end in zip(row["cu_seqlens"], row["cu_seqlens"][1:]):
                        end, whole = min(end, most), (row["ids"][start:end], row["masks"][start:end])
                        if start < end:
                            labels += labels_of(whole, 0, end - start, convention)
                            longest = max(longest, end - start)
                    want += labels + [IGNORED] * (0 if is_flat else width - len(labels))
                trained = sum(label != IGNORED for label in want)
                assert batch["labels"].ravel().tolist() == want
                assert loader.last.trained == loader.totals().trained == trained
                if packed_row:
                    assert batch["labels"].shape == (1, loader.last.tokens)
                    assert batch["max_length_q"] == longest and batch["cu_seq_lens_q"][-1] == loader.last.tokens


def flattened(pieces):
    """What the collator of transformers makes of the pieces of a batch."""
    from transformers import DataCollatorWithFlattening

    def labels(ids, masks):
        return [i if mask else IGNORED for i, mask in zip(ids, masks)]

    parts = [(DOCUMENTS[r][0][start:end], DOCUMENTS[r][1][start:end]) for r, start, end in pieces]
    features = [{"input_ids": ids, "labels": labels(ids, masks)} for ids, masks in parts]
    return DataCollatorWithFlattening(return_flash_attn_kwargs=True)(features, return_tensors="pt")


@pytest.mark.parametrize("mode", ["padded", "truncated", "flat", "best fit", "concat"])
def test_flash_batches_are_those_of_the_collator_of_transformers(masked, mode):
    torch = pytest.importorskip("torch")
    pytest.importorskip("transformers")
    loader = dsconvert.Loader(masked(), **MODES[mode][0], seed=SEED, packed="flash", as_torch=True)
    compared = 0
    for rows, batch in zip(planned(mode), loader, strict=True):
        pieces = [piece for row in rows for piece in row]
        if any(start == end for _, start, end in pieces):
            continue  # the collator makes a label of an empty document
        theirs = flattened(pieces)
        assert list(batch) == [
            "input_ids", "labels", "position_ids", "cu_seq_lens_q", "cu_seq_lens_k", "max_length_q", "max_length_k",
        ]  # fmt: skip
        assert batch.keys() == theirs.keys()
        for name, value in theirs.items():
            if isinstance(value, torch.Tensor):
                assert batch[name].dtype == value.dtype and torch.equal(batch[name], value), name
            else:
                assert type(batch[name]) is int and batch[name] == value
        totals = loader.totals()
        assert totals.padded_tokens == totals.tokens == batch["labels"].numel() == loader.last.tokens
        assert totals.trained == loader.last.trained == (batch["labels"] != IGNORED).sum()
        compared += 1
    assert compared > 5


def megatron_row(pieces, width, pad=0):
    """A sample as `SFTDataset.__getitem__` of Megatron-LM makes it of tokenized conversations. Unlike there, the last token
    of a document has no label, the label of padding is −100, and a document that is cut keeps its last label."""
    tokens, labels, positions, ends = [], [], [], [0]
    for record, start, end in pieces:
        tokens += DOCUMENTS[record][0][start:end]
        labels += labels_of(DOCUMENTS[record], start, end, "next_token")
        positions += range(end - start)
        ends.append(len(tokens))
    last = positions[-1] + 1 if positions else 0
    padding = width - len(tokens)
    positions += range(last, last + padding)
    if len(ends) == 1:
        ends.append(0)
    ends[-1] = width
    longest = np.diff(ends).max()
    return {
        "tokens": tokens + [pad] * padding,
        "labels": labels + [IGNORED] * padding,
        "loss_mask": [float(label != IGNORED) for label in labels] + [0.0] * padding,
        "position_ids": positions,
        "cu_seqlens": ends + [width] * (width + 1 - len(ends)),
        "max_seqlen": longest,
    }


MEGATRON_TYPES = {
    "tokens": np.int64, "labels": np.int64, "loss_mask": np.float32, "position_ids": np.int64, "cu_seqlens": np.int32,
    "max_seqlen": np.int32,
}


@pytest.mark.parametrize("mode", ["padded", "filled", "truncated", "best fit", "concat"])
def test_megatron_batches_are_the_samples_of_its_dataset(masked, mode):
    options = MODES[mode][0]
    loader = dsconvert.Loader(masked(), **options, seed=SEED, labels_for="megatron", pad_id=9)
    for rows, batch in zip(planned(mode), loader, strict=True):
        valid = batch.pop("valid", None)
        assert (valid is not None) == ("last" in options)
        assert {name: value.dtype for name, value in batch.items()} == MEGATRON_TYPES
        rows = rows + [[]] * (options["batch_size"] - len(rows) if "last" in options else 0)
        width = batch["tokens"].shape[1]
        samples = [megatron_row([p for p in row if p[1] < p[2]], width, pad=9) for row in rows]
        for name, value in batch.items():
            assert np.array_equal(value, np.array([sample[name] for sample in samples])), name
        assert batch["loss_mask"].sum() == loader.last.trained == loader.totals().trained


@pytest.fixture(scope="module")
def sft_dataset():
    """The module of a checkout of NVIDIA/Megatron-LM, in the folder that DSCONVERT_MEGATRON_LM names. What it imports is in
    the package megatron-core."""
    pytest.importorskip("megatron.core")
    if not (checkout := os.environ.get("DSCONVERT_MEGATRON_LM")):
        pytest.skip("DSCONVERT_MEGATRON_LM names no checkout of Megatron-LM")
    spec = importlib.util.spec_from_file_location(
        "sft_dataset", Path(checkout) / "megatron/training/datasets/sft_dataset.py"
    )
    module = importlib.util.module_from_spec(spec)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # About packages for GPUs that are missing.
        spec.loader.exec_module(module)
    return module


class TokenizedConversations:
    """A tokenizer for `SFTDataset` whose conversations are numbers of documents."""

    eod = pad = 70_001

    def tokenize_conversation(self, conversation, return_target, add_generation_prompt):
        ids, masks = (np.array(values) for values in DOCUMENTS[int(conversation[0]["content"])])
        return ids, np.where(masks == 1, ids, IGNORED)


@pytest.mark.parametrize("mode", ["padded", "best fit"])
def test_megatron_batches_equal_those_of_a_checkout(masked, sft_dataset, mode):
    """`SFTDataset` itself, wherever a row has whole documents. The last token of a document has no label of ours."""
    tokenizer = TokenizedConversations()
    loader = dsconvert.Loader(masked(), **MODES[mode][0], seed=SEED, labels_for="megatron", pad_id=tokenizer.pad)
    compared = 0
    for rows, batch in zip(planned(mode), loader, strict=True):
        for number, row in enumerate(rows):
            row = [piece for piece in row if piece[1] < piece[2]]
            if not row or any((start, end) != (0, len(DOCUMENTS[record][0])) for record, start, end in row):
                continue
            width = batch["tokens"].shape[1]
            config = SimpleNamespace(
                tokenizer=tokenizer, sequence_length=width, context_parallel_size=1, reset_position_ids=False,
                create_attention_mask=False, reset_attention_mask=False,
            )  # fmt: skip
            conversation = [{"role": "system", "content": str(record)} for record, _, _ in row]
            fake = SimpleNamespace(config=config, dataset=[conversation], indices=[0])
            fake._split_conversations = lambda merged: sft_dataset.SFTDataset._split_conversations(fake, merged)
            theirs = {name: np.asarray(value) for name, value in sft_dataset.SFTDataset.__getitem__(fake, 0).items()}
            ours = {name: value[number] for name, value in batch.items()}
            assert theirs.keys() == ours.keys()
            for name in ("tokens", "position_ids", "cu_seqlens", "max_seqlen"):
                assert np.array_equal(ours[name], theirs[name]), name
            inside = np.ones(width, bool)
            inside[np.cumsum([end for _, _, end in row]) - 1] = False
            assert np.array_equal(ours["loss_mask"], theirs["loss_mask"] * inside)
            is_trained = ours["loss_mask"] == 1
            assert np.array_equal(ours["labels"][is_trained], theirs["labels"][is_trained])
            compared += 1
    assert compared > 15


@pytest.fixture(scope="module")
def model():
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=70_000, hidden_size=16, intermediate_size=16, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=2, max_position_embeddings=256, attn_implementation="sdpa", use_cache=False,
    )  # fmt: skip
    return transformers.LlamaForCausalLM(config).eval()


@pytest.mark.parametrize("options", [
    {"batch_size": 6}, {"batch_size": 6, "packed": "flash"}, {"batch_size": 2, "seq_len": 3 * ROW, "packed": "flash"},
], ids=str)
def test_the_loss_of_a_model_is_that_of_its_documents_alone(masked, model, options):
    """In one row, too, no document sees another one, and only trained tokens count."""
    import torch

    loader = dsconvert.Loader(masked(), **options, seed=2, labels_for="huggingface", as_torch=True)
    compared = 0
    with torch.no_grad():
        for batch in loader:
            batch.pop("lengths", None)
            loss, trained = model(**batch).loss, loader.last.trained
            if trained == 0:
                assert loss.isnan(), "the default reduction is a mean"
                continue
            alone = 0.0
            for record in loader.last.records:
                ids, masks = (torch.tensor(values) for values in DOCUMENTS[record])
                if len(ids) > 1:
                    logits = model(input_ids=ids[None]).logits[0, :-1]
                    losses = torch.nn.functional.cross_entropy(logits.float(), ids[1:], reduction="none")
                    alone += (losses * masks[1:]).sum().item()
            assert abs(loss.item() - alone / trained) < 1e-4
            assert abs(model(**batch, num_items_in_batch=trained).loss.item() - alone / trained) < 1e-4
            compared += 1
            if compared == 8:
                break
    assert compared == 8


def test_a_batch_without_trained_tokens_has_the_loss_0(write):
    """The loop of the guide."""
    torch = pytest.importorskip("torch")
    documents = [([5, 6, 7, 8], [0, 0, 0, 0]), ([5, 6], [1, 0]), ([9, 8, 7], [0, 1, 1]), ([4], [1])]
    path = write(lines_of(documents))
    model = torch.nn.Sequential(torch.nn.Embedding(10, 4), torch.nn.Linear(4, 10))
    losses = []
    loader = dsconvert.Loader(path, batch_size=1, shuffle=False, labels_for="next_token", as_torch=True)
    for batch in loader:
        logits = model(batch["input_ids"])
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), batch["labels"].flatten(), reduction="sum")
        loss = loss / max(1, loader.totals().trained)
        loss.backward()
        losses.append((loss.item(), loader.last.trained))
        assert all(parameter.grad.isfinite().all() for parameter in model.parameters())
    assert [trained for _, trained in losses] == [0, 0, 2, 0]
    assert [loss == 0 for loss, _ in losses] == [True, True, False, True]


def test_records_of_a_transform_are_cut_with_their_masks(masked):
    seen = []

    def transform(record):
        assert len(record["assistant_masks"]) == len(record["input_ids"]) == record["length"] <= 40
        seen.append(record["assistant_masks"].dtype)
        return {"trained": int(record["assistant_masks"].sum())}

    loader = dsconvert.Loader(masked(), max_tokens=40, oversize="truncate", transform=transform)
    for batch in loader:
        expected = [sum(DOCUMENTS[record][1][:40]) for record in loader.last.records]
        assert batch["trained"].tolist() == expected
        assert loader.last.trained is None and loader.totals().trained is None, "the function makes the labels"
    assert len(seen) >= len(DOCUMENTS) and set(seen) == {np.dtype(np.int8)}

    counts = []
    for batch in dsconvert.Loader(
        masked(), batch_size=8, batch_transform=lambda batch: (batch, dsconvert.batch_info().trained)
    ):
        counts.append(batch[1] == (batch[0]["labels"] != IGNORED).sum())
    assert all(counts)


def test_a_pickled_loader_continues_with_the_same_labels(masked):
    options = {"seq_len": ROW, "batch_size": 3, "packed": "flash", "seed": 4}
    loader = dsconvert.Loader(masked(), **options, num_threads=2)
    batches = iter(loader)
    for _ in range(3):
        next(batches)
    copy = pickle.loads(pickle.dumps(loader))
    for ours, theirs in zip(batches, copy, strict=True):
        assert np.array_equal(ours["labels"], theirs["labels"]) and loader.last == copy.last
        assert loader.totals() == copy.totals()


def test_data_without_masks_trains_on_all_tokens_but_the_first(text):
    lengths = text.lengths()
    for options in ({"batch_size": 8}, {"max_tokens_unpadded": 8192}, {"batch_size": 8, "packed": "flash"}):
        loader = dsconvert.Loader(text, **options)
        for batch in loader:
            expected = sum(max(0, int(lengths[record]) - 1) for record in loader.last.records)
            assert loader.last.trained == loader.totals().trained == expected
            assert (batch["labels"][..., 1:] != IGNORED).sum() in (expected, expected - 1)
    loader = dsconvert.Loader(text, seq_len=128, batch_size=4)
    for batch in loader:
        assert loader.last.trained == loader.totals().trained == loader.totals().labels == (batch["labels"] != IGNORED).sum()
    loader = dsconvert.Loader(text, batch_size=8, fields=["input_ids"])
    next(iter(loader))
    assert loader.last.trained is None and loader.totals().trained is None
    with pytest.raises(dsconvert.UsageError, match="assistant_masks"):
        dsconvert.Loader(text, batch_size=8, fields=["input_ids", "assistant_masks"])


def test_what_does_not_apply_is_refused(masked, text):
    selected = dsconvert.open(masked(), "train", fields=["input_ids"])
    with pytest.raises(dsconvert.UsageError, match="assistant_masks.*is not selected"):
        dsconvert.Loader(selected, batch_size=4)
    assert list(next(iter(dsconvert.Loader(selected, batch_size=4, fields=["input_ids"])))) == ["input_ids"]
    for options, message in [
        ({"batch_size": 4, "packed": "flash", "last": "pad"}, 'last "pad" does not apply'),
        ({"batch_size": 4, "packed": "flash", "pad_id": 3}, "pad_id does not apply: with packed=\"flash\""),
        ({"batch_size": 4, "packed": "rowz"}, 'did you mean|"rows" or "flash"|packed cannot be'),
        ({"batch_size": 4, "packed": "flash", "fields": ["attention_mask"]}, "no field"),
        ({"batch_size": 4, "packed": "flash", "labels_for": "megatron"}, "does not apply with labels_for"),
        ({"max_tokens_unpadded": 400, "labels_for": "megatron"}, "max_tokens_unpadded does not apply"),
        ({"batch_size": 4, "pad_side": "left", "labels_for": "megatron"}, "pad_side"),
        ({"batch_size": 4, "fields": ["loss_mask"]}, "no field"),
        ({"batch_size": 4, "fields": ["cu_seq_lens_q"]}, "no field"),
    ]:
        with pytest.raises(dsconvert.UsageError, match=message):
            dsconvert.Loader(text, **options)
