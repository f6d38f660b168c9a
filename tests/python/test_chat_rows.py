"""Rows of other trainers: pairs as TRL trains them, and tables whose structs have members that are null."""

import json

import pyarrow.parquet
import pytest
from tokenizers import AddedToken, Tokenizer, processors

from conftest import ROOT

transformers = pytest.importorskip("transformers")

PAIRS = [
    {"prompt": "Translate: Haus\n", "completion": "house"},
    {"prompt": "Say hi ", "completion": " hi"},
    {"prompt": "The question", "completion": "the answer</s>"},
    {"prompt": "", "completion": "alone"},
]
# What a tokenizer puts around a text.
AROUND = {"bos": "<s> $A", "none": "$A", "cls-sep": "[CLS] $A [SEP]"}
TEMPLATE = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}{% for c in m.tool_calls or [] %}{{ c.function.arguments | tojson }}{% endfor %}<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"


def model(folder, around="$A"):
    """A folder with a tokenizer and a template."""
    folder.mkdir()
    tokenizer = Tokenizer.from_file(str(ROOT / "fixtures/tokenizers/bpe.json"))
    tokenizer.no_padding()
    tokenizer.no_truncation()
    special = ["<s>", "</s>", "[CLS]", "[SEP]", "<|im_start|>", "<|im_end|>"]
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in special])
    names = [name for name in around.split(" ") if name != "$A"]
    if names:
        tokenizer.post_processor = processors.TemplateProcessing(
            single=around, special_tokens=[(name, tokenizer.token_to_id(name)) for name in names]
        )
    else:
        tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    tokenizer.save(str(folder / "tokenizer.json"))
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<s>", "eos_token": "</s>",
        "pad_token": "<|im_start|>", "chat_template": TEMPLATE,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return folder


def write(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def batches(folder, dataset):
    """The ids and labels that SFTTrainer of TRL passes to the model, in any order."""
    trl = pytest.importorskip("trl")
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    size = {
        "hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1,
        "num_key_value_heads": 1,
    }
    network = transformers.LlamaForCausalLM(transformers.LlamaConfig(vocab_size=len(tokenizer), **size))
    options = trl.SFTConfig(
        str(folder / "out"), max_steps=1, per_device_train_batch_size=1, max_length=None, report_to=[], use_cpu=True,
        bf16=False,
    )
    trainer = trl.SFTTrainer(network, options, train_dataset=dataset, processing_class=tokenizer)
    return sorted(
        (batch["input_ids"][0].tolist(), batch["labels"][0].tolist()) for batch in trainer.get_train_dataloader()
    )


@pytest.mark.sampled("frameworks", one_in=2)
@pytest.mark.parametrize("around", AROUND)
def test_pairs_are_those_of_trl(dsconvert, tmp_path, around):
    datasets = pytest.importorskip("datasets")
    folder = model(tmp_path / "model", AROUND[around])
    source = write(tmp_path / "pairs.jsonl", PAIRS)
    out = tmp_path / "out"
    dsconvert(
        "text", source, "--prompt-field", "prompt", "--completion-field", "completion", "--tokenizer", folder,
        "--format", "parquet", "--out", out,
    )
    ours = batches(folder, datasets.load_dataset("parquet", data_files=f"{out}/train/*.parquet", split="train"))
    theirs = batches(folder, datasets.load_dataset("json", data_files=str(source), split="train"))
    if around == "cls-sep":
        # TRL adds the string of the EOS token, and the post-processor its token after that.
        sep = transformers.AutoTokenizer.from_pretrained(folder).convert_tokens_to_ids("[SEP]")
        assert all(ids[-1] == labels[-1] == sep for ids, labels in theirs)
        theirs = [(ids[:-1], labels[:-1]) for ids, labels in theirs]
    assert ours == sorted(theirs)
    first = {ids[0] for ids, _ in ours}
    assert len(first) == (4 if around == "none" else 1)


def test_a_text_that_begins_with_the_bos_token_gets_no_second_one(dsconvert, tmp_path):
    folder = model(tmp_path / "model", AROUND["bos"])
    rows = [{"prompt": "<s>question", "completion": "answer"}, {"prompt": "question", "completion": "answer"}]
    source = write(tmp_path / "pairs.jsonl", rows)
    out = tmp_path / "out"
    dsconvert(
        "text", source, "--prompt-field", "prompt", "--completion-field", "completion", "--tokenizer", folder,
        "--format", "parquet", "--out", out,
    )
    ids = pyarrow.parquet.read_table(out / "train")["input_ids"].to_pylist()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    assert ids == [tokenizer("questionanswer</s>")["input_ids"]] * 2
    assert json.loads((out / "manifest.json").read_text())["notes"] == {"bos_in_pair": 1}


def test_nulls_of_a_table_are_absent_members(dsconvert, tmp_path):
    """Parquet gives each struct of a column the same members. A null that is written in JSON stays."""
    folder = model(tmp_path / "model")
    calls = [{"city": "Rome"}, {"day": 3, "range": [1, None]}, {"nested": {"a": {"b": "c"}}}]
    rows = [
        {"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "f", "arguments": call}}]}]}
        for call in calls
    ]
    table = pyarrow.Table.from_pylist(rows)
    assert table.to_pylist() != rows
    pyarrow.parquet.write_table(table, tmp_path / "chats.parquet")
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))

    def answers(source):
        out = tmp_path / f"{source.name}.out"
        dsconvert(
            "text", source, "--messages-field", "messages", "--tokenizer", folder, "--invalid-utf8", "replace",
            "--format", "parquet", "--out", out,
        )
        table = pyarrow.parquet.read_table(out / "train")
        masked = zip(table["input_ids"].to_pylist(), table["assistant_masks"].to_pylist(), strict=True)
        texts = [
            tokenizer.decode([token for token, mask in zip(ids, masks, strict=True) if mask]) for ids, masks in masked
        ]
        return [json.loads(text.strip()) for text in texts], json.loads((out / "manifest.json").read_text())["notes"]

    # A null in a list stays.
    assert answers(tmp_path / "chats.parquet") == (calls, {"null-in-arguments": 1})
    with_nulls = json.loads(json.dumps(rows))
    with_nulls[0]["messages"][1]["tool_calls"][0]["function"]["arguments"]["day"] = None
    found, notes = answers(write(tmp_path / "chats.jsonl", with_nulls))
    assert found == [{"city": "Rome", "day": None}, *calls[1:]]
    assert notes["null-in-arguments"] == 2


def test_chats_need_a_tokenizer_that_parses_special_tokens(dsconvert, tmp_path):
    sentencepiece = pytest.importorskip("sentencepiece")
    folder = model(tmp_path / "model")
    (folder / "tokenizer.json").unlink()
    text = tmp_path / "text.txt"
    text.write_text("the cat sat on the mat\n" * 20)
    sentencepiece.SentencePieceTrainer.train(
        input=str(text), model_prefix=str(folder / "tokenizer"), vocab_size=30, hard_vocab_limit=False, minloglevel=2
    )
    chat = [{"role": "user", "content": "cat"}, {"role": "assistant", "content": "mat"}]
    source = write(tmp_path / "chats.jsonl", [{"messages": chat}] * 3)
    done = dsconvert(
        "text", source, "--messages-field", "messages", "--tokenizer", folder, "--out", tmp_path / "out", status=2
    )
    assert done.stderr.count("special tokens") == 1 and "save_pretrained" in done.stderr
    assert not (tmp_path / "out").exists()
