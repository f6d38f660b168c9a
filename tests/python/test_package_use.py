"""The Python package in an interactive session: version, help, reprs, and messages for wrong calls."""

import ast
import inspect
import re

import numpy as np
import pytest

import dsconvert
from conftest import ROOT


@pytest.fixture
def text(corpus_in):
    return dsconvert.open(corpus_in("arrow").path)


@pytest.fixture
def pictures(photos_in):
    return dsconvert.open(photos_in("arrow").path)


def test_the_version_is_that_of_the_package():
    manifest = (ROOT / "Cargo.toml").read_text()
    assert dsconvert.__version__ == re.search(r'^version = "(.+)"', manifest, re.MULTILINE)[1]


# Words that tell the type of an option in its help.
TYPES = {
    "bool": r"`True`|`False`", "int": r"\b\d|integer|[Nn]umber|[Tt]oken|[Bb]udget|[Rr]ecords|Multiple|[Bb]ytes|[Mm]ost",
    "str": r'"|Name|Path', "Transform": "Function", "BatchTransform": "Function",
}


@pytest.mark.parametrize(
    "what", [dsconvert.Loader, dsconvert.BatchSampler, dsconvert.open], ids=lambda what: what.__name__
)
def test_help_explains_every_option(what):
    parameters = inspect.signature(what).parameters
    explained = dict(
        re.findall(r"^ {4}(\w+): (.*(?:\n {8}.*)*)", inspect.getdoc(what).split("Raises:")[0], re.MULTILINE)
    )
    assert list(explained) == [name for name in parameters], "in the order of the signature"
    for name, parameter in parameters.items():
        explanation = " ".join(explained[name].split())
        if parameter.default is parameter.empty:
            continue
        if parameter.default is not None:
            stated = re.search(r"Default: `?([^`]+?)`?(\.$|, and|; )", explanation)
            assert stated and eval(stated[1]) == parameter.default, f"{name}: {explanation}"
        elif name not in ("batch_size", "max_tokens", "max_tokens_unpadded", "max_pixels", "seq_len"):
            assert "Default: " in explanation, f"{name}: {explanation}"
        kinds = [kind for kind in TYPES if re.search(rf"\b{kind}\b", str(parameter.annotation))]
        assert not kinds or any(re.search(TYPES[kind], explanation) for kind in kinds), f"{name}: {explanation}"


# Options of the plan with the others that they need.
PLANNED = {
    "max_waste": {"max_tokens": 4096, "bucket": "length"},
    "first_boundary": {"max_tokens": 4096, "bucket": "geometric"},
    "boundary_ratio": {"max_tokens": 4096, "bucket": "geometric"},
    "window_steps": {"batch_size": 4, "bucket": "windows"},
    "block_records": {"batch_size": 4, "shuffle": "block"},
    "block_group": {"batch_size": 4, "shuffle": "block"},
    "pad_to_multiple_of": {"max_tokens": 4096},
    "longest_first": {"max_tokens": 4096},
    "last": {"batch_size": 4},
    "packing": {"batch_size": 4, "seq_len": 64},
    "pack_window": {"batch_size": 4, "seq_len": 64},
}


@pytest.mark.parametrize("name", PLANNED)
def test_the_defaults_in_the_help_are_the_defaults(text, name):
    """A state names the options of its plan, so only an explicit default leaves it unchanged."""
    explained = re.search(rf"^    {name}: (.*(?:\n {{8}}.*)*)", inspect.getdoc(dsconvert.Loader), re.MULTILINE)[1]
    default = ast.literal_eval(re.search(r"Default: `?([^`]+?)`?\.$", explained)[1])
    options = {"oversize": "truncate", **PLANNED[name]} if "max_tokens" in PLANNED[name] else PLANNED[name]

    def state(**given):
        return dsconvert.Loader(text, **options, **given).state_dict()

    assert state() == state(**{name: default})
    other = {"best_fit": "concat", "short": "drop", False: True, None: 4096}.get(default) or default * 2
    assert state() != state(**{name: other})


def test_datasets_and_splits_have_the_same_members():
    def members(kind):
        return {name for name, _ in inspect.getmembers(kind) if not name.startswith("_")}

    # `transform` and `name` of a split are attributes of the object.
    assert members(dsconvert.Dataset) - members(dsconvert.Split) == {"default", "split", "splits", "transform"}
    assert members(dsconvert.Split) - members(dsconvert.Dataset) == {"dataset"}


def test_a_dataset_delegates_to_its_default_split(text):
    train = text["train"]
    assert np.array_equal(text.lengths(), train.lengths()) and text.length(3) == train.length(3)
    assert text.fields == train.fields and "input_ids" in train.fields
    for name in ("path", "kind", "format", "class_names"):
        assert getattr(text, name) == getattr(train, name)
    assert train.describe() == text.describe()["splits"]["train"]
    assert list(text.select(["key"])[0]) == ["key"] and list(train.select(["key"])[0]) == ["key"]
    assert text.with_transform(len)[0] == len(text[0]) == train.with_transform(len)[0]
    assert text.with_transform(len).transform is len and text.transform is None


def test_datasets_can_be_concatenated(text):
    both = text["train"] + text["validation"]
    assert len(both) == len(text["train"]) + len(text["validation"]) and both[len(text["train"])].keys() == text[0].keys()
    assert len(text + text["validation"]) == len(both)


def test_reprs_show_what_an_object_holds(text, pictures):
    counts = {name: len(text[name]) for name in text.splits}
    assert repr(text) == (
        f"<dsconvert.Dataset {text.path!r}: text as arrow, train ({counts['train']} records), "
        f"validation ({counts['validation']} records)>"
    )
    assert repr(pictures["train"].select(["key", "label"])) == (
        f"<dsconvert.Split 'train' of {pictures.path!r}: {len(pictures['train'])} records with key, label>"
    )
    loader = dsconvert.Loader(text, max_tokens=4096, oversize="truncate", seed=3)
    assert repr(loader) == (
        f"<dsconvert.Loader of split 'train' of {text.path!r}: "
        "max_tokens=4096, seed=3, oversize='truncate'; epoch 0>"
    )
    sampler = dsconvert.BatchSampler([3, 4, 5], batch_size=2)
    assert repr(sampler) == "<dsconvert.BatchSampler of 3 lengths: batch_size=2; epoch 0>"
    assert repr(dsconvert.CacheDataLoader(loader)) == f"<dsconvert.CacheDataLoader of {loader!r}: caching>"
    loader = dsconvert.Loader(text, batch_size=9)
    next(iter(loader))
    assert re.fullmatch(
        r"BatchInfo\(epoch=0, step=0, .*records=\[\d+, .* … 9 in all\], blank=\[\]\)", repr(loader.last)
    )


def test_html_for_notebooks_is_escaped(text, tmp_path):
    hostile = tmp_path / "<script>alert(1)<∕script>\u202e"
    hostile.symlink_to(text.path)
    split = dsconvert.open(hostile, "train")
    loader = dsconvert.Loader(split, batch_size=4, num_threads=0)
    next(iter(loader))
    for shown in (split, loader, loader.last):
        html = shown._repr_html_()
        assert html.startswith("<table>") and html.endswith("</table>") and html.count("<tr>") == html.count("</tr>") > 3
        assert "<script>" not in html and "\u202e" not in html
    assert "&lt;script&gt;" in split._repr_html_() and f"{len(split):,}" in split._repr_html_()
    left = f"{len(loader) - 1:,} of {len(loader):,}"
    assert left in loader._repr_html_() and "batch_size" in loader._repr_html_()


def test_fields_are_checked_at_opening(text):
    for wrong in (["key", "gone"], ["gone"]):
        with pytest.raises(dsconvert.UsageError, match="gone") as caught:
            dsconvert.open(text.path, fields=wrong)
        assert "input_ids" in caught.value.remedy, "it lists the fields that exist"
    with pytest.raises(dsconvert.UsageError, match="gone"):
        text.select(["gone"])
    for call in (dsconvert.open, text.select, dsconvert.Loader):
        with pytest.raises(dsconvert.UsageError, match="fields is 'key', not a list of names"):
            call("key") if call == text.select else call(text.path, fields="key", **({"batch_size": 1} if call == dsconvert.Loader else {}))
    with pytest.raises(dsconvert.UsageError, match="gone") as caught:
        dsconvert.Loader(text, batch_size=2, fields=["gone"])
    assert "input_ids" in caught.value.remedy


# Options that are refused on text and on images, and the start of the message.
WRONG_FOR_TEXT = [
    ({"batch_size": 4, "center_crop": 32}, "center_crop does not apply: the dataset holds text"),
    ({"batch_size": 4, "random_resized_crop": 32}, "random_resized_crop does not apply: the dataset holds text"),
    ({"batch_size": 4, "hflip": True}, "hflip does not apply: the dataset holds text"),
    ({"batch_size": 4, "layout": "chw"}, "layout does not apply: the dataset holds text"),
    ({"batch_size": 4, "channels": 1}, "channels does not apply: the dataset holds text"),
    ({"batch_size": 4, "decode": True}, "decode does not apply: the dataset holds text"),
    ({"batch_size": 4, "undecodable": "blank"}, "undecodable does not apply: the dataset holds text"),
    ({"batch_size": 4, "stored_packing": "ignore"}, "stored_packing does not apply: the records are not packed"),
    ({"batch_size": 4, "packing": "concat"}, "packing does not apply: it needs seq_len"),
    ({"batch_size": 4, "seq_len": 64, "pad_side": "left"}, "pad_side does not apply: with seq_len, rows are packed"),
    ({"batch_size": 4, "oversize": "drop"}, "oversize does not apply"),
    ({"batch_size": 4, "window_steps": 4}, 'window_steps does not apply: it needs bucket="windows"'),
    ({"batch_size": 4, "first_boundary": 4}, 'first_boundary does not apply: it needs bucket="geometric"'),
    ({"batch_size": 4, "block_records": 4}, 'block_records does not apply: it needs shuffle="block"'),
    ({"batch_size": 4, "num_threads": 5000}, "num_threads is 5000, not between 0 and 1024"),
    ({"batch_size": 4, "prefetch": 0}, "`prefetch` is 0, not between 1 and"),
    ({"batch_size": 4, "transform": 3}, "transform is 3, not a function"),
    ({"batch_size": 4, "transform": dict, "pad_id": 1}, "pad_id does not apply: with transform"),
    ({"batch_size": 4, "transform": dict, "last": "pad"}, "last='pad' does not apply: with transform"),
    ({}, "give one of batch_size, max_tokens, max_tokens_unpadded and"),
    ({"seq_len": 64}, "seq_len needs batch_size"),
    ({"seq_len": 64, "batch_size": 4, "pack_window": 0}, "`pack_window` is 0"),
    ({"batch_size": "many"}, 'batch_size cannot be "many"'),
    ({"batch_size": -1}, "batch_size cannot be -1"),
    ({"batch_size": 4, "last": "first"}, 'last cannot be "first"'),
]
WRONG_FOR_IMAGES = [
    ({"batch_size": 4, "seq_len": 64}, "seq_len does not apply: the dataset holds images"),
    ({"batch_size": 4, "pad_id": 1}, "pad_id does not apply: the dataset holds images"),
    ({"batch_size": 4, "labels_for": "next_token"}, "labels_for does not apply: the dataset holds images"),
    ({"batch_size": 4, "id_dtype": "int32"}, "id_dtype does not apply: the dataset holds images"),
    ({"batch_size": 4, "crop_scale": (0.5, 1)}, "crop_scale does not apply: it needs random_resized_crop"),
    ({"batch_size": 4, "random_resized_crop": 8, "crop_scale": (2, 3)}, "crop_scale"),
    ({"batch_size": 4, "random_resized_crop": 8, "crop_ratio": (0, 3)}, "crop_ratio"),
    ({"batch_size": 4, "center_crop": 0}, "center_crop"),
    ({"batch_size": 4, "random_resized_crop": 10**6}, "random_resized_crop"),
    ({"batch_size": 4, "hflip": 2}, "`hflip` is 2, not between 0 and 1"),
    (
        {"batch_size": 4, "center_crop": 8, "random_resized_crop": 8},
        "give center_crop or random_resized_crop, not both",
    ),
    ({"batch_size": 4, "transform": dict, "center_crop": 8}, "center_crop does not apply: with transform"),
]


@pytest.mark.parametrize("kind,options,message", [
    *(("text", *wrong) for wrong in WRONG_FOR_TEXT), *(("images", *wrong) for wrong in WRONG_FOR_IMAGES),
], ids=lambda value: ",".join(value) if isinstance(value, dict) else "")
def test_wrong_options_are_refused_by_name(text, pictures, kind, options, message):
    with pytest.raises(dsconvert.UsageError) as caught:
        dsconvert.Loader(text if kind == "text" else pictures, **options)
    shown = f"{caught.value} {caught.value.remedy or ''}"
    assert str(caught.value).startswith(message), shown
    assert "--" not in shown, "a keyword argument, not an option of the command"


def test_a_tokens_budget_on_images_counts_pixels(pictures):
    loader = dsconvert.Loader(pictures, max_tokens=40_000, oversize="alone", center_crop=32)
    assert sum(loader.last.rows for _ in loader) == len(pictures)
