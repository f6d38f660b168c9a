"""The programs of the how-to guides about training run unchanged on a few records, and resume from checkpoints."""

import json
import random
import re

import datasets
import pytest
from PIL import Image
from tokenizers import Tokenizer

import chat_images
import dsconvert
from conftest import ROOT
from test_package_examples import run  # noqa: F401

pytestmark = pytest.mark.sampled("examples", one_in=4)
TOKENIZER = "fixtures/tokenizers/bpe.json"


@pytest.fixture(scope="module")
def few_tokens(command, tmp_path_factory):
    """About a hundred documents."""
    out = tmp_path_factory.mktemp("guides") / "tokens"
    command("text", "fixtures/corpus", "--out", out, "--tokenizer", TOKENIZER, "--format", "arrow", "--split", "train=0.2,validation=0.8")
    return out


@pytest.fixture
def packed_rows(command, tmp_path):
    """A part of the corpus, converted with the options of the guide."""
    shown = (ROOT / "docs/how-to/pretrain-on-packed-tokens.md").read_text()
    (options,) = re.findall(r"^dsconvert text corpus --tokenizer tokenizer.json --out rows (.*)$", shown, re.MULTILINE)
    command("text", "fixtures/corpus/stories.jsonl", "--tokenizer", TOKENIZER, "--out", tmp_path / "rows", *options.split())
    return tmp_path / "rows"


def test_resumed_pretraining_equals_an_uninterrupted_run(run, packed_rows):
    whole = run("train_pretrain.py", packed_rows, "whole.pt")
    run("train_pretrain.py", packed_rows, "parts.pt", 3)
    parts = run("train_pretrain.py", packed_rows, "parts.pt")
    found = [re.search(r"step (\d+) of \1,.* weights (.*)\n(validation loss .*)", output).groups() for output in (whole, parts)]
    assert found[0] == found[1], "the same weights and loss as without an interruption"
    assert int(found[0][0]) > 3


def test_only_answers_of_a_chat_are_trained(run, command, tmp_path):
    answers = [["yes, of course", "the end"], ["one answer only"], [""]]
    with (tmp_path / "chats.jsonl").open("w") as file:
        for of_chat in answers:
            messages = [{"role": "system", "content": "be brief <|im_end|>"}]
            for answer in of_chat:
                messages += [{"role": "user", "content": "an assistant?"}, {"role": "assistant", "content": answer}]
            file.write(json.dumps({"messages": messages}) + "\n")
    tokenizer = Tokenizer.from_file(str(ROOT / TOKENIZER))
    tokenizer.add_special_tokens(["<|im_start|>", "<|im_end|>"])
    (tmp_path / "MODEL").mkdir()
    tokenizer.save(str(tmp_path / "MODEL/tokenizer.json"))
    turn = "<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>"
    template = "{% for m in messages %}" + turn + "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
    (tmp_path / "MODEL/chat_template.jinja").write_text(template)
    page = (ROOT / "docs/how-to/fine-tune-on-chat-data.md").read_text()
    (options,) = re.findall(r"^dsconvert text chats.jsonl (.*) --tokenizer MODEL (.*) --out chats$", page, re.MULTILINE)
    command("text", tmp_path / "chats.jsonl", "--tokenizer", tmp_path / "MODEL", "--out", tmp_path / "chats", *" ".join(options).split())
    tokenizer.no_padding()
    tokenizer.no_truncation()
    # Each answer ends with one token.
    expected = sum(len(tokenizer.encode(answer).ids) + 1 for of_chat in answers for answer in of_chat)
    total = int(dsconvert.open(tmp_path / "chats").lengths().sum())
    assert f"{expected} of {total} tokens are trained" in run("train_chat.py", "chats")
    # TRL needs a token for padding.
    (tmp_path / "MODEL/tokenizer_config.json").write_text('{"tokenizer_class": "PreTrainedTokenizerFast", "pad_token": "<|im_end|>"}')
    labels = re.findall(r"^(\d+) tokens of a batch are trained$", run("train_trl.py", "chats", "MODEL"), re.MULTILINE)
    assert sum(map(int, labels)) == expected
    for command_of_guide in re.findall(r"^dsconvert (inspect chats .*)$", page, re.MULTILINE):
        command(*command_of_guide.replace("chats", str(tmp_path / "chats")).split())


def save_model(folder):
    """Saves a tokenizer with a chat template."""
    tokenizer = Tokenizer.from_file(str(ROOT / TOKENIZER))
    tokenizer.add_special_tokens(["<|im_start|>", "<|im_end|>"])
    folder.mkdir()
    tokenizer.save(str(folder / "tokenizer.json"))
    turn = "<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>"
    template = "{% for m in messages %}" + turn + "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
    (folder / "chat_template.jinja").write_text(template)
    (folder / "tokenizer_config.json").write_text(
        '{"tokenizer_class": "PreTrainedTokenizerFast", "pad_token": "<|im_end|>", "eos_token": "<|im_end|>"}'
    )


def test_preference_data_is_trained_with_trl(run, command, tmp_path):
    save_model(tmp_path / "MODEL")
    answers = [{"role": "assistant", "content": content} for content in ("yes, of course", "no", "the end")]
    prompts = [[{"role": "user", "content": f"question {number}"}] for number in range(8)]
    pairs = [{"chosen": prompt + answers[:1], "rejected": prompt + answers[1:2]} for prompt in prompts]
    labeled = [{"prompt": prompt, "completion": answers[n % 3 :][:1], "label": n % 2 == 0} for n, prompt in enumerate(prompts)]
    for name, rows in [("pairs", pairs), ("answers", labeled)]:
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    page = (ROOT / "docs/how-to/prepare-dpo-data.md").read_text()
    for name, program in [("pairs", "train_dpo.py"), ("answers", "train_kto.py")]:
        (options,) = re.findall(rf"^dsconvert text {name}.jsonl (.*) --tokenizer MODEL (.*)--out {name}$", page, re.MULTILINE)
        source, out = tmp_path / f"{name}.jsonl", tmp_path / name
        command("text", source, "--tokenizer", tmp_path / "MODEL", "--out", out, *" ".join(options).split())
        assert re.search(r"^2 steps, loss \d", run(program, name, "MODEL"), re.MULTILINE)


def test_a_vision_language_model_is_trained_in_two_ways(run, command, tmp_path):
    chat_images.save_model(tmp_path / "MODEL", "qwen2_5_vl", min_pixels=4 * 28 * 28, max_pixels=40 * 28 * 28)
    (tmp_path / "photos").mkdir()
    with (tmp_path / "chats.jsonl").open("w") as file:
        for number in range(6):
            chat_images.photograph(90 + 30 * number, 100, number).save(tmp_path / f"photos/{number}.jpg")
            # Two chats that do not fit in one row.
            answer = {"role": "assistant", "content": "the cat sat " * (600 if number < 2 else 3)}
            images = [f"photos/{number}.jpg"] * (number % 3)
            messages = [{"role": "user", "content": "<image>" * len(images) + "What is this?"}, answer]
            file.write(json.dumps({"messages": messages, "images": images}) + "\n")
    page = (ROOT / "docs/how-to/fine-tune-a-vision-language-model.md").read_text()
    (options,) = re.findall(r"^dsconvert text chats.jsonl (.*) --tokenizer MODEL (.*) --out chats$", page, re.MULTILINE)
    command("text", tmp_path / "chats.jsonl", "--tokenizer", tmp_path / "MODEL", "--out", tmp_path / "chats", *" ".join(options).split())
    steps = re.findall(r"^step (\d), (\d+) tokens are trained, loss \d+\.\d+$", run("train_vision.py", "chats", "MODEL"), re.MULTILINE)
    trained = sum(int(record["assistant_masks"].sum()) for record in dsconvert.open(tmp_path / "chats"))
    assert [step for step, _ in steps] == ["1", "2"] and sum(int(count) for _, count in steps) == trained
    assert "ended after step 2\n" in run("train_vision_trainer.py", "chats", "MODEL")
    (options,) = re.findall(r"^dsconvert text chats.jsonl (.*) --tokenizer MODEL --out smaller$", page, re.MULTILINE)
    command("text", tmp_path / "chats.jsonl", "--tokenizer", tmp_path / "MODEL", "--out", tmp_path / "smaller", *options.split())
    (options,) = re.findall(r"^dsconvert export smaller (.*) --out hub$", page, re.MULTILINE)
    command("export", tmp_path / "smaller", *options.split(), "--out", tmp_path / "hub")
    rows = datasets.load_dataset(str(tmp_path / "hub"), split="train", cache_dir=str(tmp_path / "cache"))
    assert [len(row["images"]) for row in rows] == [0, 1, 2, 0, 1, 2]
    assert all(json.loads(row["messages"])[1]["content"].startswith("the cat") for row in rows)


def test_prompts_are_filtered_and_trained_with_grpo(run, command, tmp_path):
    save_model(tmp_path / "MODEL")
    rows = [{"prompt": [{"role": "user", "content": f"{n} + {n}?"}], "answer": str(2 * n)} for n in range(8)]
    rows += [rows[0], {"prompt": [{"role": "user", "content": "long " * 2000}], "answer": "0"}]
    (tmp_path / "questions.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    page = (ROOT / "docs/how-to/prompts-for-grpo.md").read_text()
    (options,) = re.findall(r"^dsconvert text questions.jsonl (.*) --tokenizer MODEL (.*) --out prompts$", page, re.MULTILINE)
    command("text", tmp_path / "questions.jsonl", "--tokenizer", tmp_path / "MODEL", "--out", tmp_path / "prompts", *" ".join(options).split())
    import transformers

    reference = transformers.AutoTokenizer.from_pretrained(tmp_path / "MODEL")
    kept = list(dsconvert.open(tmp_path / "prompts", "train"))
    assert [(json.loads(record["prompt"]), record["answer"]) for record in kept] == [(row["prompt"], row["answer"]) for row in rows[:8]]
    expected = [len(reference.apply_chat_template(row["prompt"], add_generation_prompt=True)["input_ids"]) for row in rows[:8]]
    assert [record["length"] for record in kept] == expected
    command("export", tmp_path / "prompts", "--to", "hf", "--out", tmp_path / "prompts-hf")
    assert re.search(r"^2 steps, loss -?\d", run("train_grpo.py", "prompts-hf", "MODEL"), re.MULTILINE)


def test_the_fields_of_alpaca_become_pairs(command, tmp_path):
    rows = [{"instruction": "add", "input": "1 2", "output": "3"}, {"instruction": "sing", "input": "", "output": "la"}]
    (tmp_path / "alpaca_data.json").write_text(json.dumps(rows, indent=4))
    options = ["--alpaca", "pair", "--eos-token", "<|endoftext|>"]
    command("text", tmp_path / "alpaca_data.json", *options, "--tokenizer", TOKENIZER, "--out", tmp_path / "pairs")
    tokenizer = Tokenizer.from_file(str(ROOT / TOKENIZER))
    for record, row in zip(dsconvert.open(tmp_path / "pairs"), rows, strict=True):
        ids, masks = record["input_ids"], record["assistant_masks"]
        assert tokenizer.decode(ids[masks == 1], skip_special_tokens=False) == row["output"] + "<|endoftext|>"
        prompt = tokenizer.decode(ids[masks == 0])
        assert prompt.startswith("Below is an instruction that describes a task") and prompt.endswith("### Response:\n")
        assert ("### Input:\n1 2\n" in prompt) == bool(row["input"])


def test_a_mixture_has_the_requested_shares_and_resumes(run, command, few_tokens, tmp_path):
    other = tmp_path / "stories"
    command("text", "fixtures/corpus/stories.jsonl", "--out", other, "--tokenizer", TOKENIZER)
    whole = run("train_mixture.py", few_tokens, other, "whole.json")
    run("train_mixture.py", few_tokens, other, "parts.json", 7)
    rest = run("train_mixture.py", few_tokens, other, "parts.json")
    assert rest == whole
    shares = re.findall(r"^(web|code): (\S+) of the tokens, (\S+) requested, \S+ passes$", whole, re.MULTILINE)
    assert [(name, requested) for name, _, requested in shares] == [("web", "0.700"), ("code", "0.300"), ("web", "0.500"), ("code", "0.500")]
    for _, realized, requested in shares:
        # Within a row of the rows since the weights changed.
        assert float(realized) == pytest.approx(float(requested), abs=1 / 70)
    page = (ROOT / "docs/how-to/mix-datasets.md").read_text()
    predictions = re.findall(r"^dsconvert inspect web-tokens code-tokens (.*)$", page, re.MULTILINE)
    assert len(predictions) == 2
    for options in predictions:
        command("inspect", few_tokens, other, *options.split())
    (exported,) = re.findall(r"^dsconvert export web-tokens code-tokens (.*) --out mixed$", page, re.MULTILINE)
    command("export", few_tokens, other, *exported.split(), "--out", tmp_path / "mixed")
    # The first epoch of the program.
    options = "--mixture 0.7,0.3 --epoch-steps 20 --seq-len 256 --batch-size 4 --micro-batches 2 --seed 1 --json"
    predicted = json.loads(command("inspect", few_tokens, other, *options.split()).stdout)
    assert [f"{source['realized']:.3f}" for source in predicted["sources"]] == [realized for _, realized, _ in shares[:2]]


def test_diffusion_on_buckets_resumes(run, command, tmp_path):
    choose = random.Random(1)
    (tmp_path / "photos").mkdir()
    for number in range(30):
        size = choose.choice([(90, 60), (60, 90), (70, 70), (72, 60), (200, 60)])
        Image.effect_noise(size, 50).convert("RGB").save(tmp_path / f"photos/{number:02}.jpg")
        if number % 7:
            (tmp_path / f"photos/{number:02}.txt").write_text(f"picture {number} é")
    page = (ROOT / "docs/how-to/train-a-diffusion-model.md").read_text()
    (options,) = re.findall(r"^dsconvert images photos (.*) --out photos-buckets$", page, re.MULTILINE)
    # The same with small images.
    options = options.replace("area:1024x1024,step:64", "area:64x64,step:8").replace("--min-bucket 64", "--min-bucket 4")
    command("images", tmp_path / "photos", *options.split(), "--out", tmp_path / "buckets")
    whole = run("train_diffusion.py", "buckets", "whole.pt")
    parts = run("train_diffusion.py", "buckets", "parts.pt", 4) + run("train_diffusion.py", "buckets", "parts.pt")
    assert parts == whole
    steps = re.findall(r"^step (\d+): (\d+) images of (\S+), loss \d+\.\d+$", whole, re.MULTILINE)
    assert [int(step) for step, *_ in steps] == list(range(1, 11)) and len({size for *_, size in steps}) > 1
    loader = dsconvert.Loader(tmp_path / "buckets", bucket="shape", batch_size=4, seed=1)
    expected = [batch["image"].shape for _ in range(2) for batch in loader][:10]
    assert [(int(count), size) for _, count, size in steps] == [(n, f"{w}x{h}") for n, h, w, _ in expected]


def test_ddp_on_two_ranks_gives_equal_weights(run, photos_in):
    output = run("train_ddp.py", photos_in("arrow").path, processes=2)
    validation = len(photos_in("arrow").records("validation"))
    assert re.findall(r"^epoch (\d): (\d) batches per rank, \d of (\d+) right$", output, re.MULTILINE) == [
        (str(epoch), "3", str(validation)) for epoch in range(2)
    ]
    weights = dict(re.findall(r"^rank (\d) of 2: weights (.*)$", output, re.MULTILINE))
    assert weights.keys() == {"0", "1"} and weights["0"] == weights["1"]


def test_the_hugging_face_trainer_gets_no_empty_batch_on_two_ranks(run, command, tmp_path):
    # With this many documents, the last step has one record.
    command("text", "fixtures/corpus", "--out", tmp_path / "tokens", "--tokenizer", TOKENIZER, "--split", "train=0.18,validation=0.82")
    options = {"max_tokens": 2048, "oversize": "truncate", "seed": 1, "rank": 1, "world_size": 2}
    rows = [loader.last.rows for loader in [dsconvert.Loader(tmp_path / "tokens", **options)] for _ in range(2) for _ in loader]
    assert 0 in rows
    steps = 2 * len(dsconvert.Loader(tmp_path / "tokens", **options, last="drop"))
    output = run("train_trainer.py", tmp_path / "tokens", processes=2)
    assert f"ended after step {steps}\n" in output


@pytest.mark.parametrize("program", ["train_split.py", "train_trainer.py"])
def test_the_hugging_face_trainer_resumes_from_a_checkpoint(run, few_tokens, program):
    whole = run(program, few_tokens)
    assert run(program, few_tokens, "out/checkpoint-5").splitlines()[-1] == whole.splitlines()[-1]
    assert int(re.search(r"^ended after step (\d+)$", whole, re.MULTILINE)[1]) in {
        "train_split.py": {2 * -(-len(dsconvert.open(few_tokens)) // 32)},
        "train_trainer.py": {2 * len(dsconvert.Loader(few_tokens, max_tokens=2048, oversize="truncate", last="drop"))},
    }[program]


def test_accelerate_on_two_ranks_resumes_on_one(run, few_tokens):
    output = run("train_accelerate.py", few_tokens, 3, processes=2) + run("train_accelerate.py", few_tokens)
    seen = re.findall(r"^rank (\d) of (\d) saw (\d+) records", output, re.MULTILINE)
    assert sorted((rank, ranks) for rank, ranks, _ in seen) == [("0", "1"), ("0", "2"), ("1", "2")]
    assert sum(int(records) for *_, records in seen) == len(dsconvert.open(few_tokens))


def test_jax_training_reduces_the_loss(run, photos_in):
    output = run("train_jax.py", photos_in("arrow").path)
    losses = [float(loss) for loss in re.findall(r"^epoch \d: 3 batches, loss (.*)$", output, re.MULTILINE)]
    assert len(losses) == 10 and losses[-1] < losses[0]
