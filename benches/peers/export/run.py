"""Writes the records of a dataset with `dsconvert export`, and with the peers' own writers.

Columns of the table, in seconds of the fastest of five runs, and in CPU seconds:

* limit: one thread hashes the bytes that dsconvert writes (SHA-256), writes them, and waits until they are on the disk
* writer: the writer of the peer, which gets the records in memory; no hashes, and the bytes may still be in memory after it
* peer: the same with reading the records from the dataset (Parquet or Arrow) with pyarrow, as a program that exports must
* dsconvert: the whole command, with one thread and with all: it reads, checks, writes, hashes, and waits for the disk
"""

import argparse
import hashlib
import io
import json
import os
import resource
import shutil
import subprocess
import tempfile
import time
import warnings
from pathlib import Path

RUNS = 5


def cpu():
    """CPU seconds of this process and of those it waited for."""
    return sum(sum(resource.getrusage(who)[:2]) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))


def fastest(write, out):
    """The least seconds and CPU seconds of runs of `write`, which writes into the folder `out`; it does not exist yet."""
    seconds, cpu_seconds = [], []
    for _ in range(RUNS):
        shutil.rmtree(out, ignore_errors=True)
        os.sync()
        started, cpu_started = time.perf_counter(), cpu()
        write(out)
        seconds.append(time.perf_counter() - started)
        cpu_seconds.append(cpu() - cpu_started)
    return min(seconds), min(cpu_seconds)


def limit(files):
    """Hashes, writes and syncs `files`, by name."""

    def write(out):
        out.mkdir()
        for name, content in files.items():
            digest = hashlib.sha256()
            with (out / name).open("wb", buffering=0) as file:
                for start in range(0, len(content), 1 << 20):
                    part = content[start : start + (1 << 20)]
                    digest.update(part)
                    file.write(part)
                os.fsync(file.fileno())

    return write


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
    """The records of the split `train` of a dataset of Parquet or Arrow, with ids as arrays."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    kept = ("key", "origin", "input_ids", "image", "label")
    records = []
    for shard in sorted(path for path in (dataset / "train").iterdir() if path.suffix in (".parquet", ".arrow")):
        is_parquet = shard.suffix == ".parquet"
        table = pq.read_table(shard) if is_parquet else pa.ipc.open_file(pa.memory_map(str(shard))).read_all()
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
        threads = (1, os.cpu_count())
        columns = ["limit", "writer", "peer", *(f"dsconvert, {n}" for n in threads), "of 1 thread: to peer, CPU", "to limit, CPU"]
        print(f"| format | MB | {' | '.join(columns)} |\n|{'---|' * (len(columns) + 2)}")
        for name in args.to:
            if name == "megatron" and "input_ids" not in records[0]:
                continue
            own = []
            for n in threads:
                command = [args.dsconvert, "export", args.dataset, "--split", "train", "--to", name, "--out", out, "--quiet", "--threads", n]
                own.append(fastest(lambda _: subprocess.run(list(map(str, command)), check=True), out))
            files = {path.name: path.read_bytes() for path in out.rglob("*") if path.is_file()}
            write = PEERS[name](records)
            shown = [
                fastest(limit(files), out),
                fastest(write, out),
                fastest(lambda out: PEERS[name](records_of(args.dataset))(out), out),
                *own,
            ]
            of = {what: [shown[i][k] / own[0][k] for k in (0, 1)] for what, i in (("limit", 0), ("peer", 2))}
            ratios = [f"{of['peer'][0]:.1f}, {of['peer'][1]:.1f}", f"{1 / of['limit'][0]:.1f}, {1 / of['limit'][1]:.1f}"]
            cells = [f"{seconds:.2f}, {of_cpu:.2f}" for seconds, of_cpu in shown]
            megabytes = sum(map(len, files.values())) / 1e6
            print(f"| {name} | {megabytes:.0f} | {' | '.join(cells + ratios)} |", flush=True)


if __name__ == "__main__":
    main()
