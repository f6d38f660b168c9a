"""The Python package: an unknown keyword is refused, and the message names the right one."""

import inspect
import re

import pytest

import dsconvert
from dsconvert import keywords

FUNCTIONS = {
    "Loader": dsconvert.Loader, "open": dsconvert.open, "BatchSampler": dsconvert.BatchSampler,
    "Mixture": dsconvert.Mixture,
}
PARAMETERS = {name: set(inspect.signature(function).parameters) for name, function in FUNCTIONS.items()}

# Arguments of loaders whose packages the tests do not install.
STREAMING = (
    "streams remote local split download_retry download_timeout validate_hash keep_zip epoch_size predownload cache_limit "
    "sampling_method sampling_granularity partition_algo num_canonical_nodes batch_size shuffle shuffle_algo shuffle_seed "
    "shuffle_block_size batching_method allow_unsafe_types replication stream_name stream_config"
)
LITDATA = (
    "input_dir cache_dir item_loader shuffle drop_last seed serializers max_cache_size subsample encryption storage_options "
    "session_options max_pre_download index_path force_override_state_dict transform is_multisample dataset batch_size "
    "num_workers profile_batches profile_skip_batches profile_dir prefetch_factor collate_fn"
)
FFCV = (
    "fname batch_size num_workers os_cache order distributed seed indices pipelines custom_fields drop_last batches_ahead recompile"
)
OTHERS = {
    "streaming": STREAMING.split(), "litdata": LITDATA.split(), "ffcv": FFCV.split(),
    "torchvision": ["crop", "resize", "size", "scale", "ratio", "mean", "std", "transforms"],
    "trl": ["max_length", "max_seq_length", "padding_free", "assistant_only_loss", "shift_labels"],
}


def refused(name, keyword, value=None):
    """Returns the message of the error about one keyword."""
    arguments = {"Loader": ["nowhere"], "open": ["nowhere"], "BatchSampler": [[1, 2]], "Mixture": [{"a": 1}]}[name]
    with pytest.raises(dsconvert.UsageError) as caught:
        FUNCTIONS[name](*arguments, **{keyword: value})
    assert isinstance(caught.value, TypeError) and caught.value.message == f"{name} has no option {keyword}"
    assert str(caught.value) == f"{caught.value.message}\n{caught.value.remedy}"
    return caught.value.remedy


@pytest.mark.parametrize(("name", "keyword", "value", "remedy"), [
    ("Loader", "num_workers", 8, "use num_threads=8"),
    ("Loader", "crop", 224, "use center_crop=224, or random_resized_crop=224 to train"),
    ("Loader", "drop_last", True, 'use last="drop"'),
    ("Loader", "drop_last", False, 'use last="short"'),
    ("BatchSampler", "drop_last", True, 'use last="drop"'),
    ("Loader", "shift_labels", True, 'use labels_for="next_token"'),
    ("Loader", "shift_labels", False, 'use labels_for="huggingface"'),
    ("Loader", "pad_token_id", 50256, "use pad_id=50256"),
    ("Loader", "image_size", [10] * 20, "use center_crop=…, or random_resized_crop=… to train"),
    ("Loader", "batchsize", 4, "use batch_size=4"),
    ("Loader", "batch_sise", 4, "did you mean batch_size?"),
    ("Loader", "colour", "rgb", "did you mean color?"),
    ("Loader", "xyz", 1, "help(dsconvert.Loader) explains its options"),
    ("Loader", "cache_dir", "cache", "pass it to open: dsconvert.Loader(dsconvert.open(path, cache_dir=…), …)"),
    ("Loader", "weights", {}, "it is an option of dsconvert.Mixture, which is a source for a Loader"),
    (
        "open",
        "batch_size",
        4,
        "open returns single records; batch_size is an option of dsconvert.Loader, which returns batches",
    ),
    ("open", "columns", ["key"], "name the fields of a record with fields=[…]"),
    ("open", "feilds", ["key"], "did you mean fields?"),
    ("BatchSampler", "pad_id", 0, "it is an option of dsconvert.Loader"),
    ("Mixture", "stopping_strategy", "all_exhausted", "use exhausted='all_exhausted'"),
    ("Mixture", "batch_size", 4, "it is an option of dsconvert.Loader"),
    ("Loader", "validate_hash", True, "for dsconvert.open: use verify_checksums=True"),
    ("open", "num_threads_", 1, "help(dsconvert.open) explains its options"),
])
def test_an_unknown_keyword_names_the_right_one(name, keyword, value, remedy):
    assert refused(name, keyword, value) == remedy


def test_a_secret_is_not_shown():
    assert "hunter2" not in refused("open", "token", "hunter2") + refused(
        "Loader", "storage_options", {"secret": "hunter2"}
    )


def test_every_keyword_of_other_loaders_has_a_tip():
    data = pytest.importorskip("torch.utils.data")
    webdataset, datasets = pytest.importorskip("webdataset"), pytest.importorskip("datasets")
    transformers = pytest.importorskip("transformers")
    found = {
        **OTHERS,
        "torch": [*inspect.signature(data.DataLoader.__init__).parameters],
        "torch.distributed": [*inspect.signature(data.DistributedSampler.__init__).parameters],
        "webdataset": [*inspect.signature(webdataset.WebDataset.__init__).parameters],
        "transformers": [
            *inspect.signature(transformers.DataCollatorForLanguageModeling.__init__).parameters,
            *inspect.signature(transformers.DataCollatorWithPadding.__init__).parameters,
        ],
    }
    for tool, names in found.items():
        for name in set(names) - PARAMETERS["Loader"] - {"self", "args", "kwargs"}:
            assert not re.match("help|did you mean", refused("Loader", name)), f"{name} of {tool}"
    for name in set(inspect.signature(datasets.load_dataset).parameters) - PARAMETERS["open"] - {"config_kwargs"}:
        assert not re.match("help|did you mean", refused("open", name)), name


def test_the_tips_name_existing_options():
    everywhere = set().union(*PARAMETERS.values())
    for (name, keyword), (is_replacement, text) in keywords._tips.items():
        assert keyword not in PARAMETERS[name], f"{keyword} is an option of {name}"
        named = set(re.findall(r"(?<![\w-])(\w+)=", text)) - {"non_blocking"}  # an argument of Tensor.to
        assert named <= (PARAMETERS[name] if is_replacement else everywhere), f"{name}: {text}"
        assert not is_replacement or named


def test_an_argument_without_a_name_is_refused():
    for function, message in ((dsconvert.Loader, "split"), (dsconvert.BatchSampler, "split")):
        with pytest.raises(dsconvert.UsageError, match="^(Loader|BatchSampler) has no argument without a name for 32") as caught:
            function("nowhere", 32)
        assert caught.value.remedy == f"name it, as in {message}=…"


def test_no_keywords_are_kept(text):
    function = dict
    loader = dsconvert.Loader(text, batch_size=4, batch_transform=function)
    assert "_passed" not in vars(loader) and "_passed" not in vars(dsconvert.BatchSampler([1], batch_size=1))


def test_none_leaves_an_option_out(text):
    plain = dsconvert.Loader(text, batch_size=8)
    for name in ("oversize", "max_waste", "pad_side", "last", "shuffle", "packing", "color", "hflip"):
        assert repr(dsconvert.Loader(text, batch_size=8, **{name: None})) == repr(plain)


def test_a_default_that_is_passed_counts_as_passed(text):
    with pytest.raises(dsconvert.UsageError, match="^packing does not apply: it needs seq_len"):
        dsconvert.Loader(text, batch_size=8, packing="best_fit")
    by_length = dsconvert.Loader(text, batch_size=8, max_waste=0.04)
    assert [batch["lengths"].tolist() for batch in by_length] == [
        batch["lengths"].tolist() for batch in dsconvert.Loader(text, batch_size=8, bucket="length")
    ]


def test_a_data_loader_cannot_index_a_loader(text):
    data = pytest.importorskip("torch.utils.data")
    loader = dsconvert.Loader(text, batch_size=8)
    for options in ({}, {"batch_size": None}):
        with pytest.raises(dsconvert.UsageError, match="not by number") as caught:
            next(iter(data.DataLoader(loader, **options)))
        assert "DataLoader(loader.as_dataset(), batch_size=None)" in str(caught.value)


@pytest.mark.parametrize("options", [{}, {"batch_size": 4}, {"collate_fn": list}], ids=str)
def test_batches_are_not_batched_again(text, options):
    data = pytest.importorskip("torch.utils.data")
    stateful = pytest.importorskip("torchdata.stateful_dataloader")
    dataset = dsconvert.Loader(text, batch_size=8, as_torch=True).as_dataset()
    for kind in (data.DataLoader, stateful.StatefulDataLoader):
        with pytest.raises(dsconvert.UsageError, match="batch its batches again") as caught:
            next(iter(kind(dataset, **options)))
        assert "batch_size=None" in str(caught.value)
        assert next(iter(kind(dataset, batch_size=None)))["input_ids"].shape[0] == 8


def test_a_dataset_of_one_split_says_how_to_get_another(command, tmp_path):
    command("text", "fixtures/corpus/books", "--tokenizer", "bytes", "--out", tmp_path / "tokens", "--quiet")
    with pytest.raises(
        dsconvert.UsageError,
        match="its only split is train; to hold out some records, convert with `split train=0.9,validation=0.1`$",
    ):
        dsconvert.open(tmp_path / "tokens", "validation")


def test_a_wrong_split_lists_the_splits(corpus_in):
    path = corpus_in("arrow").path
    for call in (
        lambda: dsconvert.open(path, "val"), lambda: dsconvert.open(path)["val"],
        lambda: dsconvert.Loader(path, split="val", batch_size=4), lambda: dsconvert.BatchSampler(
            path, split="val", batch_size=4
        ),
    ):
        with pytest.raises(
            dsconvert.UsageError, match='the dataset has no split "val"\nits splits are train, validation$'
        ):
            call()


def test_a_folder_of_sources_says_to_convert_it(tmp_path):
    for folder, files, command in (
        ("photos", ["cat/1.jpg", "cat/2.jpg", "dog/1.png"], "images"), ("corpus", ["a.jsonl", "b.txt"], "text"),
    ):
        for file in files:
            (tmp_path / folder / file).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / folder / file).write_bytes(b"")
        for call in (dsconvert.open, lambda path: dsconvert.Loader(path, batch_size=4)):
            with pytest.raises(
                dsconvert.IoError, match=f"convert it first, with `dsconvert {command} FOLDER --out DIRECTORY`"
            ):
                call(tmp_path / folder)
