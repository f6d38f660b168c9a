"""Keyword arguments: which ones a caller passed, and what replaces those of other tools."""

from __future__ import annotations

import difflib
import functools
import inspect
import re
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

from .errors import UnknownOptionError, UsageError

P = ParamSpec("P")
R = TypeVar("R")

TIPS = """
Loader: num_workers workers nworkers n_workers worker_count num_proc dataloader_num_workers = num_threads={}
Loader: prefetch_factor dataloader_prefetch_factor ! use prefetch=, the number of batches in all, not of each worker
Loader: prefetch_batches prefetch_size prefetch_queue_depth predownload batches_ahead worker_buffer_size max_pre_download \
buffer_size = prefetch={}
Loader: collate_fn collate collator data_collator ! batches are collated already: change a record with transform=, or a batch \
with batch_transform=
Loader: sampler batch_sampler ! a Loader forms its batches itself, by shuffle=, bucket= and seed=; for a DataLoader of your own, \
use dsconvert.BatchSampler
Loader: worker_init_fn multiprocessing_context persistent_workers timeout ! a Loader has threads, not worker processes: leave it \
out
Loader: pin_memory_device dataloader_pin_memory pinned pin = pin_memory=True
Loader: device to_device ! batches are on the CPU: use pin_memory=True, and .to(device, non_blocking=True) in the loop
Loader: in_order ! batches come in order: leave it out
Loader BatchSampler: drop_last drop_remainder batch_drop_remainder dataloader_drop_last = last="drop" | last="short"
Loader BatchSampler: last_batch last_batch_policy partial = last={}
Loader BatchSampler: generator shuffle_seed random_seed random_state = seed={}
Loader BatchSampler: random_shuffle order = shuffle={}
Loader BatchSampler: shuffle_buffer shuffle_buffer_size shuffle_size shardshuffle shuffle_algo shuffle_block_size detshuffle \
resampled sampling_method sampling_granularity batching_method ! shuffle=True \
shuffles the whole split; shuffle="block" keeps records together that are adjacent on disk
Loader BatchSampler: batch bs batchsize micro_batch_size train_batch_size local_batch_size device_batch_size \
per_device_train_batch_size per_device_eval_batch_size = batch_size={}
Loader BatchSampler: global_batch_size gradient_accumulation_steps accumulation_steps ! batch_size= is that of one rank and one \
micro-batch; micro_batches= is the number of micro-batches of a step, over all ranks
Loader BatchSampler: tokens_per_batch token_budget batch_tokens max_batch_tokens max_tokens_per_batch = max_tokens={}
Loader BatchSampler: group_by_length length_grouped bucket_by_length bucketing sort_by_length = bucket="length"
Loader BatchSampler: shard_id shard_index process_index dp_rank global_rank local_rank data_parallel_rank = rank={}
Loader BatchSampler: num_shards num_replicas shard_count process_count dp_size data_parallel_size num_processes = world_size={}
Loader BatchSampler: distributed use_distributed_sampler nodesplitter workersplitter num_canonical_nodes partition_algo ! the rank comes from torch.distributed or from the environment; \
otherwise, pass rank= and world_size=
Loader BatchSampler: epochs num_epochs repeat epoch_size ! each "for batch in loader" is one epoch: repeat the loop
Loader: max_length max_len max_seq_length max_seq_len max_sequence_length model_max_length truncation truncate ! documents are cut \
by `dsconvert text --max-length N`, or here by max_tokens= with oversize="truncate"; seq_len= packs rows of one width
Loader: seq_length sequence_length block_size context_length context_len ctx_len chunk_size packed_length = seq_len={}
Loader: padding_free flatten flash use_flash = packed="flash"
Loader: padding ! batches are padded to their longest record; pad_to_multiple_of= rounds that up
Loader: pad_token_id padding_value padding_idx pad_value pad_index pad_token = pad_id={}
Loader: padding_side = pad_side={}
Loader: shift_labels = labels_for="next_token" | labels_for="huggingface"
Loader: label_pad_token_id ignore_index ! labels that do not count are always -100
Loader: mlm mlm_probability mask_replace_prob random_replace_prob whole_word_mask ! hide tokens in batch_transform=
Loader: assistant_only_loss completion_only_loss train_on_responses_only ! the tokens to train on are marked by `dsconvert text \
--train-on assistant`
Loader: tokenizer processing_class ! the dataset has token ids: give the tokenizer to `dsconvert text`
Loader: return_tensors return_tensor with_format format to_torch as_tensor as_tensors torch = as_torch=True
Loader: dtype ! ids have id_dtype=, pixels are uint8
Loader: crop size image_size img_size input_size crop_size resolution ! use center_crop={}, or random_resized_crop={} to train
Loader: resize resize_to ! images are resized by `dsconvert images --resize shorter:256`; crop them here with center_crop={} or \
random_resized_crop={}
Loader: random_crop random_resize_crop rand_crop = random_resized_crop={}
Loader: scale = crop_scale={}
Loader: ratio = crop_ratio={}
Loader: flip horizontal_flip random_flip random_horizontal_flip flip_prob hflip_prob mirror = hflip={}
Loader: vflip color_jitter auto_augment augment augmentation augmentations mixup re_prob rotation ! change a record with transform=, \
or batches on the GPU
Loader: mean std normalize normalization rescale ! normalize on the GPU: pixels of uint8 have a quarter of the bytes of float32
Loader: channels_first = layout="chw" | layout="hwc"
Loader: channels_last = layout="hwc" | layout="chw"
Loader: grayscale gray = channels=1 | channels=3
Loader: columns keys output_keys remove_unused_columns signature_columns custom_fields ! name the entries of a batch with fields=[…]
Loader: map map_fn preprocess preprocessing preprocess_fn transforms img_transform image_transform pipelines operations ! give a function of one record \
as transform=
Loader: batch_map batch_fn after_batch ! give a function of one batch as batch_transform=
BatchSampler: num_workers collate_fn pin_memory persistent_workers prefetch_factor worker_init_fn ! give it to the DataLoader that \
uses the sampler
Loader BatchSampler: path ! what is read is the first argument, without a name
Loader open BatchSampler: dataset root local_path data_dir data_files input_dir remote fname urls data_source sampler lengths \
! what \
is read is the first argument, without a name
Loader open: streaming keep_in_memory ! records are read as they are needed: leave it out
Loader open: streams proportion ! several datasets are read as one from a list of paths, and in given shares as dsconvert.Mixture
Loader open: indices subsample select ! split the sources when converting (--split); a range of records is open(path, split)[a:b]
Loader: handler ! undecodable="blank" keeps the row of an image that does not decode
Loader open: download_retry download_timeout keep_zip item_loader serializers encryption index_path session_options verbose \
allow_unsafe_types stream_name stream_config empty_check os_cache recompile profile_batches profile_skip_batches profile_dir \
force_override_state_dict is_multisample url_to_name rename_files select_files download_config download_mode verification_mode \
save_infos revision trust_remote_code mode cache_size name subset config_name ! a dataset of dsconvert has nothing like it: leave \
it out
open: num_proc num_workers ! a DataLoader may have workers; dsconvert.Loader has num_threads=
open: local = cache_dir={}
open: cache_limit max_cache_size = cache_bytes={}
open: validate_hash verify verify_hash checksum checksums = verify_checksums={}
open: memory_map mmap_mode use_mmap = mmap={}
open: token key secret endpoint_url region client_kwargs s3_endpoint ! pass it in storage_options={…}
open: columns keys features select_columns input_columns ! name the fields of a record with fields=[…]
open: decode_images decode_image image_mode = decode=True
open: map map_fn preprocess transforms ! give a function of one record as transform=
open: format with_format set_format as_torch return_tensors ! dsconvert.Loader(…, as_torch=True) returns tensors
Mixture: probabilities proportions probs sampling_weights ratios ! the weights are the first argument, without a name
Mixture: stopping_strategy = exhausted={}
Mixture: sources names datasets_names ! give their paths as datasets={…}
"""
"""What replaces arguments of other tools. A line has the functions, the names, and after `=` what replaces them, with the
value in braces (after `|`, what replaces a false value), or after `!` advice."""


def _parsed(table: str) -> dict[tuple[str, str], tuple[bool, str]]:
    tips = {}
    for line in filter(None, table.split("\n")):
        left, text = re.split(" [=!] ", line, maxsplit=1)
        functions, names = left.split(": ")
        is_replacement = line[len(left) + 1] == "="
        tips.update({(f, name): (is_replacement, text) for f in functions.split() for name in names.split()})
    return tips


_tips = _parsed(TIPS)
"""The lines of `TIPS`, by function and name: whether it is a replacement, and the text."""
_options: dict[str, list[str]] = {}
"""Names of the arguments of each function with `tips_for_keywords`."""


def tips_for_keywords(function: Callable[P, R]) -> Callable[P, R]:
    """Makes `function`, or a constructor, refuse unknown keywords with an error that names the right one.

    While a constructor runs, `self._passed` has the keywords that the caller passed.
    """
    parameters = inspect.signature(function).parameters
    name = function.__qualname__.removesuffix(".__init__")
    is_constructor = name != function.__qualname__
    _options[name] = [parameter for parameter in parameters if parameter != "self"]
    positional = sum(parameter.kind is not parameter.KEYWORD_ONLY for parameter in parameters.values())

    @functools.wraps(function)
    def checked(*args: P.args, **keywords: P.kwargs) -> R:
        for keyword, value in keywords.items():
            if keyword not in parameters:
                raise UnknownOptionError(f"{name} has no option {keyword}", remedy=_tip(name, keyword, value))
        if len(args) > positional:
            raise UsageError(
                f"{name} has no argument without a name for {args[positional]!r}",
                remedy=f"name it, as in {_options[name][positional - is_constructor]}=…",
            )
        if not is_constructor:
            return function(*args, **keywords)
        attributes = vars(args[0])
        attributes["_passed"] = keywords
        try:
            return function(*args, **keywords)
        finally:
            attributes.pop("_passed", None)

    return checked


def _tip(function: str, keyword: str, value: Any) -> str:
    """Returns what to use instead of a keyword that `function` does not have."""
    if text := _text(function, keyword, value):
        return text
    others = [other for other in ("Loader", "open", "Mixture") if other != function]
    for other in others:
        if keyword in _options[other]:
            return _of_another(function, other, keyword)
    for other in others:
        if text := _text(other, keyword, value):
            return f"for dsconvert.{other}: {text}"
    near = difflib.get_close_matches(keyword, _options[function], n=1)
    return f"did you mean {near[0]}?" if near else f"help(dsconvert.{function}) explains its options"


def _text(function: str, keyword: str, value: Any) -> str | None:
    """Returns the text of `TIPS` about a keyword."""
    tip = _tips.get((function, keyword))
    if tip is None:
        return None
    is_replacement, text = tip
    if is_replacement:
        if_true, _, if_false = text.partition(" | ")
        text = f"use {if_false if if_false and not value else if_true}"
    is_short = isinstance(value, (int, float, str, tuple)) and len(repr(value)) <= 20
    return text.replace("{}", repr(value) if is_short else "…")


def _of_another(function: str, other: str, keyword: str) -> str:
    """Returns where to pass an option that another function has."""
    if other == "open":
        return f"pass it to open: dsconvert.{function}(dsconvert.open(path, {keyword}=…), …)"
    if other == "Mixture":
        return "it is an option of dsconvert.Mixture, which is a source for a Loader"
    if function == "open":
        return f"open returns single records; {keyword} is an option of dsconvert.Loader, which returns batches"
    return f"it is an option of dsconvert.{other}"

