"""The Python package: labels in all layouts, and rows that were packed at conversion."""

import numpy as np
import pytest

import dsconvert

IGNORED = -100
ROW = 128


def packed(dsconvert_command, out, packing="best-fit", fmt="arrow"):
    dsconvert_command(
        "text", "fixtures/corpus", "--out", out, "--tokenizer", "fixtures/tokenizers/bpe.json", "--format", fmt,
        "--pack", ROW, "--packing", packing,
    )
    return out


@pytest.fixture(scope="module", params=[("arrow", "best-fit"), ("parquet", "concat")], ids="-".join)
def packed_path(request, command, tmp_path_factory):
    fmt, packing = request.param
    return packed(command, tmp_path_factory.mktemp("packed") / "out", packing, fmt)


def pieces(batch, lengths):
    """Ids, labels and positions of each piece of a batch, padding left out."""
    if "cu_seqlens" in batch:
        ends = batch["cu_seqlens"]
        flat = [batch[name].ravel() for name in ("input_ids", "labels", "position_ids")]
        return [tuple(column[a:b] for column in flat) for a, b in zip(ends, ends[1:])]
    return [
        (ids[:n], labels[:n], np.arange(n)) for ids, labels, n in zip(batch["input_ids"], batch["labels"], lengths)
    ]


LAYOUTS = {
    "padded": {"batch_size": 8},
    "flat": {"max_tokens_unpadded": 4096, "oversize": "truncate"},
    "best_fit": {"seq_len": ROW, "batch_size": 4},
    "concat": {"seq_len": ROW, "batch_size": 4, "packing": "concat"},
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_labels_for_hugging_face_are_the_ids(text, layout):
    """A model that shifts labels itself trains on the next token of the same piece, and on nothing else."""
    padding = {} if layout == "flat" else {"pad_id": 0}
    loader = dsconvert.Loader(text, **LAYOUTS[layout], labels_for="huggingface", **padding)
    seen = labels_in_totals = 0
    for batch in loader:
        ids, labels = batch["input_ids"], batch["labels"]
        assert ((labels == IGNORED) | (labels == ids)).all()
        trained = 0
        for part, part_labels, positions in pieces(batch, batch.get("lengths", [])):
            padding = (part_labels == IGNORED).all() and not part.any()
            assert padding or (part_labels[1:] == part[1:]).all()
            assert positions.tolist() == list(range(len(part)))
            if layout != "padded":
                assert part_labels[:1].tolist() in ([], [IGNORED]), "it would be predicted from another document"
            trained += 0 if padding else max(0, len(part) - 1)
        # Models of Hugging Face compute the loss on the labels from the second position on.
        shifted = labels[..., 1:]
        if layout == "padded":
            assert (shifted != IGNORED).sum() == trained
        else:
            assert (labels != IGNORED).sum() == trained
        seen += trained
        if loader.totals().labels is not None:
            assert loader.totals().labels == trained
            labels_in_totals += 1
    assert seen > 1000 and (labels_in_totals > 0) == (layout in ("best_fit", "concat"))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_labels_for_a_plain_loss_are_the_next_tokens(text, layout):
    loader = dsconvert.Loader(text, **LAYOUTS[layout], labels_for="next_token")
    for batch in loader:
        trained = 0
        for part, part_labels, _ in pieces(batch, batch.get("lengths", [])):
            if not part.size or ((part_labels == IGNORED).all() and not part.any()):
                continue
            assert (part_labels[:-1] == part[1:]).all()
            trained += (part_labels != IGNORED).sum()
        if loader.totals().labels is not None:
            assert loader.totals().labels == trained


def test_left_padding_is_not_the_context_of_a_label(text):
    for batch in dsconvert.Loader(text, batch_size=8, pad_side="left", labels_for="huggingface"):
        for ids, labels, length in zip(batch["input_ids"], batch["labels"], batch["lengths"]):
            if length:
                assert labels[-length] == IGNORED and (labels[len(labels) - length + 1 :] == ids[len(ids) - length + 1 :]).all()


def test_the_default_labels_are_those_of_the_layout(text):
    for layout, options in LAYOUTS.items():
        default = "next_token" if "seq_len" in options else "huggingface"
        for ours, theirs in zip(
            dsconvert.Loader(text, **options), dsconvert.Loader(text, **options, labels_for=default), strict=True
        ):
            assert np.array_equal(ours["labels"], theirs["labels"]), layout


def test_unknown_labels_are_refused(text):
    with pytest.raises(dsconvert.UsageError, match='"huggingface", "next_token", "megatron"'):
        dsconvert.Loader(text, batch_size=4, labels_for="gpt")


def test_packed_rows_of_a_dataset_stay_packed(packed_path):
    train = dsconvert.open(packed_path, "train")
    for options in ({"batch_size": 4}, {"max_tokens": 4 * ROW}):
        loader = dsconvert.Loader(train, **options, seed=1, fields=None)
        sampler = dsconvert.BatchSampler(train, **options, seed=1)
        seen = []
        for batch, expected in zip(loader, sampler, strict=True):
            assert list(batch) == ["input_ids", "labels", "position_ids", "cu_seqlens"]
            assert loader.last.records == expected and loader.state_dict() == sampler.state_dict()
            ids, labels, positions, ends = batch.values()
            assert ids.shape == labels.shape == positions.shape == (len(expected), ROW)
            want_ids, want_labels, want_positions, want_ends = [], [], [], [0]
            for row, record in enumerate(train[expected]):
                stored = record["cu_seqlens"].tolist()
                row_ids = record["input_ids"].tolist()
                row_labels, row_positions = [], []
                for start, end in zip(stored, stored[1:]):
                    row_labels += [*row_ids[start + 1 : end], IGNORED]
                    row_positions += range(end - start)
                    want_ends.append(row * ROW + end)
                pads = ROW - len(row_ids)
                if pads:
                    want_ends.append((row + 1) * ROW)
                want_ids.append(row_ids + [0] * pads)
                want_labels.append(row_labels + [IGNORED] * pads)
                want_positions.append(row_positions + list(range(pads)))
            assert ids.tolist() == want_ids and labels.tolist() == want_labels
            assert positions.tolist() == want_positions and ends.tolist() == want_ends and ends.dtype == np.int32
            assert loader.last.max_length == np.diff(ends).max()
            seen += expected
        assert sorted(seen) == list(range(len(train)))
    several = [record for record in train if len(record["cu_seqlens"]) > 2]
    assert several, "some rows hold several documents"


def test_packed_rows_of_a_dataset_keep_their_documents_in_other_layouts(packed_path):
    train = dsconvert.open(packed_path, "train")
    loader = dsconvert.Loader(train, max_tokens_unpadded=4 * ROW, labels_for="huggingface")
    for batch in loader:
        assert list(batch) == ["input_ids", "labels", "position_ids", "cu_seqlens", "lengths"]
        expected, at = [0], 0
        for record in train[loader.last.records]:
            expected += [at + end for end in record["cu_seqlens"].tolist()[1:]]
            at = expected[-1]
        assert batch["cu_seqlens"].tolist() == expected
        firsts = np.flatnonzero(batch["labels"] == IGNORED).tolist()
        assert firsts == expected[:-1] == np.flatnonzero(batch["position_ids"] == 0).tolist()
    *_, batch = dsconvert.Loader(
        train, batch_size=7, last="pad", bucket="none", fields=["cu_seqlens", "input_ids", "key", "valid"]
    )
    assert list(batch) == ["cu_seqlens", "input_ids", "key", "valid"]
    assert batch["cu_seqlens"][-1] == 7 * ROW and not batch["input_ids"][~batch["valid"]].any()
    cut = dsconvert.Loader(train, max_tokens=ROW // 2, oversize="truncate")
    for batch in cut:
        assert batch["input_ids"].shape[1] <= ROW // 2 and batch["cu_seqlens"][-1] == batch["input_ids"].size


def test_packed_rows_of_a_dataset_are_repacked_only_on_request(packed_path):
    with pytest.raises(dsconvert.UsageError, match="`seq_len` does not apply.*packed already") as caught:
        dsconvert.Loader(packed_path, seq_len=ROW, batch_size=4)
    assert "stored_packing" in caught.value.remedy
    with pytest.raises(dsconvert.UsageError, match="pad_side"):
        dsconvert.Loader(packed_path, batch_size=4, pad_side="left")
    with pytest.raises(dsconvert.UsageError, match="cu_seqlens"):
        dsconvert.Loader(dsconvert.open(packed_path, "train", fields=["input_ids"]), batch_size=4)
    batch = next(iter(dsconvert.Loader(packed_path, batch_size=4, stored_packing="ignore")))
    assert list(batch) == ["input_ids", "attention_mask", "labels", "lengths"]
    batch = next(iter(dsconvert.Loader(packed_path, seq_len=2 * ROW, batch_size=4, stored_packing="ignore")))
    assert batch["input_ids"].shape == (4, 2 * ROW)


def test_stored_packing_needs_packed_rows(text):
    with pytest.raises(dsconvert.UsageError, match="stored_packing does not apply"):
        dsconvert.Loader(text, batch_size=4, stored_packing="ignore")
