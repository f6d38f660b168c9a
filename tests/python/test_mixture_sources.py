"""Unusual sources of mixtures: 1,000 of them, one that is replaced while it is read, one that no budget fits."""

import os
import resource
import shutil

import numpy as np
import pytest

import dsconvert
from test_package_mixtures import POOL, pool, text_of  # noqa: F401

pytestmark = pytest.mark.usefixtures("no_ranks")


def test_a_thousand_datasets_are_mixed_with_few_open_files(text_of, tmp_path):  # noqa: F811
    original = text_of("web", POOL["web"])
    paths = [tmp_path / f"{number:03}" for number in range(1000)]
    for path in paths:
        shutil.copytree(original, path)
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (200, limit[1]))
    try:
        mixed = dsconvert.Mixture(dict.fromkeys(map(str, paths), 1), unit="records", epoch_steps=250)
        loader = dsconvert.Loader(mixed, batch_size=8, num_threads=2, seed=2, rank=0, world_size=1)
        numbers = []
        for batch in loader:
            assert set(np.unique(batch["input_ids"])) <= {0, ord("w")}
            numbers += batch["source"].tolist()
        assert [share.realized for share in loader.totals().sources.values()] == [1 / 1000] * 1000
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limit)
    assert np.bincount(numbers).tolist() == [2] * 1000


@pytest.mark.parametrize("mmap", [True, False])
@pytest.mark.parametrize("fmt", ["parquet", "arrow", "msgpack", "protobuf"])
def test_a_dataset_that_is_replaced_under_a_running_loader_gives_no_other_record(text_of, tmp_path, fmt, mmap):  # noqa: F811
    options = ["--format", fmt, "--shard-records", "10"]
    old, new = (text_of(f"{name}-{fmt}", [name[0] * 9] * 300, *options) for name in ("old", "new"))
    shutil.copytree(old, tmp_path / "data")
    datasets = {"data": dsconvert.open(tmp_path / "data", mmap=mmap), "web": text_of("web", POOL["web"])}
    mixed = dsconvert.Mixture({"data": 3, "web": 1}, datasets=datasets, unit="records", epoch_steps=150)
    loader = dsconvert.Loader(mixed, batch_size=1, num_threads=1, prefetch=1, seed=1, rank=0, world_size=1)
    batches, seen, errors = iter(loader), set(), []
    next(batches)
    os.rename(tmp_path / "data", tmp_path / "gone")
    shutil.copytree(new, tmp_path / "data")
    for _ in range(149):
        try:
            batch = next(batches)
        except dsconvert.Error as error:
            errors.append(str(error))
            continue
        seen |= set(np.unique(batch["input_ids"]).tolist())
        assert (batch["input_ids"] == ord("o")).sum() == 9 * (batch["source"] == 0).sum()
    assert next(batches, None) is None
    assert ord("n") not in seen and ord("w") in seen
    # Some shards were opened only afterwards; each error names one of them.
    assert errors and all("train-0000" in error for error in errors), errors[:3]


BUDGETS = [{"max_tokens": 15}, {"max_tokens": 15, "bucket": "none"}, {"max_tokens_unpadded": 15, "bucket": "none"}]


@pytest.mark.parametrize("budget", BUDGETS, ids=str)
@pytest.mark.parametrize("oversize", ["error", "drop", "alone", "truncate"])
def test_a_budget_below_the_shortest_record_of_a_dataset(pool, oversize, budget):  # noqa: F811
    assert pool["books"].lengths().min() == 20
    datasets = {name: pool[name] for name in ("lines", "books")}
    mixed = dsconvert.Mixture({"lines": 1, "books": 1}, datasets=datasets, epoch_steps=20)
    options = {**budget, "oversize": oversize, "rank": 0, "world_size": 1}
    refusals = {"error": 'the dataset "books": ', "drop": 'the dataset "books" fills no micro-batch'}
    if "bucket" in budget:
        refusals["alone"] = '`oversize "alone"` needs buckets by length'
    if oversize in refusals:
        message = refusals[oversize]
        with pytest.raises(dsconvert.UsageError) as caught:
            dsconvert.Loader(mixed, **options)
        assert message in str(caught.value) and caught.value.remedy
        return
    loader, longest = dsconvert.Loader(mixed, **options), 0
    for batch in loader:
        tokens = int((batch["input_ids"] == ord("b")).sum())
        longest = max(longest, tokens)
        if oversize == "truncate":
            assert batch["input_ids"].size <= 15
        elif tokens:
            assert loader.last.rows == 1 and tokens >= 20
    assert longest == 15 if oversize == "truncate" else longest > 20
