"""The programs and snippets of the documentation run unchanged."""

import json
import os
import random
import re
import shlex
import subprocess
import sys

import pytest
from PIL import Image, ImageDraw

import dsconvert
from conftest import ROOT

pytestmark = pytest.mark.sampled("examples", one_in=4, using="run")
README = (ROOT / "README.md").read_text()


def blocks(page):
    """The Python blocks of a page."""
    return re.findall(r"^```python\n(.*?)^```$", (ROOT / "docs" / page).read_text(), re.MULTILINE | re.DOTALL)


def programs(*pages):
    """The blocks that start with the name of a file."""
    return {name: block for page in pages for block in blocks(page) for name in re.findall(r"\A# (\w+\.py)\n", block)}


TUTORIAL = programs("tutorial/first-dataset.md")
PROGRAMS = TUTORIAL | programs(
    "how-to/use-lightning.md", "how-to/train-with-pytorch.md", "how-to/train-on-several-ranks.md",
    "how-to/pretrain-on-packed-tokens.md", "how-to/fine-tune-on-chat-data.md", "how-to/fine-tune-a-vision-language-model.md", "how-to/prepare-dpo-data.md", "how-to/prompts-for-grpo.md", "how-to/mix-datasets.md", "how-to/train-a-diffusion-model.md", "how-to/classify-images-with-ddp.md",
    "how-to/detect-objects.md",
    "how-to/use-the-hugging-face-trainer.md", "how-to/use-accelerate.md", "how-to/use-jax-or-numpy.md",
    "how-to/load-faster.md", "how-to/use-with-other-libraries.md",
)
SNIPPETS = blocks("reference/python.md")


@pytest.fixture
def run(tmp_path):
    """Writes a program of the guide into a file and runs it."""

    def run(name, *args, processes=None, stdin=None):
        (tmp_path / name).write_text(PROGRAMS[name])
        # Unbuffered Python writes a line and its line end separately, so that the lines of two ranks may mix. The
        # launcher starts `python -u`, unless it is given the whole command.
        launcher = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}", "--no-python", sys.executable]
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        environment.pop("PYTHONUNBUFFERED", None)
        done = subprocess.run(
            [sys.executable, *(launcher if processes else []), name, *map(str, args)],
            cwd=tmp_path, env=environment, stdin=stdin, capture_output=True, text=True, timeout=300,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    return run


def test_there_are_programs_and_snippets():
    assert list(PROGRAMS) == [
        "look.py", "train.py", "rows.py",
        "train_lightning.py", "train_images.py", "train_resnet.py", "train_packed.py", "train_seq2seq.py", "train_ranks.py",
        "train_pretrain.py", "train_chat.py", "train_trl.py", "train_vision.py", "train_vision_trainer.py", "train_dpo.py", "train_kto.py", "train_grpo.py", "train_mixture.py", "train_diffusion.py", "train_ddp.py", "train_boxes.py", "train_split.py", "train_trainer.py", "train_accelerate.py", "train_jax.py",
        "load_planes.py", "lightning_images.py", "accelerate_images.py", "use_torchdata.py", "use_grain.py",
    ]
    assert len(SNIPPETS) >= 4


def test_the_programs_of_the_tutorial_print_what_it_shows(run, command, tmp_path):
    """Makes the datasets of its commands, and compares the output of its programs with the page."""
    photos = ["--resize", "shorter:64", "--split", "train=0.7,validation=0.3"]
    command("images", "fixtures/photos", "--out", tmp_path / "photos-64", *photos)
    command("text", "fixtures/corpus", "--out", tmp_path / "tokens", "--tokenizer", "fixtures/tokenizers/bpe.json")
    page = (ROOT / "docs/tutorial/first-dataset.md").read_text()
    for name in TUTORIAL:
        (shown,) = re.findall(rf"^```console\n\$ python {name}\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
        without_losses = [re.sub(r"loss \d+\.\d+", "loss", text) for text in (shown, run(name))]
        assert without_losses[0] == without_losses[1]


def test_training_on_boxes_runs(run, command, tmp_path):
    """The commands of the guide, with a small folder like COCO's and one of YOLO."""
    numbers = random.Random(3)
    for split, count in [("train2017", 96), ("val2017", 8)]:
        (tmp_path / "coco" / split).mkdir(parents=True)
        (tmp_path / "coco/annotations").mkdir(exist_ok=True)
        images, annotations = [], []
        for number in range(count):
            image = Image.new("RGB", (numbers.randint(100, 200), numbers.randint(100, 200)), "gray")
            for _ in range(numbers.randint(0, 3)):
                category, left, top = numbers.randint(0, 1), numbers.randint(0, 60), numbers.randint(0, 60)
                box = [left, top, numbers.randint(10, 40), numbers.randint(10, 40)]
                shape = [left, top, left + box[2], top + box[3]]
                draw = ImageDraw.Draw(image)
                (draw.rectangle if category else draw.ellipse)(shape, fill="red" if category else "blue")
                annotations.append(
                    {"image_id": number, "category_id": [18, 3][category], "bbox": box, "iscrowd": int(numbers.random() < 0.1)}
                )
            name = f"{split}-{number:06}.jpg"
            image.save(tmp_path / "coco" / split / name)
            images.append({"id": number, "file_name": name, "width": image.width, "height": image.height})
        categories = [{"id": 18, "name": "disk"}, {"id": 3, "name": "square"}]
        content = {"images": images, "annotations": annotations, "categories": categories}
        (tmp_path / f"coco/annotations/instances_{split}.json").write_text(json.dumps(content))
    (tmp_path / "yolo/images/train").mkdir(parents=True)
    (tmp_path / "yolo/labels/train").mkdir(parents=True)
    Image.new("RGB", (64, 48)).save(tmp_path / "yolo/images/train/1.jpg")
    (tmp_path / "yolo/labels/train/1.txt").write_text("0 0.5 0.5 0.25 0.5\n")
    (tmp_path / "yolo/data.yaml").write_text("names: [disk]\n")
    page = (ROOT / "docs/how-to/detect-objects.md").read_text()
    coco, yolo = re.findall(r"^```sh\n(dsconvert .*?)^```$", page, re.MULTILINE | re.DOTALL)
    for line, out in [(coco, "objects"), (yolo, "other")]:
        words = line.replace("\\\n", " ").replace("--out objects", f"--out {out}").split()[1:]
        command(*(tmp_path / word if word.startswith(("coco/", "yolo/")) or word == out else word for word in words))
    assert dsconvert.open(tmp_path / "objects").class_names == ["square", "disk"]
    assert dsconvert.open(tmp_path / "other", "train")[0]["boxes"].tolist() == [[56, 52, 72, 76]]
    output = run("train_boxes.py", tmp_path / "objects")
    steps = re.findall(r"^step (\d): loss (\d+\.\d+), (\d+) objects$", output, re.MULTILINE)
    assert [int(step) for step, _, _ in steps] == list(range(10)) and all(int(count) > 0 for _, _, count in steps)
    assert float(steps[-1][1]) < float(steps[0][1])


def test_lightning_resumes_from_a_checkpoint(run, corpus_in, tmp_path):
    path = corpus_in("arrow").path

    def rows_and_steps(*args):
        output = run("train_lightning.py", path, *args)
        found = re.search(r"^saw (\d+) records, and ended after step (\d+)$", output, re.MULTILINE)
        return tuple(map(int, found.groups()))

    loader = dsconvert.Loader(path, max_tokens=4096, oversize="truncate", labels_for="next_token", seed=1)
    rows = [loader.last.rows for _ in range(2) for _ in loader]
    assert rows_and_steps() == (sum(rows), len(rows))
    # A checkpoint in the first epoch, and one in the second.
    for step in (10, len(rows) // 10 * 10):
        assert (tmp_path / f"checkpoints/step={step}.ckpt").exists() and (step < len(loader)) == (step == 10)
        assert rows_and_steps(f"checkpoints/step={step}.ckpt") == (sum(rows[step:]), len(rows))


def test_image_classification_runs(run, photos_in):
    output = run("train_images.py", photos_in("parquet").path)
    assert re.findall(r"^epoch (\d): \d+ of (\d+) right", output, re.MULTILINE) == [
        (str(epoch), str(len(photos_in("parquet").records("validation")))) for epoch in range(3)
    ]


def test_a_resnet_is_trained_and_resumed(run, photos_in, tmp_path, monkeypatch):
    pytest.importorskip("torchvision")
    path, records = photos_in("parquet").path, len(photos_in("parquet").records("validation"))
    steps = len(dsconvert.Loader(path, batch_size=8, last="drop"))
    expected = [(str(epoch), str(records), str(steps * (epoch + 1))) for epoch in range(2)]
    output = run("train_resnet.py", path, "resnet.pt")
    shown = r"^epoch (\d): \d+ of (\d+) right after (\d+) steps$"
    assert re.findall(shown, output, re.MULTILINE) == expected
    # A finished epoch is only validated again.
    assert re.findall(shown, run("train_resnet.py", path, "resnet.pt"), re.MULTILINE) == expected[1:]
    shorter = PROGRAMS["train_resnet.py"].replace("EPOCHS, CROP, BATCH = 2,", "EPOCHS, CROP, BATCH = 1,")
    monkeypatch.setitem(PROGRAMS, "one_epoch.py", shorter)
    (tmp_path / "resnet.pt").unlink()
    assert re.findall(shown, run("one_epoch.py", path, "resnet.pt"), re.MULTILINE) == expected[:1]
    assert re.findall(shown, run("train_resnet.py", path, "resnet.pt"), re.MULTILINE) == expected


@pytest.mark.parametrize("program, library, output", [
    ("lightning_images.py", "pytorch_lightning", r"^\d+ steps, validation loss \d+\.\d\d$"),
    ("accelerate_images.py", "accelerate", r"^epoch 1: \d+ batches, loss \d+\.\d\d$"),
    ("use_torchdata.py", "torchdata", r"^stateful: (\d+) batches after the first, \1 in a resumed epoch\ngraph: \1 .*, \1 in"),
    ("use_grain.py", "grain", r"^the last batch: \(\d, 24, 24, 3\), labels \["),
])
def test_other_libraries_take_the_loader(run, photos_in, program, library, output):
    pytest.importorskip(library)
    printed = run(program, photos_in("parquet").path)
    assert re.search(output, printed, re.MULTILINE), printed


def test_training_on_packed_tokens_resumes_with_the_next_epoch(run, corpus_in, tmp_path):
    output = run("train_packed.py", corpus_in("arrow").path, "checkpoint.pt")
    steps = re.findall(r"^step (\d+) of (\d+): loss", output, re.MULTILINE)
    assert steps[-1][0] == steps[-1][1] and len(steps) == int(steps[-1][1]) // 50 + 1
    # The finished epoch is not repeated; the next one runs.
    assert run("train_packed.py", corpus_in("arrow").path, "checkpoint.pt").count("step") == len(steps)


def test_sequence_to_sequence_training_takes_two_batches_per_step(run, corpus_in):
    output = run("train_seq2seq.py", corpus_in("msgpack").path)
    batches, steps = map(int, re.match(r"(\d+) batches in (\d+) steps", output).groups())
    assert batches == 2 * steps > 20


def test_a_run_on_two_ranks_resumes_on_one(run, corpus_in):
    path = corpus_in("arrow").path
    before = run("train_ranks.py", path, "checkpoint.pt", 5, processes=2)
    after = run("train_ranks.py", path, "checkpoint.pt", processes=1)
    seen = re.findall(r"^rank (\d) of (\d) saw (\d+) records", before + after, re.MULTILINE)
    assert sorted((rank, ranks) for rank, ranks, _ in seen) == [("0", "1"), ("0", "2"), ("1", "2")]
    assert sum(int(records) for *_, records in seen) == len(corpus_in("arrow").records("train"))


def test_ranks_leave_without_finalizing_the_interpreter():
    """Gloo's threads outlive the process group, and abort the process if they release a tensor meanwhile."""
    assert PROGRAMS["train_ranks.py"].splitlines()[-2] == "distributed.destroy_process_group()"
    assert PROGRAMS["train_ranks.py"].splitlines()[-1].startswith("os._exit(0)")


@pytest.fixture
def long_documents(command, tmp_path):
    """Documents as long as those of a corpus: a median of about 250 tokens, and a tail beyond the budget of the README."""
    words = " ".join(
        json.loads(line)["text"] for line in (ROOT / "fixtures/corpus/stories.jsonl").read_text().splitlines()
    )
    rng = random.Random(5)
    sizes = [int(rng.lognormvariate(6.5, 1.2)) + 1 for _ in range(200)] + [len(words)]
    starts = [rng.randrange(max(1, len(words) - size)) for size in sizes]
    lines = [json.dumps({"text": words[start : start + size]}) for start, size in zip(starts, sizes)]
    (tmp_path / "long.jsonl").write_text("\n".join(lines) + "\n")
    out = tmp_path / "long"
    command("text", tmp_path / "long.jsonl", "--out", out, "--tokenizer", "fixtures/tokenizers/bpe.json")
    return out


README_EXAMPLES = re.findall(r"^```python\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)


def test_the_image_example_of_the_readme_runs(command, tmp_path, monkeypatch):
    (line,) = [line for line in README.splitlines() if line.startswith("dsconvert images ")]
    places = {"photos/": ROOT / "fixtures/photos", "photos-256": tmp_path / "photos-256"}
    command(*(places.get(word, word) for word in shlex.split(line)[1:]))
    monkeypatch.chdir(tmp_path)
    batches = []
    exec(compile(README_EXAMPLES[0], "README.md", "exec"), {"model": lambda image, label: batches.append((image, label))})
    records = len(dsconvert.open(tmp_path / "photos-256", "train"))
    assert sum(len(label) for _, label in batches) == 3 * records
    assert all(image.shape[1:] == (224, 224, 3) and str(image.dtype) == "torch.uint8" for image, _ in batches)
    assert {int(label) for _, labels in batches for label in labels} == set(range(5))


def test_the_example_of_the_readme_runs_on_documents_of_any_length(long_documents, tmp_path, monkeypatch):
    _, example = README_EXAMPLES
    path = long_documents
    assert dsconvert.open(path, "train").lengths().max() > 16_384, "some documents are longer than the budget"
    with pytest.raises(dsconvert.UsageError, match="1 of 201 records are longer than the 16384 that `max_tokens` allows"):
        dsconvert.Loader(path, max_tokens=16_384)
    (tmp_path / "tokens").symlink_to(path)
    monkeypatch.chdir(tmp_path)
    rows = []

    def model(input_ids, attention_mask, labels):
        assert input_ids.numel() <= 16_384 and input_ids.shape == attention_mask.shape == labels.shape
        assert ((labels == input_ids) == (attention_mask == 1)).all(), "a model of Hugging Face shifts labels itself"
        rows.append(len(input_ids))

    exec(compile(example, "README.md", "exec"), {"model": model})
    assert sum(rows) == len(dsconvert.open(path, "train"))


@pytest.mark.parametrize("snippet", SNIPPETS, ids=lambda snippet: snippet.splitlines()[2][:24])
def test_snippets_run(snippet, corpus_in, tmp_path, monkeypatch):
    (tmp_path / "tokens").symlink_to(corpus_in("arrow").path)
    monkeypatch.chdir(tmp_path)
    exec(compile("mask = [False] * 482 + [True]\n" + snippet, "docs/reference/python.md", "exec"), {})
