"""The parts of a turn, found by searching for unique words in the rendered text: a reference for `train_parts`.

`dsconvert-chat` uses the provenance of characters instead.
"""

import itertools
import re

NAMES = {"c": "content", "r": "reasoning", "t": "tool_calls"}
SUBSETS = ["".join(chosen) for size in (1, 2) for chosen in itertools.combinations(NAMES, size)]
# With a header that opens the reasoning, only its end is there.
THOUGHT = re.compile(r"(?:<think>|\A(?=(?:(?!<think>).)*?</think>))(.*?)</think>\n*", re.DOTALL)


def words(message):
    """The texts that the template may write of each part. Every word of a chat is unique."""
    content, calls = message.get("content") or "", message.get("tool_calls") or []
    yield "r", message.get("reasoning_content", "")
    for call in calls:
        yield from (
            ("t", word) for word in [call["function"]["name"], *itertools.chain(*call["function"]["arguments"].items())]
        )
    yield "c", re.sub(THOUGHT, "", content).strip()


def marked(turn, message, tokens):
    """One letter for each character of a turn: the part to which it belongs; and the parts that are not empty."""
    marks, filled = ["."] * len(turn), set()
    def mark(start, end, part):
        marks[start:end] = part * (end - start)
    for part, text in words(message):
        for found in re.finditer(re.escape(text.strip()), turn) if text.strip() else ():
            mark(*found.span(), part)
            filled.add(part)
    closed = set()
    for found in THOUGHT.finditer(turn):
        mark(*found.span(), "r")
        closed.add(found.end())
        filled |= {"r"} if found[1].strip() else set()
    text = "".join(marks)
    for between in re.finditer(r"(?<=([crt]))\.+(?=([crt]))", text):
        before, after = between[1], between[2]
        if before == "r" and after != "r" and between.start() not in closed:
            token = re.search("|".join(map(re.escape, tokens)), between_text := turn[slice(*between.span())])
            end = between.start() + re.compile(r"\n*").match(between_text, token.end() if token else 0).end()
            mark(between.start(), end, "r")
            mark(end, between.end(), after)
        else:
            mark(*between.span(), "t" if "t" in (before, after) and before != "r" else after)
    first, last = re.match(r"\.*([crt])", text), re.search(r"([crt])\.*$", text)
    if first:
        mark(0, first.start(1), first[1])
        mark(last.end(1), len(turn), last[1])
    return "".join(marks), filled


def spans_of(chosen, turn, message, tokens):
    """The characters of a turn that belong to the chosen parts."""
    marks, filled = marked(turn, message, tokens)
    return [m.span() for m in re.finditer(f"[{chosen}]+", marks)] if filled & set(chosen) else []
