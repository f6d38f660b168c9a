"""Files that `dsconvert export` writes, read back by the packages and the documented layouts that read them."""

import csv
import gzip
import hashlib
import importlib.util
import io
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import types
import urllib.parse
import warnings

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from conftest import FIXTURES, ROOT
from test_docs import FENCE

END = "<|endoftext|>"


def end_id(dataset):
    """The id of the EOS token in the tokenizer of the dataset."""
    tokenizer = json.loads((dataset.path / "tokenizer.json").read_text())
    return next(token["id"] for token in tokenizer["added_tokens"] if token["content"] == END)


def documents(dataset, split, end=None):
    """The ids of the records in order, each followed by `end` unless it ends with it."""
    all_ids = [list(record["input_ids"]) for record in dataset.records(split)]
    return [ids if end is None or ids[-1:] == [end] else [*ids, end] for ids in all_ids]


def assert_listed(out):
    """The description of the export lists the files that are there, with their sizes and hashes."""
    listed = json.loads((out / "export.json").read_text())["files"]
    assert sorted(file["path"] for file in listed) == sorted(
        str(path.relative_to(out)) for path in out.rglob("*") if path.is_file() and path.name != "export.json"
    )
    for file in listed:
        content = (out / file["path"]).read_bytes()
        assert (len(content), hashlib.sha256(content).hexdigest()) == (file["bytes"], file["sha256"])
    assert not (out / ".dsconvert").exists()


@pytest.fixture(scope="session")
def megatron():
    """megatron-core's modules of datasets. Their import warns about what training on GPUs needs."""
    pytest.importorskip("torch")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pytest.importorskip("megatron.core")
        from megatron.core.datasets import blended_megatron_dataset_builder as blended, gpt_dataset, indexed_dataset
    return blended, gpt_dataset, indexed_dataset


def test_megatron_reads_the_documents_of_every_format(dsconvert, corpus, megatron, tmp_path):
    out = tmp_path / "out"
    dsconvert("export", corpus.path, "--to", "megatron", "--out", out)
    assert_listed(out)
    for split in corpus.splits:
        expected = documents(corpus, split, end_id(corpus))
        read = megatron[2].IndexedDataset(str(out / split))
        assert read.index.dtype == np.uint16
        assert read.document_indices.tolist() == list(range(len(expected) + 1))
        assert [ids.tolist() for ids in read] == expected


def test_the_width_is_that_of_megatrons_own_writer(dsconvert, corpus_in, megatron, tmp_path):
    """The same bytes as Megatron's builder writes, also for vocabularies of 65,499 to 65,536 tokens."""
    corpus = corpus_in("arrow")
    tokenizer = json.loads((corpus.path / "tokenizer.json").read_text())
    ids = [token["id"] for token in tokenizer["added_tokens"]] + list(tokenizer["model"]["vocab"].values())
    indexed = megatron[2]
    for size in [max(ids) + 1, 65_499, 65_500, 65_536]:
        wider = json.loads(json.dumps(tokenizer))
        if size > max(ids) + 1:
            token = {**wider["added_tokens"][0], "id": size - 1, "content": "<|last|>"}
            wider["added_tokens"].append(token)
        folder = tmp_path / str(size)
        folder.mkdir()
        (folder / "tokenizer.json").write_text(json.dumps(wider))
        if size > max(ids) + 1:
            # Added tokens get the ids after those of the vocabulary, so that fills the gap.
            for id in range(max(ids) + 1, size - 1):
                wider["model"]["vocab"][f"unused {id}"] = id
            (folder / "tokenizer.json").write_text(json.dumps(wider))
        data, out, peer = folder / "data", folder / "out", folder / "peer"
        dsconvert("text", "fixtures/corpus/books", "--out", data, "--tokenizer", folder / "tokenizer.json", "--quiet")
        vocab_size = json.loads((data / "manifest.json").read_text())["tokenizer"]["max_id"] + 1
        assert vocab_size == size
        dsconvert("export", data, "--to", "megatron", "--out", out, "--quiet")
        read = indexed.IndexedDataset(str(out / "train"))
        dtype = indexed.DType.optimal_dtype(vocab_size)
        assert read.index.dtype == dtype, size
        import torch

        builder = indexed.IndexedDatasetBuilder(f"{peer}.bin", dtype=dtype)
        for ids_of_document in read:
            builder.add_item(torch.from_numpy(np.array(ids_of_document, dtype=np.int64)))
            builder.end_document()
        builder.finalize(f"{peer}.idx")
        for extension in ["bin", "idx"]:
            assert (out / f"train.{extension}").read_bytes() == peer.with_suffix(f".{extension}").read_bytes()


def test_megatron_trains_on_a_blend(dsconvert, corpus_in, megatron, tmp_path):
    """GPTDataset and blending, on the CPU: every sample is a piece of the documents in some order."""
    corpus = corpus_in("parquet")
    blended, gpt, _ = megatron
    out = tmp_path / "out"
    dsconvert("export", corpus.path, "--to", "megatron", "--out", out, "--quiet")
    end = end_id(corpus)

    class Tokenizer:
        unique_identifiers = {"class": "test"}
        eod, pad, vocab_size = end, -1, 2000

    prefixes = [str(out / split) for split in ["train", "validation"]]
    config = gpt.GPTDatasetConfig(
        random_seed=1, sequence_length=32, blend_per_split=[(prefixes, [0.7, 0.3]), None, None], tokenizer=Tokenizer(),
        path_to_cache=str(tmp_path / "cache"), reset_position_ids=False, reset_attention_mask=False,
        eod_mask_loss=False,
    )
    import torch

    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/group", rank=0, world_size=1)
    try:
        builder = blended.BlendedMegatronDatasetBuilder(gpt.GPTDataset, [400, None, None], lambda: True, config)
        train = builder.build()[0]
    finally:
        torch.distributed.destroy_process_group()
    assert len(train) >= 400
    streams = {}
    for number, split in enumerate(["train", "validation"]):
        streams[number] = {tuple(ids) for ids in documents(corpus, split, end)}
    shares = [0, 0]
    for i in range(400):
        source = int(train.dataset_index[i])
        shares[source] += 1
        sample = train[i]
        ids = [*sample["tokens"].tolist(), int(sample["labels"][-1])]
        # Complete documents within the sample are documents of the split.
        ends = [at for at, id in enumerate(ids) if id == end]
        for start, stop in zip(ends, ends[1:]):
            assert tuple(ids[start + 1 : stop + 1]) in streams[source]
    assert abs(shares[0] - 280) <= 1, shares


@pytest.mark.parametrize("layout", ["nanogpt", "llmc", "olmo"])
def test_flat_files_have_the_layout_of_their_reader(dsconvert, corpus, layout, tmp_path):
    out = tmp_path / "out"
    dsconvert("export", corpus.path, "--to", "tokens", "--layout", layout, "--out", out, "--quiet")
    assert_listed(out)
    end = end_id(corpus)
    for split in corpus.splits:
        expected = documents(corpus, split, end)
        if layout == "llmc":
            # As llm.c's fineweb.py: the end token is before each document.
            expected = [[end, *ids[:-1]] for ids in expected]
        flat = [id for ids in expected for id in ids]
        starts = np.cumsum([0] + [len(ids) for ids in expected])
        if layout == "nanogpt":
            # train.py: np.memmap(os.path.join(data_dir, 'val.bin'), dtype=np.uint16, mode='r')
            name = {"validation": "val"}.get(split, split)
            ids = np.memmap(out / f"{name}.bin", dtype=np.uint16, mode="r")
            assert np.load(out / f"{name}.documents.npy").tolist() == starts.tolist()
        elif layout == "llmc":
            # dataloader.h: 256 int32 with magic number, version and number of tokens; then uint16.
            content = (out / f"{split}.bin").read_bytes()
            header = np.frombuffer(content[:1024], dtype=np.int32)
            assert header[:3].tolist() == [20240520, 1, len(flat)] and not header[3:].any()
            assert len(content) == 256 * 4 + 2 * header[2]
            ids = np.frombuffer(content[1024:], dtype=np.uint16)
            assert np.load(out / f"{split}.documents.npy").tolist() == starts.tolist()
        else:
            # OLMo-core: np.memmap of the .npy, and start and end in the first two columns of the .csv.gz.
            ids = np.memmap(out / f"{split}.npy", dtype=np.uint16, mode="r")
            with gzip.open(out / f"{split}.csv.gz", "rt") as file:
                bounds = [tuple(map(int, line.split(",")[:2])) for line in file]
            assert bounds == list(zip(starts.tolist(), starts[1:].tolist()))
            with gzip.open(out / f"{split}.csv.gz", "rt", newline="") as file:
                rows = list(csv.reader(file))
            records = corpus.records(split)
            assert [row[2:] for row in rows] == [[r["key"], r["origin"], str(i)] for i, r in enumerate(records)]
        assert ids.tolist() == flat


def test_ids_above_16_bits_are_stored_in_32(dsconvert, tmp_path):
    corpus = tmp_path / "corpus.jsonl"
    corpus.write_text("".join(json.dumps({"text": text}) + "\n" for text in ["a b", "wide", "b"]))
    vocab = {"a": 0, "b": 1, "wide": 70_000, "[UNK]": 2, "[EOS]": 70_001}
    model = {"type": "WordLevel", "vocab": vocab, "unk_token": "[UNK]"}
    special = {"special": True, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    tokenizer = {
        "version": "1.0", "truncation": None, "padding": None, "normalizer": None, "post_processor": None,
        "decoder": None, "pre_tokenizer": {"type": "WhitespaceSplit"}, "model": model,
        "added_tokens": [{"id": 70_001, "content": "[EOS]", **special}],
    }
    (tmp_path / "tokenizer.json").write_text(json.dumps(tokenizer))
    data = tmp_path / "data"
    dsconvert("text", corpus, "--out", data, "--tokenizer", tmp_path / "tokenizer.json", "--quiet")
    expected = [0, 1, 70_001, 70_000, 70_001, 1, 70_001]
    for layout in ["nanogpt", "llmc", "olmo"]:
        out = tmp_path / layout
        done = dsconvert("export", data, "--to", "tokens", "--layout", layout, "--out", out)
        assert ("np.uint32" in done.stderr) == (layout == "nanogpt"), done.stderr
        content = (out / ("train.npy" if layout == "olmo" else "train.bin")).read_bytes()
        if layout == "llmc":
            assert np.frombuffer(content[:12], dtype=np.int32).tolist() == [20240801, 7, len(expected)]
            content = content[1024:]
        found = np.frombuffer(content, dtype=np.uint32).tolist()
        assert found == (expected if layout != "llmc" else [70_001, 0, 1, 70_001, 70_000, 70_001, 1])


def test_packed_rows_go_out_as_documents(dsconvert, corpus_in, megatron, tmp_path):
    end = end_id(corpus_in("parquet"))
    options = ["--tokenizer", "fixtures/tokenizers/bpe.json", "--pack", "64", "--format", "parquet", "--quiet"]
    for name, more in [("with", ["--add-eos"]), ("without", [])]:
        rows, out = tmp_path / f"{name}-rows", tmp_path / f"{name}-out"
        dsconvert("text", "fixtures/corpus/books", "--out", rows, *options, *more)
        warned = dsconvert("export", rows, "--to", "megatron", "--out", out).stderr
        expected = []
        for shard in sorted((rows / "train").glob("*.parquet")):
            for row in pq.read_table(shard, columns=["input_ids", "cu_seqlens"]).to_pylist():
                for start, stop in zip(row["cu_seqlens"], row["cu_seqlens"][1:]):
                    piece = row["input_ids"][start:stop]
                    # With EOS tokens, a piece without one continues in another row.
                    expected.append(piece if name == "with" else [*piece, end])
        read = megatron[2].IndexedDataset(str(out / "train"))
        assert [ids.tolist() for ids in read] == expected
        cut = json.loads((rows / "manifest.json").read_text())["notes"]["packed_documents_cut"]
        assert cut > 0 and "divided among several rows" in warned


def test_an_export_from_and_to_object_storage_is_the_same(dsconvert, corpus_in, objects, tmp_path, monkeypatch):
    import boto3

    corpus = corpus_in("arrow")
    root = tmp_path / "objects"
    shutil.copytree(corpus.path, root / "data")
    server = objects(root)
    for name, value in server.environment.items():
        monkeypatch.setenv(name, value)
    options_of_client = {name.replace("region", "region_name"): value for name, value in server.storage_options.items()}
    client = boto3.client("s3", **options_of_client)

    def objects_in(prefix):
        listed = client.list_objects_v2(Bucket="bucket", Prefix=f"{prefix}/").get("Contents", [])
        keys = [entry["Key"] for entry in listed]
        return {key.partition("/")[2]: client.get_object(Bucket="bucket", Key=key)["Body"].read() for key in keys}

    for kind, options in [("megatron", []), ("tokens", ["--layout", "olmo", "--parts", "3"]), ("hf", [])]:
        local = tmp_path / kind
        dsconvert("export", corpus.path, "--to", kind, "--out", local, *options, "--quiet")
        url = f"s3://bucket/{kind}"
        export = ["export", "s3://bucket/data", "--to", kind, "--out", url, "--scratch", tmp_path / "scratch", *options]
        dsconvert(*export)
        files = {str(path.relative_to(local)): path.read_bytes() for path in local.rglob("*") if path.is_file()}
        assert objects_in(kind) == files
        assert "an export already exists" in dsconvert(*export, status=2).stderr
        assert "complete already" in dsconvert(*export, "--resume").stdout
        # As if the run had died before its last request.
        client.delete_object(Bucket="bucket", Key=f"{kind}/export.json")
        plan = {name: value for name, value in json.loads(files["export.json"]).items() if name != "files"}
        client.put_object(Bucket="bucket", Key=f"{kind}/.dsconvert/export.json", Body=json.dumps(plan, indent=2) + "\n")
        assert "has not finished" in dsconvert(*export, status=2).stderr
        dsconvert(*export, "--resume")
        assert objects_in(kind) == files
        client.delete_object(Bucket="bucket", Key=f"{kind}/export.json")
        assert "not empty" in dsconvert(*export, "--resume", status=2).stderr


def samples(out, pattern):
    """The samples that the package `webdataset` reads, without decoding."""
    webdataset = pytest.importorskip("webdataset")
    files = [str(path) for path in sorted(out.glob(pattern))]
    assert files
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return list(webdataset.WebDataset(files, shardshuffle=False))


def test_webdataset_reads_images_labels_and_fields(dsconvert, photos, tmp_path):
    out = tmp_path / "out"
    dsconvert("export", photos.path, "--to", "webdataset", "--out", out, "--parts", "2")
    assert_listed(out)
    names = photos.manifest["schema"]["class_names"]
    assert json.loads((out / "export.json").read_text())["options"]["class_names"] == names
    for split in photos.splits:
        records, found = photos.records(split), samples(out, f"{split}-*.tar")
        assert len(list(out.glob(f"{split}-*.tar"))) == 2
        assert len(found) == len(records)
        for sample, record in zip(found, records):
            assert urllib.parse.unquote(sample["__key__"]) == record["key"]
            image = next(sample[extension] for extension in ["jpg", "png", "webp", "gif"] if extension in sample)
            assert image == record["image"]
            label = sample.get("cls")
            assert (None if label is None else int(label)) == record["label"]
            fields = {name: record[name] for name in ["key", "width", "height", "origin"] if name in record}
            if photos.format in ("parquet", "arrow"):
                assert json.loads(sample["json"]) == fields
    for path in out.glob("*.tar"):
        with tarfile.open(path) as tar:
            members = tar.getmembers()
            assert {(m.mtime, m.uid, m.gid, m.mode, m.isreg()) for m in members} == {(0, 0, 0, 0o644, True)}
            assert all(m.name.rpartition("/")[2].count(".") == 1 for m in members)


def test_webdataset_has_token_ids_captions_and_other_fields(dsconvert, tmp_path):
    long = "a/" * 60 + "x.y.z"
    rows = [
        {"id": "a.jpg", "text": "one", "caption": "eins", "score": 0.1, "more": {"b": [1]}},
        {"id": "../a%b", "text": "two two", "caption": None, "score": None, "more": None},
        {"id": long, "text": "three", "caption": "drei\n", "score": 2.5, "more": []},
    ]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    data, out = tmp_path / "data", tmp_path / "out"
    fields = "caption:string,score:float32,more:json"
    options = ["--key-field", "id", "--keep-fields", fields, "--tokenizer", "bytes"]
    dsconvert("text", tmp_path / "rows.jsonl", "--out", data, *options, "--quiet")
    dsconvert("export", data, "--to", "webdataset", "--out", out)
    found = samples(out, "train-*.tar")
    assert [urllib.parse.unquote(sample["__key__"]) for sample in found] == ["a.jpg", "../a%b", long]
    for sample, row in zip(found, rows):
        ids = np.load(io.BytesIO(sample["npy"]))
        assert ids.dtype == np.uint16 and bytes(ids.tolist()).decode() == row["text"]
        assert sample.get("txt") == (row["caption"].encode() if row["caption"] else None)
        described = json.loads(sample["json"])
        assert {name: described[name] for name in ["key", "score", "more"]} == {
            "key": row["id"], "score": row["score"], "more": row["more"]
        }


def test_datasets_opens_the_folder(dsconvert, anything, tmp_path):
    import datasets

    out = tmp_path / "out"
    dsconvert("export", anything.path, "--to", "hf", "--out", out, "--parts", "2")
    assert_listed(out)
    opened = datasets.load_dataset(str(out), cache_dir=str(tmp_path / "cache"))
    assert sorted(opened) == sorted(anything.splits)
    for split in anything.splits:
        records, found = anything.records(split), opened[split]
        assert len(found) == len(records)
        if anything.kind == "text":
            assert found.features["input_ids"] == datasets.List(datasets.Value("uint16"))
            assert found["input_ids"][:] == [list(record["input_ids"]) for record in records]
        else:
            assert found.features["label"].names == anything.manifest["schema"]["class_names"]
            assert found["label"][:] == [record["label"] for record in records]
            assert found[0]["image"].size == (records[0]["width"], records[0]["height"])
            stored = found.cast_column("image", datasets.Image(decode=False))
            assert [image["bytes"] for image in stored["image"]] == [record["image"] for record in records]
        assert found["key"][:] == [record["key"] for record in records]


@pytest.fixture(scope="session")
def pairs(dsconvert, tmp_path_factory):
    """Packed rows of pairs with masks."""
    folder = tmp_path_factory.mktemp("pairs")
    write_pairs(folder / "pairs.jsonl", 200)
    options = ["--prompt-field", "prompt", "--completion-field", "completion", "--pack", "64", "--format", "parquet"]
    tokenizer = FIXTURES / "tokenizers/bpe.json"
    dsconvert("text", folder / "pairs.jsonl", "--out", folder / "rows", "--tokenizer", tokenizer, *options, "--quiet")
    return folder / "rows"


def write_pairs(path, count):
    rows = [{"prompt": "say " * (i % 7 + 1), "completion": " done" * (i % 5 + 1)} for i in range(count)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def stored_rows(dataset):
    """Ids, masks and bounds of the rows, read with pyarrow."""
    columns = ["input_ids", "assistant_masks", "cu_seqlens"]
    shards = sorted((dataset / "train").glob("*.parquet"))
    return [row for shard in shards for row in pq.read_table(shard, columns=columns).to_pylist()]


def test_megatron_bridge_gets_masks_shifted_within_each_document(dsconvert, pairs, tmp_path):
    out = tmp_path / "out"
    dsconvert("export", pairs, "--to", "megatron-bridge", "--out", out)
    assert_listed(out)
    table = pq.read_table(out / "train.idx.parquet")
    assert [str(field.type.value_type) for field in table.schema] == ["int32", "int8", "int32"]
    written, rows = table.to_pylist(), stored_rows(pairs)
    assert len(written) == len(rows) > 10
    for found, row in zip(written, rows):
        assert found["input_ids"] == row["input_ids"]
        assert found["seq_start_id"] == row["cu_seqlens"][:-1]
        # Megatron-Bridge's fill_packing_strategy: `x[1:] + [False]` of each document.
        expected = []
        for start, stop in zip(row["cu_seqlens"], row["cu_seqlens"][1:]):
            expected += row["assistant_masks"][start + 1 : stop] + [0]
        assert found["loss_mask"] == expected
    assert any(len(row["cu_seqlens"]) > 3 for row in rows)


def test_megatron_bridges_own_collation_trains_on_the_marked_tokens(dsconvert, pairs, tmp_path):
    """`GPTSFTPackedDataset` as published, without the packages that only training needs.

    Its package installs with --no-deps; `MEGATRON_BRIDGE` names a folder with it."""
    torch = pytest.importorskip("torch")
    folder = os.environ.get("MEGATRON_BRIDGE")
    if not folder:
        pytest.skip("MEGATRON_BRIDGE names no folder with the package")
    pytest.importorskip("megatron.core")
    stubs = {name: types.ModuleType(name) for name in ["megatron.bridge.data.datasets.utils", "megatron.bridge.training.tokenizers.tokenizer"]}
    source = f"{folder}/megatron/bridge/data/datasets/sft.py"
    imported = re.search(r"from megatron.bridge.data.datasets.utils import \(([^)]*)\)", open(source).read())[1]
    for name in re.findall(r"\w+", imported):
        setattr(stubs["megatron.bridge.data.datasets.utils"], name, None)
    stubs["megatron.bridge.training.tokenizers.tokenizer"].MegatronTokenizer = object
    sys.modules.update(stubs)
    try:
        spec = importlib.util.spec_from_file_location("bridge_sft", source)
        sft = importlib.util.module_from_spec(spec)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            spec.loader.exec_module(sft)
    finally:
        for name in stubs:
            del sys.modules[name]
    out = tmp_path / "out"
    dsconvert("export", pairs, "--to", "megatron-bridge", "--out", out, "--quiet")
    rows = pq.read_table(out / "train.idx.parquet").to_pylist()

    class Rows(sft.GPTSFTPackedDataset):
        def __init__(self):
            self.indexed_dataset, self.samples_mapping = rows, None
            self.tokenizer = types.SimpleNamespace(eos_id=-1)
            self.answer_only_loss, self.pad_to_max_length, self.max_seq_length = True, False, 64
            self.pad_seq_length_to_mult, self._pad_seq_to_mult, self.ceil_to_power_2 = 1, 1, False
            self.return_cu_seqlen, self.pad_cu_seqlens = True, False

    dataset = Rows()
    trained = 0
    for i, row in enumerate(stored_rows(pairs)):
        batch = dataset.collate_fn([dataset[i]])
        marked = [id for id, mark in zip(row["input_ids"], row["assistant_masks"]) if mark]
        found = batch["labels"][0][batch["loss_mask"][0].bool()].tolist()
        assert found == marked
        trained += len(marked)
        assert isinstance(batch["cu_seqlens"], torch.Tensor)
    assert trained > 100


def test_the_commands_and_programs_of_the_guide_work(binary, megatron, tmp_path):
    """docs/how-to/train-with-other-trainers.md, from its first to its last block."""
    pytest.importorskip("webdataset")
    for name in ["photos", "corpus"]:
        (tmp_path / name).symlink_to(FIXTURES / name)
    shutil.copy(FIXTURES / "tokenizers/bpe.json", tmp_path / "tokenizer.json")
    write_pairs(tmp_path / "pairs.jsonl", 60)
    environment = {**os.environ, "PATH": f"{binary.parent}{os.pathsep}{os.environ['PATH']}", "HF_HOME": str(tmp_path / "cache")}
    page = (ROOT / "docs/how-to/train-with-other-trainers.md").read_text()
    ran = []
    for _, language, block in FENCE.findall(page):
        command = {"sh": ["bash", "-euc", block], "python": [sys.executable, "-W", "ignore", "-c", block]}[language]
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, f"{block}\n{done.stdout}\n{done.stderr}"
        assert language == "sh" or done.stdout
        ran.append(language)
    assert ran.count("sh") == 9 and ran.count("python") == 6


# Prompts and rewards

CALL = {"type": "function", "function": {"name": "add", "arguments": {"a": 1, "b": 2.5}}}
PROMPTS = [
    {"prompt": [{"role": "user", "content": "2 + 2? 日本"}], "answer": "4", "extra": {"index": 1, "tags": ["a", "b"]}, "n": 1, "x": 0.5},
    {"prompt": [{"role": "system", "content": "be brief"}, {"role": "user", "content": ""}], "answer": None, "extra": None, "n": None, "x": 1e300},
    {"prompt": [{"role": "assistant", "content": None, "tool_calls": [CALL]}, {"role": "user", "content": "and?"}], "answer": "5", "extra": {"index": 3, "tags": []}, "n": -7, "x": None},
]


def without_null(value):
    if isinstance(value, dict):
        return {name: without_null(member) for name, member in value.items() if member is not None}
    return [without_null(item) for item in value] if isinstance(value, list) else value


@pytest.fixture
def prompts(dsconvert, tmp_path):
    """Converts rows to prompts, and exports them."""
    from test_chat_rows import model

    folder = model(tmp_path / "model")

    def run(rows, *options, out="prompts", status=0, keep="answer,extra:json,n:int64,x:float64"):
        source = tmp_path / f"{out}.jsonl"
        source.write_text("".join(json.dumps(row) + "\n" for row in rows))
        dsconvert("text", source, "--prompt-only", "--prompt-field", "prompt", "--keep-fields", keep, "--tokenizer", folder, "--out", tmp_path / out)
        return dsconvert("export", tmp_path / out, "--to", "hf", "--out", tmp_path / f"{out}-hf", *options, status=status), tmp_path / f"{out}-hf"

    return run


def test_prompts_are_nested_columns_with_equal_values(prompts, tmp_path):
    datasets = pytest.importorskip("datasets")
    _, out = prompts(PROMPTS, "--parts", "2")
    assert_listed(out)
    read = datasets.load_dataset(str(out), split="train", cache_dir=str(tmp_path / "cache"))
    for row, expected in zip(read, PROMPTS, strict=True):
        for name in expected:
            assert without_null(row[name]) == without_null(expected[name]), name
    assert list(read.features["prompt"].feature if hasattr(read.features["prompt"], "feature") else read.features["prompt"][0])[:2] == ["role", "content"]
    # As verl and others read it.
    table = pq.read_table(sorted((out / "data").glob("*.parquet"))[0])
    assert pa.types.is_list(table.schema.field("prompt").type) and pa.types.is_struct(table.schema.field("prompt").type.value_type)
    stored = prompts(PROMPTS, "--columns", "stored", out="texts")[1]
    rows = datasets.load_dataset(str(stored), split="train", cache_dir=str(tmp_path / "cache"))
    assert [json.loads(row["prompt"]) for row in rows] == [row["prompt"] for row in PROMPTS]


def test_prompts_of_two_types_are_named(prompts):
    user = lambda content: [{"role": "user", "content": content}]
    texts = [{"prompt": user("a"), "n": 1}, {"prompt": user([{"type": "text", "text": "b"}]), "n": 2}]
    done, _ = prompts(texts, status=2, keep="n:int64")
    assert "prompt[].content is a text in some records and a list in others" in done.stderr and "--columns stored" in done.stderr
    empty = [{"prompt": user("a"), "extra": {}}, {"prompt": user("b"), "extra": {}}]
    done, out = prompts(empty, out="empty", keep="extra:json")
    assert "extra is an object without members" in done.stderr
    assert pq.read_table(sorted((out / "data").glob("*.parquet"))[0])["extra"].to_pylist() == [None, None]


def test_columns_that_a_dataset_does_not_have_are_refused(dsconvert, prompts, corpus, tmp_path):
    _, out = prompts(PROMPTS)
    for dataset, columns, message in [
        (corpus.path, "nested", "is for prompts"),
        (corpus.path, "reward", "is for preference pairs"),
        (tmp_path / "prompts", "reward", "is for preference pairs"),
        (tmp_path / "prompts", "labels", "token ids"),
    ]:
        done = dsconvert("export", dataset, "--to", "hf", "--columns", columns, "--out", tmp_path / "none", status=2)
        assert message in done.stderr, done.stderr
