"""Mixtures on 1, 2, 3 and 8 ranks, and resumed at random points on another number of ranks."""

import json
import random

import pytest

import dsconvert
from test_package_mixtures import a_mixture, pool, text_of  # noqa: F401

pytestmark = pytest.mark.usefixtures("no_ranks")

RANKS = (1, 2, 3, 8)
MICRO_BATCHES = 24
EPOCHS = 3


def drawn(loaders, epochs):
    """The records of each micro-batch of some epochs."""
    found = {}
    for loader in loaders:
        for _ in range(epochs):
            for _ in loader:
                info = loader.last
                assert (info.epoch, info.step, info.micro_batch) not in found
                found[info.epoch, info.step, info.micro_batch] = info.records
    return {place: records for place, records in found.items() if place[0] < EPOCHS}


@pytest.mark.parametrize("seed", range(16))
def test_ranks_share_a_mixture_and_continue_it_on_any_other_number(pool, seed):  # noqa: F811
    choose = random.Random(f"ranks {seed}")
    names, weights, mixture, options = a_mixture(choose, pool)
    options["micro_batches"] = MICRO_BATCHES
    mixture |= {"schedule": [(step, dict(zip(names, later))) for step, later in mixture.get("schedule", ())]}
    if "epoch_tokens" in mixture:
        mixture["epoch_tokens"] = 3000

    def loaders(world_size):
        mixed = dsconvert.Mixture(dict(zip(names, weights)), datasets={name: pool[name] for name in names}, **mixture)
        return [
            dsconvert.Loader(mixed, num_threads=1, rank=rank, world_size=world_size, **options)
            for rank in range(world_size)
        ]

    whole = drawn(loaders(1), EPOCHS)
    for world_size in RANKS[1:]:
        assert drawn(loaders(world_size), EPOCHS) == whole
    for _ in range(4):
        first, second = choose.sample(RANKS, 2)
        # The number of batches of each rank, anywhere in the epochs.
        stop = choose.randrange(1, len(whole) // first)
        started, found = loaders(first), {}
        for loader in started:
            batches = (loader.last for _ in range(EPOCHS) for _ in loader)
            for _, info in zip(range(stop), batches):
                found[info.epoch, info.step, info.micro_batch] = info.records
        states = {json.dumps(loader.state_dict()) for loader in started}
        assert len(states) == 1
        state = json.loads(states.pop())
        open_step = state["micro_batches_done"]
        assert open_step == stop * first % MICRO_BATCHES
        if open_step % second:
            with pytest.raises(dsconvert.UsageError, match=f"which cannot be shared by {second} ranks"):
                loaders(second)[0].load_state_dict(state)
            second = 1
        resumed = loaders(second)
        for loader in resumed:
            loader.load_state_dict(state)
        rest = drawn(resumed, EPOCHS)
        assert not found.keys() & rest.keys()
        assert found | rest == whole
