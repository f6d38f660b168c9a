"""Batches of preference data are those of TRL's collator, whatever the order of their rows."""

import json

import numpy as np
import pytest

import dsconvert
from conftest import ROOT

trl = pytest.importorskip("trl")

FIELDS = [
    "--prompt-field", "prompt", "--chosen-field", "chosen", "--rejected-field", "rejected", "--keep-fields",
    "margin:float64",
]
WORDS = "the cat sat on a mat and then some more".split()


@pytest.fixture(scope="module")
def pairs(command, tmp_path_factory):
    folder = tmp_path_factory.mktemp("pairs")
    rows = [
        {
            "prompt": " ".join(WORDS[: 1 + n % 5]),
            "chosen": f" {' '.join(WORDS[: 1 + n % 7])} a",
            "rejected": f" {WORDS[n % 4]} b",
            "margin": n / 4,
        }
        for n in range(50)
    ]
    (folder / "pairs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    command("text", folder / "pairs.jsonl", "--tokenizer", ROOT / "fixtures/tokenizers/bpe.json", "--eos-token", "<|endoftext|>", "--out",
            folder / "out", *FIELDS)
    return folder / "out"


def collated(dataset, records):
    """The batch of TRL for the same records."""
    from trl.trainer.dpo_trainer import DataCollatorForPreference

    rows = [dataset[int(record)] for record in records]
    ids = [{name: row[name].tolist() for name in ("prompt_ids", "chosen_ids", "rejected_ids")} for row in rows]
    return DataCollatorForPreference(pad_token_id=7)(ids)


@pytest.mark.parametrize("order", ["stacked", "alternating"])
@pytest.mark.parametrize("budget", [{"batch_size": 4}, {"max_tokens": 128}])
def test_batches_equal_those_of_the_collator_of_trl(pairs, order, budget):
    dataset = dsconvert.open(pairs, "train")
    fields = ["input_ids", "attention_mask", "completion_mask", "margin"]
    loader = dsconvert.Loader(pairs, **budget, pairs=order, seed=3, pad_id=7, fields=fields)
    seen = []
    for batch in loader:
        records = np.array(loader.last.records)
        rows = np.arange(len(records)).reshape(2, -1) if order == "stacked" else np.arange(len(records)).reshape(-1, 2).T
        chosen, rejected = rows
        assert (records[chosen] == records[rejected]).all()
        theirs = collated(dataset, records[chosen])
        for name in fields[:-1]:
            assert batch[name][rows.reshape(-1)].tolist() == theirs[name].tolist(), name
            assert batch[name].dtype == np.int64
        assert [margin * 4 for margin in batch["margin"]] == records[chosen].tolist()
        totals = loader.totals()
        assert (totals.rows, totals.tokens, totals.padded_tokens) == (
            len(records), int(theirs["attention_mask"].sum()), batch["input_ids"].size
        )
        assert batch["input_ids"].size <= budget.get("max_tokens", 1 << 20)
        seen += records[chosen].tolist()
    assert sorted(seen) == list(range(50))


def test_the_order_of_rows_is_an_option_of_pairs_only(pairs, corpus_in):
    with pytest.raises(dsconvert.UsageError, match="pairs does not apply: the records are not preference pairs"):
        dsconvert.Loader(corpus_in("arrow").path, batch_size=2, pairs="stacked")
    with pytest.raises(dsconvert.UsageError, match="seq_len does not apply"):
        dsconvert.Loader(pairs, batch_size=2, seq_len=64)
    batch = next(iter(dsconvert.Loader(pairs, batch_size=2)))
    assert list(batch) == ["input_ids", "attention_mask", "completion_mask", "labels", "lengths"]
    assert ((batch["labels"] >= 0) == (batch["completion_mask"] == 1)).all()
