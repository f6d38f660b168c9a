"""Compares chats rendered by `dsconvert-chat` with `transformers`, over a folder of chat templates.

    cargo build -p dsconvert-chat --example chats
    python tests/python/chat_oracle.py FOLDER --program target/debug/examples/chats

FOLDER holds `NAME.jinja`, and `NAME_training.jinja` where somebody has added generation blocks: a checkout of
huggingface/trl has such a folder, `trl/chat_templates`. For each template, random conversations are rendered:

(a) the text is the same as that of `transformers`;
(b) with generation blocks, the trained text is what `return_assistant_tokens_mask` selects;
(c) without generation blocks, the trained text is that of `NAME_training.jinja`, wherever both render the same text, except for
    what `TRAINED_HEADERS` lists;
(d) with `--command target/debug/dsconvert --tokenizer tokenizer.json`, for conversations that are equal in (b) or (c):
    the ids and masks in a dataset that the command writes are those of `apply_chat_template`.
"""

import argparse
import datetime
import itertools
import json
import random
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import pyarrow.parquet
from tokenizers import AddedToken, Tokenizer
from transformers import PreTrainedTokenizerFast
from transformers.utils import chat_template_utils

# Jinja's `strftime_now` and the option `now` have the same time.
NOW = datetime.datetime(2026, 3, 4, 15, 6, 7)


class FixedTime(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return NOW


chat_template_utils.datetime = FixedTime

# Beginning of sequence, end of sequence. Strings that no template writes itself.
SPECIAL_TOKENS = {"bos_token": "<|bos|>", "eos_token": "<|eos|>"}

# What TRL trains at the start of turns, although the generation prompt has it: a model never writes it. Longer ones first.
TRAINED_HEADERS = {
    "deepseek_r1_distill": ["<｜Assistant｜>", "<｜tool▁outputs▁end｜>"],
    "deepseekv3": ["<｜Assistant｜>", "<｜tool▁outputs▁end｜>"],
    "gptoss": ["<|start|>assistant"],
    "muse_glimmer": ["<|start|>assistant"],
    "nemotron_3_5_lightning": ["<think>"],
    "nemotron_3_nano": ["<think>"],
    "nemotron_3_super": ["<think>"],
    "nemotron_3_ultra": ["<think>"],
    "qwen2_5": ["\n"],
    "qwen3_8": ["<think>\n"],
}

WORDS = [
    "yes", "no", "The", "answer", "is", "42", "3.5", "naïve", "Straße", "Ελλάδα", "Привет", "世界", "日本語", "مرحبا", "שלום", "हिन्दी",
    "🙂", "👩‍👩‍👧‍👦", "🇫🇷", "e\u0301", "ﬁ", "\u00a0", "\u2028", "\u200b", "<b>", "&amp;", "'quoted'", '"double"', "back\\slash", "{{ x }}",
    "{% y %}", "tab\there", "new\nline", "two\n\nlines", "\r\n", "x" * 40, "[INST]", "###", "/nothink", "user",
    "assistant", "system",
]
ODD_CONTENT = [
    "", "", " ", "\n", "  leading", "trailing  ", "trailing\n\n", "\n both \n", "<think>a</think>b", "<think>\nplan\n</think>\n\nanswer",
    "only </think> closed", "only <think> open", "<think></think>", "<|im_end|>", "<|im_start|>user\nhi", "</s>",
    "<tool_call>x</tool_call>",
]
ARGUMENTS = [
    "text", "", 'with "quotes"', "Ünï\ncode 🙂", "<tag>&'", 0, -1, 17, 2.5, 1e-07, 1e16, 1e300, True, False, None, [], [1, 2], ["a", "ß"],
    {}, {"k": "v", "n": {"deep": [1, {"x": None}]}}, "</tool_call>",
]
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "get_weather",
            "description": "The weather of a place — now.",
            "parameters": {
                "type": "object",
                "properties": {
                    "city": {"type": "string", "description": "Name of the city", "enum": ["Köln", "Paris"]},
                    "days": {"type": "integer", "description": "Days", "default": 3},
                    "flags": {"type": "array", "items": {"type": "string"}, "description": "Flags"},
                    "place": {
                        "type": "object",
                        "description": "A place",
                        "properties": {"lat": {"type": "number", "description": "Latitude"}},
                        "required": ["lat"],
                    },
                },
                "required": ["city"],
            },
        },
    },
    {
        "type": "function",
        "function": {"name": "noop", "description": "Does nothing", "parameters": {"type": "object", "properties": {}}},
    },
]


def text(choose):
    if choose.random() < 0.25:
        return choose.choice(ODD_CONTENT)
    words = [choose.choice(WORDS) for _ in range(choose.randint(1, 12))]
    return "".join(word + choose.choice([" ", " ", " ", "", "\n"]) for word in words)


def tool_call(choose, number, style):
    arguments = {f"{choose.choice(['city', 'days', 'größe', 'a b', 'x'])}{i or ''}": choose.choice(ARGUMENTS)
                 for i in range(choose.randint(0, 3))}
    if style["arguments"] == "string":
        arguments = json.dumps(arguments, ensure_ascii=choose.random() < 0.3)
    call = {"type": "function", "function": {"name": choose.choice(["get_weather", "noop"]), "arguments": arguments}}
    if choose.random() < 0.5:
        call["id"] = f"call{number}"
    if style["bare calls"]:
        call = call["function"]
    return call


def conversation(choose):
    """A chat as a user stores it: an object with `messages`, and perhaps `tools` and `chat_template_kwargs`."""
    style = {
        "arguments": choose.choice(["object", "object", "string"]),
        "bare calls": choose.random() < 0.05,
        "parts": choose.random() < 0.4,
        "tools": choose.random() < 0.3,
        "calls": choose.choice([0.0, 0.0, 0.0, 0.5]),
        "call content": choose.choice(["", "null", "text"]),
        "reasoning": choose.choice([0.0, 0.0, 0.6, 1.0]),
        "strict": choose.random() < 0.85,
    }

    def content(value):
        if not style["parts"]:
            return value
        parts = [{"type": "text", "text": value}]
        if choose.random() < 0.1:
            parts.append({"type": "text", "text": text(choose)})
        return parts

    messages = []
    if choose.random() < 0.5:
        messages.append({"role": "system" if choose.random() < 0.97 else "developer", "content": content(text(choose))})
    turns, calls = choose.randint(1, 9), 0
    role = "user" if choose.random() < 0.95 else "assistant"
    for _ in range(turns):
        if not style["strict"] and choose.random() < 0.2:
            role = choose.choice(["user", "assistant", "system", "tool"])
        message = {"role": role, "content": content(text(choose))}
        if role == "assistant":
            if choose.random() < style["reasoning"]:
                message[choose.choice(["reasoning_content", "reasoning_content", "thinking", "reasoning"])] = text(choose)
            if choose.random() < style["calls"]:
                number = choose.choice([1, 1, 2])
                message["tool_calls"] = [tool_call(choose, calls + i, style) for i in range(number)]
                calls += number
                match style["call content"]:
                    case "null":
                        message["content"] = None
                    case "":
                        message["content"] = content("")
            elif choose.random() < 0.1:
                message["tool_calls"] = None
        if choose.random() < 0.2:
            message = dict(choose.sample(list(message.items()), len(message)))
        messages.append(message)
        if "tool_calls" in message and message["tool_calls"]:
            for call in message["tool_calls"]:
                if choose.random() < 0.95:
                    answer = {"role": "tool", "content": content(text(choose))}
                    if "id" in call:
                        answer["tool_call_id"] = call["id"]
                    if choose.random() < 0.3:
                        answer["name"] = call.get("function", call)["name"]
                    messages.append(answer)
            role = "assistant"
        else:
            role = "assistant" if role != "assistant" else "user"
    chat = {"messages": messages}
    if style["tools"] or (style["calls"] and choose.random() < 0.8):
        chat["tools"] = choose.choice([TOOLS, TOOLS, TOOLS[:1], TOOLS[1:], []])
    if choose.random() < 0.2:
        options = {"enable_thinking": choose.choice([True, False])}
        if choose.random() < 0.3:
            options = {
                choose.choice(["preserve_thinking", "truncate_history_thinking", "add_vision_id", "low_effort"]): True
            }
        chat["chat_template_kwargs"] = options
    return chat


def reference(template, chat, spans=False):
    """The text that `transformers` renders, and the characters that its tracker selects; or the error."""
    messages = [{key: value for key, value in message.items() if value is not None} for message in chat["messages"]]
    try:
        rendered, ranges = chat_template_utils.render_jinja_template(
            conversations=[messages],
            tools=chat.get("tools"),
            chat_template=template,
            return_assistant_tokens_mask=spans,
            add_generation_prompt=False,
            **{**SPECIAL_TOKENS, **chat.get("chat_template_kwargs", {})},
        )
    except Exception as error:  # What a template raises is arbitrary.
        return None, f"{type(error).__name__}: {error}"
    return rendered[0], sorted(ranges[0]) if spans else []


def merged(ranges):
    """The same characters as disjoint ranges in order."""
    out = []
    for start, end in sorted(ranges):
        if start == end:
            continue
        if out and start <= out[-1][1]:
            out[-1][1] = max(out[-1][1], end)
        else:
            out.append([start, end])
    return out


def added_tokens(*templates):
    """What looks like an added token in the source of templates, so that no tokenizer is needed."""
    found = {token for template in templates for token in re.findall(r"</?[|｜]?[A-Za-z_▁][\w▁ .]*[|｜]?>", template)}
    found |= {token for template in templates for token in re.findall(r"\[/?[A-Za-z_]+\]", template)}
    return sorted(found | set(SPECIAL_TOKENS.values()))


class Program:
    """The example `chats`: renders all conversations with one template."""

    def __init__(self, path):
        self.path = path

    def render(self, template, chats, **options):
        options = {"special_tokens": SPECIAL_TOKENS, "now": NOW.strftime("%Y-%m-%dT%H:%M:%S"), **options}
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "template.jinja"
            file.write_bytes(template.encode())
            lines = "".join(json.dumps(chat, ensure_ascii=False) + "\n" for chat in chats).encode()
            done = subprocess.run([self.path, file, json.dumps(options)], input=lines, capture_output=True)
        if done.returncode:
            return done.stderr.decode().strip()
        return [self.in_characters(json.loads(line)) for line in done.stdout.decode().split("\n") if line]

    @staticmethod
    def in_characters(result):
        if "text" in result:
            encoded = result["text"].encode()
            result["trained"] = [[len(encoded[:at].decode()) for at in span] for span in result["trained"]]
        return result


def without_header(name, chat, text, spans, ours):
    """The spans without what the generation prompt has already. Where an answer may start with it, either form is accepted."""
    answers = [str(message.get("content")) for message in chat["messages"] if message["role"] == "assistant"]
    known = {start for start, _ in ours}

    def length(start):
        header = next((header for header in TRAINED_HEADERS.get(name, []) if text.startswith(header, start)), "")
        return 0 if start in known and any(header in answer for answer in answers) else len(header)

    return merged((start + length(start), end) for start, end in spans if start + length(start) < end)


def show(chat, ours, text, spans=None):
    lines = [
        "  chat   " + json.dumps(chat, ensure_ascii=False),
        "  theirs " + repr(text),
        "  ours   " + repr(ours.get("text", ours)),
    ]
    if spans is not None:
        lines += ["  theirs " + repr([text[a:b] for a, b in spans]),
                  "  ours   " + repr([ours["text"][a:b] for a, b in ours.get("trained", [])] if "text" in ours else ours)]
    return "\n".join(lines)


def chats_for(name, template, count, seed, training=None):
    """Conversations until `count` of them render, and some of the others; with a training template, until `count` render
    alike with both. It may add the marker that closes the last turn."""
    choose = random.Random(f"{seed} {name}")
    chats, wanted = [], 0
    for _ in range(count * 40):
        if wanted >= count:
            break
        chat = conversation(choose)
        # Without those that may be rejected.
        several = {"reject": "text-parts"}
        text = references(template, chat, several)[0]
        counts = text is not None and (
            training is None or (references(training, chat, several)[0] or "").startswith(text)
        )
        if counts or len(chats) < 2 * wanted + 20:
            chats.append(chat)
            wanted += counts
    return chats


class Tally:
    """How many conversations are equal, and examples of each kind of difference."""

    def __init__(self, kind, name):
        self.kind, self.name = kind, name
        self.equal, self.different, self.skipped, self.reasons, self.examples = 0, 0, 0, {}, []
        # Conversations of which the same text is trained, each with its text.
        self.alike = []

    def add(self, equal, reason, describe):
        if equal:
            self.equal += 1
            return
        self.different += 1
        if reason not in self.reasons:
            self.examples.append(f"({self.kind}) {self.name}: {reason}\n{describe()}")
        self.reasons[reason] = self.reasons.get(reason, 0) + 1

    def line(self):
        reasons = "; ".join(f"{count} × {reason}" for reason, count in sorted(self.reasons.items()))
        return f"| {self.kind} | {self.name} | {self.equal} | {self.different} | {self.skipped} | {reasons} |"


def with_objects(chat):
    """The chat with arguments of calls as objects: where a template needs them, we accept JSON in a string, too."""
    chat = json.loads(json.dumps(chat))
    for message in chat["messages"]:
        for call in message.get("tool_calls") or []:
            function = call.get("function", call)
            if isinstance(function["arguments"], str):
                function["arguments"] = json.loads(function["arguments"])
    return chat


def has_list(text):
    """Whether a template refuses lists of text parts, or has written one as Python prints it."""
    return text is None or "[{'type': 'text', 'text': " in text


def with_texts(chat, rendered=None):
    """The chat with the texts of contents that have one text part: of all, or of those that a template has written as a list, as
    Python prints it or as JSON. The result of a tool may be JSON, as with Llama 3.1."""
    def is_written(message, content):
        return str(content) in rendered or message["role"] != "tool" and json.dumps(content, ensure_ascii=False) in rendered

    chat = json.loads(json.dumps(chat))
    for message in chat["messages"]:
        if isinstance(content := message["content"], list) and len(content) == 1 and (
            rendered is None or is_written(message, content)
        ):
            message["content"] = content[0]["text"]
    return chat


def variants_of(template, chat):
    """The chat in the forms that we may give to a template: arguments as objects, and contents as texts."""
    variants = [chat, with_objects(chat)]
    if any(isinstance(message["content"], list) for message in chat["messages"]):
        texts = [with_texts(chat, reference(template, chat)[0] or "") for chat in variants]
        variants += [with_texts(chat), with_objects(with_texts(chat)), *texts]
    return variants


def references(template, chat, ours, spans=False):
    """What `transformers` renders of the chat as we read it: arguments may be objects, and a single text part is its text. A
    chat with several parts over which the template does not iterate has no rendering that may be trained, although
    `transformers` leaves the parts out, or prints the list."""
    lists = [message["content"] for message in chat["messages"] if isinstance(message["content"], list)]
    rendered = [reference(template, variant, spans) for variant in variants_of(template, chat)]
    if "text" in ours:
        equal = next((found for found in rendered if found[0] == ours["text"]), None)
        if equal is not None:
            return equal
    if ours.get("reject") == "text-parts" and any(len(parts) > 1 for parts in lists):
        return None, rendered[0][1]
    theirs = rendered[2] if lists and has_list(rendered[0][0]) else rendered[0]
    return (None, theirs[1]) if lists and has_list(theirs[0]) else theirs


def compare_text(program, name, template, chats):
    tally = Tally("a", name)
    results = program.render(template, chats, train_on="none", not_rendered="allow")
    if isinstance(results, str):
        tally.add(False, results, lambda: "")
        return tally
    for chat, ours in zip(chats, results, strict=True):
        theirs, error = references(template, chat, ours)
        if theirs is None:
            tally.add("reject" in ours, "only we render", lambda: show(chat, ours, error))
        elif "reject" in ours:
            tally.add(False, "only transformers renders", lambda: show(chat, ours, theirs))
        else:
            tally.add(ours["text"] == theirs, "text", lambda: show(chat, ours, theirs))
    return tally


def compare_spans(program, kind, name, template, training, chats, **options):
    tally = Tally(kind, name)
    results = program.render(
        template, chats, not_rendered="allow", added_tokens=added_tokens(template, training), **options
    )
    if isinstance(results, str):
        tally.add(False, results, lambda: "")
        return tally
    for chat, ours in zip(chats, results, strict=True):
        theirs, spans = references(training, chat, ours, spans=True)
        if theirs is not None:
            spans = without_header(name, chat, theirs, spans, ours.get("trained", [])) if kind == "c" else merged(spans)
        if theirs is None or ("text" in ours and ours["text"] != theirs):
            tally.skipped += 1
        elif "text" in ours:
            equal = merged(ours["trained"]) == spans
            tally.add(equal, "spans", lambda: show(chat, ours, theirs, spans))
            if equal:
                tally.alike.append((chat, theirs))
        elif ours["reject"] == "nothing-to-train":
            tally.add(not spans, "nothing to train", lambda: show(chat, ours, theirs, spans))
        elif kind == "c" and reference(template, chat)[0] != theirs:
            tally.skipped += 1
        elif "Python's form" in ours["message"] or ours["reject"] == "text-parts":
            # We do not train it.
            tally.skipped += 1
        else:
            reason = re.sub(r"\d+", "N", ours["reject"] + ": " + ours["message"])
            tally.add(False, reason, lambda: show(chat, ours, theirs, spans))
    return tally


class Command:
    """The command `dsconvert`, with a tokenizer to which the added tokens of each template are added."""

    def __init__(self, path, tokenizer):
        self.path, self.tokenizer = path, tokenizer

    def model(self, folder, template, tokens):
        """Writes the folder of a model."""
        tokenizer = Tokenizer.from_file(str(self.tokenizer))
        tokenizer.no_padding()
        tokenizer.no_truncation()
        tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in tokens])
        tokenizer.save(str(folder / "tokenizer.json"))
        config = {"tokenizer_class": "PreTrainedTokenizerFast", "chat_template": template, **SPECIAL_TOKENS}
        (folder / "tokenizer_config.json").write_text(json.dumps(config))

    def convert(self, folder, chats, options):
        """The ids and mask of each chat by its number, or the message of an error."""
        source = folder / "chats.jsonl"
        lines = [json.dumps(chat, ensure_ascii=False).encode() + b"\n" for chat in chats]
        source.write_bytes(b"".join(lines))
        # A key ends with the offset of its line.
        numbers = {offset: number for number, offset in enumerate(itertools.accumulate(map(len, lines), initial=0))}
        arguments = [
            "--messages-field", "messages", "--tokenizer", folder, "--out", folder / "out", "--now", NOW.isoformat(),
            "--format", "parquet",
        ]
        # As transformers: it parses special tokens wherever they are. A tokenizer may write no token for a marker.
        arguments += ["--special-in-content", "parse", "--not-rendered", "allow", "--allow-unknown-markers", *options]
        done = subprocess.run([self.path, "text", source, *arguments], capture_output=True, text=True)
        if done.returncode:
            return done.stderr.strip()
        table = pyarrow.parquet.read_table(folder / "out/train")
        rows = zip(
            table["key"].to_pylist(), table["input_ids"].to_pylist(), table["assistant_masks"].to_pylist(), strict=True
        )
        return {numbers[int(key.rpartition("#")[2])]: (ids, mask) for key, ids, mask in rows}


def compare_tokens(command, name, template, training, alike, **options):
    """Compares the tokens of conversations of which we and `transformers` train the same text. It may give the marker that
    closes the last turn a place of its own, so that tokens are compared with those of the template that it has marked."""
    tally = Tally("d", name)
    if not alike:
        return tally
    arguments = [part for option, value in options.items() for part in (f"--{option.replace('_', '-')}", value)]
    with tempfile.TemporaryDirectory() as folder:
        command.model(Path(folder), template, added_tokens(template, training))
        tokenizer = PreTrainedTokenizerFast.from_pretrained(folder)
        found = command.convert(Path(folder), [chat for chat, _ in alike], arguments)
    if isinstance(found, str):
        tally.add(False, found, lambda: "")
        return tally
    for number, (chat, text) in enumerate(alike):
        same = next(c for c in variants_of(training, chat) if reference(training, c)[0] == text)
        messages = [{key: value for key, value in message.items() if value is not None} for message in same["messages"]]
        encoded = tokenizer.apply_chat_template(
            messages, tools=same.get("tools"), chat_template=training, return_dict=True, return_assistant_tokens_mask=True,
            **same.get("chat_template_kwargs", {}),
        )
        theirs = (encoded["input_ids"], encoded["assistant_masks"])
        ours = found.get(number, ())
        reason = "no record" if not ours else "ids" if ours[0] != theirs[0] else "masks"
        tally.add(ours == theirs, reason, lambda: f"  chat   {json.dumps(chat, ensure_ascii=False)}\n  theirs {theirs}\n  ours   {ours}")
    return tally


def templates(folder):
    """The templates in a folder."""
    return sorted(Path(folder).glob("*.jinja"))


def compare(path, program, count, seed=0, command=None):
    """The tallies of one template."""
    name, template = path.stem, path.read_text()
    chats = chats_for(name, template, count, seed)
    yield compare_text(program, name, template, chats)
    if re.search(r"\{%-?\s*generation\s*-?%\}", template):
        tally = compare_spans(program, "b", name, template, template, chats)
        yield tally
        if command:
            yield compare_tokens(command, name, template, template, tally.alike)
    elif (training := path.with_name(f"{name}_training.jinja")).exists():
        marked = training.read_text()
        chats = chats_for(name, template, count, seed, marked)
        # The template of GLM leaves the last turn open.
        options = {"final_stop": "<|user|>"} if "<|observation|>" in template else {}
        tally = compare_spans(program, "c", name, template, marked, chats, **options)
        yield tally
        if command:
            yield compare_tokens(command, name, template, marked, tally.alike, **options)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder")
    parser.add_argument("--program", required=True, help="the example `chats` of dsconvert-chat")
    parser.add_argument("--command", help="the command dsconvert, whose ids and masks are compared, too")
    parser.add_argument(
        "--tokenizer", help="the tokenizer.json for this; added tokens of each template are added to it"
    )
    parser.add_argument("--count", type=int, default=300, help="conversations that render, for each template")
    parser.add_argument("--only", action="append", help="name of a template")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--verbose", action="store_true", help="print an example of each difference")
    options = parser.parse_args()
    print("| oracle | template | equal | different | rendered differently | differences |\n|---|---|---|---|---|---|")
    different = 0
    command = Command(options.command, options.tokenizer) if options.command else None
    for path in templates(options.folder):
        if options.only and path.stem not in options.only:
            continue
        for tally in compare(path, Program(options.program), options.count, options.seed, command):
            print(tally.line(), *(tally.examples if options.verbose else []), sep="\n", flush=True)
            different += tally.different
    return bool(different)


if __name__ == "__main__":
    sys.exit(main())
