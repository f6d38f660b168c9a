"""`dsconvert inspect A B --mixture …` predicts what a count over the batches of a real loader finds."""

import json
import random

import numpy as np
import pytest

import dsconvert
from test_package_mixtures import PADDING, a_mixture, pool, text_of  # noqa: F401

pytestmark = pytest.mark.usefixtures("no_ranks")

# The letter of each dataset, whose code is its only token. All other tokens are those of chats.
NAMES = {"w": "web", "c": "code", "b": "books", "o": "one", "l": "lines", "i": "wiki"}


def predicted(command, paths, weights, **options):
    arguments = [word for name, value in options.items() for word in (f"--{name.replace('_', '-')}", value)]
    weights = ",".join(map(repr, weights))
    return json.loads(command("inspect", *paths, "--mixture", weights, "--json", *arguments).stdout)


def counted(loader, names):
    """Rows, tokens and places of each dataset, from the arrays of an epoch."""
    numbers = np.full(1 << 20, names.index("chats") if "chats" in names else -1)
    for letter, name in NAMES.items():
        numbers[ord(letter)] = names.index(name) if name in names else -1
    rows, tokens, padded = (np.zeros(len(names), int) for _ in range(3))
    batches = 0
    for batch in loader:
        batches += 1
        ids = batch["input_ids"]
        if ids.ndim == 1:
            # Rows without a record are empty.
            for record in filter(len, np.split(ids, batch["cu_seqlens"][1:-1])):
                rows[numbers[record[0]]] += 1
                tokens[numbers[record[0]]] += len(record)
                padded[numbers[record[0]]] += len(record)
            continue
        for row in ids:
            own = row[row != PADDING]
            # A row without a record belongs to the only dataset of its batch.
            number = numbers[own[0] if len(own) else ids[0, 0]]
            rows[number] += len(own) > 0
            tokens[number] += len(own)
            padded[number] += len(row)
    return batches, rows.tolist(), tokens.tolist(), padded.tolist()


@pytest.mark.parametrize("seed", range(80))
def test_predictions_are_what_a_loader_delivers(command, pool, seed):  # noqa: F811
    choose = random.Random(seed)
    names, weights, mixture, options = a_mixture(choose, pool)
    for other in ("schedule", "shuffle", "pack_window"):
        mixture.pop(other, None)
        options.pop(other, None)
    if "last" in options:
        options["last"] = choose.choice(["short", "wrap", "pad"])
    if options.get("max_tokens"):
        options |= choose.choice([{}, {"pad_to_multiple_of": 4}])
    paths = [pool[name].path for name in names]
    mixed = dsconvert.Mixture(dict(zip(paths, weights)), **mixture)
    padding = {} if "max_tokens_unpadded" in options else {"pad_id": PADDING}
    loader = dsconvert.Loader(mixed, rank=0, world_size=1, **padding, **options)
    batches, rows, tokens, padded = counted(loader, names)
    found = predicted(command, paths, weights, **mixture, **options)
    assert [source["name"] for source in found["sources"]] == paths
    assert [source["records"] for source in found["sources"]] == [len(pool[name]) for name in names]
    for amount, expected in (("rows", rows), ("tokens", tokens), ("padded_tokens", padded)):
        assert [source[amount] for source in found["sources"]] == expected
        assert found[amount] == sum(expected)
    assert found["padding"] == (sum(padded) - sum(tokens)) / sum(padded)
    assert (found["batches"], found["steps"] * found["micro_batches"]) == (batches, batches)
    assert found["micro_batches"] == options["micro_batches"]
    pool_tokens = {pool[name].path: int(pool[name].lengths().sum()) for name in names}
    shares = loader.totals().sources.values()
    for source, share in zip(found["sources"], shares, strict=True):
        assert (source["requested"], source["realized"]) == (share.requested, share.realized)
        if "seq_len" in options:
            assert source["epochs"] == source["tokens"] / pool_tokens[source["name"]]
        else:
            assert source["epochs"] == share.epochs
    if mixture["unit"] == "tokens":
        assert [source["realized"] for source in found["sources"]] == [amount / sum(tokens) for amount in tokens]
    if options.get("bucket", "none") == "none" and "mix" not in mixture and "seq_len" not in options:
        passes = [count / len(pool[name]) for name, count in zip(names, rows)]
        assert [source["epochs"] for source in found["sources"]] == pytest.approx(passes)


def test_datasets_are_not_repeated_by_default(command, pool):  # noqa: F811
    paths = [pool[name].path for name in ("web", "wiki")]
    found = predicted(command, paths, [1, 3])
    assert found == predicted(command, paths, [0.25, 0.75], exhausted="first_exhausted", batch_size=32, seed=0)
    assert max(source["epochs"] for source in found["sources"]) >= 1
    text = command("inspect", *paths, "--mixture", "1,3").stdout
    assert "until the first dataset ends" in text and "25.0%" in text and f"{found['tokens']:,}" in text
    packed = command("inspect", *paths, "--mixture", "1,3", "--seq-len", 64, "--epoch-tokens", 9000).stdout
    assert "datasets are repeated" in packed


def test_images_are_counted_in_pixels(command, photos_in):
    photos = photos_in("arrow").path
    options = {"batch_size": 4, "unit": "records", "exhausted": "all_exhausted", "micro_batches": 2, "seed": 3}
    found = predicted(command, [photos], [1], **options, split="validation")
    split = dsconvert.open(photos)["validation"]
    mixed = dsconvert.Mixture({"photos": 1}, datasets={"photos": split}, unit="records", exhausted="all_exhausted")
    loader = dsconvert.Loader(mixed, batch_size=4, micro_batches=2, seed=3, decode=False, rank=0, world_size=1)
    records = [record for _ in loader for record in loader.last.records]
    assert (found["rows"], found["tokens"]) == (len(records), sum(split.length(record) for record in records))
    text = command("inspect", photos, "--mixture", 1, "--split", "validation").stdout
    assert "pixels" in text and "padding" not in text
