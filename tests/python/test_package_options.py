"""The Python package: signatures, help and reference agree with the option table in Rust."""

import inspect
import json
import re
import typing
from collections.abc import Mapping, Sequence

import pytest

import dsconvert
from conftest import ROOT
from dsconvert import _native

# Name, default, allowed values and the reasons for which it may not apply, of each option.
TABLE = {name: (json.loads(default), *rest) for name, default, *rest in _native.option_table()}
CLASSES = [dsconvert.Loader, dsconvert.BatchSampler]

# Arguments that are handled in Python.
PYTHON = {
    "source", "split", "add", "transform", "batch_transform", "as_torch", "pin_memory", "rank", "world_size",
    "replication", "processor",
}

# How the help of an option starts, by the reason for which the option may not apply.
STARTS = {
    r"it needs (?!a token budget)(.+)": r"With `\1`: ",
    r"it needs a token budget, .*": r"With a token budget: ",
    r"the records are not packed": r"Text that was packed by `dsconvert text --pack` only. ",
    r"the records are not preference pairs": r"Preference pairs only. ",
    r"the records are no chats with images": r"Chats with images only. ",
    r"the dataset holds images": r"Text only",
    r"the dataset holds text": r"Images only. ",
}


def help_of(kind):
    explained = re.findall(r"^ {4}(\w+): (.*(?:\n {8}.*)*)", inspect.getdoc(kind).split("Raises:")[0], re.MULTILINE)
    return {name: " ".join(explanation.split()) for name, explanation in explained}


def options_of(kind):
    return [name for name in inspect.signature(kind).parameters if name not in PYTHON]


def test_the_signatures_have_the_options_in_the_order_of_the_table():
    assert options_of(dsconvert.Loader) == list(TABLE)
    of_samplers = [name for name, (*_, reasons) in TABLE.items() if "it is an option of Loader only" not in reasons]
    assert options_of(dsconvert.BatchSampler) == of_samplers
    loader, sampler = (inspect.signature(kind).parameters for kind in CLASSES)
    assert [sampler[name] for name in of_samplers] == [loader[name] for name in of_samplers]


@pytest.mark.parametrize(("options", "meant"), [
    ({"bucket": "lenght"}, "length"),
    ({"bucket": "Windows"}, "windows"),
    ({"shuffle": "blocks"}, "block"),
    ({"last": "dorp"}, "drop"),
    ({"oversize": "eror"}, "error"),
    ({"bucket": "random"}, None),
    ({"seed": "zero"}, None),
])
@pytest.mark.parametrize("kind", CLASSES)
def test_the_help_names_the_word_that_was_probably_meant(text, kind, options, meant):
    with pytest.raises(dsconvert.UsageError, match="cannot be") as caught:
        kind(text, max_tokens=100, **options)
    assert caught.value.remedy == (f'did you mean "{meant}"?' if meant else None)
    assert str(caught.value).split("\n") == [caught.value.message, *filter(None, [caught.value.remedy])]


def test_the_type_hints_allow_what_the_table_allows():
    def parts(hint):
        inner = typing.get_args(hint)
        yield hint
        yield typing.get_origin(hint)
        if typing.get_origin(hint) is typing.Literal:
            yield from inner
        else:
            for part in inner:
                yield from parts(part)

    hints = typing.get_type_hints(dsconvert.Loader.__init__)
    types = {
        "an integer from 0": int, "a number of pixels, or height and width": tuple[int, int], "a number": float,
        "two numbers": tuple[float, float], "a boolean": bool, "true, false": bool, "a list of names": Sequence[str],
        "a map": Mapping,
    }
    for name, (_, allowed, _) in TABLE.items():
        hint_parts = list(parts(hints[name]))
        if name == "channels":  # the table has any integer
            assert {part for part in hint_parts if isinstance(part, int)} == {1, 3}
            continue
        assert {part for part in hint_parts if isinstance(part, str)} == set(re.findall(r'"(\w+)"', allowed)), name
        kinds = [kind for words, kind in types.items() if allowed.startswith(words)][:1]
        assert '"' in allowed or kinds, f"{name}: {allowed}"
        assert set(kinds) <= set(hint_parts), name


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("name", TABLE)
def test_the_help_states_the_definition(kind, name):
    default, allowed, reasons = TABLE[name]
    if name not in options_of(kind):
        return
    explanation = help_of(kind)[name]
    if default is not None:
        stated = eval(re.search(r"Default: `?([^`]+?)`?\.$", explanation)[1])  # has fractions
        assert stated == (tuple(default) if isinstance(default, list) else default), explanation
    in_signature = inspect.signature(kind).parameters[name].default
    assert in_signature == (tuple(default) if isinstance(default, list) else default)
    missing = {word for word in re.findall(r'"\w+"', allowed) if f"`{word}`" not in explanation}
    refused = {"last": {'"pad"'}, "oversize": {'"truncate"'}}.get(name, set()) if kind is dsconvert.BatchSampler else set()
    assert missing == refused, explanation
    # The most specific condition comes last.
    starts = [
        re.sub(pattern, start, reason)
        for reason in reasons
        for pattern, start in STARTS.items()
        if re.fullmatch(pattern, reason)
    ]
    if starts and kind is dsconvert.Loader:
        assert explanation.startswith(starts[-1]), explanation
    else:
        assert starts or not re.match(r"With|Text|Images", explanation), explanation


def test_loaders_and_samplers_are_explained_in_the_same_words():
    loader, sampler = map(help_of, CLASSES)
    differ = {name for name in sampler if sampler[name] != loader[name]}
    assert differ == {
        "source", "split", "batch_size", "max_tokens_unpadded", "max_pixels", "seed", "oversize", "last", "pad_to_multiple_of",
        "max_patches", "budget",
    }


def test_the_reference_has_the_options_with_their_defaults():
    page = (ROOT / "docs/reference/python.md").read_text()
    batches = page.split("\n## Batches\n")[1].split("\n## ")[0]
    assert [name for name in TABLE if not re.search(rf"`{name}\b", batches)] == []
    tables = batches.split("### Options\n")[1].split("\n### ")[0]
    compared = set()
    for row in re.findall(r"^\| `.*", tables, re.MULTILINE):
        cells = [cell.strip() for cell in row.split("|")]
        names, stated = re.findall(r"`(\w+)`", cells[1]), cells[2].split(", ")
        assert set(names) <= set(inspect.signature(dsconvert.Loader).parameters), "no other names"
        if len(stated) != len(names):
            stated = [cells[2]] * len(names)
        for name, default in zip(names, stated):
            if name in TABLE and TABLE[name][0] is not None:
                assert eval(default.strip("`")) == TABLE[name][0], name
                compared.add(name)
    with_others = {
        "max_waste", "first_boundary", "boundary_ratio", "window_steps", "block_records", "block_group",
        "crop_scale", "crop_ratio",
    }
    assert compared == {name for name, (default, *_) in TABLE.items() if default is not None} - with_others


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_every_option_is_passed_on(text, kind):
    for name in options_of(kind):
        with pytest.raises(dsconvert.UsageError, match=f"^{name} (cannot be|does not apply)"):
            kind(text, **{"batch_size": 4, name: [[]]})


def test_options_that_python_does_not_pass_are_refused():
    with pytest.raises(dsconvert.UsageError, match="^pad_id does not apply: it is an option of Loader only"):
        _native.Plan([3, 4], '{"batch_size": 1, "pad_id": 0}')
    with pytest.raises(dsconvert.UsageError, match="^unknown option batchsize"):
        _native.Plan([3, 4], '{"batchsize": 1}')
    with pytest.raises(dsconvert.UsageError, match="JSON"):
        _native.Plan([3, 4], "[]")
