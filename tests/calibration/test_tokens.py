"""Prompts found in rows of token ids: templates, padding, cut ends, several tokenizers."""

from typing import Any

import pytest
from pipelines import tokenizers as tok

from t2iprobe.calibration.tokens import TokenReader

PROMPT = "a red circle left of a blue square"
SPANS = {
    word: (PROMPT.index(word), PROMPT.index(word) + len(word))
    for word in ("red", "circle", "left of", "square")
}


def spelled(tokenizer: Any, ids: list[int], positions: tuple[int, ...]) -> str:
    return " ".join(tokenizer.decode([ids[at]]).strip() for at in positions)


def check_spans(tokenizer: Any, ids: list[int], prompt: str = PROMPT) -> None:
    found = TokenReader(tokenizer).find(ids, prompt)
    assert found is not None
    assert not found.truncated
    for words, span in SPANS.items():
        at = found.span(span)
        assert at is not None
        assert spelled(tokenizer, ids, at).lower() == words


def test_clip() -> None:
    tokenizer = tok.clip_tokenizer()
    ids = tokenizer(PROMPT, padding="max_length", max_length=77).input_ids
    check_spans(tokenizer, ids)
    found = TokenReader(tokenizer).find(ids, PROMPT)
    assert found is not None
    assert found.positions == tuple(range(1, 9))
    assert ids[found.eot] == tokenizer.eos_token_id
    assert found.eot == 9


def test_clip_lower_cases_and_pads_with_another_token() -> None:
    tokenizer = tok.clip_tokenizer(pad="!")
    ids = tokenizer(
        "A RED circle left OF a blue square", padding="max_length", max_length=77
    ).input_ids
    check_spans(tokenizer, ids)


def test_t5_and_its_closing_token() -> None:
    tokenizer = tok.t5_tokenizer()
    ids = tokenizer(PROMPT, padding="max_length", max_length=32).input_ids
    check_spans(tokenizer, ids)
    found = TokenReader(tokenizer).find(ids, PROMPT)
    assert found is not None
    assert ids[found.eot] == tokenizer.eos_token_id


def test_gemma_behind_an_instruction_without_closing_token() -> None:
    tokenizer = tok.gemma_tokenizer()
    ids = tokenizer("paint very small: " + PROMPT, padding="max_length", max_length=64).input_ids
    check_spans(tokenizer, ids)
    found = TokenReader(tokenizer).find(ids, PROMPT)
    assert found is not None
    assert found.eot == found.positions[-1]


def test_qwen_in_a_chat_template() -> None:
    tokenizer = tok.qwen_tokenizer()
    chat = [{"role": "user", "content": PROMPT}]
    text = tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=True)
    ids = tokenizer(text).input_ids
    check_spans(tokenizer, ids)
    found = TokenReader(tokenizer).find(ids, PROMPT)
    assert found is not None
    assert tokenizer.decode([ids[found.eot]]) == "<|im_end|>"


def test_mistral_padded_on_the_left() -> None:
    tokenizer = tok.mistral_tokenizer()
    ids = tokenizer(f"[INST]{PROMPT}[/INST]", padding="max_length", max_length=48).input_ids
    assert ids[0] == tokenizer.pad_token_id
    check_spans(tokenizer, ids)


def test_the_last_occurrence_counts_when_the_template_repeats_words() -> None:
    tokenizer = tok.qwen_tokenizer()
    ids = tokenizer("a red circle left of a blue square very bad\n" + PROMPT).input_ids
    found = TokenReader(tokenizer).find(ids, PROMPT)
    assert found is not None
    assert found.positions[-1] == len(ids) - 1


def test_another_text_is_not_the_prompt() -> None:
    tokenizer = tok.clip_tokenizer()
    reader = TokenReader(tokenizer)
    for text in ("", "blurry", "a blue circle left of a red square", "a red circle"):
        ids = tokenizer(text, padding="max_length", max_length=77).input_ids
        assert reader.find(ids, PROMPT) is None, text


def test_a_prompt_cut_at_77_tokens_loses_its_end() -> None:
    tokenizer = tok.clip_tokenizer()
    prompt = "very " * 80 + "red cube"
    ids = tokenizer(prompt, truncation=True, max_length=77).input_ids
    found = TokenReader(tokenizer).find(ids, prompt)
    assert found is not None
    assert found.truncated
    assert len(found.positions) == 75
    assert found.span((prompt.index("red"), prompt.index("red") + 3)) is None
    assert found.span((0, 4)) == (1,)
    assert ids[found.eot] == tokenizer.eos_token_id


@pytest.mark.parametrize("text", ["a résumé left of a ball", "a re\u0301sume\u0301 left of a ball"])
def test_accents_are_found_in_either_form(text: str) -> None:
    tokenizer = tok.qwen_tokenizer()
    ids = tokenizer("very bad\n" + text).input_ids
    found = TokenReader(tokenizer).find(ids, text)
    assert found is not None
    at = found.span((text.index("ball"), len(text)))
    assert at == (len(ids) - 1,)


def test_unknown_words_are_found_by_their_ids() -> None:
    tokenizer = tok.t5_tokenizer()
    prompt = "a rød circle"
    ids = tokenizer(prompt).input_ids
    found = TokenReader(tokenizer).find(ids, prompt)
    assert found is not None
    at = found.span((prompt.index("circle"), len(prompt)))
    assert at is not None
    assert spelled(tokenizer, ids, at) == "circle"
