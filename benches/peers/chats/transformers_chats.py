"""Tokenizes chats with `transformers`: `apply_chat_template(tokenize=True)` on batches, with the chat template of a model.

    python transformers_chats.py CHATS.jsonl MODEL_FOLDER [--mask] [--ids FILE] [--batch 1000]

Prints the seconds of CPU time of the rendering alone, of both steps, and the number of tokens. Threads of the tokenizer are those of
the environment (`TOKENIZERS_PARALLELISM`, `RAYON_NUM_THREADS`).
"""

import argparse
import json
import time

from transformers import AutoTokenizer


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("chats")
    parser.add_argument("model")
    parser.add_argument("--mask", action="store_true", help="also compute the masks, which needs generation blocks")
    parser.add_argument("--ids", help="file for the ids, as JSON")
    parser.add_argument("--batch", type=int, default=1000)
    args = parser.parse_args()
    tokenizer = AutoTokenizer.from_pretrained(args.model)
    with open(args.chats, encoding="utf-8") as lines:
        rows = [json.loads(line) for line in lines]
    rendering = total = 0.0
    tokens = trained = 0
    ids = []
    # Tools differ by chat, so batches have chats with the same tools.
    batches: dict[str, list] = {}
    for row in rows:
        batches.setdefault(json.dumps(row.get("tools")), []).append(row["messages"])
    for tools, chats in batches.items():
        for at in range(0, len(chats), args.batch):
            batch = chats[at : at + args.batch]
            start = time.process_time()
            tokenizer.apply_chat_template(batch, tools=json.loads(tools), tokenize=False)
            rendering += time.process_time() - start
            start = time.process_time()
            encoded = tokenizer.apply_chat_template(
                batch, tools=json.loads(tools), tokenize=True, return_dict=True, return_assistant_tokens_mask=args.mask
            )
            total += time.process_time() - start
            tokens += sum(map(len, encoded["input_ids"]))
            ids += encoded["input_ids"]
            trained += sum(map(sum, encoded.get("assistant_masks", [])))
    if args.ids:
        with open(args.ids, "w") as file:
            json.dump(ids, file)
    print(json.dumps({"chats": len(rows), "rendering_s": rendering, "total_s": total, "tokens": tokens, "trained": trained}))


if __name__ == "__main__":
    main()
