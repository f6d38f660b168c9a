"""datatrove's `DocumentTokenizer`, which parallelizes over files and so gets one per core.

Arguments: CORPUS TOKENIZER OUT CORES.
"""

import pathlib
import sys

from datatrove.executor import LocalPipelineExecutor
from datatrove.pipeline.readers import JsonlReader
from datatrove.pipeline.tokens import DocumentTokenizer

corpus, tokenizer, out, cores = sys.argv[1:]
cores = int(cores)

if __name__ == "__main__":
    parts = pathlib.Path(out, "parts")
    parts.mkdir(parents=True)
    with open(corpus, "rb") as source:
        files = [open(parts / f"{i}.jsonl", "wb") for i in range(cores)]
        for i, line in enumerate(source):
            files[i % cores].write(line)
        for file in files:
            file.close()
    LocalPipelineExecutor(
        pipeline=[
            JsonlReader(str(parts)),
            DocumentTokenizer(f"{out}/tokens", tokenizer, shuffle_documents=False, save_final_metadata=False),
        ],
        tasks=cores, workers=cores, logging_dir=f"{out}/logs", skip_completed=False,
    ).run()
