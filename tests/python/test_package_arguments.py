"""The Python package: wrong arguments raise an error of dsconvert that names the argument."""

import numpy as np
import pytest

import dsconvert
from dsconvert.counts import counted

MAX = 2**64 - 1


@pytest.fixture
def pictures(photos_in):
    return dsconvert.open(photos_in("arrow").path, "train")


@pytest.fixture(params=[dsconvert.Loader, dsconvert.BatchSampler])
def kind(request):
    return request.param


@pytest.mark.parametrize("epoch", [-1, 2**64, 1.5, "one", None])
def test_an_epoch_is_a_64_bit_integer(text, kind, epoch):
    source = kind(text, batch_size=32)
    source.set_epoch(np.int64(3))
    with pytest.raises(dsconvert.UsageError, match=f"^epoch cannot be {epoch!r}: expected an integer from 0 to {MAX}$"):
        source.set_epoch(epoch)
    assert source.epoch == 3 and len(list(source)) == 16


def test_there_is_no_epoch_after_the_last_one(text, kind):
    source = kind(text, batch_size=32)
    source.set_epoch(MAX)
    assert len(list(source)) == 16
    with pytest.raises(dsconvert.OutOfRangeError, match="no epoch after"):
        next(iter(source))
    assert source.epoch == MAX


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"seed": 2**64}, f"seed cannot be {2**64}: the largest integer is {MAX}"),
        ({"batch_size": 2**70}, f"batch_size cannot be {2**70}: the largest integer is {MAX}"),
        ({"batch_size": object}, "batch_size cannot be <class 'object'>"),
        ({"bucket": [8, object]}, "bucket cannot be <class 'object'>"),
        ({"bucket": "length", "max_waste": float("nan")}, "max_waste cannot be nan: expected a finite number"),
        ({"bucket": "length", "max_waste": np.float32("inf")}, "max_waste cannot be inf: expected a finite number"),
        ({"micro_batches": 2**64}, f"micro_batches cannot be {2**64}: expected an integer from 0 to {2**63 - 1}"),
        ({"micro_batches": "two"}, f"micro_batches cannot be 'two': expected an integer from 0 to {2**63 - 1}"),
        ({"rank": "a", "world_size": 2}, f"rank cannot be 'a': expected an integer from 0 to {2**63 - 1}"),
        ({"rank": 0, "world_size": 2**64}, f"world_size cannot be {2**64}: expected an integer from 0 to {2**63 - 1}"),
        ({"replication": None}, f"replication cannot be None: expected an integer from 0 to {2**63 - 1}"),
    ],
)
def test_options_that_rust_cannot_represent_are_named(text, kind, options, message):
    with pytest.raises(dsconvert.UsageError) as caught:
        kind(text, **{"batch_size": 32, **options})
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"hflip": "x"}, 'hflip cannot be "x": expected a number'),
        ({"hflip": [0.5]}, "hflip cannot be [0.5]: expected a number"),
        ({"hflip": float("nan")}, "hflip cannot be nan: expected a finite number"),
        ({"crop_ratio": (0.5, float("inf"))}, "crop_ratio cannot be inf: expected a finite number"),
    ],
)
def test_options_of_images_are_named(pictures, options, message):
    with pytest.raises(dsconvert.UsageError) as caught:
        dsconvert.Loader(pictures, batch_size=4, random_resized_crop=8, **options)
    assert str(caught.value) == message


def test_numbers_may_be_scalars_of_numpy(pictures):
    images = []
    for flip in (1, 1.0, np.float32(1)):
        loader = dsconvert.Loader(
            pictures, batch_size=np.int32(4), center_crop=np.array([8, 9]), hflip=flip, fields=("image",),
            seed=np.uint64(MAX)
        )
        images.append(next(iter(loader))["image"])
    assert images[0].shape == (4, 8, 9, 3) and all(np.array_equal(images[0], other) for other in images)
    for flip, probability in ((True, 0.5), (np.True_, 0.5), (False, 0), (np.False_, 0)):
        ours = dsconvert.Loader(pictures, batch_size=4, center_crop=8, hflip=flip)
        theirs = dsconvert.Loader(pictures, batch_size=4, center_crop=8, hflip=probability)
        assert all(np.array_equal(a["image"], b["image"]) for a, b in zip(ours, theirs, strict=True))


@pytest.mark.parametrize(
    ("lengths", "message"),
    [
        ([1, -2], "source has the length -2 at position 1: lengths cannot be negative"),
        ([1.5], "source has values of type float64: lengths are integers"),
        ([True], "source has values of type bool"),
        (["a"], "source has values of type <U1"),
        ([2**64], "source has values of type object"),
        ([[1, 2]], "source has 2 dimensions: lengths have one"),
        ([[1], [1, 2]], "source is not a list of lengths"),
        ((n for n in [1]), "source is generator, not a path, a dataset, a split or a list of lengths"),
        ({1: 2}, "source is dict, not"),
        (5, "source is int, not"),
        (None, "source is NoneType, not"),
    ],
)
def test_lengths_are_integers(lengths, message):
    with pytest.raises(dsconvert.UsageError) as caught:
        dsconvert.BatchSampler(lengths, batch_size=1)
    assert str(caught.value).startswith(message) and "LengthArgument" not in str(caught.value)


def test_lengths_may_be_empty_or_of_any_integer_type():
    assert list(dsconvert.BatchSampler([], batch_size=1)) == []
    for dtype in (np.uint8, np.int64, np.uint64):
        assert list(dsconvert.BatchSampler(np.array([3, 4], dtype), batch_size=2, shuffle=False)) == [[0, 1]]


@pytest.mark.parametrize("state", [None, [], "state"])
def test_a_state_is_a_dictionary(text, kind, state):
    with pytest.raises(dsconvert.UsageError, match=f"^state is {type(state).__name__}, not a dictionary") as caught:
        kind(text, batch_size=32).load_state_dict(state)
    assert "state_dict" in caught.value.remedy


@pytest.mark.parametrize("state", [{"plan": object()}, {(1, 2): 3}, {"plan": float("nan")}, {"micro_batches": 2**70}])
def test_other_dictionaries_are_not_states(text, kind, state):
    with pytest.raises(dsconvert.UsageError, match="state"):
        kind(text, batch_size=32).load_state_dict(state)


def test_a_state_may_have_scalars_of_numpy(text, kind):
    source = kind(text, batch_size=32)
    next(iter(source))
    state = source.state_dict()
    plan = state["plan"]["records"]
    plan["step"], plan["epoch"], state["micro_batches_done"] = np.int64(1), np.array(0), np.uint8(0)
    again = kind(text, batch_size=32)
    again.load_state_dict(state)
    assert len(list(again)) == 15


@pytest.mark.parametrize("integer", [np.int64, np.uint8, np.array])
def test_the_micro_batches_of_a_state_may_be_a_scalar_of_numpy(text, kind, integer):
    source = kind(text, batch_size=32, micro_batches=2)
    next(iter(source))
    state = source.state_dict()
    state["plan"]["records"]["micro_batches"] = integer(2)
    again = kind(text, batch_size=32)
    again.load_state_dict(state)
    assert again.micro_batches == 2 and type(again.micro_batches) is int
    assert len(list(again)) == 15


@pytest.mark.parametrize("number", [2**20 + 1, 2**45, 2**62])
def test_the_micro_batches_of_a_step_are_bounded(text, kind, number):
    # Larger numbers need more memory than there is.
    with pytest.raises(dsconvert.UsageError, match=f"micro-batches per step is {number}, not between 1 and 1048576"):
        kind(text, batch_size=32, micro_batches=number)
    source = kind(text, batch_size=32)
    state = source.state_dict()
    state["plan"]["records"]["micro_batches"] = number
    with pytest.raises(dsconvert.UsageError, match=str(number)):
        source.load_state_dict(state)
    assert len(list(source)) == 16, "the source is unchanged"


def test_the_position_of_totals_is_named(text):
    sampler = dsconvert.BatchSampler(text, batch_size=32)
    with pytest.raises(dsconvert.UsageError, match="^step cannot be -1"):
        sampler.totals(-1)
    with pytest.raises(dsconvert.UsageError, match="^epoch cannot be -1"):
        sampler.totals(0, epoch=-1)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"storage_options": {"region": 1}}, "storage_options['region'] is int, not a string"),
        ({"storage_options": {1: "a"}}, "storage_options has the name 1, which is not a string"),
        ({"storage_options": "region=a"}, "storage_options is str, not a dictionary of names and values"),
        ({"open_shards": -1}, f"open_shards cannot be -1: expected an integer from 1 to {MAX}"),
        ({"open_shards": 0}, f"open_shards cannot be 0: expected an integer from 1 to {MAX}"),
        ({"read_ahead_bytes": 4096}, "read_ahead_bytes does not apply: the dataset has the format arrow"),
        ({"cache_bytes": "1 GB"}, f"cache_bytes cannot be '1 GB': expected an integer from 0 to {MAX}"),
        ({"read_ahead_bytes": 1.5}, f"read_ahead_bytes cannot be 1.5: expected an integer from 0 to {MAX}"),
    ],
)
def test_options_of_open_are_named(text, options, message):
    with pytest.raises(dsconvert.UsageError) as caught:
        dsconvert.open(text.path, **options)
    assert str(caught.value) == message


def test_counts_agree_with_their_nouns(text):
    assert [counted(1, "record"), counted(2000, "record")] == ["1 record", "2,000 records"]
    assert [counted(1, "retry", "retries"), counted(0, "retry", "retries")] == ["1 retry", "0 retries"]
    with pytest.raises(dsconvert.UsageError, match=f"length of 1, but the split has {counted(len(text), 'record')}$"):
        text[[True]]


def test_options_that_have_no_effect_are_refused(text):
    with pytest.raises(dsconvert.UsageError, match="^split does not apply: the source is not a dataset"):
        dsconvert.BatchSampler([1, 2, 3], batch_size=2, split="train")
    with pytest.raises(dsconvert.UsageError, match="^prefetch does not apply: with num_threads=0"):
        dsconvert.Loader(text, batch_size=2, num_threads=0, prefetch=3)


def test_the_bytes_to_read_ahead_apply_to_parquet(corpus_in):
    assert len(dsconvert.open(corpus_in("parquet").path, "train", read_ahead_bytes=4096)[:3]) == 3
