"""Small CLIP text encoders and the prompts as token ids."""

import torch
from torch import Tensor, nn
from transformers import (
    CLIPTextConfig,
    CLIPTextModel,
    CLIPTextModelWithProjection,
    CLIPTokenizer,
)

from zoo_training import tokenizer

# CLIP starts its embeddings at 0.02; a short training gets going sooner with larger ones.
TOKEN_STD, POSITION_STD = 0.5, 0.2


def build_encoder(
    words: CLIPTokenizer, width: int, projection: int | None = None, layers: int = 2
) -> nn.Module:
    """An untrained CLIP text model.

    Args:
        words: the tokenizer, for the size of the vocabulary and its marks.
        width: of the hidden states.
        projection: width of the pooled text; without it the model has no projection.
        layers: number of transformer layers.
    """
    config = CLIPTextConfig(
        vocab_size=len(words),
        hidden_size=width,
        intermediate_size=4 * width,
        num_hidden_layers=layers,
        num_attention_heads=2,
        max_position_embeddings=tokenizer.MAX_LENGTH,
        projection_dim=projection or width,
        bos_token_id=words.bos_token_id,
        eos_token_id=words.eos_token_id,
        pad_token_id=words.pad_token_id,
    )
    model: nn.Module = (CLIPTextModelWithProjection if projection else CLIPTextModel)(config)
    for name, parameter in model.named_parameters():
        if name.endswith("token_embedding.weight"):
            nn.init.normal_(parameter, std=TOKEN_STD)
        elif name.endswith("position_embedding.weight"):
            nn.init.normal_(parameter, std=POSITION_STD)
    return model


def token_ids(words: CLIPTokenizer, prompts: list[str]) -> Tensor:
    """(n, 16) ids, as the pipelines make them."""
    batch = words(
        prompts,
        padding="max_length",
        max_length=words.model_max_length,
        truncation=True,
        return_tensors="pt",
    )
    ids: Tensor = batch.input_ids
    return ids.to(torch.int64)
