"""Every field of every kind of dataset, packed and not, in every export: read back by the package that the export is for.

The records to compare with are those that pyarrow reads from the shards of the dataset."""

import gzip
import itertools
import json
import urllib.parse
import warnings

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from conftest import FIXTURES, ROOT
from test_export import END, assert_listed, megatron, write_pairs  # noqa: F401

BPE = FIXTURES / "tokenizers/bpe.json"
GOLDEN = FIXTURES / "golden/v3"
TEXTS = ["one", "two words", "", "three more words", "four", "a longer text of many words, to be cut " * 9, "end"]
FIELDS = "txt:string,n:int64,f:float32,d:float64,flag:bool,more:json"


def rows_of_all_types():
    for i, text in enumerate(text for text in TEXTS if text):
        empty = i % 3 == 2
        yield {
            "text": text, "txt": None if empty else f"caption {i}\n", "n": None if empty else -(2**53) - i,
            "f": None if empty else i / 10, "d": None if empty else 1e300 + i, "flag": None if empty else i % 2 == 0,
            "more": None if empty else {"b": [1, None, "é"]},
        }


@pytest.fixture(scope="module")
def made(dsconvert, tmp_path_factory):
    """Converts the dataset with a name, once."""
    folder = tmp_path_factory.mktemp("matrix")

    def text(name, source, *options):
        out = folder / name
        if not out.exists():
            dsconvert("text", source, "--out", out, "--tokenizer", BPE, "--format", "parquet", *options, "--quiet")
        return out

    def of(name):
        if name in ("boxes", "masks"):
            return GOLDEN / f"{name}-parquet"
        if name in ("photos", "buckets"):
            out = folder / name
            size = ["--resize", "shorter:48"] if name == "photos" else ["--buckets", "area:64x64,step:8"]
            if not out.exists():
                dsconvert("images", "fixtures/photos", "--out", out, "--format", "parquet", *size, "--quiet")
            return out
        if name == "fields":
            rows = folder / "rows.jsonl"
            rows.write_text("".join(json.dumps(row) + "\n" for row in rows_of_all_types()))
            return text(name, rows, "--keep-fields", FIELDS)
        if name.startswith("packed-masks"):
            write_pairs(folder / "pairs.jsonl", 120)
            return text(
                name, folder / "pairs.jsonl", "--prompt-field", "prompt", "--completion-field", "completion", "--pack",
                "64",
            )
        packing, eos = name.split("-")[1:]
        return text(name, "fixtures/corpus/books", "--pack", "64", "--packing", packing.replace("best", "best-fit"),
                    *(["--add-eos"] if eos == "eos" else []))

    return of


PACKED = [f"packed-{packing}-{eos}" for packing in ["best", "concat"] for eos in ["eos", "plain"]]


def manifest(dataset):
    return json.loads((dataset / "manifest.json").read_text())


def records(dataset, split):
    shards = sorted((dataset / split).glob("*.parquet"))
    return [row for shard in shards for row in pq.read_table(shard).to_pylist()]


def close(a, b):
    """Equal, and floating-point numbers as 32 bits store them."""
    if isinstance(a, float) and isinstance(b, (int, float)):
        return a == b or np.float32(a) == np.float32(b)
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(close, a, b))
    return a == b


def members(record, schema):
    """The members of the sample of a record, decoded, by the table in docs/reference/export.md."""
    found, described = {}, {}
    captions = [name for name in ["txt", "caption", "text"] if (name, "string") in schema]
    for name, ty in schema:
        value = record[name]
        if ty in ("image", "mask"):
            if value is not None:
                found["image" if name == "image" else name] = value["bytes"]
        elif name == "label" and ty == "label":
            found["cls"] = value
        elif ty.startswith("ids"):
            dtype = np.uint16 if ty == "ids<u16>" else np.uint32
            found["npy" if name == "input_ids" else f"{name}.npy"] = None if value is None else np.array(value, dtype)
        elif ty == "flags":
            found[f"{name}.npy"] = None if value is None else np.array(value, np.int8)
        elif ty == "string" and name in captions[:1]:
            found["txt"] = value
        elif ty == "json":
            described[name] = None if value is None else json.loads(value)
        else:
            described[name] = value
    return {name: value for name, value in found.items() if value is not None} | {"json": described}


@pytest.mark.parametrize("name", ["photos", "boxes", "buckets", "masks", "fields", "packed-masks", *PACKED])
def test_webdataset_decodes_every_field(dsconvert, made, name, tmp_path):
    webdataset = pytest.importorskip("webdataset")
    dataset = made(name)
    dsconvert("export", dataset, "--to", "webdataset", "--out", tmp_path / "out", "--quiet")
    assert_listed(tmp_path / "out")
    schema = [(field["name"], field["type"]) for field in manifest(dataset)["schema"]["fields"]]
    compared = 0
    for split in manifest(dataset)["splits"]:
        files = [str(path) for path in sorted((tmp_path / "out").glob(f"{split}-*.tar"))]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            # Images stay as they are stored: `decode` without a name of an image format.
            found = list(webdataset.WebDataset(files, shardshuffle=False).decode())
        expected = records(dataset, split)
        assert len(found) == len(expected)
        for sample, record in zip(found, expected):
            assert urllib.parse.unquote(sample["__key__"]) == record["key"]
            wanted = members(record, schema)
            for member, value in wanted.items():
                if member == "image":
                    assert value in sample.values()
                elif isinstance(value, np.ndarray):
                    assert sample[member].dtype == value.dtype and np.array_equal(sample[member], value), member
                elif member == "json":
                    assert sorted(sample["json"]) == sorted(value)
                    for field in value:
                        assert close(value[field], sample["json"][field]), field
                else:
                    assert sample[member] == value, member
                compared += 1
            own = [member for member in sample if not member.startswith("__")]
            assert len(own) == len(wanted)
    assert compared > 0


@pytest.mark.parametrize("name", ["photos", "boxes", "buckets", "masks", "fields", "packed-masks", *PACKED])
def test_datasets_opens_every_field(dsconvert, made, name, tmp_path):
    import datasets

    dataset = made(name)
    dsconvert("export", dataset, "--to", "hf", "--out", tmp_path / "out", "--quiet")
    assert_listed(tmp_path / "out")
    opened = datasets.load_dataset(str(tmp_path / "out"), cache_dir=str(tmp_path / "cache"))
    for split in manifest(dataset)["splits"]:
        found = opened[split]
        for column, feature in found.features.items():
            if isinstance(feature, datasets.Image):
                found = found.cast_column(column, datasets.Image(decode=False))
        expected = records(dataset, split)
        assert len(found) == len(expected)
        for row, record in zip(found, expected):
            assert set(row) == set(record)
            for field, value in record.items():
                value = {**value, "path": None} if isinstance(value, dict) and "bytes" in value else value
                read = {**row[field], "path": None} if isinstance(row[field], dict) and "bytes" in row[field] else row[field]
                assert close(value, read), field


def llmc_tokens(path):
    """`_load_data_shard` of llm.c's train_gpt2.py."""
    with open(path, "rb") as file:
        header = np.frombuffer(file.read(256 * 4), dtype=np.int32)
        assert header[0] == 20240520 and header[1] == 1
        tokens = np.frombuffer(file.read(), dtype=np.uint16)
    assert len(tokens) == header[2]
    return tokens.tolist()


def end_of(dataset):
    tokenizer = json.loads((dataset / "tokenizer.json").read_text())
    return next(token["id"] for token in tokenizer["added_tokens"] if token["content"] == END)


@pytest.mark.parametrize("parts", [1, 3])
@pytest.mark.parametrize("name", PACKED)
def test_packed_rows_have_one_separator_for_each_document(dsconvert, made, megatron, name, parts, tmp_path):  # noqa: F811
    """In every layout of token ids, the same documents: in llm.c's, the token is before each, in the others after it."""
    dataset = made(name)
    end, eos = end_of(dataset), name.endswith("eos")
    pieces = [
        (row["piece_starts"][at], row["input_ids"][start:stop])
        for row in records(dataset, "train")
        for at, (start, stop) in enumerate(itertools.pairwise(row["cu_seqlens"]))
    ]
    assert any(start for start, _ in pieces), "a document is divided"
    after = [ids if eos else [*ids, end] for _, ids in pieces]
    if eos:
        before = [([] if start else [end]) + (ids[:-1] if ids[-1] == end else ids) for start, ids in pieces]
        before = [ids for ids in before if ids]
    else:
        before = [[end, *ids] for _, ids in pieces]
    # The token that ends the last document is the one that starts the first.
    assert sum(map(len, before)) == sum(map(len, after))

    def export(to, *options):
        out = tmp_path / "-".join([to, *options])
        dsconvert("export", dataset, "--to", to, *options, "--parts", parts, "--out", out, "--quiet")
        assert_listed(out)
        return out, ["train"] if parts == 1 else [f"train-{part:05}" for part in range(parts)]

    out, names = export("tokens", "--layout", "nanogpt")
    flat = [np.memmap(out / f"{name}.bin", dtype=np.uint16, mode="r").tolist() for name in names]
    assert sum(flat, []) == sum(after, [])
    bounds = [np.diff(np.load(out / f"{name}.documents.npy")).tolist() for name in names]
    assert sum(bounds, []) == [len(ids) for ids in after]

    out, names = export("tokens", "--layout", "llmc")
    flat = [llmc_tokens(out / f"{name}.bin") for name in names]
    assert sum(flat, []) == sum(before, [])
    assert sum(flat, []).count(end) == sum(start == 0 for start, _ in pieces) if eos else len(pieces)
    bounds = [np.diff(np.load(out / f"{name}.documents.npy")).tolist() for name in names]
    assert sum(bounds, []) == [len(ids) for ids in before]

    out, names = export("tokens", "--layout", "olmo")
    flat, bounds = [], []
    for name in names:
        flat += np.memmap(out / f"{name}.npy", dtype=np.uint16, mode="r").tolist()
        with gzip.open(out / f"{name}.csv.gz", "rt") as lines:
            bounds += [int(line.split(",")[1]) - int(line.split(",")[0]) for line in lines]
    assert flat == sum(after, []) and bounds == [len(ids) for ids in after]

    out, names = export("megatron")
    read = [ids.tolist() for name in names for ids in megatron[2].IndexedDataset(str(out / name))]
    assert read == after


@pytest.mark.parametrize("name", ["packed-masks", "masks"])
def test_megatron_bridge_rows_are_those_of_the_dataset(dsconvert, made, name, tmp_path):
    dataset = made(name)
    dsconvert("export", dataset, "--to", "megatron-bridge", "--out", tmp_path / "out", "--quiet")
    for split in manifest(dataset)["splits"]:
        table = pq.read_table(tmp_path / f"out/{split}.idx.parquet")
        assert [field.type.value_type for field in table.schema] == [pa.int32(), pa.int8(), pa.int32()]
        expected = records(dataset, split)
        assert len(table) == len(expected)
        for row, record in zip(table.to_pylist(), expected):
            ends = record.get("cu_seqlens") or [0, len(record["input_ids"])]
            assert row["input_ids"] == record["input_ids"] and row["seq_start_id"] == ends[:-1]
            shifted = [record["assistant_masks"][start + 1 : stop] + [0] * (stop > start) for start, stop in itertools.pairwise(ends)]
            assert row["loss_mask"] == sum(shifted, [])


TRAINER_COLUMNS = {"labels": ["int32", "int8", "int32"], "loss-mask": ["int32", "int8", "int8"]}


@pytest.mark.parametrize("name", ["masks", "fields"])
@pytest.mark.parametrize("columns", TRAINER_COLUMNS)
def test_trainers_get_exactly_the_columns_that_they_read(dsconvert, made, name, columns, tmp_path):
    datasets = pytest.importorskip("datasets")
    dataset = made(name)
    done = dsconvert("export", dataset, "--to", "hf", "--columns", columns, "--out", tmp_path / "out")
    # What is left out is said, once.
    assert done.stderr.count("has no place for") == (name == "fields")
    opened = datasets.load_dataset(str(tmp_path / "out"), cache_dir=str(tmp_path / "cache"))
    # As LLaMA-Factory reads `tokenized_path`.
    opened.save_to_disk(str(tmp_path / "saved"))
    saved = datasets.load_from_disk(str(tmp_path / "saved"))
    assert list(saved) == list(manifest(dataset)["splits"])
    last = columns.replace("-", "_")
    for split, rows in saved.items():
        assert rows.column_names == ["input_ids", "attention_mask", last]
        assert [feature.feature.dtype for feature in rows.features.values()] == TRAINER_COLUMNS[columns]
        expected = records(dataset, split)
        assert len(rows) == len(expected) > 0
        for row, record in zip(rows, expected):
            ids = record["input_ids"]
            marks = record.get("assistant_masks") or [1] * len(ids)
            trained = marks if columns == "loss-mask" else [id if mark else -100 for id, mark in zip(ids, marks)]
            assert row == {"input_ids": ids, "attention_mask": [1] * len(ids), last: trained}


def test_sft_trainer_takes_the_labels_of_an_export(dsconvert, tmp_path):
    """The batches of TRL, and so of Unsloth, which replaces its model and not its collator."""
    datasets = pytest.importorskip("datasets")
    pytest.importorskip("trl")
    from test_chat_rows import AROUND, PAIRS, batches, model, write

    folder, out = model(tmp_path / "model", AROUND["bos"]), tmp_path / "out"
    source = write(tmp_path / "pairs.jsonl", PAIRS)
    dsconvert(
        "text", source, "--prompt-field", "prompt", "--completion-field", "completion", "--tokenizer", folder,
        "--format", "parquet", "--out", out,
    )
    dsconvert("export", out, "--to", "hf", "--columns", "labels", "--out", tmp_path / "exported")
    exported = datasets.load_dataset(str(tmp_path / "exported"), split="train", cache_dir=str(tmp_path / "cache"))
    expected = [
        (row["input_ids"], [id if mark else -100 for id, mark in zip(row["input_ids"], row["assistant_masks"])])
        for row in records(out, "train")
    ]
    assert batches(folder, exported) == sorted(expected)
    assert any(-100 in labels and set(labels) != {-100} for _, labels in expected)


def test_packed_rows_are_refused_where_the_reader_knows_no_bounds(dsconvert, made, tmp_path):
    done = dsconvert(
        "export", made("packed-masks"), "--to", "hf", "--columns", "labels", "--out", tmp_path / "out", status=2
    )
    assert "rows of a packed dataset hold several documents" in done.stderr and "without --pack" in done.stderr
    assert not (tmp_path / "out").exists()
    done = dsconvert(
        "export", made("masks"), "--to", "megatron-bridge", "--columns", "labels", "--out", tmp_path / "out", status=2
    )
    assert "--columns applies only to --to hf" in done.stderr


def test_fields_that_are_left_out_do_not_move_separators(dsconvert, made, tmp_path):
    """`--fields` keeps what the meaning of the tokens depends on."""
    dataset = made("packed-best-eos")
    for name, options in [("all", []), ("few", ["--fields", "key"])]:
        dsconvert(
            "export", dataset, "--to", "tokens", "--layout", "llmc", "--out", tmp_path / name, *options, "--quiet"
        )
    assert (tmp_path / "all/train.bin").read_bytes() == (tmp_path / "few/train.bin").read_bytes()


def test_the_table_of_the_page_has_every_kind_of_member():
    page = (ROOT / "docs/reference/export.md").read_text()
    for member in [".cls", ".txt", ".npy", ".NAME.npy", ".NAME.bin", ".json"]:
        assert f"`{member}`" in page, member
