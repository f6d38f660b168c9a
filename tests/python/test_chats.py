"""Ids and masks of chats equal those of `transformers` on the same template and tokenizer."""

import json
import random

import pyarrow.parquet
import pytest
from tokenizers import AddedToken, Tokenizer

from conftest import ROOT

transformers = pytest.importorskip("transformers")

# The usual form of chat templates, with the text of the assistant in a generation block, so that transformers has masks.
CHATML = """\
{%- if tools %}
    {{- '<|im_start|>system\\n' }}
    {%- for tool in tools %}{{ tool | tojson }}{{ '\\n' }}{%- endfor %}
    {{- '<|im_end|>\\n' }}
{%- endif %}
{%- for message in messages %}
    {%- if message.role == 'assistant' %}
        {{- '<|im_start|>assistant\\n' }}
        {%- generation %}
            {%- if message.reasoning_content %}{{ '<think>' + message.reasoning_content.strip() + '</think>' }}{% endif %}
            {{- message.content }}
            {%- for call in message.tool_calls or [] %}
                {{- '<tool_call>' ~ (call.function.arguments | tojson) ~ '</tool_call>' }}
            {%- endfor %}
            {{- '<|im_end|>\\n' }}
        {%- endgeneration %}
    {%- else %}
        {{- '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{%- endif %}"""
HEADERS = """\
{{- bos_token }}
{%- for message in messages %}
    {%- set content = message.content | trim %}
    {{- '<|start_header_id|>' + message.role + '<|end_header_id|>\\n\\n' }}
    {%- if message.role == 'assistant' %}
        {%- generation %}{{ content + '<|eot_id|>' }}{% endgeneration %}
    {%- else %}
        {{- content + '<|eot_id|>' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{%- endif %}"""
# Two adjacent blocks: transformers looks for the tokens of each, also where a character at the end of one has several.
ADJACENT = """\
{%- for message in messages %}
    {{- '<|im_start|>' + message.role + '\\n' }}
    {%- if message.role == 'assistant' %}
        {%- generation %}{{ message.content | trim }}{% endgeneration %}{% generation %}{{ '<|im_end|>\\n' }}{% endgeneration %}
    {%- else %}{{ message.content + '<|im_end|>\\n' }}{% endif %}
{%- endfor %}"""
TEMPLATES = {"chatml": CHATML, "headers": HEADERS, "adjacent": ADJACENT}
SPECIAL = ["<|im_start|>", "<|im_end|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>", "<s>"]
TOKENIZERS = ["bpe", "unigram", "wordpiece"]
WORDS = "the cat, sat  on a mat. Été naïve 你好 мир 👩‍👩‍👧 \u0301 \n\n 12345 don't <b> <think> |im_end| \t ünïcödé — “quotes”".split(" ")


def some_text(random, words):
    return " ".join(random.choice(WORDS) for _ in range(words))


def conversations(seed, count, with_tools, nulls=True):
    """Conversations with and without system message, tools, reasoning, empty texts and white space at the ends."""
    choose = random.Random(seed)
    for _ in range(count):
        messages = []
        if choose.random() < 0.5:
            messages.append({"role": "system", "content": some_text(choose, choose.randrange(6))})
        for _ in range(choose.randrange(1, 6)):
            messages.append({"role": "user", "content": some_text(choose, choose.randrange(1, 20))})
            answer = {
                "role": "assistant",
                "content": choose.choice(["", " ", "\n"]) + some_text(choose, choose.randrange(12)) + choose.choice(
                    ["", "\n "]
                ),
            }
            if with_tools and choose.random() < 0.3:
                answer["reasoning_content"] = some_text(choose, 3)
            if with_tools and choose.random() < 0.3:
                arguments = {
                    "b": some_text(choose, 2), "a": [1.5, -2.0], "z": {"x": None if nulls else True, "é": 10**15}
                }
                answer["tool_calls"] = [{"type": "function", "function": {"name": "f", "arguments": arguments}}]
            messages.append(answer)
        row = {"messages": messages}
        if with_tools and choose.random() < 0.4:
            row["tools"] = [
                {"type": "function", "function": {"name": "f", "description": "Ü", "parameters": {"type": "object"}}}
            ]
        yield row


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """Folders with a tokenizer and a template, by the names of both."""
    made = {}

    def model(tokenizer, template):
        folder = made.get((tokenizer, template))
        if folder is None:
            folder = made[tokenizer, template] = tmp_path_factory.mktemp(f"{tokenizer}-{template}")
            fast = Tokenizer.from_file(str(ROOT / f"fixtures/tokenizers/{tokenizer}.json"))
            fast.no_padding()
            fast.no_truncation()
            fast.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in SPECIAL])
            fast.add_tokens([AddedToken("<think>", normalized=False)])
            fast.save(str(folder / "tokenizer.json"))
            config = {
                "tokenizer_class": "PreTrainedTokenizerFast",
                "bos_token": "<s>",
                "eos_token": None,
                "chat_template": TEMPLATES[template],
            }
            (folder / "tokenizer_config.json").write_text(json.dumps(config))
        return folder

    return model


def write(path, rows):
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))
    return path


def converted(dataset, split="train"):
    table = pyarrow.concat_tables(
        [pyarrow.ipc.open_file(shard).read_all() for shard in sorted((dataset / split).glob("*.arrow"))]
    )
    return list(zip(table["input_ids"].to_pylist(), table["assistant_masks"].to_pylist(), strict=True))


def expected(folder, rows, **options):
    """Ids and masks of transformers."""
    tokenizer = transformers.PreTrainedTokenizerFast.from_pretrained(folder)
    found = []
    for row in rows:
        encoded = tokenizer.apply_chat_template(
            row["messages"], tools=row.get("tools"), return_dict=True, return_assistant_tokens_mask=True, **options,
            **row.get("chat_template_kwargs", {})
        )
        found.append((encoded["input_ids"], encoded["assistant_masks"]))
    return found


@pytest.mark.parametrize("template", TEMPLATES)
@pytest.mark.parametrize("tokenizer", TOKENIZERS)
def test_ids_and_masks_equal_transformers(dsconvert, models, tmp_path, tokenizer, template):
    folder = models(tokenizer, template)
    rows = list(conversations(f"{tokenizer} {template}", 60, template == "chatml"))
    source = write(tmp_path / "chats.jsonl", rows)
    for engine in ("auto", "reference"):
        out = tmp_path / engine
        dsconvert(
            "text", source, "--messages-field", "messages", "--tokenizer", folder, "--engine", engine, "--out", out,
            "--verify-ids", "all",
        )
        found = converted(out)
        assert len(found) == len(rows)
        for row, ours, theirs in zip(rows, found, expected(folder, rows), strict=True):
            # If no token has the first or last character of a block, such as white space with this tokenizer, transformers
            # trains nothing, or everything, after it.
            compared = 1 if tokenizer == "wordpiece" else 2
            assert ours[:compared] == theirs[:compared], row


def test_parquet_with_nested_messages(dsconvert, models, tmp_path):
    """Parquet fills missing members of a struct with null, which templates must not see."""
    folder = models("bpe", "chatml")
    rows = list(conversations("parquet", 40, True, nulls=False))
    table = pyarrow.Table.from_pylist(rows)
    pyarrow.parquet.write_table(table, tmp_path / "chats.parquet")
    dsconvert(
        "text", tmp_path / "chats.parquet", "--messages-field", "messages", "--tokenizer", folder, "--out",
        tmp_path / "out",
    )
    from_table = expected(folder, table.to_pylist())
    assert converted(tmp_path / "out") == from_table


def test_variables_of_the_template(dsconvert, models, tmp_path):
    folder = models("bpe", "chatml")
    template = "{% for m in messages %}{% if show %}{{ prefix }}{% endif %}{% generation %}{{ m.content }}{% endgeneration %}<|im_end|>{% endfor %}"
    (tmp_path / "t.jinja").write_text(template)
    rows = [
        {"messages": [{"role": "assistant", "content": "one"}]},
        {"messages": [{"role": "assistant", "content": "two"}], "chat_template_kwargs": {"prefix": "b,", "show": True}},
    ]
    source = write(tmp_path / "chats.jsonl", rows)
    options = ["--template-arg", "show=true,prefix=\"a, \"", "--chat-template", tmp_path / "t.jinja"]
    dsconvert(
        "text", source, "--messages-field", "messages", "--tokenizer", folder, "--out", tmp_path / "out", *options
    )
    tokenizer = transformers.PreTrainedTokenizerFast.from_pretrained(folder)
    texts = ["a, one<|im_end|>", "b,two<|im_end|>"]
    assert [ids for ids, _ in converted(tmp_path / "out")] == [
        tokenizer(text, add_special_tokens=False)["input_ids"] for text in texts
    ]
