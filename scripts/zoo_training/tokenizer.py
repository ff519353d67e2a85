"""A CLIP tokenizer whose byte-pair vocabulary knows each word of the shapes families as one token."""

from collections import Counter
from itertools import pairwise

from transformers import CLIPTokenizer

from t2iprobe.families.reading import load_family

MAX_LENGTH = 16  # the longest prompt of the families has 8 words, and two marks around it


def byte_symbols() -> list[str]:
    """The printable stand-ins of byte-level BPE for the 256 byte values."""
    printable = [*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    return [chr(byte) for byte in printable] + [chr(256 + i) for i in range(len(others))]


def words() -> list[str]:
    """Every word of every prompt of both families, sorted."""
    found: set[str] = set()
    for name in ("shapes-pair", "shapes-single"):
        for task in load_family(name).tasks():
            found.update(task.prompt.lower().split())
    return sorted(found)


def merges_for(known: list[str]) -> list[tuple[str, str]]:
    """Merge rules that make one token of each word, found greedily as BPE training does.

    Args:
        known: words; the last letter of each carries the end mark `</w>`.
    """
    pieces = [[*word[:-1], word[-1] + "</w>"] for word in known]
    merges: list[tuple[str, str]] = []
    while True:
        pairs = Counter(pair for piece in pieces for pair in pairwise(piece))
        if not pairs:
            return merges
        best = min(pairs, key=lambda pair: (-pairs[pair], pair))
        merges.append(best)
        pieces = [_merge(piece, best) for piece in pieces]


def _merge(piece: list[str], pair: tuple[str, str]) -> list[str]:
    merged: list[str] = []
    for symbol in piece:
        if merged and (merged[-1], symbol) == pair:
            merged[-1] += symbol
        else:
            merged.append(symbol)
    return merged


def build() -> CLIPTokenizer:
    """The tokenizer; its marks are the last two entries of the vocabulary, and it pads with the end mark."""
    symbols = byte_symbols()
    merges = merges_for(words())
    entries = symbols + [symbol + "</w>" for symbol in symbols]
    entries += ["".join(pair) for pair in merges] + ["<|startoftext|>", "<|endoftext|>"]
    entries = list(dict.fromkeys(entries))
    return CLIPTokenizer(
        vocab={entry: index for index, entry in enumerate(entries)},
        merges=merges,
        pad_token="<|endoftext|>",
        model_max_length=MAX_LENGTH,
    )
