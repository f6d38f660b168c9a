"""The padding that `dsconvert text` and the HTML page show is that of epochs of a `Loader`."""

import html
import random
import re

import pytest

import dsconvert

pytestmark = pytest.mark.usefixtures("no_ranks")

# Numbers of records, and their random lengths. The first corpus has more records than the samples from which padding was
# once computed: 65,536 for the summary, and 32,768 for the page.
CORPORA = {
    "log-normal": (66_000, lambda r: r.lognormvariate(2.5, 0.9)),
    "two kinds": (1_200, lambda r: r.gauss(30, 5) if r.random() < 0.9 else r.gauss(900, 90)),
    "wide log-normal": (1_000, lambda r: r.lognormvariate(4, 1.4)),
    "heavy tail": (1_000, lambda r: 30 * r.paretovariate(1.5)),
    "uniform": (1_000, lambda r: r.uniform(1, 400)),
    "normal": (1_000, lambda r: r.gauss(300, 60)),
    "few lengths": (1_100, lambda r: r.choice([16, 64, 65, 512])),
    "exponential": (1_001, lambda r: r.expovariate(1 / 150)),
    "equal but one": (1_100, lambda r, turn=iter(range(1_100)): 4_000 if next(turn) == 500 else 100),
    "few records": (333, lambda r: r.uniform(1, 2_000)),
}
SETTINGS = [("batch_size", n) for n in (8, 32, 256)] + [("max_tokens", n) for n in (4_096, 16_384, 131_072)]
PAD = 10**6  # no token has this id


def epochs(split, kind, size):
    """Returns the padding of several epochs of a loader, and that of all of them together, in percent."""
    oversize = "alone" if kind == "max_tokens" else None
    loader = dsconvert.Loader(
        split, bucket="length", oversize=oversize, fields=["input_ids"], id_dtype="int32", pad_id=PAD, rank=0,
        world_size=1, seed=7,
        **{kind: size})
    found = []
    # Epochs divide the lengths in up to eight ways in turn.
    for _ in range(1 if len(split) > 10_000 else 8):
        sizes = [(batch["input_ids"].size, int((batch["input_ids"] == PAD).sum())) for batch in loader]
        found.append((sum(size for size, _ in sizes), sum(padding for _, padding in sizes)))
    return [100 * padding / size for size, padding in found], 100 * sum(p for _, p in found) / sum(s for s, _ in found)


def on_the_page(page):
    """Returns the padding of bucketed batches in the tables of the page, by kind and size."""
    shown = {}
    for kind, unit in [("batch_size", "records in a batch"), ("max_tokens", "tokens in a batch")]:
        table = re.search(rf"<th scope=\"col\">{unit}</th>.*?</table>", page, re.DOTALL)
        for size, shares in re.findall(r"<tr><td>([\d,]+)</td>(.*?)</tr>", table[0] if table else ""):
            shown[kind, int(size.replace(",", ""))] = float(re.findall(r"([\d.]+)%", html.unescape(shares))[1])
    return shown


@pytest.mark.parametrize("name", CORPORA)
def test_the_padding_shown_is_that_of_epochs_of_a_loader(name, command, tmp_path):
    records, length = CORPORA[name]
    r = random.Random(name)
    corpus, out, page = tmp_path / "corpus.txt", tmp_path / "out", tmp_path / "page.html"
    corpus.write_text("".join("x" * min(max(int(length(r)), 1), 60_000) + "\n" for _ in range(records)))
    convert = ["text", corpus, "--documents", "line", "--tokenizer", "bytes", "--format", "arrow", "--out", out]
    command(*convert)
    command("inspect", out, "--html", page)
    plotted = on_the_page(page.read_text())
    assert len(plotted) > 4
    split = dsconvert.open(out, "train")
    assert len(split) == records
    for kind, size in SETTINGS:
        option = {"batch_size": "--report-batch", "max_tokens": "--report-tokens"}[kind]
        # With --resume, a complete dataset is only reported.
        line = re.search(r"padding in batches of .*", command(*convert, "--resume", option, size).stdout)[0]
        shown = float(re.search(r"([\d.]+)% with buckets by length", line)[1])
        each, mean = epochs(split, kind, size)
        what = f"{name}, {kind} {size}: {line!r}, {plotted.get((kind, size))} on the page, {mean:.2f} of epochs {each}"
        if len(each) > 1:
            assert abs(shown - mean) < 0.3, what
            assert abs(plotted.get((kind, size), mean) - mean) < 0.3, what
        else:
            # A single epoch differs from the mean, but not by more than the range shows.
            span = re.search(r"length \(([\d.]+)% to ([\d.]+)% by epoch\)", line)
            low, high = map(float, span.groups()) if span else (shown - 0.3, shown + 0.3)
            assert low - 0.1 < each[0] < high + 0.1, what
            assert abs(plotted.get((kind, size), shown) - shown) < 0.11, what
