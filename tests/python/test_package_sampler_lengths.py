"""The Python package: a `BatchSampler` of given lengths."""

import pickle

import numpy as np
import pytest

import dsconvert

pytestmark = pytest.mark.usefixtures("no_ranks")


def test_a_sampler_can_be_made_from_lengths():
    lengths = np.arange(1, 201)
    sampler = dsconvert.BatchSampler(lengths, max_tokens=1000, seed=1)
    given = list(sampler)
    assert sorted(sum(given, [])) == list(range(200))
    assert all(len(batch) * lengths[batch].max() <= 1000 for batch in given)
    assert sampler.counts()["delivered"] == 200
    assert list(dsconvert.BatchSampler(lengths.tolist(), max_tokens=1000, seed=1)) == given
    assert list(pickle.loads(pickle.dumps(dsconvert.BatchSampler(lengths, max_tokens=1000, seed=1)))) == given
    with pytest.raises(dsconvert.UsageError, match="pad"):
        dsconvert.BatchSampler(lengths, batch_size=3, last="pad")


def test_a_state_is_refused_for_lengths_in_another_order():
    lengths = [3, 9, 9, 4, 1, 7]
    state = dsconvert.BatchSampler(lengths, batch_size=2).state_dict()
    dsconvert.BatchSampler(np.array(lengths), batch_size=2).load_state_dict(state)
    with pytest.raises(dsconvert.UsageError, match="state was saved for"):
        dsconvert.BatchSampler(lengths[::-1], batch_size=2).load_state_dict(state)


@pytest.mark.parametrize(("options", "remedy"), [
    ({}, 'set `oversize` to "alone" or "drop", or raise `max_tokens` to 9 or more'),
    ({"bucket": "none"}, 'set `oversize` to "drop", or raise `max_tokens` to 9 or more'),
    ({"bucket": "none", "shuffle": False}, "raise `max_tokens` to 9 or more"),
])
def test_remedies_for_long_records_apply(options, remedy):
    with pytest.raises(dsconvert.UsageError, match="longer than the 4") as caught:
        dsconvert.BatchSampler([9, 9], max_tokens=4, **options)
    assert caught.value.remedy == remedy


def test_a_sampler_cannot_cut_records(corpus_in):
    train = dsconvert.open(corpus_in("arrow").path, "train")
    for source in (train, train.path, [5000, 3]):
        with pytest.raises(dsconvert.UsageError, match="^oversize='truncate' does not apply") as caught:
            dsconvert.BatchSampler(source, max_tokens=4096, oversize="truncate")
        assert "np.minimum" in caught.value.remedy
    options = {"max_tokens": 4096, "seed": 3}
    cut = list(dsconvert.BatchSampler(np.minimum(train.lengths(), 4096), **options))
    assert max(len(batch) * min(train.lengths()[batch].max(), 4096) for batch in cut) <= 4096
    assert sorted(sum(cut, [])) == list(range(len(train)))


def test_impossible_states_and_large_lengths(text):
    sampler = dsconvert.BatchSampler(text, batch_size=16, micro_batches=2)
    state = {**sampler.state_dict(), "micro_batches_done": 2}
    with pytest.raises(dsconvert.UsageError, match="2 of 2 micro-batches"):
        sampler.load_state_dict(state)
    # An array of both would have floats.
    assert sorted(map(tuple, dsconvert.BatchSampler([2**64 - 1, 5], batch_size=1))) == [(0,), (1,)]
    # Sums beyond 64 bits are the largest integer.
    for options in ({"batch_size": 2}, {"batch_size": 1, "micro_batches": 2}):
        totals = dsconvert.BatchSampler([2**63, 2**63], **options).totals(0)
        assert (totals.rows, totals.tokens, totals.padded_tokens) == (2, 2**64 - 1, 2**64 - 1)
