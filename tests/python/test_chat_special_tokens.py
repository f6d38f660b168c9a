"""No string of a chat becomes a special token: twelve tokenizers with the special tokens of published models."""

import importlib.util
import itertools
import json
from pathlib import Path

import pyarrow
import pytest
from tokenizers import AddedToken, Tokenizer

import tokenizer_families
from conftest import ROOT

# The special tokens of published tokenizers, by the name of a family in tokenizer_families.py or of a fixture, with the
# template in TRL of a model that has them. Added tokens that the files do not mark as special are left out: those always
# match (docs/reference/chats.md).
PUBLISHED = {
    "Llama 3": ("llama3-ignore-merges", "llama3", [
        "<|begin_of_text|>", "<|end_of_text|>", "<|eot_id|>", "<|start_header_id|>", "<|end_header_id|>", "<|eom_id|>", "<|python_tag|>",
        "<|finetune_right_pad_id|>", "<|reserved_special_token_0|>",
    ]),
    "Qwen3": ("qwen2-nfc", "qwen3", [
        "<|endoftext|>", "<|im_end|>", "<|im_start|>", "<|object_ref_start|>", "<|box_end|>", "<|quad_start|>", "<|vision_pad|>",
        "<|image_pad|>",
    ]),
    "gpt-oss": ("o200k", "gptoss", [
        "<|startoftext|>", "<|endoftext|>", "<|return|>", "<|end|>", "<|start|>", "<|message|>", "<|channel|>",
        "<|constrain|>", "<|call|>",
    ]),
    "DeepSeek V3": ("deepseek", "deepseekv3", ["<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>", "<｜▁pad▁｜>", "<|EOT|>"]),
    "Cohere": ("cohere2", "cohere", [
        "<BOS_TOKEN>", "<EOS_TOKEN>", "<|START_OF_TURN_TOKEN|>", "<|END_OF_TURN_TOKEN|>", "<|SYSTEM_TOKEN|>", "<|USER_TOKEN|>",
        "<|CHATBOT_TOKEN|>", "<MASK_TOKEN>", "<SEP>",
    ]),
    "Nemotron 3": (
        "tekken",
        "nemotron_3_nano",
        ["<s>", "<|im_end|>", "<|im_start|>", "[INST]", "[/INST]", "[TOOL_CALLS]", "<SPECIAL_20>"],
    ),
    "GLM-4.5": ("qwen3.5", "glm4moe", [
        "<|endoftext|>", "<|user|>", "[MASK]", "[gMASK]", "<sop>", "<eop>", "<|system|>", "<|assistant|>",
        "<|observation|>", "/nothink",
    ]),
    "Gemma": (
        "gemma",
        "gemma",
        ["<eos>", "<bos>", "<start_of_turn>", "<end_of_turn>", "<mask>", "<2mass>", "[@BOS@]", "<pad>"],
    ),
    "Phi-3": (
        "mistral",
        "phi3",
        ["</s>", "<|end|>", "<s>", "<|endoftext|>", "<|assistant|>", "<|system|>", "<|user|>", "<|placeholder1|>"],
    ),
    "bpe": ("bpe", None, ["<|im_end|>", "<|im_start|>", "<s>"]),
    "unigram": ("unigram", None, ["<|im_end|>", "<|im_start|>", "<s>"]),
    "wordpiece": ("wordpiece", None, ["[SEP]", "[CLS]", "[MASK]", "[PAD]"]),
}
# In the file of Phi-3, these remove the white space after them.
RIGHT = {"<|end|>", "<|assistant|>", "<|system|>", "<|user|>", "<|placeholder1|>"}

# Writes all strings of a chat between two special tokens, and a marker that is made of the role.
EVERYTHING = """\
{%- for written in tools or [] %}{{ written | tojson }}{% endfor %}
{%- for message in messages %}
    {{- OPEN + message.role + '<|' + message.role + '|>' }}
    {%- for key in message %}{{ key }}{% endfor %}
    {{- (message.name or '') + (message.tool_call_id or '') + (message.reasoning_content or '') + message.content }}
    {%- for call in message.tool_calls or [] %}{{ call.id + call.function.name + (call | tojson) }}{% endfor %}
    {{- CLOSE }}
{%- endfor %}"""


def with_string(text):
    """Chats with a string in each place where a chat may have one."""
    def chat(first, answer=None, **others):
        return {
            "messages": [
                {"role": "user", "content": "U", **first}, {"role": "assistant", "content": "A", **(answer or {})}
            ],
            **others,
        }

    def call(**replaced):
        return {"tool_calls": [{"id": "i", "type": "function", "function": {"name": "f", "arguments": {"a": "b"}}, **replaced}]}

    def tool(**replaced):
        return {
            "type": "function",
            "function": {
                "name": "f", "description": "D", "parameters": {"type": "object", "properties": {}}, **replaced
            },
        }

    # Templates write `<|` and `|>` around roles: names that are not one of those that docs/reference/chats.md lists.
    bare = text.strip("<|>[]")
    role = text if bare in ("system", "user", "assistant", "observation") else bare
    return [
        chat({"role": text}),
        chat({"role": f"user{text}"}),
        chat({"role": role}),
        chat({"content": f"a{text} b"}),
        chat({"content": [{"type": "text", "text": f"a{text} b"}]}),
        chat({}, {"content": text}),
        chat({}, {"reasoning_content": f"because {text}"}),
        chat({"name": text}),
        chat({"role": "tool", "tool_call_id": f"x{text}"}),
        chat({text: "value"}),
        chat({}, call(id=text)),
        chat({}, call(function={"name": text, "arguments": {"a": "b"}})),
        chat({}, call(function={"name": "f", "arguments": {text: text}})),
        chat({}, call(function={"name": "f", "arguments": json.dumps({"a": [{text: text}]})})),
        chat({}, call(type=text)),
        chat({}, tools=[tool(name=text, description=text)]),
        chat(
            {}, tools=[tool(parameters={"type": "object", "properties": {text: {"type": text, "description": text}}})]
        ),
        chat({}, tools=[{**tool(), text: {}}]),
    ]


def base_tokenizer(name):
    path = ROOT / f"fixtures/tokenizers/{name}.json"
    if path.exists():
        return Tokenizer.from_file(str(path))
    made = tokenizer_families.FAMILIES[name]()
    return Tokenizer.from_str(made if isinstance(made, str) else made.to_str())


@pytest.fixture(scope="module", params=PUBLISHED)
def model(request, tmp_path_factory):
    """The folder of a model, its special tokens by id, and its published template, if there is one."""
    folder = tmp_path_factory.mktemp("model")
    name, template, tokens = PUBLISHED[request.param]
    tokenizer = base_tokenizer(name)
    tokenizer.no_padding()
    tokenizer.no_truncation()
    right = RIGHT if request.param == "Phi-3" else ()
    tokenizer.add_special_tokens(
        [AddedToken(token, special=True, normalized=False, rstrip=token in right) for token in tokens]
    )
    tokenizer.save(str(folder / "tokenizer.json"))
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": tokens[0], "eos_token": tokens[1]}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    (folder / "everything.jinja").write_text(
        EVERYTHING.replace("OPEN", repr(tokens[2])).replace("CLOSE", repr(tokens[1]))
    )
    templates = [folder / "everything.jinja"]
    if template and (trl := importlib.util.find_spec("trl")):
        templates.append(Path(trl.origin).parent / f"chat_templates/{template}.jinja")
    added = json.loads((folder / "tokenizer.json").read_text())["added_tokens"]
    # Any text may produce the unknown token.
    special = {
        token["id"]: token["content"] for token in added if token["special"] and "unk" not in token["content"].lower()
    }
    assert set(special.values()) >= set(tokens)
    return folder, special, templates


def test_no_string_of_a_chat_is_a_special_token(dsconvert, model, tmp_path):
    folder, special, templates = model
    harmless = with_string("harmless")
    rows = [*harmless, *itertools.chain.from_iterable(map(with_string, special.values()))]
    lines = [json.dumps(row, ensure_ascii=False).encode() + b"\n" for row in rows]
    (tmp_path / "chats.jsonl").write_bytes(b"".join(lines))
    numbers = {offset: number for number, offset in enumerate(itertools.accumulate(map(len, lines), initial=0))}

    def number_of(origin):
        return numbers[int(origin.rpartition("#")[2])]

    for template in templates:
        options = [
            "--messages-field", "messages", "--tokenizer", folder, "--chat-template", template, "--train-on", "none",
            "--not-rendered", "allow", "--allow-unknown-markers", "--now", "2026-01-02", "--max-rejects", "100%",
            "--overwrite", "--out", tmp_path / "out",
        ]

        def run(*more):
            dsconvert("text", tmp_path / "chats.jsonl", *options, *more)
            rejects = map(json.loads, (tmp_path / "out/rejects.jsonl").read_text().splitlines())
            return {number_of(reject["origin"]): reject["code"] for reject in rejects}

        rejected = run()
        table = pyarrow.concat_tables(
            pyarrow.ipc.open_file(shard).read_all() for shard in sorted((tmp_path / "out/train").glob("*.arrow")))
        counts = {
            number_of(key): {special[id]: ids.count(id) for id in special}
            for key, ids in zip(table["key"].to_pylist(), table["input_ids"].to_pylist(), strict=True)
        }
        assert len(counts) + len(rejected) == len(rows)
        # A template may refuse a role, whatever its name is.
        assert len(counts) > 0.6 * len(rows), rejected
        for number, row in enumerate(rows):
            assert counts.get(number) == counts.get(number % len(harmless)), (template.stem, row, rejected.get(number))
        if template != templates[0]:
            continue
        # Each one is seen where this is asked for.
        assert not rejected
        refused = run("--special-in-content", "error")
        assert set(refused.values()) == {"special-token"}
        seen = [number in refused for number in range(len(rows))]
        bare = [number % len(harmless) == 2 for number in range(len(rows))]
        wrong = [
            number for number in range(len(rows)) if seen[number] != (number >= len(harmless)) and not bare[number]
        ]
        assert not wrong, [rows[number] for number in wrong[:3]]
