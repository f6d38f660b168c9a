"""The batches that `docs/reference/batching.md` specifies, implemented from the page and not from the code.

It is slow and simple: it keeps every order as a list. It has no `longest_first` and no budget that a record exceeds.
"""

import itertools
import math
import struct
from collections import Counter
from dataclasses import dataclass, field

import xxhash

STEPS, RECORDS, BLOCKS, GROUPS, PACKED_ROWS, CUTTINGS, SOURCES = range(1, 8)
"""Purposes of keys."""
WORD = 2**64
GOLDEN = 0x9E3779B97F4A7C15
MAX_CUTTINGS, MAX_RING, ENOUGH_CUTTINGS, MAX_EXAMINED = 64, 8, 16, 2**22


def mix(x):
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9 % WORD
    x = (x ^ (x >> 27)) * 0x94D049BB133111EB % WORD
    return x ^ (x >> 31)


def split_mix(state):
    """The outputs of SplitMix64."""
    while True:
        state = (state + GOLDEN) % WORD
        yield mix(state)


def key(seed, purpose, epoch, part):
    return xxhash.xxh3_64_intdigest(struct.pack("<3Q", purpose, epoch, part), seed)


def permutation(n, key):
    numbers, outputs = list(range(n)), split_mix(key)
    if n <= 256:
        for i in range(n - 1, 0, -1):
            j = next(outputs) * (i + 1) // WORD
            numbers[i], numbers[j] = numbers[j], numbers[i]
        return numbers
    a = math.isqrt(n - 1) + 1
    b = -(-n // a)
    keys = list(itertools.islice(outputs, 8))

    def moved(x):
        left, right = divmod(x, b)
        for first, second in zip(keys[::2], keys[1::2]):
            left = (left + mix((right + first) % WORD) * a // WORD) % a
            right = (right + mix((left + second) % WORD) * b // WORD) % b
        return left * b + right

    def walked(x):
        x = moved(x)
        while x >= n:
            x = moved(x)
        return x

    return [walked(x) for x in numbers]


def variation(cutting, dimension):
    """u(v, i) of the page."""
    return ((key(0, CUTTINGS, 0, dimension) + cutting * GOLDEN) % WORD >> 11) / 2**53


@dataclass
class Bucket:
    """Consecutive ranks of records."""

    start: int
    records: int
    per_batch: int
    steps: int
    tail: int = 0
    ends: list[int] | None = None
    """Of a graded bucket: the end of each micro-batch, from the start of the bucket."""


@dataclass
class Options:
    """As the arguments of `BatchSampler`, with its defaults."""

    batch_size: int | None = None
    max_tokens: int | None = None
    max_tokens_unpadded: int | None = None
    pad_to_multiple_of: int = 1
    bucket: str | list[int] = "length"
    max_waste: float = 0.04
    first_boundary: int = 16
    boundary_ratio: float = 1.1
    window_steps: int = 50
    shuffle: str | bool = True
    block_records: int = 256
    block_group: int = 64
    last: str = "short"
    seed: int = 0
    micro_batches: int = 1

    def width(self, length):
        return -(-max(length, 1) // self.pad_to_multiple_of) * self.pad_to_multiple_of

    def per_batch(self, length):
        """n(ℓ) of the page."""
        if self.batch_size is not None:
            return self.batch_size
        if self.max_tokens is not None:
            return max(1, self.max_tokens // self.width(length))
        return max(1, self.max_tokens_unpadded // max(length, 1))

    @property
    def budget(self):
        return self.max_tokens or self.max_tokens_unpadded

    @property
    def by_length(self):
        return self.bucket not in ("none", "windows")


@dataclass
class Boundaries:
    """Given or geometric boundaries. A bucket is due once a run has crossed one."""

    ends: object
    next: float
    crossed: bool = False

    @classmethod
    def of(cls, options, cutting):
        if options.bucket == "geometric":
            first, ratio = options.first_boundary, options.boundary_ratio
            if cutting:
                first = max(1, int(first / (1 + variation(cutting, 0) * (ratio - 1))))
            ends = cls.geometric(first, ratio)
        else:
            ends = iter(options.bucket)
        return cls(ends, next(ends, math.inf))

    @staticmethod
    def geometric(boundary, ratio):
        while True:
            yield boundary
            boundary = max(math.ceil(boundary * ratio), boundary + 1)

    def is_due(self, length):
        while self.next <= length:
            self.crossed = True
            self.next = next(self.ends, math.inf)
        return self.crossed


@dataclass
class Cutting:
    """One division of the ranks of records into buckets."""

    options: Options
    lengths: list[int]
    """Sorted."""
    number: int
    buckets: list[Bucket] = field(default_factory=list)
    tail: int = 0
    """Rank at which the open bucket starts."""
    rest: int | None = None
    """Start of the last bucket, once it is known."""
    closed: int = 0
    """The buckets that have ended, and the runs that were added while the open bucket was empty."""

    def __post_init__(self):
        options = self.options
        boundaries = None if options.bucket == "length" else Boundaries.of(options, self.number)
        if self.number and options.budget:
            self.grade(variation(self.number, 0))
        head = longest = 0
        for length, run in itertools.groupby(self.lengths):
            end = head + len(list(run))
            due = boundaries.is_due(length) if boundaries else self.wastes(length, end)
            has_ended = head <= self.tail
            if not has_ended and due and self.rest is None:
                per_step = options.per_batch(longest) * options.micro_batches
                steps = (head - self.tail) // per_step
                if steps:
                    self.buckets.append(Bucket(self.tail, steps * per_step, options.per_batch(longest), steps))
                    self.tail += steps * per_step
                elif options.budget:
                    self.grade(1.0)
                has_ended = bool(steps or options.budget)
            if has_ended:
                self.closed += 1
                if boundaries:
                    boundaries.crossed = False
            head, longest = end, length
        self.finish(head, longest)

    def wastes(self, length, end):
        """Whether padding or the unused budget would exceed `max_waste` with the run that ends at rank `end`."""
        factor = 0.7 + 0.6 * variation(self.number, self.closed + 1) if self.number else 1.0
        limit = min(0.9, self.options.max_waste * factor)
        members = self.lengths[self.tail : end]

        def exceeds(each, shares):
            return max(0, each * len(members) - sum(shares)) > limit * each * len(members)

        def share(length):
            return 2**20 * self.options.budget // self.options.per_batch(length)

        if self.options.per_batch(length) > 1 and exceeds(self.options.width(length), map(self.options.width, members)):
            return True
        return bool(self.options.budget) and exceeds(share(length), map(share, members))

    def grade(self, share):
        """Adds a graded bucket that uses a share of the budget, or finds that the rest is the last bucket."""
        start, ends = self.tail, []
        for _ in range(self.options.micro_batches):
            count = 0
            while self.tail < len(self.lengths):
                if max(1, int(self.options.per_batch(self.lengths[self.tail]) * share)) <= count:
                    break
                count += 1
                self.tail += 1
            if count == 0:
                self.rest = start
                return
            ends.append(self.tail - start)
        self.buckets.append(Bucket(start, self.tail - start, 0, 1, ends=ends))

    def finish(self, head, longest):
        start = self.tail if self.rest is None else self.rest
        if head > start:
            self.buckets.append(self.whole(start, head - start, self.options.per_batch(longest)))
        while self.options.last == "drop" and len(self.buckets) > 1 and self.buckets[-1].steps == 0:
            last, before = self.buckets.pop(), self.buckets.pop()
            self.buckets.append(self.whole(before.start, before.records + last.records, last.per_batch))

    def whole(self, start, records, per_batch):
        steps, tail = divmod(records, per_batch * self.options.micro_batches)
        return Bucket(start, records, per_batch, steps, tail)

    @property
    def steps(self):
        has_short = self.buckets and self.buckets[-1].tail and self.options.last != "drop"
        return sum(bucket.steps for bucket in self.buckets) + bool(has_short)

    @property
    def fixed(self):
        """The ranges of ranks that share a micro-batch in every epoch of this cutting."""
        ranges = set()
        for bucket in self.buckets:
            if bucket.ends:
                ranges |= {(bucket.start + a, bucket.start + b) for a, b in itertools.pairwise([0, *bucket.ends]) if b - a > 1}
            elif 1 < bucket.records <= bucket.per_batch:
                ranges.add((bucket.start, bucket.start + bucket.records))
        return ranges


def ring(options, lengths):
    """The cuttings to use, in order."""
    first = Cutting(options, lengths, 0)
    if options.shuffle is False:
        return [first]
    examined = len(set(lengths)) + sum(len(bucket.ends or ()) for bucket in first.buckets)
    tried = [first, *(Cutting(options, lengths, i) for i in range(1, min(MAX_CUTTINGS, max(1, MAX_EXAMINED // examined))))]
    numbers = Counter(cutting.steps for cutting in tried)
    enough = [steps for steps, count in numbers.items() if count >= ENOUGH_CUTTINGS]
    chosen = min(enough) if enough else min(numbers, key=lambda steps: (-numbers[steps], steps))
    tried = [cutting for cutting in tried if cutting.steps == chosen]
    fixed = [cutting.fixed for cutting in tried]
    size = min(MAX_RING, len(tried))

    def from_start(start):
        order, common = [start], 0
        while len(order) < size:

            def shared(i):
                with_start = fixed[i] & fixed[start] if len(order) + 1 == size else ()
                return len(fixed[order[-1]] & fixed[i]) + len(with_start)

            following = min((i for i in range(len(tried)) if i not in order), key=lambda i: (shared(i), i))
            common += shared(following)
            order.append(following)
        return common, order

    _, order = min((from_start(start) for start in range(len(tried))), key=lambda found: found[0])
    return [tried[i] for i in order]


class BatchPlan:
    """The micro-batches of each epoch."""

    def __init__(self, lengths, *, patches=None, max_patches=None, **options):
        self.options = Options(**options)
        if max_patches is not None:
            whole = self.options.budget // self.options.pad_to_multiple_of * self.options.pad_to_multiple_of
            # The shares of the records.
            lengths = [max(length, -(-count * whole // max_patches)) for length, count in zip(lengths, patches)]
        self.lengths = lengths
        self.ranked = sorted(range(len(lengths)), key=lambda record: (lengths[record], record))
        ordered = [lengths[record] for record in self.ranked]
        if self.options.by_length:
            self.buckets = [cutting.buckets for cutting in ring(self.options, ordered)]
        else:
            per_batch = self.options.per_batch(ordered[-1])
            steps, tail = divmod(len(lengths), per_batch * self.options.micro_batches)
            self.buckets = [[Bucket(0, len(lengths), per_batch, steps, tail)]]

    def micro_batches(self, epoch):
        """The ordinals of the records of each micro-batch, step by step."""
        options = self.options
        buckets = self.buckets[(key(options.seed, CUTTINGS, 0, 0) + epoch) % len(self.buckets)]
        steps, short = [], []
        for number, bucket in enumerate(buckets):
            if bucket.ends:
                ranks = itertools.pairwise([0, *bucket.ends])
                steps.append([self.ranked[bucket.start + a : bucket.start + b] for a, b in ranks])
                continue
            records = self.records(bucket, number, epoch)
            per_step = bucket.per_batch * options.micro_batches
            for at in range(0, bucket.steps * per_step, per_step):
                steps.append([records[i : i + bucket.per_batch] for i in range(at, at + per_step, bucket.per_batch)])
            if bucket.tail and options.last != "drop":
                short.append(self.short_step(records, bucket))
        return [batch for step in self.ordered(steps, epoch) + short for batch in step]

    def records(self, bucket, number, epoch):
        """The records of a bucket that is not graded, in their order in the epoch."""
        options, count = self.options, bucket.records
        if options.shuffle is True:
            order = permutation(count, key(options.seed, RECORDS, epoch, number))
        elif options.shuffle == "block":
            order = self.shuffled_blocks(count, epoch)
        else:
            order = list(range(count))
        by_rank = options.by_length or options.shuffle is True
        records = [self.ranked[bucket.start + i] if by_rank else i for i in order]
        if options.bucket == "windows":
            window = options.window_steps * options.micro_batches * bucket.per_batch
            windows = [records[i : i + window] for i in range(0, count, window)]
            records = [record for part in windows for record in sorted(part, key=lambda r: (-self.lengths[r], r))]
        return records

    def shuffled_blocks(self, count, epoch):
        options, size = self.options, self.options.block_records
        blocks = permutation(count // size, key(options.seed, BLOCKS, epoch, 0))
        order = [block * size + i for block in blocks for i in range(size)] + list(range(count // size * size, count))
        group = size * options.block_group
        parts = [order[i : i + group] for i in range(0, count, group)]
        return [part[i] for at, part in enumerate(parts) for i in permutation(len(part), key(options.seed, GROUPS, epoch, at))]

    def short_step(self, records, bucket):
        start, count, size = bucket.records - bucket.tail, self.options.micro_batches, bucket.per_batch
        if self.options.last == "wrap":
            return [[records[(start + g * size + i) % len(records)] for i in range(size)] for g in range(count)]
        sizes = [bucket.tail // count + (g < bucket.tail % count) for g in range(count)]
        ends = itertools.accumulate(sizes, initial=start)
        return [records[a:b] for a, b in itertools.pairwise(ends)]

    def ordered(self, steps, epoch):
        options = self.options
        if options.shuffle is False or options.bucket == "none":
            return steps
        size, first = (options.window_steps, 1) if options.bucket == "windows" else (len(steps) or 1, 0)
        windows = [steps[i : i + size] for i in range(0, len(steps), size)]
        return [
            window[i]
            for at, window in enumerate(windows)
            for i in permutation(len(window), key(options.seed, STEPS, epoch, at + first))
        ]


class ShapePlan:
    """The micro-batches of each epoch of images, from their shapes (width, height). A micro-batch has records of one shape."""

    def __init__(self, shapes, *, max_pixels=None, bucket="shape", **options):
        assert bucket == "shape"
        self.options = Options(max_tokens=max_pixels, **options)
        kinds = sorted(set(shapes), key=lambda shape: (shape[0] * shape[1], shape))
        self.buckets = [(w * h, [at for at, shape in enumerate(shapes) if shape == (w, h)]) for w, h in kinds]

    def micro_batches(self, epoch):
        """The ordinals of the records of each micro-batch, step by step."""
        options, batches = self.options, []
        for number, (pixels, records) in enumerate(self.buckets):
            size = options.per_batch(pixels)
            if options.shuffle is True:
                records = [records[i] for i in permutation(len(records), key(options.seed, RECORDS, epoch, number))]
            for at in range(0, len(records), size):
                batch = records[at : at + size]
                if len(batch) < size and options.last == "drop":
                    continue
                if options.last == "wrap":
                    batch = [records[i % len(records)] for i in range(at, at + size)]
                batches.append(batch)
        if options.shuffle is True:
            batches = [batches[i] for i in permutation(len(batches), key(options.seed, STEPS, epoch, 0))]
        missing = -len(batches) % options.micro_batches
        if options.last == "drop":
            return batches[: len(batches) - len(batches) % options.micro_batches]
        if options.last == "wrap":
            return batches + [batches[i % len(batches)] for i in range(missing)]
        return batches + [[] for _ in range(missing)]


class PackPlan:
    """The packed rows of each epoch. A piece is the ordinal of a record, its first token, and the token after its last."""

    def __init__(
        self, lengths, *, seq_len, packing="best_fit", pack_window=None, patches=None, max_patches=None, **options
    ):
        self.lengths, self.seq_len, self.packing, self.window = lengths, seq_len, packing, pack_window
        self.patches, self.max_patches = patches, max_patches
        self.options = Options(**options)

    def micro_batches(self, epoch):
        """The rows of each micro-batch, step by step."""
        options = self.options
        rows = list(self.rows(epoch))
        size, count = options.batch_size, options.micro_batches
        steps, tail = divmod(len(rows), size * count)
        whole = len(rows) - tail
        batches = [rows[i : i + size] for i in range(0, whole, size)]
        if tail and options.last != "drop":
            batches += BatchPlan.short_step(self, rows, Bucket(0, len(rows), size, steps, tail))
        return batches

    def rows(self, epoch):
        options = self.options
        order = list(range(len(self.lengths)))
        if options.shuffle is True:
            order = permutation(len(order), key(options.seed, RECORDS, epoch, 0))
        elif options.shuffle == "block":
            order = BatchPlan.shuffled_blocks(self, len(order), epoch)
        documents = [(at, record) for at, record in enumerate(order) if self.lengths[record]]
        # The next document, and the number of its tokens that are in rows.
        at, used = 0, 0
        while at < len(documents):
            end, tokens = at, -used
            while end < len(documents) and not self.is_full(end - at, tokens):
                tokens += self.lengths[documents[end][1]]
                end += 1
            pieces = [(record, used if i == 0 else 0, self.lengths[record]) for i, (_, record) in enumerate(documents[at:end])]
            position = documents[at][0]
            if self.packing == "concat":
                rows, rest = self.concatenated(pieces, is_last=end == len(documents))
                at, used = (end - len(rest), rest[0][1]) if rest else (end, 0)
            else:
                rows, at = (self.best_fit if self.max_patches is None else self.first_fit)(pieces), end
            if options.shuffle is not False:
                rows = [rows[i] for i in permutation(len(rows), key(options.seed, PACKED_ROWS, epoch, position))]
            yield from rows

    def is_full(self, documents, tokens):
        if self.window or self.packing == "concat":
            return documents >= (self.window or 4096) and tokens >= self.seq_len
        has_rows = tokens >= 256 * self.seq_len - self.seq_len // 2
        return documents >= 4096 and has_rows or documents >= 2**21 and tokens >= self.seq_len

    def concatenated(self, pieces, is_last):
        """Full rows, and the pieces that do not fill one."""
        rows, row, free = [], [], self.seq_len
        for record, start, end in pieces:
            while start < end:
                taken = min(free, end - start)
                row.append((record, start, start + taken))
                start, free = start + taken, free - taken
                if free == 0:
                    rows.append(row)
                    row, free = [], self.seq_len
        return ([*rows, row], []) if row and is_last else (rows, row)

    def best_fit(self, pieces):
        full, remainders = [], []
        for at, (record, start, end) in enumerate(pieces):
            while end - start >= self.seq_len:
                full.append([(record, start, start + self.seq_len)])
                start += self.seq_len
            if start < end:
                remainders.append((at, (record, start, end)))
        opened = []
        for at, piece in sorted(remainders, key=lambda found: found[1][1] - found[1][2]):
            size = piece[2] - piece[1]
            row = min((row for row in opened if row["free"] >= size), key=lambda row: row["free"], default=None)
            if row is None:
                row = {"free": self.seq_len, "pieces": []}
                opened.append(row)
            row["free"] -= size
            row["pieces"].append((at, piece))
        return full + [[piece for _, piece in sorted(row["pieces"])] for row in opened]


    def first_fit(self, documents):
        def share(found):
            record, _, length = found[1]
            return max(length * self.max_patches, self.patches[record] * self.seq_len)

        opened = []
        for at, (record, _, length) in sorted(enumerate(documents), key=share, reverse=True):
            for tokens, patches, row in opened:
                if tokens + length <= self.seq_len and patches + self.patches[record] <= self.max_patches:
                    break
            else:
                tokens, patches, row = 0, 0, []
                opened.append([0, 0, row])
            number = next(number for number, (*_, other) in enumerate(opened) if other is row)
            opened[number][:2] = tokens + length, patches + self.patches[record]
            row.append((at, (record, 0, length)))
        return [[piece for _, piece in sorted(row)] for *_, row in opened]


class MixturePlan:
    """The micro-batches of a mixture. A micro-batch is a list of pairs of the number of a source and a record or row."""

    def __init__(self, sources, weights, *, trained=None, unit="tokens", mix=None, exhausted="never", schedule=(),
                 epoch_tokens=None, epoch_steps=None, seed=0, micro_batches=1, **options):  # fmt: skip
        self.sources, self.unit, self.exhausted, self.options = sources, unit, exhausted, options
        self.trained = trained or sources
        self.epoch_tokens, self.epoch_steps, self.micro_batches = epoch_tokens, epoch_steps, micro_batches
        self.packed = "seq_len" in options
        bucket = options.get("bucket") or ("none" if "batch_size" in options else "length")
        self.is_pure = not self.packed and (mix == "batch" or mix is None and bucket != "none")
        one = options | ({"batch_size": 1} if self.packed else {"bucket": bucket})
        kind = PackPlan if self.packed else BatchPlan
        self.plans = [kind(lengths, **one, seed=key(seed, SOURCES, 0, at)) for at, lengths in enumerate(sources)]
        segments = [(0, weights), *schedule]
        if schedule and schedule[0][0] == 0:
            del segments[0]
        self.segments = {step: self.normalized(weights) for step, weights in segments}
        self.units = {}

    def normalized(self, weights):
        if self.unit == "epochs":
            weights = [weight * sum(lengths) for weight, lengths in zip(weights, self.sources)]
        total = 0.0
        for weight in weights:
            total += weight
        return [weight / total for weight in weights]

    def units_of(self, source, epoch):
        """What a pass over a source consists of."""
        if (source, epoch) not in self.units:
            plan = self.plans[source]
            if self.packed:
                units = list(plan.rows(epoch))
            elif self.is_pure:
                units = plan.micro_batches(epoch)
            else:
                units = plan.records(Bucket(0, len(plan.lengths), 0, 0), 0, epoch)
            self.units[source, epoch] = units
        return self.units[source, epoch]

    def tokens_of(self, source, unit):
        if self.packed:
            return sum(end - start for _, start, end in unit)
        return sum(self.sources[source][record] for record in (unit if self.is_pure else [unit]))

    def cost(self, source, unit):
        if self.unit == "records":
            return len(unit) if self.is_pure else 1
        if self.unit != "trained":
            return self.tokens_of(source, unit)
        lengths, trained = self.sources[source], self.trained[source]
        if not self.packed:
            return sum(trained[record] for record in (unit if self.is_pure else [unit]))
        return sum(trained[r] * end // lengths[r] - trained[r] * start // lengths[r] for r, start, end in unit)

    def epochs(self):
        """The micro-batches of one epoch after another, and after each, the passes over the sources."""
        count = len(self.sources)
        self.passes, self.done, self.used = [0] * count, [0] * count, [0] * count
        step = 0
        while True:
            batches, first = [], step
            self.tokens, self.ended = 0, set()
            while not self.is_over(step, step - first):
                if step in self.segments:
                    self.used = [0] * count
                self.weights = self.weights_at(step)
                batches += [self.micro_batch() for _ in range(self.micro_batches)]
                step += 1
            yield batches
            if self.exhausted != "never":
                self.passes = [epoch + bool(done) for epoch, done in zip(self.passes, self.done)]
                self.done = [0] * count

    def weights_at(self, step):
        return self.segments[max(start for start in self.segments if start <= step)]

    def is_over(self, step, steps):
        if self.exhausted == "first_exhausted":
            return bool(self.ended)
        if self.exhausted == "all_exhausted":
            return all(weight == 0 or at in self.ended for at, weight in enumerate(self.weights_at(step)))
        return steps >= self.epoch_steps if self.epoch_steps else self.tokens >= self.epoch_tokens

    def micro_batch(self):
        batch = []
        while True:
            source = self.most_due()
            unit = self.units_of(source, self.passes[source])[self.done[source]]
            if self.is_pure:
                self.take(source, unit)
                return [(source, record) for record in unit]
            if batch and not self.has_room(batch, source, unit):
                return batch
            self.take(source, unit)
            batch.append((source, unit))

    def most_due(self):
        total = float(max(sum(self.used), 1))
        due = [weight * total - float(used) for weight, used in zip(self.weights, self.used)]
        return max((at for at in range(len(due)) if self.weights[at] > 0), key=lambda at: (due[at], -at))

    def has_room(self, batch, source, unit):
        options = self.plans[source].options
        if self.packed or options.batch_size is not None:
            return len(batch) < self.options["batch_size"]
        lengths = [self.sources[at][record] for at, record in [*batch, (source, unit)]]
        if options.max_tokens is not None:
            return len(lengths) * options.width(max(lengths)) <= options.max_tokens
        return sum(max(1, length) for length in lengths) <= options.max_tokens_unpadded

    def take(self, source, unit):
        self.used[source] += self.cost(source, unit)
        self.tokens += self.tokens_of(source, unit)
        self.done[source] += 1
        if self.done[source] == len(self.units_of(source, self.passes[source])):
            self.passes[source] += 1
            self.done[source] = 0
            self.ended.add(source)
