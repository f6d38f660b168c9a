"""The Python package: the contents and the memory of the batches of a `Loader`."""

import os
import shutil
import signal
import subprocess
import sys
import textwrap

import numpy as np
import pytest

import dsconvert

IGNORED = -100
PADDING = 10**6  # no token has this id


@pytest.fixture(params=["parquet", "arrow", "msgpack", "protobuf"])
def text(request, corpus_in):
    return dsconvert.open(corpus_in(request.param).path, "train")


@pytest.fixture
def arrow_text(corpus_in):
    return dsconvert.open(corpus_in("arrow").path, "train")


@pytest.fixture
def pictures(photos_in):
    return dsconvert.open(photos_in("arrow").path, "train", decode=True)


def test_padded_batches_have_ids_mask_labels_and_lengths(text):
    loader = dsconvert.Loader(text, max_tokens=4096, oversize="truncate", pad_id=7, pad_to_multiple_of=8)
    seen = []
    for batch in loader:
        assert list(batch) == ["input_ids", "attention_mask", "labels", "lengths"]
        assert all(batch[name].dtype == np.int64 for name in batch)
        ids, mask, labels, lengths = batch.values()
        rows, width = ids.shape
        assert width % 8 == 0 and ids.size <= 4096
        assert mask.shape == labels.shape == (rows, width) and lengths.shape == (rows,)
        assert loader.last.rows == rows and loader.last.tokens == lengths.sum() and loader.last.max_length == lengths.max()
        for row, record in enumerate(text[loader.last.records]):
            length = min(len(record["input_ids"]), 4096)
            assert lengths[row] == length
            assert np.array_equal(ids[row, :length], record["input_ids"][:length]) and (ids[row, length:] == 7).all()
            assert mask[row].tolist() == [1] * length + [0] * (width - length)
            assert np.array_equal(labels[row, :length], record["input_ids"][:length])
            assert (labels[row, length:] == IGNORED).all()
        seen += loader.last.records
    assert sorted(seen) == list(range(len(text)))


def test_left_padding_and_shifted_labels_can_be_combined(arrow_text):
    loader = dsconvert.Loader(
        arrow_text, batch_size=5, pad_side="left", labels_for="next_token", id_dtype="int32",
        fields=["labels", "input_ids", "key"]
    )
    for batch in loader:
        assert list(batch) == ["labels", "input_ids", "key"]
        assert batch["input_ids"].dtype == batch["labels"].dtype == np.int32
        records = arrow_text[loader.last.records]
        assert batch["key"] == [record["key"] for record in records]
        for row, record in enumerate(records):
            ids = record["input_ids"]
            assert np.array_equal(batch["input_ids"][row, -len(ids):], ids)
            assert batch["labels"][row, -len(ids):].tolist() == [*ids[1:].tolist(), IGNORED]
            assert (batch["labels"][row, :-len(ids)] == IGNORED).all()


def test_unpadded_batches_concatenate_records(arrow_text):
    loader = dsconvert.Loader(arrow_text, max_tokens_unpadded=4096, oversize="truncate")
    for batch in loader:
        ends = batch["cu_seqlens"]
        assert ends.dtype == np.int32 and ends[0] == 0 and ends[-1] == batch["input_ids"].size
        assert np.array_equal(np.diff(ends), batch["lengths"])
        for start, record in zip(ends, arrow_text[loader.last.records]):
            length = min(len(record["input_ids"]), 4096)
            assert np.array_equal(batch["input_ids"].ravel()[start : start + length], record["input_ids"][:length])
            assert np.array_equal(batch["position_ids"].ravel()[start : start + length], np.arange(length))


@pytest.mark.parametrize("packing", ["best_fit", "concat"])
def test_packed_rows_have_every_token_once(text, packing):
    loader = dsconvert.Loader(text, seq_len=128, batch_size=4, packing=packing, seed=5, pad_id=PADDING)
    tokens = labels_seen = 0
    pieces = {}
    for batch in loader:
        assert list(batch) == ["input_ids", "labels", "position_ids", "cu_seqlens"]
        ids, labels, positions, ends = batch.values()
        assert ids.shape == labels.shape == positions.shape == (loader.last.rows, 128)
        assert ends[-1] == ids.size
        starts = np.flatnonzero(positions.ravel() == 0)
        assert starts.tolist() == ends[:-1].tolist()
        tokens += loader.last.tokens
        labels_seen += (labels != IGNORED).sum()
        documents = iter(loader.last.records)
        for start, end in zip(ends, ends[1:]):
            part = ids.ravel()[start:end].tolist()
            if part[0] == PADDING:
                assert set(part) == {PADDING} and set(labels.ravel()[start:end]) == {IGNORED}
            else:
                pieces.setdefault(next(documents), []).append(part)
    lengths = text.lengths()
    assert tokens == lengths.sum()
    assert labels_seen == lengths.sum() - (lengths > 0).sum(), "every token but the first of a document is a label once"
    assert loader.totals().labels is not None
    for record, parts in pieces.items():
        whole = text[record]["input_ids"].tolist()
        assert sorted(sum(parts, [])) == sorted(whole)
    assert len(loader) * 4 * 128 >= tokens


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"center_crop": 32, "random_resized_crop": 32}, "not both"),
        ({"center_crop": 0}, "crop"),
        ({"hflip": 2}, "hflip"),
        ({"layout": "nchw"}, "layout"),
        ({"channels": 4}, "channels"),
        ({"undecodable": "skip"}, "undecodable"),
        ({"fields": ["pixels"]}, "pixels"),
        ({"crop_scale": (0.1, 1)}, "crop_scale does not apply"),
        ({"num_threads": -1}, "num_threads"),
        ({"num_threads": 10**6}, "threads"),
        ({"prefetch": 0}, "prefetch"),
        ({"seq_len": 128}, "seq_len does not apply: the dataset holds images"),
        ({"id_dtype": "int8"}, "id_dtype"),
        ({"pad_side": "top"}, "pad_side"),
    ],
)
def test_invalid_options_are_refused(pictures, options, words):
    with pytest.raises(dsconvert.UsageError, match=words):
        dsconvert.Loader(pictures, batch_size=4, **options)


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({"batch_size": 4, "center_crop": 32}, "center_crop"),
        ({"batch_size": 4, "hflip": True}, "hflip"),
        ({"batch_size": 4, "decode": True}, "decode"),
        ({"batch_size": 4, "undecodable": "blank"}, "undecodable"),
        ({"batch_size": 4, "packing": "concat"}, "packing"),
        ({"batch_size": 4, "oversize": "truncate"}, "oversize"),
        ({"batch_size": 4, "window_steps": 3}, "window_steps"),
        ({"batch_size": 4, "block_records": 3}, "block_records"),
        ({"max_tokens_unpadded": 4096, "pad_id": 3}, "pad_id"),
        ({"max_tokens_unpadded": 4096, "pad_side": "left"}, "pad_side"),
        ({"max_tokens_unpadded": 4096, "pad_to_multiple_of": 8}, "pad_to_multiple_of"),
        ({"seq_len": 128, "batch_size": 4, "pad_side": "left"}, "pad_side"),
        ({"seq_len": 128, "batch_size": 4, "bucket": "none"}, "bucket"),
        ({"seq_len": 128, "batch_size": 4, "oversize": "drop"}, "oversize"),
        ({"seq_len": 128, "max_tokens": 4096}, "max_tokens"),
    ],
)
def test_options_that_do_not_apply_are_refused(arrow_text, options, name):
    with pytest.raises(dsconvert.UsageError, match=f"^{name} does not apply") as caught:
        dsconvert.Loader(arrow_text, **options)
    assert "--" not in str(caught.value)


@pytest.mark.parametrize("name", ["pad_id", "pad_to_multiple_of", "labels_for", "id_dtype"])
def test_options_of_text_are_refused_for_images(pictures, name):
    with pytest.raises(dsconvert.UsageError, match=f"^{name} does not apply: the dataset holds images"):
        dsconvert.Loader(pictures, batch_size=4, **{name: 1})


def test_images_over_the_budget_are_not_cut(pictures):
    with pytest.raises(dsconvert.UsageError, match='^`oversize "truncate"` does not apply: images cannot be cut'):
        dsconvert.Loader(pictures, max_tokens=10_000, oversize="truncate")
    with pytest.raises(dsconvert.UsageError, match="longer than the 100") as caught:
        dsconvert.Loader(pictures, max_tokens=100)
    assert caught.value.remedy.startswith('set `oversize` to "alone" or "drop", or raise `max_tokens` to')


@pytest.mark.parametrize(("fields", "options", "reason"), [
    (
        ["label"],
        [{"center_crop": 8}, {"hflip": 0.5}, {"layout": "chw"}, {"channels": 1}, {"decode": False}],
        "no image",
    ),
    (["key"], [{"pad_id": 3}, {"pad_side": "left"}, {"id_dtype": "int32"}], "no token ids, labels or masks"),
    (["input_ids", "lengths"], [{"labels_for": "next_token"}], "no labels"),
])
def test_options_without_effect_on_the_fields_are_refused(pictures, arrow_text, fields, options, reason):
    source = pictures if "label" in fields else arrow_text
    for option in options:
        with pytest.raises(dsconvert.UsageError, match=f"^{[*option][0]} does not apply: fields has {reason}"):
            dsconvert.Loader(source, batch_size=2, fields=fields, **option)
    # A name that nothing has is the mistake to report.
    with pytest.raises(dsconvert.UsageError, match="a batch has no field"):
        dsconvert.Loader(source, batch_size=2, fields=["other"], **options[0])


def test_options_apply_to_each_field_that_they_change(pictures, arrow_text):
    for options in [
        {"fields": ["attention_mask"], "pad_side": "left"},
        {"fields": ["labels"], "labels_for": "next_token"},
        {"fields": ["input_ids"], "labels_for": "huggingface", "seq_len": 64},
    ]:
        next(iter(dsconvert.Loader(arrow_text, batch_size=2, **options)))
    next(iter(dsconvert.Loader(pictures, batch_size=2, fields=["image"], center_crop=8)))


@pytest.mark.parametrize("format", ["arrow", "parquet"])
def test_shards_of_a_batch_may_be_more_than_the_files_that_may_be_open(command, tmp_path, format):
    (tmp_path / "corpus").mkdir()
    (tmp_path / "corpus/a.txt").write_text("".join(f"{i}\n" for i in range(200)))
    options = ["--documents", "line", "--tokenizer", "bytes", "--shard-records", "1", "--format", format, "--quiet"]
    command("text", tmp_path / "corpus", "--out", tmp_path / "out", *options)
    program = """
        import resource, sys, dsconvert
        split = dsconvert.open(sys.argv[1], "train", mmap=False, open_shards=8)
        loader = dsconvert.Loader(split, batch_size=200, num_threads=1)
        resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
        (batch,) = loader
        assert len(batch["input_ids"]) == 200
        resource.setrlimit(resource.RLIMIT_NOFILE, (0, 64))
        try:
            # Eight shards are still open, and which ones depends on how far the threads of the loader were ahead.
            [split[i] for i in range(9)]
        except dsconvert.IoError as error:
            assert "ulimit -n" in error.remedy, error
        else:
            raise AssertionError("no file can be opened")
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program), tmp_path / "out"], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    "options", [{"batch_size": 2}, {"batch_size": 2, "last": "pad"}, {"batch_size": 2, "seq_len": 64}]
)
def test_batches_without_entries_are_refused(corpus_in, options):
    dataset = dsconvert.open(corpus_in("arrow").path, "train", fields=["key"])
    with pytest.raises(dsconvert.UsageError, match="a batch has no entries: .* only key") as caught:
        dsconvert.Loader(dataset, **options)
    assert "fields" in caught.value.remedy
    if "seq_len" not in options:
        assert list(next(iter(dsconvert.Loader(dataset, fields=["key"], **options)))) == ["key"]


@pytest.mark.parametrize("options", [{"center_crop": 8}, {"hflip": 0.5}, {"layout": "chw"}, {"undecodable": "blank"}])
def test_encoded_images_are_not_cropped(pictures, options):
    with pytest.raises(dsconvert.UsageError, match=f"^{[*options][0]} does not apply.*decode=False"):
        dsconvert.Loader(pictures, batch_size=4, decode=False, **options)


def test_a_transform_is_refused_and_not_ignored(corpus_in):
    transformed = dsconvert.open(corpus_in("arrow").path, transform=dict)
    for source in (transformed, transformed["train"]):
        with pytest.raises(dsconvert.UsageError, match="^the transform of the dataset does not apply") as caught:
            dsconvert.Loader(source, batch_size=4)
        assert "with_transform(None)" in caught.value.remedy
    assert next(iter(dsconvert.Loader(transformed["train"].with_transform(None), batch_size=4)))
    assert next(iter(dsconvert.BatchSampler(transformed, batch_size=4))), "the reading code applies the transform"


@pytest.mark.parametrize("name", ["max_tokens", "max_tokens_unpadded"])
def test_the_error_about_a_record_over_the_budget_has_length_key_and_remedy(arrow_text, name):
    lengths = arrow_text.lengths()
    longest = int(lengths.argmax())
    with pytest.raises(dsconvert.UsageError) as caught:
        dsconvert.Loader(arrow_text, **{name: 512})
    message = str(caught.value)
    assert f"{(lengths > 512).sum()} of {len(lengths)} records are longer than the 512 that `{name}` allows" in message
    assert str(lengths.max()) in message and arrow_text[longest]["key"] in message and caught.value.place.row == longest
    for part in ("oversize", "truncate", "alone", "drop", f"`{name}` to {lengths.max()}", "seq_len"):
        assert part in caught.value.remedy


def test_filler_rows_are_marked_as_invalid(arrow_text):
    loader = dsconvert.Loader(arrow_text, batch_size=20, bucket="none", last="pad")
    *_, batch = loader
    valid = batch["valid"]
    assert valid.dtype == bool and valid.shape == (20,)
    assert valid.sum() == len(arrow_text) % 20 == 20 - loader.last.filler_rows
    assert (batch["labels"][~valid] == IGNORED).all() and not batch["attention_mask"][~valid].any()


def test_a_batch_is_never_overwritten_while_it_is_in_use(arrow_text):
    loader = dsconvert.Loader(arrow_text, max_tokens=4096, oversize="truncate", num_threads=2, prefetch=4)
    held, copies = [], []
    for _ in range(3):
        for batch in loader:
            held.append(batch)
            copies.append({name: value.copy() for name, value in batch.items()})
    for batch, copy in zip(held, copies):
        for name, value in batch.items():
            assert np.array_equal(value, copy[name])
    addresses = [value.ctypes.data for batch in held for value in batch.values()]
    assert len(set(addresses)) == len(addresses), "each has its own memory"
    # An array keeps its memory after the other arrays of its batch are deleted.
    part = [batch["labels"][:1] for batch in held]
    del held, batch
    for batch in loader:
        assert all(np.array_equal(row, copy["labels"][:1]) for row, copy in zip(part, copies))


def test_memory_is_reused_when_it_is_no_longer_in_use(arrow_text):
    loader = dsconvert.Loader(arrow_text, batch_size=8, fields=["lengths"], num_threads=1, prefetch=1)
    addresses = [batch["lengths"].ctypes.data for batch in loader]
    assert len(addresses) > 50 and len(set(addresses)) < 10


def test_arrays_are_writable_views(arrow_text):
    batch = next(iter(dsconvert.Loader(arrow_text, batch_size=8)))
    ids = batch["input_ids"]
    assert not ids.flags.owndata and ids.flags.writeable and ids.flags.c_contiguous and ids.flags.aligned
    ids[:] = 5
    assert (ids == 5).all()
    assert np.from_dlpack(ids).ctypes.data == ids.ctypes.data


def test_threads_and_prefetch_change_nothing(text):
    def epoch(**options):
        loader = dsconvert.Loader(text, max_tokens=4096, oversize="truncate", seed=9, **options)
        return [(loader.last, batch["input_ids"].copy()) for batch in loader]

    expected = epoch(num_threads=0)
    for options in ({"num_threads": 1}, {"num_threads": 3}, {"num_threads": 4, "prefetch": 1}):
        for (last, ids), (info, other) in zip(epoch(**options), expected, strict=True):
            assert last == info and np.array_equal(ids, other)


def test_prefetched_batches_are_not_consumed(arrow_text):
    loader = dsconvert.Loader(arrow_text, batch_size=8, num_threads=2, prefetch=16)
    batches = iter(loader)
    for done in range(1, 4):
        next(batches)
        assert loader.state_dict()["plan"]["records"]["step"] == done


def test_a_damaged_record_is_an_error_of_its_batch_only(corpus_in, tmp_path):
    shutil.copytree(corpus_in("msgpack").path, tmp_path / "altered")
    shard = sorted((tmp_path / "altered/train").iterdir())[1]
    data = bytearray(shard.read_bytes())
    data[len(data) // 2] ^= 1
    shard.write_bytes(data)
    loader = dsconvert.Loader(tmp_path / "altered", batch_size=8, shuffle=False)
    batches, good, errors = iter(loader), 0, []
    while True:
        try:
            next(batches)
            good += 1
        except StopIteration:
            break
        except dsconvert.CorruptError as error:
            errors.append(error)
    assert len(errors) == 1 and errors[0].place.shard == shard.name
    assert good + 1 == len(loader)


def test_threads_continue_with_the_next_epoch(arrow_text):
    loader = dsconvert.Loader(arrow_text, batch_size=8, num_threads=2, prefetch=4)
    alone = dsconvert.Loader(arrow_text, batch_size=8, num_threads=0)
    for epoch in range(3):
        for ours, theirs in zip(loader, alone, strict=True):
            assert np.array_equal(ours["input_ids"], theirs["input_ids"])
            assert loader.last == alone.last and loader.state_dict() == alone.state_dict()
        assert loader.epoch == epoch and loader.state_dict() == alone.state_dict()
    # Any other epoch may follow, too.
    for epoch in (7, 8, 8, 0):
        loader.set_epoch(epoch)
        alone.set_epoch(epoch)
        for ours, theirs, _ in zip(loader, alone, range(3)):
            assert np.array_equal(ours["input_ids"], theirs["input_ids"]) and loader.last == alone.last


def test_a_forked_process_resumes_from_a_state(arrow_text):
    loader = dsconvert.Loader(arrow_text, batch_size=8, num_threads=2, seed=1)
    whole = [batch["input_ids"].copy() for batch in loader]
    loader.set_epoch(0)
    batches = iter(loader)
    next(batches), next(batches)
    state = loader.state_dict()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            refused = False
            try:
                next(batches)
            except dsconvert.UsageError:
                refused = True
            assert refused and loader.state_dict() == state
            loader.load_state_dict(state)
            rest = [batch["input_ids"] for batch in loader]
            assert len(rest) == len(whole) - 2
            assert all(np.array_equal(a, b) for a, b in zip(rest, whole[2:]))
            status = 0
        finally:
            os._exit(status)
    assert os.waitpid(child, 0)[1] == 0
    rest = [batch["input_ids"] for batch in batches]
    assert len(rest) == len(whole) - 2 and all(np.array_equal(a, b) for a, b in zip(rest, whole[2:]))


def test_a_loader_can_be_dropped_at_any_time(arrow_text):
    for consumed in (0, 1, 5):
        loader = dsconvert.Loader(arrow_text, batch_size=4, num_threads=3, prefetch=8)
        kept = [batch for batch, _ in zip(loader, range(consumed))]
        del loader
        assert all(batch["input_ids"].size for batch in kept)


def test_ctrl_c_interrupts_a_loop(corpus_in):
    program = """
        import signal, sys, dsconvert
        signal.signal(signal.SIGINT, signal.default_int_handler)  # where tests run in the background, it is ignored
        loader = dsconvert.Loader(sys.argv[1], batch_size=4)
        print("started", flush=True)
        while True:
            for batch in loader:
                pass
    """
    loop = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(program), str(corpus_in("arrow").path)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )
    assert loop.stdout.readline() == "started\n"
    loop.send_signal(signal.SIGINT)
    _, errors = loop.communicate(timeout=60)
    assert "KeyboardInterrupt" in errors
