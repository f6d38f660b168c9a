"""`datasets.map` and `to_parquet`, used as their documentation recommends. Arguments: CORPUS TOKENIZER OUT CORES."""

import sys

import datasets
from tokenizers import Tokenizer

corpus, tokenizer, out, cores = sys.argv[1:]


def encode(batch):
    encoded = TOKENIZER.encode_batch(batch["text"], add_special_tokens=False)
    return {"input_ids": [e.ids for e in encoded]}


TOKENIZER = Tokenizer.from_file(tokenizer)
TOKENIZER.no_truncation()
TOKENIZER.no_padding()

if __name__ == "__main__":
    datasets.disable_progress_bars()
    data = datasets.load_dataset("json", data_files=corpus, split="train", cache_dir=out + "/cache")
    processes = int(cores) if int(cores) > 1 else None
    data = data.map(encode, batched=True, remove_columns=data.column_names, num_proc=processes)
    data.to_parquet(out + "/tokens.parquet")
