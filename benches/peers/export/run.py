"""Writes the records of a dataset with `dsconvert export`, and with the peers' own writers.

The peers get the records in memory, one process each: reading them does not count. dsconvert reads, checks and writes,
with one thread and with all. Prints one table: seconds of the fastest of three runs, and the ratio.
"""

import argparse
import io
import json
import os
import shutil
import subprocess
import tempfile
import time
import warnings
from pathlib import Path

RUNS = 3


def fastest(write, out):
    """The seconds of the fastest run of `write`, which writes into the empty folder `out`."""
    seconds = []
    for _ in range(RUNS):
        shutil.rmtree(out, ignore_errors=True)
        os.sync()
        started = time.perf_counter()
        write(out)
        seconds.append(time.perf_counter() - started)
    return min(seconds)


def size(out):
    return sum(path.stat().st_size for path in out.rglob("*") if path.is_file())


def megatron(records):
    """`IndexedDatasetBuilder`, as `tools/preprocess_data.py` of Megatron-LM uses it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from megatron.core.datasets.indexed_dataset import DType, IndexedDatasetBuilder
    import numpy as np
    import torch

    tokens = [torch.from_numpy(record["input_ids"].astype(np.int64)) for record in records]

    def write(out):
        out.mkdir()
        builder = IndexedDatasetBuilder(str(out / "train.bin"), dtype=DType.optimal_dtype(65_000))
        for ids in tokens:
            builder.add_item(ids)
            builder.end_document()
        builder.finalize(str(out / "train.idx"))

    return write


def webdataset(records):
    """`TarWriter`, with values that are bytes already."""
    from webdataset import TarWriter

    samples = []
    for number, record in enumerate(records):
        sample = {"__key__": f"{number:09}"}
        if "image" in record:
            sample |= {"jpg": record["image"], "cls": str(record["label"]).encode()}
        else:
            import numpy as np

            file = io.BytesIO()
            np.save(file, record["input_ids"])
            sample["npy"] = file.getvalue()
        sample["json"] = json.dumps({name: record[name] for name in ("key", "origin")}).encode()
        samples.append(sample)

    def write(out):
        out.mkdir()
        with TarWriter(str(out / "train.tar"), encoder=False) as tar:
            for sample in samples:
                tar.write(sample)

    return write


def hf(records):
    """`Dataset.to_parquet`."""
    import datasets
    import pyarrow as pa

    datasets.disable_progress_bars()
    columns = {name: [record[name] for record in records] for name in ("key", "origin")}
    features = {name: datasets.Value("string") for name in columns}
    if "image" in records[0]:
        image = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
        columns["image"] = pa.array([{"bytes": record["image"], "path": None} for record in records], image)
        columns["label"] = [record["label"] for record in records]
        features |= {"image": datasets.Image(), "label": datasets.Value("int64")}
    else:
        columns["input_ids"] = pa.array([record["input_ids"] for record in records])
        features["input_ids"] = datasets.List(datasets.Value("uint16"))
    table = pa.table(columns)
    dataset = datasets.Dataset(table, info=datasets.DatasetInfo(features=datasets.Features(features)))

    def write(out):
        out.mkdir()
        dataset.to_parquet(str(out / "train.parquet"))

    return write


PEERS = {"megatron": megatron, "webdataset": webdataset, "hf": hf}


def records_of(dataset):
    """The records of the split `train` of a Parquet dataset, with ids as arrays."""
    import pyarrow.parquet as pq

    kept = ("key", "origin", "input_ids", "image", "label")
    records = []
    for shard in sorted((dataset / "train").glob("*.parquet")):
        table = pq.read_table(shard)
        for batch in table.select([name for name in kept if name in table.column_names]).to_batches():
            columns = {name: batch[name] for name in batch.schema.names}
            for i in range(batch.num_rows):
                record = {name: column[i] for name, column in columns.items()}
                record = {name: v.values.to_numpy() if name == "input_ids" else v.as_py() for name, v in record.items()}
                if "image" in record:
                    record["image"] = record["image"]["bytes"]
                records.append(record)
    return records


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("dataset", type=Path)
    parser.add_argument("--dsconvert", default="dsconvert")
    parser.add_argument("--to", nargs="+", choices=PEERS, default=list(PEERS))
    parser.add_argument("--out", type=Path, help="folder for the files; by default a temporary one")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=args.out) as folder:
        out = Path(folder) / "out"
        records = records_of(args.dataset)
        print("| format | peer | dsconvert, 1 thread | dsconvert, all threads | ratio of 1 thread |\n|---|---|---|---|---|")
        for name in args.to:
            if name == "megatron" and "input_ids" not in records[0]:
                continue
            peer = fastest(PEERS[name](records), out)
            found = []
            for threads in (1, os.cpu_count()):
                command = [args.dsconvert, "export", args.dataset, "--split", "train", "--to", name, "--out", out, "--quiet", "--threads", threads]
                found.append(fastest(lambda _: subprocess.run(list(map(str, command)), check=True), out))
            megabytes = size(out) / 1e6
            shown = [f"{seconds:.2f} s ({megabytes / seconds:.0f} MB/s)" for seconds in (peer, *found)]
            print(f"| {name} | {' | '.join(shown)} | {peer / found[0]:.1f} |", flush=True)


if __name__ == "__main__":
    main()
