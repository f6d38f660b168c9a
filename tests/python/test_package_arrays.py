"""Arrays and lists of texts in the Python package, as `tests/golden/arrays.rs` wrote them."""

import numpy as np
import pytest
import torch
from conftest import ROOT
from test_arrays import SHAPES, tags, written

import dsconvert

GOLDEN = ROOT / "fixtures/golden/v3"


@pytest.fixture(params=["parquet", "arrow"])
def dataset(request):
    return dsconvert.open(GOLDEN / f"arrays-{request.param}", "train")


def test_records_have_arrays(dataset):
    assert dict(dataset.fields)["latent"] == "array<bfloat16>[4,?,?]"
    for record in dataset:
        for name in SHAPES:
            expected = written(name, record["key"])
            if expected is None:
                assert record[name] is None
                continue
            found = record[name]
            assert found.dtype == expected.dtype and found.shape == expected.shape and (found == expected).all()
            assert not found.flags.writeable
        assert record["tags"] == tags(record["key"])


def test_a_large_array_is_a_view_of_the_mapped_file():
    record = dsconvert.open(GOLDEN / "arrays-arrow", "train")[0]
    array = record["float64"]
    assert not array.flags.owndata and array.flags.aligned and array.ctypes.data % 8 == 0
    again = dsconvert.open(GOLDEN / "arrays-arrow", "train", fields=["float64"], verify_checksums=False)[0]
    assert list(again) == ["float64"] and (again["float64"] == array).all()


@pytest.mark.parametrize("as_torch", [False, True])
def test_batches_stack_arrays_of_fixed_shape(dataset, as_torch):
    fields = ["key", *SHAPES, "tags"]
    rows = 0
    for batch in dsconvert.Loader(dataset, batch_size=4, fields=fields, as_torch=as_torch, num_threads=2):
        for row, key in enumerate(batch["key"]):
            if key is None:
                continue
            rows += 1
            assert batch["tags"][row] == tags(key)
            for name in SHAPES:
                expected, found = written(name, key), batch[name][row]
                if expected is None:
                    if f"{name}.valid" in batch:
                        assert not batch[f"{name}.valid"][row] and not found.any()
                    else:
                        assert found is None
                    continue
                if as_torch:
                    dtype = SHAPES[name][0]
                    assert found.dtype == getattr(torch, dtype)
                    found = found.view(torch.uint16) if dtype == "bfloat16" else found
                    found = found.numpy()
                found = np.asarray(found)
                assert found.dtype == expected.dtype and found.shape == expected.shape and (found == expected).all()
        fixed = batch["bfloat16"]
        assert tuple(fixed.shape) == (len(batch["key"]), 2, 3)
        assert isinstance(batch["latent"], list) and "latent.valid" not in batch
    assert rows == 13
