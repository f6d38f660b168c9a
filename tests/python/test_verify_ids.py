"""`inspect --verify` of token ids that another program has written: planted defects are named, and clean files have none."""

import json
import random

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from conftest import ROOT
from test_chat_rows import model
from test_export import megatron  # noqa: F401
from test_token_ids import DOCUMENTS, PLANTED, SOURCES, TOKENIZER, rows, write, write_megatron

FIELDS = ["--ids-field", "input_ids", "--mask-field", "assistant_masks", "--labels-field", "labels"]


@pytest.fixture
def verify(dsconvert):
    """Verifies ids, and returns the findings as pairs of code and message."""

    def run(path, *options, status=0):
        done = dsconvert("inspect", path, "--verify", "--json", *options, status=status)
        report = json.loads(done.stdout)
        assert report["ok"] == (status == 0) == (not report["findings"])
        return report

    return run


def found(report):
    return {finding["code"]: finding for finding in report["findings"]}


# Clean files


def distinct(made):
    """The rows without those that repeat another one."""
    seen = set()
    return [row for row in made if not (key := json.dumps(row, sort_keys=True)) in seen and not seen.add(key)]


@pytest.mark.parametrize("name", SOURCES)
def test_nothing_is_found_in_clean_rows_of_every_kind_of_file(verify, tmp_path, name):
    made = distinct(rows())
    SOURCES[name](tmp_path / name, made)
    for options in [[], ["--tokenizer", TOKENIZER]]:
        report = verify(tmp_path / name, *FIELDS, *options)
        assert (report["rows"], report["documents"]) == (len(made), len(made))
        assert report["tokens"] == sum(len(row["input_ids"]) for row in made)
        assert report["trained"] == sum(sum(row["assistant_masks"]) for row in made)


def test_nothing_is_found_in_files_of_megatrons_own_writer(verify, megatron, tmp_path):
    import torch

    chosen = random.Random(9)
    builder = megatron[2].IndexedDatasetBuilder(str(tmp_path / "own.bin"), dtype=np.int32)
    for _ in range(300):
        builder.add_item(torch.tensor([chosen.randrange(50_000) for _ in range(chosen.randrange(5, 200))]))
        builder.end_document()
    builder.finalize(str(tmp_path / "own.idx"))
    for name in ["own.idx", "own.bin"]:
        report = verify(tmp_path / name)
        assert (report["rows"], report["files"], report["trained"]) == (300, 1, None)
    assert "id" in found(verify(tmp_path / "own.idx", "--vocab-size", "1000", status=3))["invalid-value"]["message"]


def chats(count=60):
    """Distinct chats."""
    chosen = random.Random(4)
    words = ["the", "house", "was", "never", "empty", "again", "and", "so", "they", "left"]
    sentence = lambda: " ".join(chosen.choices(words, k=chosen.randrange(4, 12)))
    made = [{"prompt": sentence(), "completion": " " + sentence()} for _ in range(count)]
    return [pair for at, pair in enumerate(made) if pair not in made[:at]]


@pytest.mark.sampled("frameworks", one_in=2)
@pytest.mark.parametrize("packing", [False, True])
def test_nothing_is_found_in_what_trl_has_tokenized(verify, tmp_path, packing):
    trl, transformers, datasets = map(pytest.importorskip, ["trl", "transformers", "datasets"])
    folder = model(tmp_path / "model", "<s> $A")
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    size = {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1, "num_key_value_heads": 1}
    network = transformers.LlamaForCausalLM(transformers.LlamaConfig(vocab_size=len(tokenizer), **size))
    options = trl.SFTConfig(str(tmp_path / "run"), packing=packing, max_length=64, report_to=[], use_cpu=True, bf16=False)
    trainer = trl.SFTTrainer(network, options, train_dataset=datasets.Dataset.from_list(chats()), processing_class=tokenizer)
    trainer.train_dataset.save_to_disk(str(tmp_path / "saved"))
    named = ["--labels-field", "labels"] if "labels" in trainer.train_dataset.column_names else ["--mask-field", "completion_mask"]
    report = verify(tmp_path / "saved", "--ids-field", "input_ids", *named, "--tokenizer", folder)
    assert report["documents"] >= 55 and report["trained"] > 0


# Planted defects

GOOD = [{"input_ids": [3, 4, 5, at + 10], "assistant_masks": [0, 1, 1, 1], "labels": [-100, 4, 5, at + 10]} for at in range(40)]


def changed(**members):
    return {**GOOD[0], "input_ids": [8, 9, 5, 7], "labels": [-100, 9, 5, 7], **members}


# A row, the code of its finding, and words of its message.
ROWS = {
    "ids-null": (changed(input_ids=None), "missing-field", "input_ids"),
    "ids-empty": (changed(input_ids=[], assistant_masks=[], labels=[]), "empty", "no ids"),
    "id-negative": (changed(input_ids=[8, -9, 5, 7]), "invalid-value", "the id -9 of token 1 is negative"),
    "id-beyond-32-bits": (changed(input_ids=[2**32, 9, 5, 7]), "invalid-value", "does not fit in 32 bits"),
    "id-beyond-vocabulary": (changed(input_ids=[60_000, 9, 5, 7]), "invalid-value", "the largest id of the tokenizer"),
    "mask-null": (changed(assistant_masks=None), "missing-field", "assistant_masks"),
    "mask-shorter": (changed(assistant_masks=[0, 1, 1]), "invalid-value", "has 3 values, but there are 4 ids"),
    "mask-longer": (changed(assistant_masks=[0, 1, 1, 1, 1]), "invalid-value", "has 5 values"),
    "mask-all-0": (changed(assistant_masks=[0] * 4, labels=[-100] * 4), "nothing-to-train", "no token"),
    "mask-of-2": (changed(assistant_masks=[0, 2, 1, 1]), "invalid-value", "is 2 at token 1"),
    "mask-ignored": (changed(assistant_masks=[-100, 1, 1, 1]), "invalid-value", "is -100 at token 0"),
    "labels-shorter": (changed(labels=[-100, 9, 5]), "invalid-value", "has 3 values"),
    "labels-next": (changed(labels=[-100, 5, 7, -100]), "label-mismatch", "each label is the id of the next token"),
    "labels-before": (changed(labels=[-100, 8, 9, 5]), "label-mismatch", "each label is the id of the token before"),
    "labels-other": (changed(labels=[-100, 9, 6, 7]), "label-mismatch", "which is neither -100 nor its id 5"),
    "labels-masks": (changed(labels=[8, 9, 5, 7]), "invalid-value", "disagree about token 0"),
    "attention-padding": (changed(attention_mask=[1, 1, 1, 0]), "invalid-value", "marks 1 tokens as padding"),
    "attention-hole": (changed(attention_mask=[1, 0, 1, 1]), "invalid-value", "is 0 at token 1"),
    "attention-of-2": (changed(attention_mask=[1, 2, 1, 1]), "invalid-value", "attention_mask has the value 2"),
    "attention-none": (changed(attention_mask=[0, 0, 0, 0]), "empty", "only padding"),
    "lengths-sum": (changed(seq_lengths=[2, 1]), "invalid-value", "3 tokens together, but there are 4 ids"),
    "lengths-zero": (changed(seq_lengths=[4, 0]), "invalid-value", "seq_lengths has the length 0"),
    "positions": (changed(position_ids=[0, 1, 3, 4]), "invalid-value", "position_ids is 3 at token 2"),
    "positions-lengths": (changed(position_ids=[0, 1, 0, 1], seq_lengths=[3, 1]), "invalid-value", "disagree about the documents"),
    "document-not-trained": (changed(assistant_masks=[0, 0, 1, 1], labels=[-100, -100, 5, 7], seq_lengths=[2, 2]), "nothing-to-train", "no token of the document"),
    "repeated": (GOOD[7], "repeated", "the document repeats rows"),
}


def as_jsonl(path, made):
    return write(path.with_suffix(".jsonl"), made)


def as_parquet(path, made):
    lists = {name: pa.list_(pa.int64()) for row in made for name in row}
    pq.write_table(pa.Table.from_pylist(made, schema=pa.schema(lists)), path.with_suffix(".parquet"))
    return path.with_suffix(".parquet")


def as_saved(path, made):
    datasets = pytest.importorskip("datasets")
    names = {name for row in made for name in row}
    features = datasets.Features({name: datasets.Sequence(datasets.Value("int64")) for name in sorted(names)})
    datasets.Dataset.from_list([{name: row.get(name) for name in names} for row in made], features=features).save_to_disk(str(path))
    return path


@pytest.mark.parametrize("written", [as_jsonl, as_parquet, as_saved])
def test_each_planted_defect_of_rows_is_found_and_named(verify, tmp_path, written):
    clean = GOOD[:9] + GOOD[10:]
    assert not found(verify(written(tmp_path / "rows-clean", clean), *FIELDS, "--tokenizer", TOKENIZER))
    for case, (row, code, words) in ROWS.items():
        path = written(tmp_path / f"rows-{case}", GOOD[:9] + [row] + GOOD[10:])
        findings = found(verify(path, *FIELDS, "--tokenizer", TOKENIZER, status=3))
        assert list(findings) == [code], (case, findings)
        assert findings[code]["count"] == 1 and words in findings[code]["message"], (case, findings)
        assert written is as_jsonl or findings[code]["first"].endswith("#9"), (case, findings)


@pytest.mark.parametrize("defect", [name for name in PLANTED if name != "multimodal"])
def test_each_planted_defect_of_megatron_is_found_and_named(verify, tmp_path, defect):
    (finding,) = verify(write_megatron(tmp_path / "data", DOCUMENTS, **PLANTED[defect]), status=3)["findings"]
    assert (finding["code"], finding["first"]) == ("corrupt", "data.idx"), finding
    words = {"ids": ".bin file has", "index": "index", "bounds": "document", "offset": "byte", "offsets": "byte", "length": "sequence"}
    assert words.get(defect.partition("-")[0], "") in finding["message"], finding


def test_documents_of_megatron_that_are_empty_or_repeated_are_found(verify, tmp_path):
    documents = [[[at, at + 1, at + 2]] for at in range(30)] + [[]] + [[[4], [5, 6]], [[7, 8, 9]]]
    findings = found(verify(write_megatron(tmp_path / "data", documents), status=3))
    assert {code: (finding["count"], finding["first"]) for code, finding in findings.items()} == {
        "empty": (1, "data.idx#30"), "repeated": (2, "data.idx#31"),
    }
    assert findings["repeated"]["message"] == "the document repeats data.idx#4"
    assert "eod" not in findings
    required = found(verify(tmp_path / "data.idx", "--ids-field", "ids", "--eod", "require:8", status=3))
    assert "does not end with" in required["invalid-value"]["message"]


def test_padding_is_found_without_a_tokenizer_if_many_rows_have_it(verify, tmp_path):
    def padded(row, count=12):
        return {"input_ids": row["input_ids"] + [0] * count}

    made = [padded(row) if at % 10 == 0 else {"input_ids": row["input_ids"]} for at, row in enumerate(GOOD)]
    finding = found(verify(write(tmp_path / "rows.jsonl", made), "--ids-field", "input_ids", status=3))["padding"]
    assert finding["count"] == 4 and "have the id 0" in finding["message"]
    # One row may end like this.
    made = [{"input_ids": row["input_ids"]} for row in GOOD[1:]] + [padded(GOOD[0])]
    verify(write(tmp_path / "one.jsonl", made), "--ids-field", "input_ids")


def test_a_tokenizer_shows_doubled_bos_padding_and_shifted_masks(verify, tmp_path):
    folder = model(tmp_path / "model")
    ids = {token["content"]: token["id"] for token in json.loads((folder / "tokenizer.json").read_text())["added_tokens"]}
    bos, eos, start, end = (ids[name] for name in ["<s>", "</s>", "<|im_start|>", "<|im_end|>"])

    def chat(at, bos=[bos], shift=0, after=[]):
        # A header, an answer, and the token that ends it.
        made = [*bos, start, 20, 21, 30 + at, 31, end, 22, *after]
        trained = len(bos) + 3 + shift
        mask = [int(trained <= place < trained + 3) for place in range(len(made))]
        return {"input_ids": made, "mask": mask}

    named = ["--ids-field", "input_ids", "--mask-field", "mask", "--tokenizer", folder]
    clean = [chat(at) for at in range(20)]
    verify(write(tmp_path / "clean.jsonl", clean), *named)
    for case, (row, code, words) in {
        "bos": (chat(90, bos=[bos, bos]), "two-bos", "two BOS tokens"),
        "mask": (chat(90, shift=-1), "open-end", "or the mask is shifted"),
        "end": (chat(90, after=[eos, eos]), "padding", f"2 special tokens with the id {eos} are at the end"),
        "start": (chat(90, bos=[eos] * 3), "padding", f"3 special tokens with the id {eos} are at the start"),
        "start-of-two": (chat(90, bos=[start, start]), "padding", "3 special tokens"),
    }.items():
        findings = found(verify(write(tmp_path / f"{case}.jsonl", [*clean, row]), *named, status=3))
        assert list(findings) == [code] and words in findings[code]["message"], (case, findings)


def test_damaged_and_truncated_files_are_findings(verify, tmp_path):
    path = as_parquet(tmp_path / "rows", GOOD)
    path.write_bytes(path.read_bytes()[:-20])
    assert list(found(verify(path, *FIELDS, status=3)))[0] in ("corrupt", "truncated")
    folder = as_saved(tmp_path / "saved", GOOD)
    (stream,) = folder.glob("*.arrow")
    stream.write_bytes(stream.read_bytes()[:-60])
    assert set(found(verify(folder, *FIELDS, status=3))) <= {"corrupt", "truncated"}
    lines = tmp_path / "rows.jsonl"
    lines.write_text(json.dumps(GOOD[0]) + "\n{\n")
    assert list(found(verify(lines, *FIELDS, status=3))) == ["invalid-json"]


def test_repeated_documents_are_found_across_files_and_the_report_is_the_same_for_any_threads(verify, tmp_path):
    folder = tmp_path / "folder"
    folder.mkdir()
    made = distinct(rows(400, seed=5))
    write(folder / "a.jsonl", made[:200])
    as_parquet(folder / "b", made[100:])
    as_parquet(folder / "c", made[:50])
    count = 100 + 50
    reports = [verify(folder, *FIELDS, "--threads", threads, status=3) for threads in [1, 2, 7]]
    assert reports[0] == reports[1] == reports[2]
    finding = found(reports[0])["repeated"]
    assert finding["count"] == count and finding["first"] == "folder/b.parquet#0" and finding["message"].startswith("the document repeats folder/a.jsonl#")


def test_options_that_check_nothing_are_refused(dsconvert, tmp_path):
    source = write(tmp_path / "rows.jsonl", GOOD)
    dsconvert("text", source, "--ids-field", "input_ids", "--out", tmp_path / "out")
    for options, message in [
        ([source, "--ids-field", "input_ids"], "--ids-field applies only with --verify"),
        ([source, "--verify", "--vocab-size", "3"], "--vocab-size applies only to token ids"),
        ([source, "--verify", "--ids-field", "x"], 'no row has the field "x"'),
        ([source, "--verify", *FIELDS, "--keep-packs"], "--keep-packs applies only to a conversion"),
        ([source, "--verify", *FIELDS, "--repair", source], "--repair regenerates"),
        ([tmp_path / "out", "--verify", *FIELDS], "this is a dataset"),
        ([tmp_path / "out", "--verify", "--tokenizer", TOKENIZER], "--tokenizer applies only to"),
    ]:
        done = dsconvert("inspect", *options, status=2)
        assert message in done.stderr, done.stderr
    done = dsconvert("inspect", source, "--verify", status=3)
    assert "--ids-field input_ids" in done.stderr, done.stderr


def test_the_guide_shows_commands_that_run(dsconvert, tmp_path, monkeypatch):
    page = (ROOT / "docs/how-to/inspect-a-dataset.md").read_text()
    write(tmp_path / "rows.jsonl", [{**row, "labels": row["labels"]} for row in GOOD])
    write_megatron(tmp_path / "corpus", DOCUMENTS)
    model(tmp_path / "MODEL")
    monkeypatch.chdir(tmp_path)
    lines = [line for line in page.splitlines() if line.startswith("dsconvert inspect") and "--verify" in line and ("rows" in line or "corpus.idx" in line)]
    assert len(lines) == 2
    for line in lines:
        words = [str(tmp_path / word) if (tmp_path / word).exists() else word for word in line.split()[1:]]
        dsconvert(*words)
