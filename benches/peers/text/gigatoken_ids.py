"""gigatoken on a jsonl file. The ids stay in memory. Arguments: CORPUS TOKENIZER OUT CORES."""

import sys

from gigatoken import JsonlFileSource, Tokenizer

corpus, tokenizer, _, cores = sys.argv[1:]
Tokenizer(tokenizer).encode_files(JsonlFileSource([corpus]), parallel=int(cores) > 1)
