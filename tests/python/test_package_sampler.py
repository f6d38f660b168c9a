"""The Python package: which records `BatchSampler` and `Loader` deliver when, on which rank, and after a resume."""

import copy
import itertools
import json
import logging
import os
import pickle

import pytest

import dsconvert

pytestmark = pytest.mark.usefixtures("no_ranks")


@pytest.fixture(params=["sampler", "loader"])
def make(request, corpus_in):
    """Makes a sampler or a loader of the corpus."""
    path = corpus_in("arrow").path

    def make(**options):
        options = {"max_tokens": 4096, "oversize": "alone", "seed": 3, **options}
        if request.param == "sampler":
            return dsconvert.BatchSampler(path, **options)
        return dsconvert.Loader(path, fields=["lengths"], num_threads=2, **options)

    return make


def batches(source, limit=None):
    """Ordinals of the records of each batch of one iterator."""
    given = []
    for batch in itertools.islice(source, limit):
        given.append(batch if isinstance(source, dsconvert.BatchSampler) else source.last.records)
    return given


def test_a_sampler_gives_the_batches_of_a_loader(corpus_in):
    for options in (
        {"max_tokens": 4096, "oversize": "alone"},
        {"max_tokens": 4096, "oversize": "drop", "bucket": "geometric", "boundary_ratio": 1.3, "longest_first": True},
        {"batch_size": 7, "bucket": "windows", "window_steps": 3, "shuffle": "block", "block_records": 16},
        {"batch_size": 7, "bucket": [64, 256], "pad_to_multiple_of": 8, "last": "wrap"},
        {"max_tokens_unpadded": 5000, "oversize": "alone", "max_waste": 0.1},
        {"batch_size": 7, "shuffle": False, "last": "drop"},
    ):
        path = corpus_in("arrow").path
        sampler = dsconvert.BatchSampler(path, **options)
        loader = dsconvert.Loader(path, fields=["lengths"], num_threads=2, **options)
        for _ in range(2):
            assert len(sampler) == len(loader)
            given = batches(sampler)
            assert len(given) == len(sampler)
            assert batches(loader) == given
            assert sampler.state_dict() == loader.state_dict()


def test_every_record_comes_once_over_all_ranks(make):
    whole = [make(rank=rank, world_size=3, micro_batches=6) for rank in range(3)]
    for _ in range(2):
        given = [batches(rank) for rank in whole]
        assert {len(rank) for rank in given} == {len(whole[0])}
        records = sorted(record for rank in given for batch in rank for record in batch)
        assert records == list(range(483))
        assert all(len(batch) > 0 for rank in given for batch in rank[:-2])
    assert given[0] != given[1]


def test_epochs_advance_by_themselves_or_are_set(make):
    counting, setting = make(), make()
    epochs = [batches(counting) for _ in range(3)]
    assert counting.epoch == 2 and len({str(epoch) for epoch in epochs}) == 3
    for epoch in (2, 0, 0, 1):
        setting.set_epoch(epoch)
        assert batches(setting) == epochs[epoch]
        assert setting.epoch == epoch
    assert batches(setting) == epochs[2], "the next epoch"
    part = make()
    assert batches(part, 2) == epochs[0][:2]
    part.set_epoch(0)
    assert batches(part, 3) == epochs[0][:3], "from its start"
    assert batches(part) == epochs[1]


def test_ranks_that_form_one_model_replica_get_the_same_batches(make):
    groups = [make(rank=rank, world_size=4, replication=2) for rank in range(4)]
    assert groups[0].micro_batches == 2
    given = [batches(process) for process in groups]
    assert given[0] == given[1] != given[2] == given[3]
    assert sorted(sum(given[0] + given[2], [])) == list(range(483))


def test_resuming_repeats_and_skips_nothing(make):
    expected = [set(sum(epoch, [])) for epoch in [batches(make())]][0]
    for before, after in [(1, 1), (2, 4), (4, 2), (4, 1), (1, 4)]:
        for done in (0, 1, 3):
            seen, states = [], []
            for rank in range(before):
                source = make(rank=rank, world_size=before, micro_batches=4)
                seen += batches(source, done * 4 // before)
                states.append(source.state_dict())
            assert all(state == states[0] for state in states), "equal on every rank"
            state = json.loads(json.dumps(states[0]))
            for rank in range(after):
                source = make(rank=rank, world_size=after)
                source.load_state_dict(state)
                assert source.micro_batches == 4
                seen += batches(source)
                assert source.epoch == 0
                assert len(batches(source)) == len(source) and source.epoch == 1
            records = sorted(sum(seen, []))
            assert records == sorted(expected)


def test_a_state_in_the_middle_of_a_step_resumes_there(make):
    whole = batches(make(micro_batches=4))
    part = make(micro_batches=4)
    given = batches(part, 5)
    again = make()
    again.load_state_dict(part.state_dict())
    assert given + batches(again) == whole
    other = make(rank=0, world_size=2)
    with pytest.raises(dsconvert.UsageError, match="ranks"):
        other.load_state_dict(part.state_dict())


def test_set_epoch_after_loading_a_state_keeps_the_position(make):
    epochs = [batches(source) for source in [make()] for _ in range(2)]
    source = make()
    batches(source, 4)
    state = source.state_dict()
    resumed = make()
    resumed.load_state_dict(state)
    seen = []
    for epoch in range(2):
        resumed.set_epoch(epoch)
        seen += batches(resumed)
    assert seen == epochs[0][4:] + epochs[1]
    # After a state from the end of an epoch, the next iterator is that of the next epoch.
    over = make()
    batches(over)
    state = over.state_dict()
    resumed.load_state_dict(state)
    assert batches(resumed) == epochs[1]
    resumed.load_state_dict(state)
    resumed.set_epoch(0)
    assert batches(resumed) == []
    resumed.set_epoch(1)
    assert batches(resumed) == epochs[1]


@pytest.mark.parametrize(
    "duplicate", [lambda source: pickle.loads(pickle.dumps(source)), copy.copy, copy.deepcopy],
    ids=["pickle", "copy", "deepcopy"]
)
def test_a_copy_continues_where_the_original_was(make, duplicate):
    epochs = [batches(source) for source in [make()] for _ in range(3)]
    source = make()
    batches(source, 3)
    state = source.state_dict()
    again = duplicate(duplicate(source))
    assert again.state_dict() == state
    assert batches(again) == epochs[0][3:]
    assert batches(again) == epochs[1]
    again = duplicate(source)
    again.set_epoch(0)
    assert batches(again) == epochs[0][3:], "as after load_state_dict"
    again.load_state_dict(state)
    assert batches(again) == epochs[0][3:]
    # A copy made at the end of an epoch, or before the first batch, starts the next one.
    assert batches(duplicate(again)) == epochs[1]
    assert batches(duplicate(make())) == epochs[0]
    again.set_epoch(2)
    assert batches(duplicate(again)) == epochs[2]


@pytest.mark.parametrize(
    "first",
    [lambda source: None, len, lambda source: source.state_dict(), lambda source: source.set_epoch(0)],
    ids=["iter", "len", "state_dict", "set_epoch"],
)
def test_a_forked_process_continues_where_its_parent_was(make, first):
    epochs = [batches(source) for source in [make()] for _ in range(2)]
    source = make()
    iterator = iter(source)
    for _ in range(3):
        next(iterator)
    child = os.fork()
    if child == 0:
        status = 1
        try:
            first(source)
            assert batches(source) == epochs[0][3:] and batches(source) == epochs[1]
            status = 0
        finally:
            os._exit(status)
    assert os.waitpid(child, 0)[1] == 0
    assert batches(source) == epochs[1], "the parent starts its next epoch"


def test_only_the_latest_iterator_continues(make):
    source = make()
    first, second = iter(source), iter(source)
    next(first), next(first)
    next(second)
    with pytest.raises(dsconvert.UsageError, match="iter"):
        next(first)
    next(second)


def test_set_epoch_ends_the_current_iterator(make):
    source = make()
    epochs = [batches(other) for other in [make()] for _ in range(3)]
    for epoch in (1, 0, 0, 2):
        iterator = iter(source)
        next(iterator)
        source.set_epoch(epoch)
        with pytest.raises(dsconvert.UsageError, match="the epoch was set"):
            next(iterator)
        del iterator
        assert batches(source) == epochs[epoch]


def test_set_epoch_may_be_called_several_times_after_loading_a_state(make):
    epochs = [batches(other) for other in [make()] for _ in range(2)]
    for done in (4, len(epochs[0])):
        source = make()
        batches(source, done)
        state = source.state_dict()
        resumed = make()
        resumed.load_state_dict(state)
        for _ in range(3):
            resumed.set_epoch(0)
        assert batches(resumed) == epochs[0][done:]
        assert batches(resumed) == epochs[1]
        resumed.load_state_dict(state)
        resumed.set_epoch(1)
        resumed.set_epoch(0)
        assert batches(resumed) == epochs[0], "after another epoch was set, the position is that of the epoch"


def test_set_epoch_starts_over_after_the_rest_of_a_loaded_epoch(make):
    source = make()
    epoch = batches(source)
    resumed = make()
    resumed.load_state_dict(source.state_dict())
    for expected in ([], epoch, epoch):
        resumed.set_epoch(0)
        assert batches(resumed) == expected


def test_set_epoch_starts_over_after_a_failed_first_batch(text):
    failing = []

    def transform(batch):
        if failing:
            raise ValueError(failing.pop())
        return batch

    loader = dsconvert.Loader(text, batch_size=16, num_threads=0, batch_transform=transform)
    batches(loader, 5)
    loader.load_state_dict(loader.state_dict())
    failing.append("deliberate")
    with pytest.raises(ValueError, match="deliberate"):
        next(iter(loader))
    loader.set_epoch(0)
    assert len(batches(loader)) == len(loader)


def test_states_of_other_sources_are_refused(make, corpus_in):
    state = make().state_dict()
    for other in (make(seed=4), make(max_tokens=5000), make(split="validation"), make(micro_batches=2)):
        before = other.state_dict()
        with pytest.raises(dsconvert.UsageError, match="state was saved for"):
            other.load_state_dict(state)
        assert other.state_dict() == before
        if isinstance(other, dsconvert.Loader):
            batches(other, 2)
            before = other.last, other.totals()
            with pytest.raises(dsconvert.UsageError, match="state was saved for"):
                other.load_state_dict(state)
            assert (other.last, other.totals()) == before and None not in before
    for no_state in ({}, {"plan": 3}, {"micro_batches": 2}, {**state, "more": 1}):
        with pytest.raises(dsconvert.UsageError) as caught:
            make().load_state_dict(no_state)
        assert caught.value.remedy is not None, "says what to do next"
    ended = json.loads(json.dumps(state))
    ended["plan"]["records"]["step"] = 10**6
    with pytest.raises(dsconvert.UsageError, match="1000000 steps done"):
        make().load_state_dict(ended)
    packed = dsconvert.Loader(corpus_in("arrow").path, seq_len=64, batch_size=2).state_dict()
    with pytest.raises(dsconvert.UsageError):
        make().load_state_dict(packed)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"max_tokens": None}, "one of batch_size"),
        ({"batch_size": 3}, "one of batch_size"),
        ({"max_tokens": 0}, "`max_tokens` is 0"),
        ({"max_tokens": -1}, "max_tokens cannot be -1"),
        ({"max_tokens": "many"}, "max_tokens cannot be"),
        ({"bucket": "size"}, 'bucket cannot be "size": expected "none", "length"'),
        ({"bucket": [5, 3]}, "ascend"),
        ({"bucket": {"a": 1}}, "bucket cannot be"),
        ({"shuffle": "some"}, "shuffle cannot be"),
        ({"window_steps": 3}, "window_steps does not apply"),
        ({"last": "first"}, "last cannot be"),
        ({"oversize": "error"}, "4096"),
        ({"rank": 2, "world_size": 2}, "no rank 2"),
        ({"rank": 0, "world_size": 0}, "world_size"),
        ({"rank": -1, "world_size": 2}, "rank"),
        ({"rank": 1}, "both rank and world_size"),
        ({"rank": 0, "world_size": 2, "micro_batches": 3}, "cannot be shared"),
        ({"rank": 0, "world_size": 3, "replication": 2}, "not a multiple of replication"),
        ({"replication": 0}, "replication"),
        ({"micro_batches": 0}, "micro-batches"),
        ({"split": "nothing"}, "no split"),
    ],
)
def test_invalid_options_are_refused(make, options, words):
    with pytest.raises(dsconvert.UsageError, match=words):
        make(**options)


def test_ranks_are_detected_and_logged_once(make, monkeypatch, caplog):
    make()
    assert not caplog.records
    monkeypatch.setenv("RANK", "1")
    make()
    assert not caplog.records, "one of the two is not enough"
    monkeypatch.setenv("WORLD_SIZE", "2")
    with caplog.at_level(logging.WARNING, logger="dsconvert"):
        found = [make(), make()]
    assert [record.getMessage() for record in caplog.records] == [
        "using rank 1 of 2 (from RANK and WORLD_SIZE)"
    ]
    assert batches(found[0]) == batches(make(rank=1, world_size=2))
    given = make(rank=0, world_size=1)
    assert len(given) > len(found[1]), "explicit arguments take precedence"


def test_the_totals_of_a_step_are_known_on_every_rank(make, corpus_in):
    sources = [make(rank=rank, world_size=2, micro_batches=4) for rank in range(2)]
    given = [batches(source, 4) for source in sources]
    second = sum((batch for rank in given for batch in rank[2:4]), [])
    lengths = dsconvert.open(corpus_in("arrow").path, "train").lengths()
    for source in sources:
        totals = source.totals() if isinstance(source, dsconvert.Loader) else source.totals(step=1)
        assert totals.rows == len(second) and totals.labels is None
        assert totals.tokens <= totals.padded_tokens <= 4 * 4096
        assert totals.tokens == lengths[second].sum()


def test_a_split_refuses_the_name_of_another(corpus_in):
    train = dsconvert.open(corpus_in("arrow").path, "train")
    assert len(dsconvert.BatchSampler(train, split="train", batch_size=10)) == 49
    with pytest.raises(dsconvert.UsageError, match="train"):
        dsconvert.BatchSampler(train, split="validation", batch_size=10)


@pytest.mark.parametrize("what", ["sampler", "loader", "packed"])
def test_damaged_states_are_refused_with_a_remedy(text, what):
    def make(**options):
        if what == "packed":
            return dsconvert.Loader(text, seq_len=64, batch_size=2, **options)
        return (dsconvert.BatchSampler if what == "sampler" else dsconvert.Loader)(text, batch_size=16, **options)

    source = make(micro_batches=2)
    start = source.state_dict()
    next(iter(source))
    half = source.state_dict()
    assert half["micro_batches_done"] == 1
    source.load_state_dict(half)
    assert sum(1 for _ in source) == len(source) - 1
    ended = source.state_dict()

    def changed(state, **changes):
        plan = state["plan"]
        packed = plan.get("packed")
        if packed is not None:
            return {**state, "plan": {"packed": {**packed, "plan": {**packed["plan"], **changes}}}}
        return {**state, "plan": {"records": {**plan["records"], **changes}}}

    damaged = [
        ({**ended, "micro_batches_done": 1}, "1 micro-batches done after the last step"),
        (changed(ended, step=10**6), "1000000 steps"),
        (changed(half, micro_batches=0), "the state has micro_batches 0"),
    ]
    if what == "packed":
        damaged.append((changed(start, step=1), "1 steps done, but points at document 0"))
    for state, message in damaged:
        with pytest.raises(dsconvert.UsageError, match=message) as caught:
            make().load_state_dict(state)
        assert "restore another one" in caught.value.remedy


def test_the_iterator_continues_after_an_error(text, monkeypatch):
    expected = list(dsconvert.BatchSampler(text, batch_size=16, seed=3))
    sampler = dsconvert.BatchSampler(text, batch_size=16, seed=3)
    plan = sampler._handle()

    class Failing:
        def batch(self, epoch, step, index):
            if step == 2:
                raise dsconvert.IoError("no answer")
            return plan.batch(epoch, step, index)

        def __getattr__(self, name):
            return getattr(plan, name)

    monkeypatch.setattr(sampler, "_plan", Failing())
    batches, found, errors = iter(sampler), [], 0
    while True:
        try:
            batch = next(batches, None)
        except dsconvert.IoError:
            errors += 1
            assert sampler.state_dict()["plan"]["records"]["step"] == 2, "a failed batch is not counted"
            continue
        if batch is None:
            break
        found.append(batch)
    assert (found, errors) == (expected[:2] + expected[3:], 1)


def test_leaving_a_loaded_position_is_a_warning(text, caplog):
    sampler = dsconvert.BatchSampler(text, batch_size=16)
    next(iter(sampler))
    state = sampler.state_dict()
    resumed = dsconvert.BatchSampler(text, batch_size=16)
    resumed.load_state_dict(state)
    with caplog.at_level(logging.WARNING, "dsconvert"):
        resumed.set_epoch(0)
        assert not caplog.records
        resumed.load_state_dict(state)
        resumed.set_epoch(1)
    assert "leaves the position in epoch 0" in caplog.text
    caplog.clear()
    # A state at the end of an epoch is followed by the next one.
    list(sampler)
    resumed.load_state_dict(sampler.state_dict())
    with caplog.at_level(logging.WARNING, "dsconvert"):
        resumed.set_epoch(1)
    assert not caplog.records


def test_accelerate_learns_that_the_last_step_is_dropped(text):
    assert dsconvert.BatchSampler(text, batch_size=16, last="drop").drop_last
    assert not dsconvert.BatchSampler(text, batch_size=16).drop_last
