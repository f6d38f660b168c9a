"""Measures the trade-off of padding and mixing: how many records of a batch share a batch again in the next epoch.

    python benches/python/mixing.py [lengths.txt] [--max-tokens 16384] [--micro-batches 1]

Without a file of one length per line, lengths are log-normal as in a text corpus: median 250, sigma 1.1, at most half
the budget. Prints the table of docs/reference/batching.md.
"""

import argparse
import random
from pathlib import Path

import dsconvert

# More than the number of different divisions into buckets that a plan uses.
EPOCHS = 9


def lengths_of(args, records):
    if args.lengths:
        lengths = [int(line) for line in Path(args.lengths).read_text().split()]
        return random.Random(1).sample(lengths, records) if records < len(lengths) else lengths
    rng = random.Random(7)
    return [
        min(max(1, int(rng.lognormvariate(5.52, 1.1))), args.max_tokens // 2) for _ in range(records)
    ]


def measure(sampler, lengths):
    """Returns padding, the share of identical batches, and the share of pairs that meet again, over some epochs."""
    epochs = [list(sampler) for _ in range(EPOCHS)]
    padded = sum(len(batch) * max(lengths[i] for i in batch) for epoch in epochs for batch in epoch if batch)
    tokens = sum(lengths[i] for epoch in epochs for batch in epoch for i in batch)
    batches = identical = pairs = met = 0
    for now, after in zip(epochs, epochs[1:]):
        sets = {frozenset(batch) for batch in after}
        batch_of = {record: number for number, batch in enumerate(after) for record in batch}
        for batch in now:
            if len(batch) < 2:
                continue  # a record that is alone in a batch is alone in every epoch
            batches += 1
            identical += frozenset(batch) in sets
            counts = {}
            for record in batch:
                counts[batch_of[record]] = counts.get(batch_of[record], 0) + 1
            pairs += len(batch) * (len(batch) - 1)
            met += sum(count * (count - 1) for count in counts.values())
    return 1 - tokens / padded, identical / max(1, batches), met / max(1, pairs)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("lengths", nargs="?")
    parser.add_argument("--max-tokens", type=int, default=16_384)
    parser.add_argument("--micro-batches", type=int, default=1)
    args = parser.parse_args()
    print("| records | `max_waste` | batches | padding | identical batches | neighbors that meet again |")
    print("|---|---|---|---|---|---|")
    for records in (4_000, 40_000):
        lengths = lengths_of(args, records)
        for max_waste in (0.02, 0.04, 0.08, 0.15, 0.3, 0.5):
            sampler = dsconvert.BatchSampler(
                lengths, max_tokens=args.max_tokens, oversize="truncate", max_waste=max_waste,
                micro_batches=args.micro_batches, rank=0, world_size=1,
            )
            used = [min(length, args.max_tokens) for length in lengths]
            padding, identical, met = measure(sampler, used)
            print(
                f"| {len(lengths):,} | {max_waste} | {len(sampler):,} | {padding:.1%} | {identical:.1%} | {met:.0%} |"
            )


if __name__ == "__main__":
    main()
