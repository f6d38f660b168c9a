"""Preference data equals what TRL makes of the same rows: ids of ten of its templates, batches and losses of its trainers."""

import importlib.util
import json
import random
import re
from pathlib import Path

import pyarrow.parquet
import pytest

import tier
from conftest import ROOT

transformers = pytest.importorskip("transformers")
trl = pytest.importorskip("trl")

import torch  # noqa: E402
from datasets import Dataset, load_dataset  # noqa: E402
from jinja2.exceptions import TemplateError  # noqa: E402
from trl.data_utils import _tokenize, common_prefix_length  # noqa: E402

import chat_oracle  # noqa: E402

TEMPLATES = Path(importlib.util.find_spec("trl").origin).parent / "chat_templates"
NAMES = ["qwen2_5", "qwen3", "qwen3_instruct_2507", "llama3", "gemma", "gemma3", "phi3", "glm4moe", "gptoss", "deepseekv3"]
COUNT = 1000 if tier.is_exhaustive("tokenizers") else 50
torch.set_num_threads(1)


def answer(choose):
    message = {"role": "assistant", "content": chat_oracle.text(choose) or "yes"}
    if choose.random() < 0.3:
        message["reasoning_content"] = chat_oracle.text(choose)
    return message


def pair(choose, number):
    """A prompt of some turns, and two answers to it."""
    prompt = [{"role": "user", "content": f"{number} {chat_oracle.text(choose)}"}]
    for _ in range(choose.choice([0, 0, 1, 2])):
        prompt += [answer(choose), {"role": "user", "content": chat_oracle.text(choose) or "and?"}]
    if choose.random() < 0.3:
        prompt.insert(0, {"role": "system", "content": "be brief"})
    chosen, rejected = answer(choose), answer(choose)
    while chosen == rejected:
        rejected = answer(choose)
    return {"prompt": prompt, "chosen": [chosen], "rejected": [rejected]}


def write(path, rows):
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))
    return path


def model_of(folder, template, tokens, **config):
    folder.mkdir()
    chat_oracle.Command(None, ROOT / "fixtures/tokenizers/bpe.json").model(folder, template, tokens)
    path = folder / "tokenizer_config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **config}))
    return transformers.PreTrainedTokenizerFast.from_pretrained(folder)


@pytest.mark.parametrize("name", NAMES)
def test_ids_of_pairs_are_those_of_trl(command, tmp_path, name):
    """Wherever the prompt of TRL is one of both sides, ids are equal. `pytest -s` prints how many others there are."""
    choose = random.Random(name)
    rows = [pair(choose, number) for number in range(COUNT)]
    template = (TEMPLATES / f"{name}.jinja").read_text()
    tokenizer = model_of(tmp_path / "model", template, [*chat_oracle.added_tokens(template), "<|user|>"])
    implicit = [{"chosen": row["prompt"] + row["chosen"], "rejected": row["prompt"] + row["rejected"]} for row in rows]
    options = ["--tokenizer", tmp_path / "model", "--special-in-content", "parse", "--not-rendered", "allow", "--format", "parquet",
               "--chosen-field", "chosen", "--rejected-field", "rejected", "--key-field", "n", "--max-rejects", "60%", "--now",
               "2026-03-04T15:06:07", "--allow-unknown-markers"]
    if name == "glm4moe":
        options += ["--final-stop", "none"]
    found = {}
    for way, given, more in [("prompt", rows, ["--prompt-field", "prompt"]), ("prefix", implicit, [])]:
        source = write(tmp_path / f"{way}.jsonl", [{**row, "n": n} for n, row in enumerate(given)])
        command("text", source, "--out", tmp_path / way, *options, *more)
        records = pyarrow.parquet.read_table(tmp_path / way / "train").to_pylist()
        found[way] = {int(record["key"]): record for record in records}
    others, equal = 0, 0
    for number, row in enumerate(rows):
        ours = found["prompt"].get(number)
        assert (ours is None) == (number not in found["prefix"])
        try:
            prompt = _tokenize(tokenizer, row["prompt"], add_generation_prompt=True)["input_ids"]
            sides = [_tokenize(tokenizer, row["prompt"] + row[side])["input_ids"] for side in ("chosen", "rejected")]
        except TemplateError:
            assert ours is None, row
            continue
        length = min(common_prefix_length(prompt, side) for side in sides)
        if length < len(prompt):
            others += 1
            continue
        if ours is None:
            assert sides[0] == sides[1] or name in ("gptoss", "deepseekv3", "glm4moe"), row
            continue
        expected = (prompt, sides[0][length:], sides[1][length:])
        assert (ours["prompt_ids"], ours["chosen_ids"], ours["rejected_ids"]) == expected, row
        assert ours["length"] == len(sides[0]) + len(sides[1]) and ours["longest"] == max(map(len, sides))
        assert ours["chosen_masks"] is None and ours["rejected_masks"] is None
        assert {**found["prefix"][number], "origin": ""} == {**ours, "origin": ""}
        equal += 1
    print(f"\n{name}: {equal} equal, {others} of {COUNT} where the prompt alone has other ids, {COUNT - len(found['prompt'])} rejected")
    assert equal > COUNT / 3 or others > COUNT / 2


GUIDE = (ROOT / "docs/how-to/prepare-dpo-data.md").read_text()


def program(name):
    (found,) = re.findall(rf"```python\n(# {name}\n.*?)```", GUIDE, re.DOTALL)
    return found


def classes_of(name):
    """What a program of the guide defines before it reads its arguments."""
    namespace = {}
    exec(program(name).partition("path, name = ")[0], namespace)
    return namespace


def tiny_model(tokenizer):
    transformers.set_seed(0)
    config = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 2}
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(vocab_size=len(tokenizer), max_position_embeddings=4096, **config))


def train(trainer_class, config, dataset, tokenizer, folder):
    """The first batch, and the loss of each of five steps."""
    options = config(
        str(folder), max_steps=5, per_device_train_batch_size=4, max_length=None, report_to=[], use_cpu=True, bf16=False, logging_steps=1,
        learning_rate=1e-2, save_strategy="no", disable_tqdm=True,
    )
    models = tiny_model(tokenizer), tiny_model(tokenizer)
    trainer = trainer_class(*models, options, train_dataset=dataset, processing_class=tokenizer)
    batch = next(iter(trainer.get_train_dataloader()))
    transformers.set_seed(1)
    trainer.train()
    return batch, [step["loss"] for step in trainer.state.log_history if "loss" in step]


def assert_same(ours, theirs):
    (batch, losses), (other, expected) = ours, theirs
    assert batch.keys() == other.keys()
    for name in batch:
        assert batch[name].tolist() == other[name].tolist() if hasattr(batch[name], "tolist") else batch[name] == other[name], name
    assert losses == expected and len(losses) == 5


CHATML = (
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
WORDS = "the cat sat on a mat and naïve 日本語 🙂 12345".split()


def words(choose):
    return " ".join(choose.choice(WORDS) for _ in range(choose.randint(1, 20)))


def preference_rows(kind):
    choose = random.Random(kind)
    rows = []
    for number in range(40):
        prompt, chosen, rejected = f"{number} {words(choose)}", f"{words(choose)} a", f"{words(choose)} b"
        if kind == "chats":
            prompt = [{"role": "system", "content": "be brief"}, {"role": "user", "content": prompt}]
            chosen, rejected = ([{"role": "assistant", "content": text}] for text in (chosen, rejected))
        else:
            chosen, rejected = f" {chosen}", f" {rejected}"
        rows.append({"prompt": prompt, "chosen": chosen, "rejected": rejected})
    return rows


def model_for(tmp_path):
    tokens = ["<|im_start|>", "<|im_end|>"]
    return model_of(tmp_path / "model", CHATML, tokens, pad_token="<|im_end|>", eos_token="<|im_end|>", bos_token="<|im_start|>")


@pytest.mark.parametrize("kind", ["chats", "texts"])
def test_dpo_trains_on_our_ids_as_on_the_rows(command, tmp_path, kind):
    rows, tokenizer = preference_rows(kind), model_for(tmp_path)
    source = write(tmp_path / "pairs.jsonl", rows)
    fields = ["--prompt-field", "prompt", "--chosen-field", "chosen", "--rejected-field", "rejected"]
    command("text", source, "--tokenizer", tmp_path / "model", "--out", tmp_path / "pairs", *fields)
    pairs = load_dataset("arrow", data_files=f"{tmp_path}/pairs/train/*.arrow", split="train", cache_dir=str(tmp_path / "cache"))
    ours = train(classes_of("train_dpo.py")["TokenizedDPOTrainer"], trl.DPOConfig, pairs, tokenizer, tmp_path / "ours")
    theirs = train(trl.DPOTrainer, trl.DPOConfig, Dataset.from_list(rows), tokenizer, tmp_path / "theirs")
    assert_same(ours, theirs)


@pytest.mark.filterwarnings("ignore")
def test_kto_trains_on_our_ids_as_on_the_rows(command, tmp_path):
    from trl import KTOConfig, KTOTrainer

    tokenizer = model_for(tmp_path)
    rows = [{"prompt": row["prompt"], "completion": row[side], "label": side == "chosen"}
            for row in preference_rows("chats") for side in ("chosen", "rejected")]
    source = write(tmp_path / "answers.jsonl", rows)
    fields = ["--prompt-field", "prompt", "--completion-field", "completion", "--label-field", "label"]
    command("text", source, "--tokenizer", tmp_path / "model", "--out", tmp_path / "answers", *fields)
    answers = load_dataset("arrow", data_files=f"{tmp_path}/answers/train/*.arrow", split="train", cache_dir=str(tmp_path / "cache"))
    ours = train(classes_of("train_kto.py")["TokenizedKTOTrainer"], KTOConfig, answers, tokenizer, tmp_path / "ours")
    theirs = train(KTOTrainer, KTOConfig, Dataset.from_list(rows), tokenizer, tmp_path / "theirs")
    assert_same(ours, theirs)


def test_reward_models_train_on_whole_sides(command, tmp_path):
    rows, tokenizer = preference_rows("chats"), model_for(tmp_path)
    rows = [{**row, "margin": number / 8} for number, row in enumerate(rows)]
    source = write(tmp_path / "pairs.jsonl", rows)
    fields = ["--prompt-field", "prompt", "--chosen-field", "chosen", "--rejected-field", "rejected", "--keep-fields", "margin:float64"]
    command("text", source, "--tokenizer", tmp_path / "model", "--out", tmp_path / "pairs", *fields)
    (line,) = re.findall(r"^dsconvert (export pairs .*) --out reward$", GUIDE, re.MULTILINE)
    words = [str(tmp_path / word) if word == "pairs" else word for word in line.split()]
    done = command(*words, "--out", tmp_path / "reward")
    assert "left out" not in done.stderr.replace("key", ""), done.stderr
    pairs = load_dataset(str(tmp_path / "reward"), split="train", cache_dir=str(tmp_path / "cache"))
    assert pairs.column_names == ["chosen_ids", "rejected_ids", "margin"]

    def first_batch(dataset):
        transformers.set_seed(0)
        config = transformers.LlamaConfig(
            vocab_size=len(tokenizer), num_labels=1, hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2,
            num_key_value_heads=2,
        )
        model = transformers.LlamaForSequenceClassification(config)
        options = trl.RewardConfig(str(tmp_path / "out"), max_steps=2, per_device_train_batch_size=4, max_length=None, report_to=[],
                                   use_cpu=True, bf16=False, save_strategy="no", disable_tqdm=True)
        trainer = trl.RewardTrainer(model, options, train_dataset=dataset, processing_class=tokenizer)
        batch = next(iter(trainer.get_train_dataloader()))
        return batch, trainer.train().training_loss

    (ours, loss), (theirs, expected) = first_batch(pairs), first_batch(Dataset.from_list(rows))
    assert {name: value.tolist() for name, value in ours.items()} == {name: value.tolist() for name, value in theirs.items()}
    assert loss == expected and "margin" in ours


def test_masks_inside_a_completion_are_refused_for_trl(command, tmp_path):
    tokenizer = model_for(tmp_path)
    answer, tool = {"role": "assistant", "content": "a"}, {"role": "tool", "content": "42"}
    rows = [{"prompt": [{"role": "user", "content": "u"}], "chosen": [answer, tool, answer], "rejected": [{**answer, "content": "b"}]}] * 2
    source = write(tmp_path / "pairs.jsonl", rows)
    fields = ["--prompt-field", "prompt", "--chosen-field", "chosen", "--rejected-field", "rejected"]
    command("text", source, "--tokenizer", tmp_path / "model", "--out", tmp_path / "pairs", *fields)
    pairs = load_dataset("arrow", data_files=f"{tmp_path}/pairs/train/*.arrow", split="train", cache_dir=str(tmp_path / "cache"))
    ids = [id for id, mask in zip(pairs[0]["chosen_ids"], pairs[0]["chosen_masks"], strict=True) if mask]
    assert tokenizer.decode(ids) == "a<|im_end|>\n" * 2 and pairs[0]["rejected_masks"] is None
    with pytest.raises(ValueError, match="cannot leave out"):
        train(classes_of("train_dpo.py")["TokenizedDPOTrainer"], trl.DPOConfig, pairs, tokenizer, tmp_path / "out")
