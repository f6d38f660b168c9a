"""Index columns as a second length, and padded arrays, compared with a brute-force count and numpy."""

import pickle

import numpy as np
import pytest
import torch

import dsconvert

SCHEMA = {
    "frames": dsconvert.array("float16", (None, 3)),
    "wide": dsconvert.array("bfloat16", (2, None), nullable=True),
    "patches": "uint32",
}


def patches(item):
    return item * 37 % 50 + 1


def frames(item):
    return np.full((item % 6, 3), item, np.float16)


@pytest.fixture(scope="module", params=["arrow", "parquet"])
def out(request, tmp_path_factory):
    def fn(item):
        wide = None if item % 5 == 4 else torch.full((2, item % 4), item, dtype=torch.bfloat16)
        return {"frames": frames(item), "wide": wide, "patches": patches(item)}

    path = tmp_path_factory.mktemp("measured") / request.param
    options = {"version": "1", "unit_items": 70, "index": ["patches"], "format": request.param}
    dsconvert.convert(fn, range(200), path, SCHEMA, **options)
    return path


def test_index_columns_are_arrays(out):
    split = dsconvert.open(out, "train")
    column = split.index_column("patches")
    assert column.dtype == np.uint32 and column.tolist() == [patches(item) for item in range(200)]
    whole = dsconvert.open(out)
    assert whole.index_column("patches").tolist() == whole.with_length("patches").lengths().tolist() == column.tolist()
    assert split.select(["key"]).index_column("patches").tolist() == column.tolist()
    with pytest.raises(dsconvert.UsageError, match=r'no column "frames"\s.*its columns are patches'):
        split.index_column("frames")


@pytest.mark.parametrize("kind", ["loader", "sampler", "pickled"])
def test_batches_are_measured_by_a_column(out, kind):
    split = dsconvert.open(out, "train").with_length("patches")
    if kind == "pickled":
        split = pickle.loads(pickle.dumps(split)).select(["key", "patches"])
    assert split.lengths().tolist() == [patches(item) for item in range(200)] and split.length(3) == patches(3)
    assert split.fingerprint.endswith("/train/patches")
    if kind == "sampler":
        batches = list(dsconvert.BatchSampler(split, max_tokens_unpadded=200))
    else:
        made = dsconvert.Loader(split, max_tokens_unpadded=200, fields=["key", "patches"], num_threads=2)
        batches = [[int(key) for key in batch["key"]] for batch in made]
    assert sorted(record for batch in batches for record in batch) == list(range(200))
    sums = [sum(map(patches, batch)) for batch in batches]
    assert max(sums) <= 200 and len(batches) <= 1.5 * sum(sums) / 200


def test_several_datasets_have_no_common_index(out):
    both = dsconvert.open([out, out])
    for measure in (both.index_column, both.with_length):
        with pytest.raises(dsconvert.UsageError, match="no common record index"):
            measure("patches")


@pytest.mark.parametrize("as_torch", [False, True])
def test_arrays_with_an_open_axis_are_padded(out, as_torch):
    fields, rows = ["key", "frames", "wide"], 0
    loader = dsconvert.Loader(
        dsconvert.open(out, "train"), batch_size=7, last="pad", fields=fields, pad_fields=["frames", "wide"],
        as_torch=as_torch
    )
    for batch in loader:
        assert list(batch) == ["key", "frames", "frames.lengths", "wide", "wide.lengths", "wide.valid"]
        items = [None if key is None else int(key) for key in batch["key"]]
        longest = max(item % 6 for item in items if item is not None)
        assert tuple(batch["frames"].shape) == (7, longest, 3)
        if as_torch:
            assert batch["wide"].dtype == torch.bfloat16 and batch["frames"].dtype == torch.float16
        for row, item in enumerate(items):
            found = np.asarray(batch["frames"][row])
            if item is None:
                assert int(batch["frames.lengths"][row]) == 0 and not found.any()
                continue
            rows += 1
            length = int(batch["frames.lengths"][row])
            assert length == item % 6 and (found[:length] == frames(item)).all() and not found[length:].any()
            has_wide = item % 5 != 4
            wide = batch["wide"][row]
            wide = wide if as_torch else torch.from_numpy(np.array(wide)).view(torch.bfloat16)
            size = item % 4 if has_wide else 0
            assert bool(batch["wide.valid"][row]) == has_wide and int(batch["wide.lengths"][row]) == size
            assert (wide[:, :size] == item).all() and not wide[:, size:].any()
    assert rows == 200
    with pytest.raises(dsconvert.UsageError, match="cannot be padded: its type is uint32"):
        dsconvert.Loader(out, batch_size=7, pad_fields=["patches"])


def test_one_field_of_a_record_costs_the_whole_record_unless_checksums_are_off(out):
    """A checksum covers a whole record: damage to another field is found, unless `verify_checksums` is off."""
    split = dsconvert.open(out, "train", fields=["patches"])
    unverified = dsconvert.open(out, "train", fields=["patches"], verify_checksums=False)
    assert [record["patches"] for record in split] == [record["patches"] for record in unverified]
