"""Folders of tiny vision-language models, and their processors, without a network."""

import json
import random

FAMILIES = {
    "qwen2_5_vl": {
        "processor_class": "Qwen2_5_VLProcessor",
        "image_processor_type": "Qwen2VLImageProcessor",
        "min_pixels": 3136, "max_pixels": 12845056, "patch_size": 14, "temporal_patch_size": 2, "merge_size": 2,
        "image_mean": [0.48145466, 0.4578275, 0.40821073], "image_std": [0.26862954, 0.26130258, 0.27577711],
    },
    "qwen3_vl": {
        "processor_class": "Qwen3VLProcessor",
        "image_processor_type": "Qwen2VLImageProcessorFast",
        "size": {"longest_edge": 16777216, "shortest_edge": 65536},
        "patch_size": 16, "temporal_patch_size": 2, "merge_size": 2,
        "image_mean": [0.5, 0.5, 0.5], "image_std": [0.5, 0.5, 0.5],
    },
}
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|vision_start|>", "<|vision_end|>", "<|image_pad|>", "<|video_pad|>"]

# The template of Qwen2-VL, with generation blocks, which do not change the text.
TEMPLATE = """\
{% for message in messages %}\
{% if loop.first and message['role'] != 'system' %}<|im_start|>system
You are a helpful assistant.<|im_end|>
{% endif %}\
{% set content %}\
{% if message['content'] is string %}{{ message['content'] }}\
{% else %}{% for part in message['content'] %}\
{% if part['type'] == 'image' or 'image' in part or 'image_url' in part %}<|vision_start|><|image_pad|><|vision_end|>\
{% elif 'text' in part %}{{ part['text'] }}{% endif %}{% endfor %}{% endif %}\
{% endset %}\
<|im_start|>{{ message['role'] }}
{% if message['role'] == 'assistant' %}{% generation %}{{ content }}<|im_end|>
{% endgeneration %}{% else %}{{ content }}<|im_end|>
{% endif %}{% endfor %}\
{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""

WORDS = ["the", "cat", " sat", "\n", "\n\n", "\n\n\n", " ", "  ", "Ünï", "漢字", "🙂", "a\n", "\tb", "<image", ">", "1234", "."]


def text(rng, most=8):
    return "".join(rng.choice(WORDS) for _ in range(rng.randrange(1, most)))


def tokenizer():
    """A byte-level BPE tokenizer that merges newlines with each other and with their neighbors."""
    from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

    bpe = Tokenizer(models.BPE())
    split = pre_tokenizers.Split(Regex(r"\s*\n+|\p{L}+| ?[^\s\p{L}]+|\s+"), "isolated")
    bpe.pre_tokenizer = pre_tokenizers.Sequence([split, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    bpe.decoder = decoders.ByteLevel()
    rng = random.Random(5)
    trainer = trainers.BpeTrainer(vocab_size=600, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False)
    bpe.train_from_iterator((text(rng, 40) for _ in range(400)), trainer)
    bpe.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in SPECIAL])
    return bpe


def folder(path, family="qwen2_5_vl", template=TEMPLATE, **parameters):
    """Writes the folder of a model, whose image processor has other `parameters`."""
    path.mkdir(parents=True, exist_ok=True)
    tokenizer().save(str(path / "tokenizer.json"))
    (path / "chat_template.jinja").write_text(template)
    (path / "tokenizer_config.json").write_text(json.dumps({"eos_token": "<|im_end|>", "tokenizer_class": "PreTrainedTokenizerFast"}))
    (path / "config.json").write_text(json.dumps({"model_type": family}))
    (path / "preprocessor_config.json").write_text(json.dumps({**FAMILIES[family], **parameters}))
    return path


def image_processor(path):
    """The image processor of the model in the folder `path`, with the backend that needs only Pillow."""
    from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

    parameters = json.loads((path / "preprocessor_config.json").read_text())
    return Qwen2VLImageProcessorPil.from_dict(parameters)


def processor(path):
    """The processor of the model in the folder `path`."""
    import transformers

    tokens = transformers.PreTrainedTokenizerFast(tokenizer_file=str(path / "tokenizer.json"), eos_token="<|im_end|>")
    parameters = json.loads((path / "preprocessor_config.json").read_text())
    classes = {"Qwen2_5_VLProcessor": "qwen2_5_vl", "Qwen3VLProcessor": "qwen3_vl"}
    module = classes[parameters["processor_class"]]
    models = __import__(f"transformers.models.{module}.processing_{module}", fromlist=["x"])
    kind = getattr(models, parameters["processor_class"])
    # Without a processor of videos, which needs torchvision.
    checked = kind.check_argument_for_proper_class
    kind.check_argument_for_proper_class = lambda self, name, value: None if value is None else checked(self, name, value)
    try:
        return kind(image_processor(path), tokens, chat_template=(path / "chat_template.jinja").read_text())
    finally:
        kind.check_argument_for_proper_class = checked
