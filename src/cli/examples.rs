//! The examples at the end of `--help`. `tests/command/help.rs` runs them in a folder with `photos`, `corpus` and
//! `tokenizer.json`.

/// `dsconvert images`
pub(super) const IMAGES: &str = "\
Examples:
  Resize to 256 pixels on the shorter side, and write Parquet:
    dsconvert images photos --out photos-256 --resize shorter:256
  Preview: classes, splits, and a prediction from 20 images; nothing is written:
    dsconvert images photos --resize shorter:256 --dry-run --sample 20
  Keep the files as they are; 90% for training and 10% for validation:
    dsconvert images photos --out photos-raw --encode keep \\
      --split train=0.9,validation=0.1
  Convert other images with the options of a dataset:
    dsconvert images photos --out photos-more --like photos-256
  Continue a run that was interrupted, with the same options:
    dsconvert images photos --out photos-256 --resize shorter:256 --resume";

/// `dsconvert text`
pub(super) const TEXT: &str = "\
Examples:
  One record per document, each followed by the end-of-sequence token:
    dsconvert text corpus --out tokens --tokenizer tokenizer.json --add-eos
  Rows of 512 tokens for pretraining:
    dsconvert text corpus --out rows --tokenizer tokenizer.json \\
      --add-eos --pack 512
  Convert other text with the options and the tokenizer of a dataset:
    dsconvert text corpus --out more-rows --like rows
  Preview: files, splits, and a prediction from 50 documents; nothing is written:
    dsconvert text corpus --tokenizer tokenizer.json --dry-run --sample 50
  Paragraphs of standard input, as UTF-8 bytes:
    cat corpus/books/*.txt | dsconvert text - --input-format txt \\
      --documents blank-line --out paragraphs --tokenizer bytes";

/// `dsconvert plan`
pub(super) const PLAN: &str = "\
Examples:
  Store a plan, convert it with two processes, and commit:
    dsconvert plan images photos --out planned --resize shorter:64
    dsconvert run planned --part 1/2
    dsconvert run planned --part 2/2
    dsconvert merge planned";

/// `dsconvert plan images`
pub(super) const PLAN_IMAGES: &str = "\
Examples:
  dsconvert plan images photos --out planned-images --resize shorter:64
  dsconvert run planned-images
  dsconvert merge planned-images";

/// `dsconvert plan text`
pub(super) const PLAN_TEXT: &str = "\
Examples:
  dsconvert plan text corpus --out planned-text --tokenizer tokenizer.json
  dsconvert run planned-text
  dsconvert merge planned-text";

/// `dsconvert run`
pub(super) const RUN: &str = "\
Examples:
  Store the plan, once:
    dsconvert plan images photos --out shared --resize shorter:64
  Convert parts, on any machines that have the sources; in a Slurm array, the part is
  $SLURM_ARRAY_TASK_ID/$SLURM_ARRAY_TASK_COUNT:
    dsconvert run shared --part 1/2
    dsconvert run shared --part 2/2
  Commit when all parts are done:
    dsconvert merge shared";

/// `dsconvert merge`
pub(super) const MERGE: &str = "\
Examples:
  dsconvert plan images photos --out merged --resize shorter:64
  dsconvert run merged
  dsconvert merge merged --verify";

/// `dsconvert status`
pub(super) const STATUS: &str = "\
Examples:
  dsconvert plan images photos --out waiting --resize shorter:64
  dsconvert status waiting
  dsconvert status waiting --parts 4 --json";

/// `dsconvert inspect`
pub(super) const INSPECT: &str = "\
Examples:
  What is in the dataset:
    dsconvert inspect photos-256
  Two records chosen at random, and the same as JSON:
    dsconvert inspect photos-256 --sample 2
    dsconvert inspect photos-256 --sample 2 --json
  The first three documents, decoded from their token ids:
    dsconvert inspect tokens --head 3 --text
  Check every byte, and regenerate damaged files:
    dsconvert inspect photos-256 --verify
    dsconvert inspect photos-256 --verify --repair photos
  The command that makes the dataset, with all its options:
    dsconvert inspect photos-256 --recipe
  How often each dataset is read in a mixture with these shares, and the padding of its batches:
    dsconvert text corpus/books --out books --tokenizer tokenizer.json
    dsconvert inspect tokens books --mixture 0.7,0.3
    dsconvert inspect tokens books --mixture 0.7,0.3 --epoch-tokens 100000 --seq-len 512
  A README.md for the Hugging Face Hub, in the directory of the dataset:
    dsconvert inspect photos-256 --card
  A page with plots and examples, to open in a browser:
    dsconvert inspect photos-256 --html photos.html";

/// `dsconvert export`
pub(super) const EXPORT: &str = "\
Examples:
  The .bin and .idx of Megatron-LM:
    dsconvert export tokens --to megatron --out megatron
  Files of token ids for nanoGPT, and two for llm.c:
    dsconvert export tokens --to tokens --out nanogpt
    dsconvert export tokens --to tokens --layout llmc --parts 2 --out llmc
  Tar files for WebDataset, and a folder for datasets.load_dataset:
    dsconvert export photos-256 --to webdataset --parts 2 --out photos-tar
    dsconvert export photos-256 --to hf --out photos-hf
  100,000 tokens of a mixture of two datasets:
    dsconvert export tokens books --mixture 0.7,0.3 --epoch-tokens 100000 --to megatron --out mixed";

/// `dsconvert add-fields`
pub(super) const ADD_FIELDS: &str = "\
Examples:
  The sizes of the same images in another dataset; a Parquet file with a column of keys works alike:
    dsconvert images photos --out photos-64 --resize shorter:64
    dsconvert add-fields photos-64 photos-256 --out photos-sizes \\
      --fields width_256=width,height_256=height
    dsconvert inspect photos-sizes --head 2";

/// `dsconvert man`
pub(super) const MAN: &str = "\
Examples:
  dsconvert man share/man/man1";

/// `dsconvert simulate`
pub(super) const SIMULATE: &str = "\
Examples:
  Batches load in 700 ms on one worker, and a training step takes 200 ms:
    dsconvert simulate --load-ms 700 --step-ms 200 --workers 4
  The same for one to eight workers:
    dsconvert simulate --load-ms 700 --step-ms 200 --sweep workers=1..8";
