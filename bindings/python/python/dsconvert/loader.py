"""Batches as arrays or tensors, made by threads in this process."""

from __future__ import annotations

import json
import os
import weakref
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, NoReturn

import numpy as np

from . import _native, ranks
from .arguments import state_as_json
from .batch_info import Batch, BatchInfo
from .batches import Batches, TrainerEpoch, can_pin_memory
from .batches import pin_memory as pin_memory_of
from .dataset import Dataset, Split, split_of
from .epochs import Epochs, Last, SourceShare, State, StepTotals, given
from .errors import UsageError
from .keywords import tips_for_keywords
from .format_hint import suggest_format
from .notebook import table
from .processor import normalize, processor_files
from .sampler import Bucket, Oversize, Shuffle
from .source import Transform
from .transforms import BatchFinisher, BatchTransform, WeakFinisher, record_finisher

if TYPE_CHECKING:
    from .torch_dataset import LoaderDataset

Size = int | tuple[int, int]
"""A side, or height and width, in pixels."""

MAX_LOGGED_IMAGES = 10
"""Maximum number of images that cannot be decoded and are logged one by one."""


class Loader(Epochs):
    """Batches of one split for one rank, in order, epoch after epoch.

    Threads of this process read, decode and assemble batches ahead of the program. Each `for batch in loader` is one
    epoch. A batch is a dictionary of arrays or tensors. `docs/reference/python.md` lists its entries.

    A loader can be pickled and copied. A copy, and the loader in a forked process, continue with
    the rest of the epoch, with their own threads. The threads start with the first batch and stop when the loop is left
    early or the loader is released.

    An option that does not apply to the dataset or to the other options raises an error that names it. `None` is the
    same as leaving an option out.

    Args:
        source: Path of a dataset, a `Dataset`, a `Split`, or a list of these, whose records are read as one split.
        split: Name of the split to read. Default: `train`, or the only one.
        add: Paths of companions, whose fields `fields` may name, if the dataset is a path. Default: `None`.

        batch_size: Records (with `seq_len`: rows) per batch, an integer from 1. Give this, `max_tokens`,
            `max_tokens_unpadded` or `max_pixels`.
        max_tokens: Budget of a padded batch: rows × width of its longest record, in tokens (images: stored pixels).
        max_tokens_unpadded: Budget of a batch without padding: the sum of the lengths. Records are concatenated.
        max_patches: With a token budget: the most patches of images that the records of a batch (with `seq_len`: the documents
            of a row) have together. Short for `budget={"patches": …}`. Default: no limit.
        budget: With a token budget: a second one, `{"name": most}`: the most that the records of a batch (with `seq_len`: the
            documents of a row) have together of a column of the record index. Default: none.
        shuffle: Order of an epoch: `True` or `"full"`, `False` or `"none"`, or `"block"`, which keeps records that
            are adjacent on disk together. Default: `True`.
        seed: Integer from 0, for the order and for crops and flips. Default: 0.
        bucket: Which records may share a batch: `"none"`: any; `"length"`: records of similar length, with boundaries
            chosen for `max_waste`; `"geometric"`; a list of boundaries; `"windows"`: sorted within windows of steps;
            `"shape"`: images of one width and height. Default: `"length"` with a budget, `"none"` with `batch_size`.
        max_waste: With `bucket="length"`: share of a batch, from 0.001 to 0.9, that padding may take. Default: 0.04.
        first_boundary: With `bucket="geometric"`: the first boundary, in tokens. Default: 16.
        boundary_ratio: With `bucket="geometric"`: ratio of a boundary to the previous one. Default: 1.1.
        window_steps: With `bucket="windows"`: steps per window. Default: 50.
        block_records: With `shuffle="block"`: records per block. Default: 256.
        block_group: With `shuffle="block"`: blocks whose records are shuffled together. Default: 64.
        longest_first: `True`: the largest batch comes first, so that an out-of-memory error occurs at once.
            Default: `False`.
        oversize: With a token budget: records that exceed it by themselves. `"error"` raises an error, `"drop"` leaves
            them out, `"alone"` makes a batch of each, `"truncate"` cuts them. Default: `"error"`.
        last: Records that do not fill the last step: `"short"` makes smaller batches, `"drop"` leaves them out, `"pad"` adds
            rows without a record, `"wrap"` repeats records. Default: `"short"`.

        fields: Names of the entries of a batch, in order; may include stored fields. Default: see
            `docs/reference/python.md`.
        pad_fields: Names of fields of arrays with one open axis, which are padded with zeros to the longest of the batch.
            The entry `NAME.lengths` has their sizes. Default: `None`: such arrays are lists.
        drop: Fields that are left out in a share of the records, for classifier-free guidance: `{"caption": (0.1, "")}` replaces
            them by a value, `{"text_embed": (0.1, None)}` by nothing, with `text_embed.valid`. Drawn with `seed` for each record
            and epoch, independently for each field. Default: `None`.
        transform: Function of one record, called on the threads of the loader. It receives a dictionary, with the image
            as a `uint8` array, and returns a dictionary; values of the same shape are stacked. Replaces cropping,
            padding and labels. Default: `None`.
        batch_transform: Function of one batch, called on the threads of the loader. Its return value is the batch.
            Default: `None`.
        as_torch: `True` returns torch tensors instead of numpy arrays. Default: `False`.
        pin_memory: `True` returns tensors in pinned memory, which are copies; needs CUDA. Default: `False`.

        num_threads: Threads that make batches, from 0 to 1024. 0 makes each batch when it is requested. Default: the cores
            that this process may use ÷ the ranks on this machine (see `docs/reference/python.md`).
        prefetch: Batches that are ready or in progress, from 1 to 65,536. Not with `num_threads=0`. Default:
            `num_threads` + 2.
        micro_batches: Micro-batches of a global step, over all ranks; a multiple of the number of ranks. Default: one per
            rank.
        rank: Number of this data-parallel process, from 0. Default: that of `torch.distributed` or of the environment.
        world_size: Number of data-parallel processes. Default: as `rank`.
        replication: Number of adjacent ranks that form one model replica and get the same batches. Default: 1.

    Args for images:
        max_pixels: Images only. Budget of a batch: rows × pixels of its largest image.
        decode: Images only. `False` returns encoded images as `bytes`. Default: `True`.
        center_crop: Images only. Crops the center: a side, or (height, width), in pixels. Default: no crop; then the
            images of a batch must have the same size.
        random_resized_crop: Images only. Random crop, resized to a side, or (height, width), in pixels, like
            torchvision's `RandomResizedCrop`. Default: no crop.
        crop_scale: With `random_resized_crop`: smallest and largest share of the area, above 0 and at most 1. Default:
            (0.08, 1.0).
        crop_ratio: With `random_resized_crop`: smallest and largest width ÷ height. Default: (3/4, 4/3).
        hflip: Images only. Probability of a horizontal flip, from 0 to 1; `True` is 0.5. Default: 0.
        layout: Images only. Order of dimensions: `"hwc"` or `"chw"`. Default: `"hwc"`.
        channels: Images only. 3 is RGB, 1 is gray. Default: 3.
        color: Images only. `"yuv"` returns the planes of images that were converted with `--encode yuv420` or `yuv444`, see
            `docs/reference/python.md`. Default: `"rgb"`.
        undecodable: Images only. An image that does not decode: `"error"` raises, `"blank"` keeps its row with pixels of 0,
            label −100 and `valid` false. Default: `"error"`.

    Args for text:
        seq_len: Text only. Packs documents into rows of this many tokens; a batch has `batch_size` rows.
        packing: With `seq_len`: `"best_fit"` or `"concat"`. Default: `"best_fit"`.
        pack_window: With `seq_len`: documents that are packed together. `None` packs 4096 and, with `"best_fit"`, more of
            them until they fill 256 rows. Default: `None`.
        packed: Text only. `"flash"` makes one row of all documents of a batch, without padding, with the arguments that models
            of Hugging Face pass on to FlashAttention. Default: `"rows"`.
        pad_id: Text only. Token id of padding. Default: 0.
        pad_side: Text only, without `seq_len`: side of padding, `"right"` or `"left"`. Default: `"right"`.
        pad_to_multiple_of: Text only. Rounds the width of a batch up to a multiple, in tokens. Default: 1.
        labels_for: Text only. `"huggingface"`: the model shifts labels itself. `"next_token"`: the loss compares logits and
            labels position by position. `"megatron"`: the same labels, and the entries of Megatron-LM's dataset for
            fine-tuning. Default: `"next_token"` in packed rows, else and with `packed="flash"` `"huggingface"`.
        stored_packing: Text that was packed by `dsconvert text --pack` only. `"keep"` returns the stored rows, `"ignore"`
            treats each row as one document. Default: `"keep"`.
        pairs: Preference pairs only. Order of the rows, two of each pair: `"stacked"`: all chosen ones, then all rejected ones;
            `"alternating"`: in turn. Default: `"stacked"`.
        id_dtype: Text only. Type of ids, labels and masks: `"int64"` or `"int32"`. Default: `"int64"`.

    Args for chats with images:
        pixels: Chats with images only. `"float32"`: normalized patches, as the processor returns them. `"uint8"`: an eighth of
            their bytes, which `normalize` turns into them on the accelerator. Default: `"float32"`.
        dummy_image: Chats with images only. `True` adds an image without effect to a batch without images, so that every rank
            computes the vision tower in each step. Default: if there are several ranks.
        processor: Chats with images only. Path of the folder of the model, or its processor of transformers. An error is raised if it is
            not the one with which the dataset was converted. Default: not compared.

    Raises:
        UsageError: An option is wrong or does not apply, or there is no such split or field.
        IoError: There is no dataset at `source`, or it cannot be read.
        CorruptError: The manifest or an index is damaged.
    """

    @tips_for_keywords
    def __init__(
        self,
        source: str | os.PathLike[str] | Dataset | Split | Sequence[str | os.PathLike[str] | Dataset | Split],
        *,
        split: str | None = None,
        add: Sequence[str | os.PathLike[str]] | None = None,
        # Which records form a batch.
        batch_size: int | None = None,
        max_tokens: int | None = None,
        max_tokens_unpadded: int | None = None,
        max_patches: int | None = None,
        budget: Mapping[str, int] | None = None,
        shuffle: Shuffle = True,
        seed: int = 0,
        bucket: Bucket | None = None,
        max_waste: float = 0.04,
        first_boundary: int = 16,
        boundary_ratio: float = 1.1,
        window_steps: int = 50,
        block_records: int = 256,
        block_group: int = 64,
        longest_first: bool = False,
        oversize: Oversize = "error",
        last: Last = "short",
        # Contents of a batch.
        fields: Sequence[str] | None = None,
        pad_fields: Sequence[str] | None = None,
        drop: Mapping[str, tuple[float, Any]] | None = None,
        transform: Transform | None = None,
        batch_transform: BatchTransform | None = None,
        as_torch: bool = False,
        pin_memory: bool = False,
        # Threads and ranks.
        num_threads: int | None = None,
        prefetch: int | None = None,
        micro_batches: int | None = None,
        rank: int | None = None,
        world_size: int | None = None,
        replication: int = 1,
        # Images.
        max_pixels: int | None = None,
        decode: bool = True,
        center_crop: Size | None = None,
        random_resized_crop: Size | None = None,
        crop_scale: tuple[float, float] = (0.08, 1.0),
        crop_ratio: tuple[float, float] = (3 / 4, 4 / 3),
        hflip: float | bool = 0.0,
        layout: Literal["hwc", "chw"] = "hwc",
        channels: Literal[1, 3] = 3,
        color: Literal["rgb", "yuv"] = "rgb",
        undecodable: Literal["error", "blank"] = "error",
        # Text.
        seq_len: int | None = None,
        packing: Literal["best_fit", "concat"] = "best_fit",
        pack_window: int | None = None,
        packed: Literal["rows", "flash"] = "rows",
        pad_id: int = 0,
        pad_side: Literal["right", "left"] = "right",
        pad_to_multiple_of: int = 1,
        labels_for: Literal["huggingface", "next_token", "megatron"] | None = None,
        stored_packing: Literal["keep", "ignore"] = "keep",
        pairs: Literal["stacked", "alternating"] = "stacked",
        id_dtype: Literal["int64", "int32"] = "int64",
        # Chats with images.
        pixels: Literal["float32", "uint8"] = "float32",
        dummy_image: bool | None = None,
        processor: str | os.PathLike[str] | Any = None,
    ) -> None:
        super().__init__(ranks.layout(rank, world_size, replication), micro_batches)
        self._split = split_of(source, split, add)
        if self._split.transform is not None:
            raise UsageError(
                "the transform of the dataset does not apply: a Loader reads the stored records",
                remedy="pass split.with_transform(None) and give the function to the Loader as transform=",
            )
        if isinstance(fields, str):
            raise UsageError(f"fields is {fields!r}, not a list of names", remedy=f"pass fields=[{fields!r}]")
        for name, function in (("transform", transform), ("batch_transform", batch_transform)):
            if function is not None and not callable(function):
                raise UsageError(f"{name} is {function!r}, not a function")
        passed = {**self._passed, "num_threads": ranks.default_threads() if num_threads is None else num_threads}
        if isinstance(hflip, (bool, np.bool_)):
            passed["hflip"] = 0.5 if hflip else 0.0
        self._options = given(passed)
        if self._options["num_threads"] == 0 and "prefetch" in self._options:
            raise UsageError("prefetch does not apply: with num_threads=0, each batch is made when it is requested")
        self._given = {name: value for name, value in self._options.items() if name != "num_threads"}
        self.as_torch = as_torch or pin_memory
        """Whether arrays are tensors."""
        self._processor = None if processor is None else processor_files(processor)
        self._finisher: BatchFinisher | None = None
        self._assemble = transform is None
        if transform is not None:
            self._finisher = record_finisher(
                self._split, transform, batch_transform, fields, self._options.get("decode", True), self.as_torch
            )
        elif batch_transform is not None:
            self._finisher = BatchFinisher(None, None, batch_transform, self.as_torch)
        self.blank_rows = 0
        """Number of rows of this rank so far whose image could not be decoded (`undecodable="blank"`)."""
        self._pin = pin_memory_of if pin_memory and can_pin_memory() else None
        self._finalizer: weakref.finalize[..., Loader] | None = None
        """Stops the threads that run user functions, before the interpreter exits."""
        self._native: _native.Loader | None = None
        self._native = self._open(self._micro_batches)
        suggest_format(self._split)
        if self._finisher is not None and oversize == "truncate" and self._split.kind == "text":
            # The options are valid, because the native loader exists. As plain integers, they do not change the types of
            # the values that they limit.
            tokens: int = self._options.get("max_tokens") or self._options["max_tokens_unpadded"]
            multiple: int = self._options.get("pad_to_multiple_of", 1)
            self._finisher.max_length = tokens // multiple * multiple
        self._process = os.getpid()
        self._saved: str | None = None
        """State that the next native loader continues from, while there is none."""

    def _open(self, micro_batches: int, state: str | None = None) -> _native.Loader:
        options = json.dumps({**self._options, "micro_batches": micro_batches})
        finisher = None if self._finisher is None else WeakFinisher(self._finisher)
        native = _native.Loader(
            self._split._handle(), options, self._layout, self.as_torch, finisher, self._assemble, self._processor
        )
        if state is not None:
            native.restore(state)
        if self._native is not None:
            # A loop of another thread takes no more batches of the previous one.
            self._native.start_iteration()
        if self._finisher is not None:
            # Stops the threads before the interpreter exits, because a thread cannot run Python after that.
            if self._finalizer is not None:
                self._finalizer()
            self._finalizer = weakref.finalize(self, _stop, native, os.getpid())
        return native

    def _handle(self) -> _native.Loader:
        if self._native is None or self._process != os.getpid():
            saved = self._saved if self._native is None else self._native.state()
            if self._native is not None:
                self.__dict__.update(self._inherited())
            self._native = self._open(self._micro_batches, saved)
            self._process = os.getpid()
        return self._native

    def _enter_process(self) -> None:
        self._handle()

    def __getstate__(self) -> dict[str, Any]:
        saved = self._handle().state()
        return {**self.__dict__, **self._inherited(), "_saved": saved, "_native": None, "_finalizer": None}

    def __len__(self) -> int:
        """Returns the exact number of batches of this rank in the epoch, for packed rows, too."""
        return self._handle().len()

    @property
    def steps(self) -> int:
        """Number of global steps of the epoch."""
        return self._handle().steps()

    @property
    def split(self) -> Split:
        """The split that is read."""
        return self._split

    @property
    def processor(self) -> dict[str, Any] | None:
        """Parameters of the processor with which the images of chats were counted; `None` for other datasets."""
        found = self._split._handle().vision()
        return None if found is None else json.loads(found)

    def normalize(self, patches: Any) -> Any:
        """Returns the `pixel_values` of a batch with `pixels="uint8"` as a model takes them: float32, normalized, with all
        frames, on the device on which they are."""
        if (found := self.processor) is None:
            raise UsageError("normalize does not apply: the records are no chats with images")
        return normalize(patches, found)

    def __getitem__(self, index: Any) -> NoReturn:
        """Raises an error: batches have an order, and no numbers. `DataLoader(loader)` calls this."""
        raise UsageError(
            "a Loader returns batches one after another, not by number",
            remedy="use it in place of a DataLoader: for batch in loader; or as DataLoader(loader.as_dataset(), "
            "batch_size=None), because these are batches already",
        )

    def __iter__(self) -> Iterator[Batch]:
        """Iterates over an epoch of batches. A batch that fails raises an error; the next call continues after it."""
        return Batches(self)

    @property
    def epoch(self) -> int:
        """The epoch, from 0."""
        return self._handle().epoch

    def _go_to(self, epoch: int) -> None:
        self._handle().set_epoch(epoch)

    def _remaining(self) -> int:
        return self._handle().remaining()

    @property
    def last(self) -> BatchInfo | None:
        """Information about the last batch."""
        last = self._handle().last()
        return None if last is None else BatchInfo(*last)

    def totals(self) -> StepTotals | None:
        """Returns the totals of all ranks in the step of the last batch, for example to normalize a loss."""
        totals = self._handle().totals()
        if totals is None:
            return None
        rows, tokens, padded_tokens, labels, trained, columns, sources = totals
        shares = {name: SourceShare(*share) for name, *share in sources}
        return StepTotals(rows, tokens, padded_tokens, labels, trained, shares or None, columns or None)

    def state_dict(self) -> State:
        """Returns the position of the loader, equal on every rank: after the batches that were returned, not those that
        were prepared."""
        state: State = json.loads(self._handle().state())
        return state

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Goes to the position of a saved state. The number of threads may differ from when it was saved, and so may
        the number of ranks if it was saved between two global steps.

        Unless `micro_batches` was given, it is taken from the state.
        """
        saved = state_as_json(state)
        micro_batches = self._micro_batches_of(state)
        if micro_batches == self._micro_batches:
            self._handle().restore(saved)
        else:
            self._handle().check_is_not_finishing()
            self._layout.share(micro_batches)
            self._native, self._process = self._open(micro_batches, saved), os.getpid()
            self._micro_batches = micro_batches
        self._loaded()

    def _count_blank_rows(self, messages: list[str]) -> None:
        """Counts rows whose image could not be decoded, and logs the errors of the first ones."""
        for number, message in enumerate(messages, self.blank_rows + 1):
            if number <= MAX_LOGGED_IMAGES:
                ranks.logger.warning("%s: its row is blank", message)
            elif number == MAX_LOGGED_IMAGES + 1:
                ranks.logger.warning("further blank rows are not logged; Loader.blank_rows counts them")
        # Last, because an exception of a signal handler or of the logger repeats the call for the same batch.
        self.blank_rows += len(messages)

    @property
    def batch_sampler(self) -> TrainerEpoch:
        """Receives the epoch from Lightning, like the samplers of a `DataLoader`."""
        return TrainerEpoch(self)

    def _repr_html_(self) -> str:
        """Returns the split, the given options and the epoch as an HTML table, for notebooks."""
        rows: dict[str, Any] = {"split": f"{self._split.name} of {self._split.path}", **self._given}
        rows["rank"] = f"{self._layout.rank} of {self._layout.world_size}"
        rows["epoch"] = self.epoch
        if "seq_len" not in self._given:  # counting packed rows may be slow
            rows["batches left in the epoch"] = f"{self._remaining():,} of {len(self):,}"
        return table("Loader", rows)

    def __repr__(self) -> str:
        options = ", ".join(f"{name}={value!r}" for name, value in self._given.items())
        split = f"split {self._split.name!r} of {self._split.path!r}"
        return f"<dsconvert.Loader of {split}: {options}; epoch {self.epoch}>"

    def as_dataset(self) -> LoaderDataset:
        """Returns the loader as a torch `IterableDataset`, for `DataLoader(…, batch_size=None)` and similar
        loaders. It needs no worker processes, and raises an error in one, or if batches would be batched again."""
        from .torch_dataset import LoaderDataset

        return LoaderDataset(self)


def _stop(native: _native.Loader, process: int) -> None:
    if os.getpid() == process:
        native.stop()
