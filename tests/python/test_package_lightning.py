"""The Python package in PyTorch Lightning: epochs, and checkpoints that hold the state of a `Loader`."""

import pytest
import pytorch_lightning as lightning
import torch
from pytorch_lightning.callbacks import ModelCheckpoint

import dsconvert

# Expected, because tests resume from checkpoints in the same directory.
pytestmark = [
    pytest.mark.filterwarnings("ignore:Checkpoint directory .* exists and is not empty:UserWarning"),
    pytest.mark.sampled("frameworks", one_in=8),
]

EPOCHS = 3
# Threads of torch spin while they wait for each other. With so small a model on a busy machine, that takes minutes.
torch.set_num_threads(1)
# Batches are prepared in the training thread, or ahead by two other threads.
THREADS = pytest.mark.parametrize("threads", [0, 2])


class Model(lightning.LightningModule):
    """Records the keys of each training batch."""

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Linear(1, 1)
        self.seen = []

    def training_step(self, batch, _):
        self.seen.append(batch["key"])
        return self.weight(batch["lengths"][:, None].float()).mean()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=1e-6)


class ValidatedModel(Model):
    """Records the keys of each validation batch, too."""

    def __init__(self):
        super().__init__()
        self.validated = []

    def validation_step(self, batch, _):
        self.validated.append(batch["key"])


@pytest.fixture
def make(corpus_in):
    """A function that makes a loader of the training split."""
    text = dsconvert.open(corpus_in("arrow").path, "train")
    return lambda threads: dsconvert.Loader(
        text, batch_size=16, fields=["key", "lengths"], seed=2, num_threads=threads, as_torch=True
    )


@pytest.fixture
def epochs(make):
    """The batches of some epochs, without Lightning."""
    loader = make(0)
    return [[batch["key"] for batch in loader] for _ in range(EPOCHS)]


@pytest.fixture
def fit(tmp_path):
    """Trains with a new trainer and returns the model. A warning of Lightning is an error, as everywhere in tests."""

    def fit(loader, *callbacks, resume=None, validation=None, **limits):
        trainer = lightning.Trainer(
            accelerator="cpu", devices=1, logger=False, enable_progress_bar=False, enable_model_summary=False,
            default_root_dir=tmp_path, callbacks=list(callbacks), enable_checkpointing=bool(callbacks), **limits,
        )
        model = Model() if validation is None else ValidatedModel()
        # A checkpoint with the state of a loader can still be loaded with `weights_only`.
        trainer.fit(model, loader, validation, ckpt_path=resume, weights_only=resume and True)
        return model

    return fit


@pytest.fixture
def every(tmp_path):
    """A callback that keeps all checkpoints."""
    return lambda **when: ModelCheckpoint(
        tmp_path / "checkpoints", "{step}", save_top_k=-1, auto_insert_metric_name=False, **when
    )


@THREADS
def test_each_epoch_has_each_record_once_in_another_order(make, fit, epochs, threads):
    loader = make(threads)
    steps = len(loader)
    seen = fit(loader, max_epochs=2).seen
    for epoch in (seen[:steps], seen[steps:]):
        assert sorted(sum(epoch, [])) == sorted(record["key"] for record in loader.split)
    assert seen[:steps] != seen[steps:] and len(seen) == 2 * steps
    assert seen == epochs[0] + epochs[1]


@THREADS
@pytest.mark.parametrize("done", ["one", "some", "all but one", "an epoch", "more"])
def test_a_resumed_run_continues_after_the_checkpoint(make, fit, epochs, every, tmp_path, threads, done):
    steps = len(epochs[0])
    done = {"one": 1, "some": 7, "all but one": steps - 1, "an epoch": steps, "more": steps + 5}[done]
    uninterrupted = sum(epochs, [])
    # The checkpoint must count neither the batches consumed later nor those that threads had prepared ahead.
    first = fit(make(threads), every(every_n_train_steps=done), max_steps=done + 3).seen
    assert first == uninterrupted[: done + 3]
    checkpoint = tmp_path / f"checkpoints/{done}.ckpt"
    second = fit(make(threads), every(every_n_train_steps=done), resume=checkpoint, max_epochs=EPOCHS).seen
    assert second == uninterrupted[done:]


@pytest.mark.every_push
@THREADS
def test_a_run_can_be_resumed_twice_in_an_epoch(make, fit, epochs, every, tmp_path, threads):
    fit(make(threads), every(every_n_train_steps=4), max_steps=4)
    resumed = {"resume": tmp_path / "checkpoints/4.ckpt", "max_steps": 8}
    assert fit(make(threads), every(every_n_train_steps=4), **resumed).seen == epochs[0][4:8]
    resumed = {"resume": tmp_path / "checkpoints/8.ckpt", "max_epochs": 1}
    assert fit(make(threads), every(every_n_train_steps=4), **resumed).seen == epochs[0][8:]


@THREADS
@pytest.mark.parametrize("done", [1, 2])
def test_a_run_resumed_at_the_end_of_an_epoch_starts_the_next_one(make, fit, epochs, every, tmp_path, threads, done):
    """Lightning then restores no state of the loader, but sets its epoch."""
    fit(make(threads), every(every_n_epochs=1), max_epochs=done)
    checkpoint = tmp_path / f"checkpoints/{done * len(epochs[0])}.ckpt"
    model = fit(make(threads), every(every_n_epochs=1), resume=checkpoint, max_epochs=EPOCHS)
    assert model.seen == sum(epochs[done:], [])


@pytest.mark.parametrize(
    ("when", "done", "is_exact"),
    [({"every_n_train_steps": 5}, 5, False), ({"every_n_train_steps": 4}, 4, True), ({"every_n_epochs": 1}, 5, True)],
)
def test_a_run_of_shortened_epochs_resumes_as_the_guide_says(make, fit, epochs, every, tmp_path, when, done, is_exact):
    limits = {"limit_train_batches": 5, "max_epochs": 2}
    uninterrupted = fit(make(0), every(**when), **limits).seen
    assert uninterrupted == epochs[0][:5] + epochs[1][:5]
    resumed = fit(make(0), every(**when), resume=tmp_path / f"checkpoints/{done}.ckpt", **limits).seen
    assert (resumed == uninterrupted[done:]) == is_exact


def test_a_restored_state_overrides_the_epoch_of_the_trainer(make, fit, epochs, every, tmp_path):
    """Lightning counts an epoch that `max_steps` ended as complete, but the loader is in the middle of it."""
    # Saved at the end of training, not after a batch.
    fit(make(2), every(every_n_epochs=1, save_on_train_epoch_end=True), max_steps=5)
    limits = {"resume": tmp_path / "checkpoints/5.ckpt", "max_steps": 2 * len(epochs[0])}
    assert fit(make(2), every(every_n_epochs=1), **limits).seen == epochs[0][5:] + epochs[1]


def test_an_epoch_set_by_the_user_is_kept(make, fit, epochs):
    loader = make(2)
    loader.set_epoch(1)
    assert fit(loader, max_epochs=1).seen == epochs[1]
    assert fit(loader, max_epochs=1).seen == epochs[2]


def test_validation_in_the_middle_of_an_epoch_does_not_change_training(make, fit, epochs, corpus_in):
    validation = dsconvert.Loader(
        corpus_in("arrow").path, split="validation", batch_size=16, shuffle=False, fields=["key"], as_torch=True
    )
    model = fit(make(2), validation=validation, max_epochs=2, val_check_interval=10, num_sanity_val_steps=1)
    assert model.seen == epochs[0] + epochs[1]
    whole = [batch["key"] for batch in validation]
    assert model.validated == whole[:1] + whole * (2 * (len(epochs[0]) // 10))


def test_a_trainer_learns_the_length_of_the_epoch_to_come(text):
    """Epochs of packed rows differ in length, and Lightning reads the length before the first batch."""
    loader = dsconvert.Loader(text, seq_len=512, batch_size=1, pack_window=8, seed=1)
    lengths = []
    for epoch in range(6):
        loader.batch_sampler.set_epoch(epoch)
        lengths.append(len(loader))
        assert loader.epoch == epoch
        assert sum(1 for _ in loader) == lengths[-1]
    assert len(set(lengths)) > 1, lengths
