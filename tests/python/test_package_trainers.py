"""The Python package in trainers: Hugging Face `Trainer`, accelerate, JAX and plain numpy, with the real libraries.

The libraries are imported by the tests, since importing them takes seconds. JAX starts threads and warns about every
later fork, so it runs in a process of its own.
"""

import json
import subprocess
import sys

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

import dsconvert

# Warnings about single devices and missing accelerators, which are expected here.
pytestmark = [pytest.mark.filterwarnings("ignore::UserWarning"), pytest.mark.sampled("frameworks", one_in=4)]
torch.set_num_threads(1)
VOCABULARY = 4096


@pytest.fixture
def train(corpus_in):
    return dsconvert.open(corpus_in("arrow").path, "train")


def collate(records):
    """Pads the first ids of each record."""
    assert all(list(record) == ["input_ids"] for record in records), "the Trainer removes unused fields"
    rows = [torch.tensor(record["input_ids"][:16].astype(np.int64)) for record in records]
    ids = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True)
    mask = torch.nn.utils.rnn.pad_sequence([torch.ones_like(row) for row in rows], batch_first=True)
    return {"input_ids": ids, "attention_mask": mask, "labels": ids.masked_fill(mask == 0, -100)}


def tiny_model():
    """A Llama model with random weights, which records the ids that it is trained on."""
    import transformers

    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=VOCABULARY, hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=2,
        num_key_value_heads=2, max_position_embeddings=8192,
    )

    class RecordingModel(transformers.LlamaForCausalLM):
        seen = []

        def forward(self, input_ids=None, attention_mask=None, labels=None, **rest):
            self.seen.append(input_ids.tolist())
            return super().forward(input_ids=input_ids, attention_mask=attention_mask, labels=labels, **rest)

    model = RecordingModel(config)
    model.seen = []
    return model


def arguments(tmp_path, **options):
    import transformers

    return transformers.TrainingArguments(
        tmp_path / "out", per_device_train_batch_size=32, logging_strategy="no", report_to=[], use_cpu=True, seed=3,
        disable_tqdm=True, dataloader_pin_memory=False, **options,
    )


def test_a_split_is_a_train_dataset_and_training_resumes(train, tmp_path):
    import transformers

    def fit(resume=None, **options):
        model = tiny_model()
        options = {"save_steps": 4, "save_strategy": "steps", **options}
        trainer = transformers.Trainer(
            model, arguments(tmp_path, num_train_epochs=1, **options), data_collator=collate, train_dataset=train
        )
        assert trainer.args.remove_unused_columns
        trainer.train(resume_from_checkpoint=resume)
        return model

    whole = fit()
    assert len(whole.seen) == -(-len(train) // 32)
    assert sorted(row for batch in whole.seen for row in map(tuple, map(_without_zeros, batch))) == sorted(
        tuple(_without_zeros(record["input_ids"][:16].tolist())) for record in train
    )
    resumed = fit(resume=str(tmp_path / "out/checkpoint-4"))
    assert resumed.seen == whole.seen[4:]
    for ours, theirs in zip(resumed.parameters(), whole.parameters(), strict=True):
        assert torch.allclose(ours, theirs)


def _without_zeros(ids):
    return [i for i in ids if i]


@pytest.mark.every_push
def test_a_loader_gives_the_batches_of_a_trainer_and_resumes_exactly(train, tmp_path):
    import transformers

    few = train.dataset["validation"]

    class LoaderTrainer(transformers.Trainer):
        def get_train_dataloader(self):
            return self.loader

    class SaveLoader(transformers.TrainerCallback):
        def on_save(self, args, state, control, **_):
            path = f"{args.output_dir}/checkpoint-{state.global_step}/loader.json"
            with open(path, "w") as file:
                json.dump(self.loader.state_dict(), file)

    def make():
        return dsconvert.Loader(
            few, max_tokens=2048, oversize="truncate", fields=["input_ids", "attention_mask", "labels"], seed=5,
            as_torch=True, num_threads=2,
        )

    def fit(resume=None, **options):
        model, loader = tiny_model(), make()
        if resume is not None:
            loader.load_state_dict(json.loads((resume / "loader.json").read_text()))
        saver = SaveLoader()
        trainer = LoaderTrainer(model, arguments(tmp_path, ignore_data_skip=True, **options), callbacks=[saver])
        trainer.loader = saver.loader = loader
        trainer.train(resume_from_checkpoint=resume and str(resume))
        return model.seen

    loader = make()
    expected = [batch["input_ids"].tolist() for _ in range(2) for batch in loader]
    end = len(loader)
    assert 4 < end < 20
    first = fit(num_train_epochs=2, save_strategy="steps", save_steps=1, max_steps=end + 3)
    assert first == expected[: end + 3]
    # Resumes in the first epoch, at its end, and in the second.
    for step in (4, end, end + 2):
        resumed = fit(resume=tmp_path / f"out/checkpoint-{step}", num_train_epochs=2, save_strategy="no")
        assert resumed == expected[step:]


def test_accelerate_prepares_a_data_loader_over_a_split(train):
    import accelerate

    accelerator = accelerate.Accelerator(cpu=True)
    sampler = dsconvert.BatchSampler(train, max_tokens=2048, oversize="alone", seed=1, rank=0, world_size=1)
    expected = [train[batch] for batch in sampler]
    sampler.set_epoch(0)
    loader = accelerator.prepare(DataLoader(train, batch_sampler=sampler, collate_fn=list))
    given = list(loader)
    assert [[record["key"] for record in batch] for batch in given] == [
        [record["key"] for record in batch] for batch in expected
    ]


@pytest.mark.every_push
def test_accelerate_saves_the_state_of_a_loader(train, tmp_path):
    import accelerate

    def make():
        loader = dsconvert.Loader(train, batch_size=32, seed=1, as_torch=True, num_threads=2)
        accelerator = accelerate.Accelerator(cpu=True, project_dir=tmp_path)
        model = torch.nn.Linear(1, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        assert accelerator.prepare(loader) is loader, "its batches are those of this rank already"
        model, optimizer = accelerator.prepare(model, optimizer)
        accelerator.register_for_checkpointing(loader)
        return accelerator, loader, model, optimizer

    accelerator, loader, model, optimizer = make()
    seen = []
    for batch in loader:
        seen.append(batch["lengths"].tolist())
        accelerator.backward(model(batch["lengths"][:, None].float()).mean())
        optimizer.step()
        if len(seen) == 5:
            accelerator.save_state(tmp_path / "state")
    accelerator, loader, model, optimizer = make()
    accelerator.load_state(tmp_path / "state")
    assert [batch["lengths"].tolist() for batch in loader] == seen[5:]


JAX_PROGRAM = """
import sys
import dsconvert, jax, numpy as np

@jax.jit
def mean(batch):
    return (batch["input_ids"] * batch["attention_mask"]).sum() / batch["attention_mask"].sum()

loader = dsconvert.Loader(sys.argv[1], max_tokens=2048, oversize="truncate", id_dtype="int32", seed=1)
held, copies = [], []
for batch in loader:
    on_device = jax.device_put(batch)
    assert np.isclose(float(mean(on_device)), batch["input_ids"].sum() / batch["attention_mask"].sum(), rtol=1e-5)
    held.append(on_device)
    copies.append({name: array.copy() for name, array in batch.items()})
# JAX may share the memory of numpy arrays, so the loader must not overwrite it.
for on_device, copy in zip(held, copies, strict=True):
    assert on_device["input_ids"].dtype == jax.numpy.int32
    assert all(np.array_equal(on_device[name], copy[name]) for name in copy)
pictures = dsconvert.Loader(sys.argv[2], batch_size=4, center_crop=32)
images = jax.numpy.asarray(next(iter(pictures))["image"])
assert images.dtype == jax.numpy.uint8 and images.shape == (4, 32, 32, 3)
assert "torch" not in sys.modules
print(len(held), "batches")
"""


@pytest.mark.every_push
def test_jax_accepts_the_batches(train, photos_in, tmp_path):
    command = [sys.executable, "-c", JAX_PROGRAM, train.path, photos_in("arrow").path]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0 and done.stdout.endswith(" batches\n"), done.stdout + done.stderr


@pytest.mark.every_push
def test_training_with_plain_numpy_reduces_the_loss(photos_in):
    """Trains a multinomial logistic regression."""
    dataset = dsconvert.open(photos_in("msgpack").path)
    loader = dsconvert.Loader(dataset, batch_size=8, center_crop=16, seed=1)
    weights = np.zeros((16 * 16 * 3, len(dataset.class_names)))
    losses = []
    for _ in range(30):
        total = 0
        for batch in loader:
            x = batch["image"].reshape(len(batch["image"]), -1) / 255 - 0.5
            scores = x @ weights
            p = np.exp(scores - scores.max(1, keepdims=True))
            p /= p.sum(1, keepdims=True)
            rows = np.arange(len(x))
            total -= np.log(p[rows, batch["label"]]).sum()
            p[rows, batch["label"]] -= 1
            weights -= 0.01 * x.T @ p
        losses.append(total / len(dataset))
    assert losses[-1] < losses[0] / 2
