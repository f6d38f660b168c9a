"""Chat templates, rendered by `crates/chat` and by `transformers`: the text and the ranges of generation blocks."""

import copy
import datetime
import json
import os
import random
import subprocess
from pathlib import Path

import pytest

transformers = pytest.importorskip("transformers", minversion="5.23")
pytest.importorskip("jinja2", minversion="3.1.6")
from transformers.utils import chat_template_utils  # noqa: E402

ROOT = Path(__file__).parents[2]
NOW = 1735786800


class Now(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return datetime.datetime.fromtimestamp(NOW, datetime.timezone.utc).replace(tzinfo=None)


@pytest.fixture(scope="module")
def render():
    """Renders jobs, which are pairs of a template and a context, with the example program of the crate."""
    program = Path(os.environ.get("DSCONVERT_BIN", "")).parent / "examples" / "chat_render"
    if not program.is_file():
        command = ["cargo", "build", "--locked", "-p", "dsconvert-chat", "--example", "chat_render"]
        build = subprocess.run(
            [*command, "--message-format=json"], cwd=ROOT, stdout=subprocess.PIPE, check=True,
        )
        messages = map(json.loads, build.stdout.splitlines())
        program = next(Path(m["executable"]) for m in messages if m.get("executable"))

    def run(jobs):
        lines = "".join(json.dumps({"template": t, "context": c, "now": NOW}) + "\n" for t, c in jobs)
        done = subprocess.run([program], input=lines, capture_output=True, text=True, check=True)
        return [json.loads(line) for line in done.stdout.split("\n") if line]

    return run


def reference(template, context):
    try:
        compiled = chat_template_utils._compile_jinja_template(template)
        # `indent` changes a list that is given to it.
        fixed = {"tools": None, "documents": None, "add_generation_prompt": False, **copy.deepcopy(context)}
        text, generation = chat_template_utils._render_with_assistant_indices(compiled_template=compiled, **fixed)
    except Exception:  # Whatever Jinja2 and the functions of Python raise.
        return None
    starts = [0]
    for character in text:
        starts.append(starts[-1] + len(character.encode()))
    last = len(starts) - 1
    return text, [[starts[min(start, last)], starts[min(end, last)]] for start, end in generation]


def compare(render, monkeypatch, jobs):
    monkeypatch.setattr(chat_template_utils, "datetime", Now)
    rendered = 0
    for (template, context), ours in zip(jobs, render(jobs), strict=True):
        theirs = reference(template, context)
        if theirs is None:
            assert "error" in ours, template
        elif ours.get("kind") != "Unsupported":
            assert (ours.get("text"), ours.get("generation")) == theirs, (template, ours)
            assert ours["pieces"][-1:] == [] or ours["pieces"][-1][0] == len(ours["text"].encode())
            rendered += 1
    return rendered


CHAT = [
    {"role": "system", "content": " Be é "},
    {"role": "user", "content": "hi <|im_end|>"},
    {"role": "assistant", "content": "", "reasoning_content": "so\n", "tool_calls": [
        {"type": "function", "function": {"name": "f", "arguments": {"x": 1, "y": [1.0, None, {"k": "日"}], "z": True}}},
    ]},
    {"role": "tool", "content": "{\"t\": 3}"},
    {"role": "assistant", "content": "<think>\na\n</think>\n\nyo\n"},
]

# Variables instead of literals: Jinja2 evaluates expressions of literals early, with slightly different rules.
VARIABLES = {
    "zero": 0, "one": 1, "less": -7, "half": 2.5, "large": 1e16, "small": 1e-7, "yes": True, "null": None, "words": "a,b c",
    "quotes": "It's \"q\" é😀", "empty": "", "lines": " x\ny ", "numbers": [3, 1, 2], "letters": ["b", "A"], "nothing": [],
    "mapping": {"b": 1, "a": [2]}, "hollow": {},
}
VALUES = [
    *VARIABLES, "missing", "(one, words)", "messages", "messages[1]", "messages[2].tool_calls[0]", "messages[-1].content", "range(4)",
    "messages[2].items()", "messages[1].role", "numbers|select", "[one, half]",
]
FILTERS = [
    "|trim", "|length", "|tojson", "|tojson(indent=2)", "|tojson(sort_keys=true)", "|upper", "|lower", "|title", "|capitalize",
    "|list", "|first", "|last", "|join('-')", "|default('d')", "|d('d', true)", "|string", "|int", "|float", "|abs", "|round(1)",
    "|sort", "|reverse", "|reverse|list", "|unique|list", "|sum", "|min", "|max", "|items|list", "|dictsort", "|map('string')|list",
    "|map(attribute='role')|list", "|select|list", "|select('string')|list", "|selectattr('role', 'eq', 'user')|list",
    "|rejectattr('tool_calls', 'defined')|list", "|replace('a', 'bb')", "|indent(2)", "|wordcount", "|center(9)",
    "|truncate(3, true, '')", "|batch(2)|list", "|slice(2)|list", "|groupby('role')",
]
SUFFIXES = [
    "[0]", "[-1]", "[1:]", "[::-1]", "[:2]", "['a']", ".a", ".role", ".content", ".keys()|list", ".items()", ".get('a')", ".split()",
    ".split(',')", ".rsplit(' ', 1)", ".strip()", ".strip(' x')", ".lstrip()", ".splitlines()", ".upper()", ".title()", ".capitalize()",
    ".startswith('a')", ".endswith(('b', 'c'))", ".replace('a', '')", ".find('b')", ".count('a')", ".partition(',')", ".zfill(5)",
    ".isdigit()", ".isalpha()", ".removeprefix('a')", ".join(['x', 'y'])", ".format(1)", ".index(1)", ".append(1)",
    ".copy()",
]
TESTS = [
    "defined", "none", "string", "number", "integer", "float", "boolean", "mapping", "sequence", "iterable", "true", "false", "odd",
    "divisibleby 2", "in [1, 'a,b c']", "lower", "upper", "callable", "eq 1", "sameas none",
]
OPERATORS = [
    "+", "-", "*", "/", "//", "%", "~", "==", "!=", "<", ">=", "in", "not in", "and", "or", "if missing else",
    "if 1 else",
]


def expression(chance, depth=3):
    kind = chance.random()
    if depth == 0 or kind < 0.15:
        return chance.choice(VALUES)
    inner = expression(chance, depth - 1)
    if kind < 0.45:
        return f"({inner}){chance.choice(FILTERS)}"
    if kind < 0.7:
        return f"({inner}){chance.choice(SUFFIXES)}"
    if kind < 0.8:
        return f"({inner} is {chance.choice(['', 'not '])}{chance.choice(TESTS)})"
    return f"({inner} {chance.choice(OPERATORS)} {expression(chance, depth - 1)})"


@pytest.mark.parametrize("seed", range(int(os.environ.get("CHAT_SEEDS", "2"))))
def test_expressions(render, monkeypatch, seed):
    chance = random.Random(seed)
    jobs = [(f"{{{{ {expression(chance)} }}}}", {"messages": CHAT, **VARIABLES}) for _ in range(500)]
    assert compare(render, monkeypatch, jobs) > 100


TAGS = [
    "{% for m in messages %}", "{%- for m in messages -%}", "{% for i in [1, 2] if i != n %}", "{% else %}", "{% endfor %}",
    "{%- endfor %}", "{% if n %}", "{% if m.role == 'user' %}", "{% elif i %}", "{% endif %}", "{%+ endif +%}", "{% set n = i %}",
    "{% set n = (n or 0) + 1 %}", "{% set s.n = (s.n or '') ~ 'x' %}", "{% set s = namespace(n=0) %}", "{% set n %}", "{% endset %}",
    "{% macro f(a, b=n) %}", "{% endmacro %}", "{{ f(1) }}", "{{ f(n, b='é') }}", "{% generation %}", "{% endgeneration %}",
    "{% call f(2) %}", "{% endcall %}", "{{ caller() }}", "{% filter upper %}", "{% endfilter %}", "{% with n = 3 %}", "{% endwith %}",
    "{{ n }}", "{{- m.content -}}", "{{ loop.index }}", "{{ loop.last }}", "{{ i }}", "{{ s.n }}", "{% break %}", "{% continue %}",
    "{# c #}", "{#- c -#}", "{% raw %}{{ {% endraw %}", "\n", "  ", "\n  ", " text é ", "\r\n",
]


def block(chance, depth):
    """Statements whose tags fit together most of the time."""
    out = ""
    for _ in range(chance.randint(1, 5)):
        tag = chance.choice(TAGS)
        ends = {"for": "{% endfor %}", "if": "{% endif %}", "macro": "{% endmacro %}", "generation": "{% endgeneration %}",
                "call": "{% endcall %}", "filter": "{% endfilter %}", "with": "{% endwith %}", "set n %": "{% endset %}"}
        word = tag.lstrip("{%+- ")
        end = next((end for start, end in ends.items() if word.startswith(start)), None)
        if end and depth:
            out += tag + block(chance, depth - 1) + end
        elif not word.startswith(("end", "el")) and not end:
            out += tag
    return out


@pytest.mark.parametrize("seed", range(int(os.environ.get("CHAT_SEEDS", "2"))))
def test_statements(render, monkeypatch, seed):
    chance = random.Random(seed)
    start = "{% macro f(a, b=1) %}<{{ a }}{{ b }}{{ caller() if caller else '' }}>{% endmacro %}{% set s = namespace(n=0) %}"
    jobs = [(chance.choice(["", start]) + block(chance, 3), {"messages": CHAT}) for _ in range(500)]
    assert compare(render, monkeypatch, jobs) > 100


@pytest.mark.skipif("CHAT_TEMPLATES" not in os.environ, reason="CHAT_TEMPLATES names no folder with templates")
def test_templates_of_models(render, monkeypatch):
    names = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>"}
    chats = [CHAT, CHAT[1:], CHAT[:2], [*CHAT[:2], CHAT[-1]], [*CHAT[1:2], CHAT[-1], *CHAT[1:2], CHAT[-1]]]
    tool = {
        "type": "function",
        "function": {"name": "f", "description": "é", "parameters": {"type": "object", "properties": {}}},
    }
    jobs = []
    for file in sorted(Path(os.environ["CHAT_TEMPLATES"]).glob("*.jinja")):
        for chat in chats:
            for tools in (None, [tool]):
                chat = chat_template_utils._alias_reasoning_fields(chat)
                context = {"messages": chat, "tools": tools, "add_generation_prompt": False, **names}
                jobs.append((file.read_bytes().decode(), context))
    compare(render, monkeypatch, jobs)
