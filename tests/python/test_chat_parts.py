"""The parts of turns that `--train-parts` trains equal those of a reference (chat_parts.py), on all templates of the tests."""

import itertools
import re

import pytest

pytest.importorskip("transformers")

import chat_oracle  # noqa: E402
import chat_parts  # noqa: E402
from test_chat_oracle import OURS, PUBLISHED, program  # noqa: E402, F401

TOOL = {
    "type": "function",
    "function": {"name": "fzq", "description": "D", "parameters": {"type": "object", "properties": {}}},
}

# Templates that write only contents that are lists of parts, and one whose turns cannot be told apart.
ONLY_PARTS = {"idefics3", "llava_next", "smolvlm"}
REFUSED = {"joined"}


def call(number):
    arguments = {f"argzq{number}": f"valuezq{number}"}
    return {
        "id": f"call{number:05}",
        "type": "function",
        "function": {"name": f"functionzq{number}", "arguments": arguments},
    }


def answer(number, kinds):
    """A turn of the assistant with some parts, with unique words."""
    message = {"role": "assistant", "content": ""}
    for kind in kinds:
        match kind:
            case "c":
                message["content"] += f"contentzq{number} says"
            case "i":
                message["content"] = f"<think>\ninlinezq{number} plan\n</think>\n\n{message['content']}"
            case "o":
                message["content"] = f"openzq{number} plan</think>{message['content']}"
            case "e":
                message["content"] = f"<think></think>{message['content']}"
            case "s":
                message["content"] += " \n"
            case "r":
                message["reasoning_content"] = f"reasonzq{number} plan"
            case "t":
                message["tool_calls"] = [
                    *message.get("tool_calls", []), call(number * 10 + len(message.get("tool_calls", [])))
                ]
    return message


def chats():
    """A chat for each combination of parts, in the last turn and in one before it."""
    kinds = ["c", "rc", "ct", "rt", "rct", "rctt", "t", "ci", "cit", "ce", "co", "r", "", "st", "rst"]
    for first, second in itertools.chain(zip(kinds, kinds[1:] + kinds[:1]), ((kind, kind) for kind in kinds)):
        messages = []
        for number, parts in enumerate([first, second]):
            messages.append({"role": "user", "content": f"userzq{number}"})
            messages.append(answer(number, parts))
            for made in messages[-1].get("tool_calls", []):
                messages.append({"role": "tool", "tool_call_id": made["id"], "name": made["function"]["name"], "content": f"resultzq{number}"})
        yield {"messages": messages, **({"tools": [TOOL]} if "t" in first + second else {})}


def with_parts(rows):
    """The chats with contents that are lists of parts."""
    as_list = [[{**m, "content": [{"type": "text", "text": m["content"]}]} for m in row["messages"]] for row in rows]
    return [{**row, "messages": messages} for row, messages in zip(rows, as_list, strict=True)]


def by_turn(chat, text, ranges):
    """The trained ranges of each turn of the assistant: those before the text of the next message."""
    starts = [(text.find(f"userzq{number}"), 2 * number) for number in range(2)]
    answers = [message for message in chat["messages"] if message["role"] == "assistant"]
    turns = [[], []]
    for start, end in ranges:
        turns[int(start > starts[1][0])].append((start, end))
    return zip(answers, turns, strict=True)


@pytest.mark.parametrize("path", [*chat_oracle.templates(OURS), *PUBLISHED], ids=lambda path: path.stem)
def test_parts_of_turns_equal_those_of_a_reference(program, path):  # noqa: F811
    template, rows, compared = path.read_text(), list(chats()), 0
    tokens = [*chat_oracle.added_tokens(template), "<|user|>", "<|assistant|>", "<|observation|>"]
    options = {"added_tokens": tokens, "not_rendered": "allow", "join_parts": ""}
    given = with_parts(rows) if path.stem.removesuffix("_training") in ONLY_PARTS else rows
    whole = program.render(template, given, **options)
    if "final_stop" in whole:
        whole = program.render(template, given, **(options := {**options, "final_stop": "<|user|>"}))
    if path.stem in REFUSED:
        assert isinstance(whole, str)
        return
    # Longer ones first, as the tokenizer matches them.
    tokens = sorted(tokens, key=len, reverse=True)
    for chosen in chat_parts.SUBSETS:
        parts = ",".join(name for letter, name in chat_parts.NAMES.items() if letter in chosen)
        cut = program.render(template, given, train_parts=parts, **options)
        for chat, all_parts, some in zip(rows, whole, cut, strict=True):
            if "reject" in all_parts:
                assert some["reject"] == all_parts["reject"]
                continue
            text, expected = all_parts["text"], []
            for message, ranges in by_turn(chat, text, all_parts["trained"]):
                if not ranges:
                    continue
                start, end = ranges[0][0], ranges[-1][1]
                inside = [
                    (start + a, start + b) for a, b in chat_parts.spans_of(chosen, text[start:end], message, tokens)
                ]
                expected += [(max(a, c), min(b, d)) for a, b in inside for c, d in ranges if max(a, c) < min(b, d)]
            if not expected:
                assert some.get("reject") == "nothing-to-train", (parts, chat, some)
                continue
            assert "trained" in some, (parts, chat, some)
            show = [[text[a:b] for a, b in spans] for spans in (chat_oracle.merged(expected), some["trained"])]
            assert chat_oracle.merged(expected) == chat_oracle.merged(some["trained"]), (parts, chat, text, show)
            compared += 1
    assert compared >= 24, compared
