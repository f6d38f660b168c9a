"""Fields of companions in batches: values per token beside labels, and values of images beside crops and flips."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dsconvert

SEED = 4
TOKENIZER = "fixtures/tokenizers/bpe.json"


def add_ids(base, folder):
    """Adds to each record one number per token: its id and one, as target and as input, and their sum."""
    rows = [{"key": record["key"], "ids": record["input_ids"].astype(np.int64) + 1} for record in dsconvert.open(base)]
    table = pa.table({
        "key": [row["key"] for row in rows],
        "target": pa.array([row["ids"].astype(np.float32) for row in rows], pa.list_(pa.float32())),
        "other": pa.array([row["ids"] for row in rows], pa.list_(pa.int32())),
        "half": pa.array([np.full(len(row["ids"]), 0.5, np.float16) for row in rows], pa.list_(pa.float16())),
        "total": [float(row["ids"].sum()) for row in rows],
    })
    pq.write_table(table, folder / "ids.parquet")
    dsconvert.add_fields(
        base, folder / "ids.parquet", folder / "ids",
        per={name: "input_ids" for name in ("target", "other", "half")}, aligned={"other": "input"},
        of={"total": "input_ids"},
    )
    return dsconvert.open(base, add=[folder / "ids"])


@pytest.fixture(scope="module")
def documents(command, tmp_path_factory):
    folder = tmp_path_factory.mktemp("documents")
    command("text", "fixtures/corpus", "--out", folder / "base", "--tokenizer", TOKENIZER, "--add-eos", "--quiet")
    return add_ids(folder / "base", folder)


@pytest.fixture(scope="module")
def pairs(command, tmp_path_factory):
    """Records of which only some tokens are trained on."""
    folder = tmp_path_factory.mktemp("pairs")
    with (folder / "pairs.jsonl").open("w") as file:
        for i in range(60):
            file.write(
                json.dumps({"prompt": "what is " + "very " * (i % 7), "completion": " it is " + "so " * (i % 5)}) + "\n"
            )
    options = ["--prompt-field", "prompt", "--completion-field", "completion", "--tokenizer", TOKENIZER, "--quiet"]
    command("text", folder / "pairs.jsonl", "--out", folder / "base", *options)
    return add_ids(folder / "base", folder)


LAYOUTS = [
    {"batch_size": 7},
    {"batch_size": 7, "pad_side": "left", "pad_to_multiple_of": 8},
    {"batch_size": 5, "labels_for": "next_token", "last": "pad"},
    {"max_tokens": 300, "oversize": "truncate"},
    {"max_tokens": 300, "oversize": "truncate", "labels_for": "next_token"},
    {"max_tokens_unpadded": 500, "oversize": "truncate"},
    {"batch_size": 3, "seq_len": 128},
    {"batch_size": 3, "seq_len": 100, "packing": "concat"},
    {"batch_size": 3, "seq_len": 128, "labels_for": "huggingface"},
    {"batch_size": 4, "packed": "flash"},
    {"batch_size": 3, "seq_len": 128, "id_dtype": "int32", "num_threads": 0},
]


@pytest.mark.parametrize("options", LAYOUTS, ids=str)
@pytest.mark.parametrize("source", ["documents", "pairs"])
def test_values_per_token_are_those_of_ids_and_labels(request, source, options):
    data = request.getfixturevalue(source)
    fields = ["input_ids", "labels", "target", "other", "half"]
    is_padded = "seq_len" not in options and "max_tokens_unpadded" not in options and "packed" not in options
    mask = ["attention_mask"] if is_padded else []
    count = 0
    for batch in dsconvert.Loader(data, fields=[*fields, *mask], seed=SEED, **options):
        labels, ids = batch["labels"], batch["input_ids"]
        assert batch["target"].dtype == np.float32 and batch["other"].dtype == np.int32
        assert batch["target"].shape == batch["other"].shape == ids.shape
        # As labels: the value of the token that is the label, and 0 where there is none.
        assert np.array_equal(batch["target"], np.where(labels == -100, 0, labels + 1))
        if mask:
            assert np.array_equal(batch["other"], np.where(batch["attention_mask"] == 1, ids + 1, 0))
        else:
            assert np.array_equal(batch["other"][batch["other"] != 0], ids[batch["other"] != 0] + 1)
            assert (batch["other"] != 0).sum() >= (labels != -100).sum()
        assert np.array_equal(batch["half"] != 0, labels != -100)
        count += (labels != -100).sum()
    assert count > 0


def test_a_value_of_all_tokens_refuses_to_cut_them(documents):
    loader = dsconvert.Loader(documents, batch_size=4, fields=["input_ids", "total"], seed=SEED)
    for batch in loader:
        records = loader.last.records
        assert batch["total"].tolist() == [
            float((documents[i]["input_ids"].astype(np.int64) + 1).sum()) for i in records
        ]
    with pytest.raises(
        dsconvert.UsageError, match='oversize "truncate" does not apply with "total"|`oversize "truncate"`'
    ):
        dsconvert.Loader(documents, max_tokens=300, oversize="truncate", fields=["input_ids", "total"])
    with pytest.raises(dsconvert.UsageError, match="a packed row holds several"):
        dsconvert.Loader(documents, batch_size=2, seq_len=64, fields=["input_ids", "total"])
    dsconvert.Loader(documents, max_tokens=300, oversize="drop", fields=["input_ids", "total"])


@pytest.fixture(scope="module")
def photos(command, tmp_path_factory):
    """Images of one size, and the mean of their left halves, for mirrored images, too."""
    folder = tmp_path_factory.mktemp("halves")
    command(
        "images", "fixtures/photos", "--out", folder / "base", "--resize", "exact:32x32", "--enlarge", "--encode",
        "png", "--quiet",
    )
    rows = []
    for record in dsconvert.open(folder / "base", decode=True):
        image = record["image"].astype(np.float64)
        rows.append(
            {"key": record["key"], "left": [image[:, :16].mean()], "right": [image[:, 16:].mean()], "score": 1.0}
        )
    pq.write_table(pa.Table.from_pylist(rows), folder / "halves.parquet")
    dsconvert.add_fields(
        folder / "base", folder / "halves.parquet", folder / "halves", fields=["left", "right"], read=["image"],
        flip={"left": "right"}
    )
    dsconvert.add_fields(
        folder / "base", folder / "halves.parquet", folder / "plain", fields={"l": "left"}, read=["image"]
    )
    dsconvert.add_fields(folder / "base", folder / "halves.parquet", folder / "scores", fields=["score"])
    return folder


def test_mirrored_images_have_the_values_of_their_twins(photos):
    options = {"batch_size": 5, "hflip": 0.5, "seed": SEED}

    def load(*fields):
        return dsconvert.Loader(photos / "base", add=[photos / "halves"], fields=[*fields], **options)

    mirrored = count = 0
    data = dsconvert.open(photos / "base", add=[photos / "halves"])
    loader = load("image", "left")
    alone = load("left")
    for batch, without in zip(loader, alone, strict=True):
        expected = batch["image"][:, :, :16].astype(np.float64).mean(axis=(1, 2, 3))
        assert np.allclose(batch["left"][:, 0], expected)
        assert np.array_equal(batch["left"], without["left"]), "the same coin without the image"
        stored = np.array([data[i]["left"][0] for i in loader.last.records])
        mirrored += (batch["left"][:, 0] != stored).sum()
        count += len(stored)
    assert 0 < mirrored < count


def test_crops_and_flips_are_refused_beside_values_of_whole_images(photos):
    def load(*fields, companion="plain", **options):
        return dsconvert.Loader(photos / "base", add=[photos / companion], batch_size=4, fields=[*fields], **options)

    for options, name in [
        ({"hflip": True}, "hflip"), ({"center_crop": 16}, "center_crop"),
        ({"random_resized_crop": 16}, "random_resized_crop"),
    ]:
        with pytest.raises(dsconvert.UsageError, match=f'{name} does not apply: "l" was computed from "image"') as caught:
            load("image", "l", **options)
        assert "without \"image\"" in caught.value.remedy
        load("image", "score", companion="scores", **options)
        load("image", **options)
    with pytest.raises(dsconvert.UsageError, match='center_crop does not apply: "left"'):
        load("image", "left", companion="halves", center_crop=16, hflip=0.5)
    data = dsconvert.open(photos / "base", "train", add=[photos / "halves"])
    with pytest.raises(dsconvert.UsageError, match='hflip mirrors "left", which needs the field "right"'):
        dsconvert.Loader(
            data.select(["image", "width", "height", "left"]), batch_size=4, fields=["image", "left"], hflip=0.5
        )
    assert next(iter(load("image", "l")))["l"].shape == (4, 1)


def test_values_are_left_out_in_a_share_of_the_records(documents, photos):
    options = {"batch_size": 5, "seed": SEED, "fields": ["input_ids", "total", "key", "origin"]}
    drop = {"key": (0.4, ""), "total": (0.5, None), "origin": (1, "somewhere")}
    loader = dsconvert.Loader(documents, drop=drop, **options)
    epochs = []
    for _ in range(2):
        dropped = {}
        for batch in loader:
            for row, record in enumerate(loader.last.records):
                assert batch["key"][row] in ("", documents[record]["key"]) and batch["origin"][row] == "somewhere"
                expected = documents[record]["total"] if batch["total.valid"][row] else 0
                assert batch["total"][row] == expected
                dropped[record] = (batch["key"][row] == "", not batch["total.valid"][row])
        epochs.append(dropped)
    count = len(documents)
    keys, totals = (np.array([epochs[0][i][field] for i in range(count)]) for field in (0, 1))
    assert abs(keys.mean() - 0.4) < 4 * (0.24 / count) ** 0.5 and abs(totals.mean() - 0.5) < 4 * (0.25 / count) ** 0.5
    assert abs((keys & totals).mean() - 0.2) < 4 * (0.16 / count) ** 0.5, "independent of each other"
    assert epochs[0] != epochs[1], "drawn again in each epoch"
    # The draws depend neither on batches, nor on threads, nor on other fields.
    other = dsconvert.Loader(documents, drop={"key": (0.4, None)}, **{**options, "batch_size": 11, "num_threads": 0})
    for batch in other:
        for row, record in enumerate(other.last.records):
            assert (batch["key"][row] is None) == epochs[0][record][0]
    # Arrays without a value are zeros.
    for batch in dsconvert.Loader(photos / "base", add=[photos / "plain"], batch_size=4, fields=["l"], drop={"l": (0.5, None)}, seed=SEED):
        assert np.array_equal(batch["l"][:, 0] != 0, batch["l.valid"])
    for wrong, message in [
        ({"nothing": (0.1, None)}, 'a batch has no field "nothing"'),
        ({"input_ids": (0.1, None)}, "is not a stored value of its own"),
        ({"total": (0.1, "text")}, 'is no value of "total"'), ({"total": (2, None)}, "drop"), ({"total": 0.1}, "drop cannot be"),
        ({"total": (0.1, [1])}, "by a list or a dictionary"),
    ]:
        with pytest.raises(dsconvert.UsageError, match=message):
            dsconvert.Loader(documents, drop=wrong, **options)
