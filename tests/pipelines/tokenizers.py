"""Tokenizers that know the words of the shapes families, built from nothing: no file, no network."""

from collections import Counter
from functools import cache
from itertools import pairwise
from typing import Any

WORDS = (  # noqa: SIM905
    "red orange yellow green cyan blue purple pink brown black white circle square triangle star cross ring cube ball "
    "a an the left right above below of at in on top bottom center small large one two very and photo bad blurry"
).split()

CHAT = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n"
    "{% if m['content'] is string %}{{ m['content'] }}{% else %}{% for c in m['content'] %}{{ c['text'] }}{% endfor %}"
    "{% endif %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n"
    "{% if enable_thinking is defined and enable_thinking is false %}<think>\n\n</think>\n\n{% endif %}{% endif %}"
)

QWEN_SPECIALS = (
    "<|endoftext|>",
    "<|im_start|>",
    "<|im_end|>",
    "<|vision_start|>",
    "<|vision_end|>",
    "<|vision_pad|>",
    "<|image_pad|>",
    "<|video_pad|>",
    "<think>",
    "</think>",
)
GEMMA_SPECIALS = (
    "<pad>",
    "<eos>",
    "<bos>",
    "<unk>",
    "<mask>",
    "<start_of_turn>",
    "<end_of_turn>",
)


def byte_characters() -> list[str]:
    """The printable character that byte-level BPE writes for each of the 256 bytes."""
    plain = {*range(33, 127), *range(161, 173), *range(174, 256)}
    extra = iter(range(256, 512))
    return [chr(byte) if byte in plain else chr(next(extra)) for byte in range(256)]


def train_bpe(words: list[tuple[str, ...]]) -> tuple[list[str], list[tuple[str, str]]]:
    """New symbols and merge rules that make every word (a tuple of symbols) one token."""
    spelled = [list(word) for word in dict.fromkeys(words)]
    symbols: dict[str, None] = {}
    merges: list[tuple[str, str]] = []
    while pairs := Counter(pair for word in spelled for pair in pairwise(word)):
        best = min(pairs, key=lambda pair: (-pairs[pair], pair))
        merges.append(best)
        symbols["".join(best)] = None
        for word in spelled:
            at = 0
            while at < len(word) - 1:
                if (word[at], word[at + 1]) == best:
                    word[at : at + 2] = ["".join(best)]
                at += 1
    return list(symbols), merges


@cache
def _clip() -> tuple[dict[str, int], list[tuple[str, str]]]:
    letters = byte_characters()
    new, merges = train_bpe([(*w[:-1], w[-1] + "</w>") for w in WORDS])
    letters.remove("!")  # first: SDXL pads its second tokenizer with token 0
    base = ["!", *letters, *[c + "</w>" for c in byte_characters()]]
    tokens = [*base, *(t for t in new if t not in base), "<|startoftext|>", "<|endoftext|>"]
    return {token: i for i, token in enumerate(tokens)}, merges


@cache
def _bytelevel(specials: tuple[str, ...]) -> tuple[dict[str, int], list[tuple[str, str]]]:
    letters = byte_characters()
    new, merges = train_bpe([tuple(x) for w in WORDS for x in (w, letters[32] + w)])
    tokens = [*letters, *(t for t in new if t not in letters), *specials]
    return {token: i for i, token in enumerate(tokens)}, merges


@cache
def _metaspace() -> tuple[dict[str, int], list[tuple[str, str]]]:
    base = [f"<0x{b:02X}>" for b in range(256)] + ["\u2581"] + [chr(c) for c in range(33, 127)]
    new, merges = train_bpe([tuple(x) for w in WORDS for x in (w, "\u2581" + w)])
    tokens = [*GEMMA_SPECIALS, *base, *(t for t in new if t not in base)]
    return {token: i for i, token in enumerate(tokens)}, merges


def clip_tokenizer(pad: str = "<|endoftext|>", max_length: int = 77) -> Any:
    from transformers import CLIPTokenizer

    vocab, merges = _clip()
    return CLIPTokenizer(
        vocab=dict(vocab), merges=list(merges), pad_token=pad, model_max_length=max_length
    )


def t5_tokenizer(max_length: int = 512) -> Any:
    from transformers import T5Tokenizer

    scored = [("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0), ("\u2581", -3.0)]
    scored += [("\u2581" + word, -4.0) for word in WORDS]
    scored += [(chr(c), -9.0) for c in range(33, 127)]
    scored += [(f"<extra_id_{i}>", 0.0) for i in range(3, -1, -1)]
    return T5Tokenizer(vocab=scored, extra_ids=4, model_max_length=max_length)


def qwen_tokenizer(max_length: int = 4096, **more: Any) -> Any:
    from transformers import Qwen2Tokenizer

    vocab, merges = _bytelevel(QWEN_SPECIALS)
    tokenizer = Qwen2Tokenizer(
        vocab=dict(vocab),
        merges=list(merges),
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        unk_token="<|endoftext|>",
        additional_special_tokens=list(QWEN_SPECIALS),
        model_max_length=max_length,
        padding_side="right",
        **more,
    )
    tokenizer.chat_template = CHAT
    return tokenizer


def gemma_tokenizer(max_length: int = 2048) -> Any:
    from tokenizers import processors
    from transformers import GemmaTokenizer

    vocab, merges = _metaspace()
    tokenizer = GemmaTokenizer(
        vocab=dict(vocab), merges=list(merges), model_max_length=max_length, padding_side="right"
    )
    tokenizer.backend_tokenizer.post_processor = processors.TemplateProcessing(
        single="<bos> $A", pair="<bos> $A $B", special_tokens=[("<bos>", vocab["<bos>"])]
    )
    return tokenizer


def mistral_tokenizer(max_length: int = 512) -> Any:
    """Byte-level BPE with left padding and instruction marks, as Mistral's small models use it."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    vocab, merges = _bytelevel(("<s>", "</s>", "<pad>", "[INST]", "[/INST]"))
    backend = Tokenizer(models.BPE(vocab=dict(vocab), merges=list(merges)))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    backend.post_processor = processors.TemplateProcessing(
        single="<s> $A", special_tokens=[("<s>", vocab["<s>"])]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        bos_token="<s>",
        eos_token="</s>",
        pad_token="<pad>",
        additional_special_tokens=["[INST]", "[/INST]"],
        model_max_length=max_length,
        padding_side="left",
    )


def clip_size() -> int:
    return len(_clip()[0])


def t5_size() -> int:
    return 4 + len(WORDS) + 94 + 4


def qwen_size() -> int:
    return len(_bytelevel(QWEN_SPECIALS)[0])


def qwen_id(token: str) -> int:
    return _bytelevel(QWEN_SPECIALS)[0][token]


def gemma_size() -> int:
    return len(_metaspace()[0])
