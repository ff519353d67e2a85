"""Text poolings over what a denoiser is given, from where the encoders' tokens are in it."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from t2iprobe.activations.encoder_watch import EncoderWatch
from t2iprobe.activations.pooled_buffer import Texts
from t2iprobe.activations.pooling import text_weights
from t2iprobe.calibration.tokens import Segment


class StateWeights:
    """Weights over the text states of one denoiser in one batch.

    Attributes:
        names: text poolings that are possible: only the mean where the words cannot be located in the states.
    """

    def __init__(
        self, segments: Sequence[Segment], encoders: Mapping[str, EncoderWatch], texts: Texts
    ) -> None:
        self._parts = [(s, encoders[s.encoder]) for s in segments if s.encoder in encoders]
        self._texts = texts
        self.names = texts.names if self._parts else ["mean"]

    def weights(self, n: int) -> Tensor:
        """Weights (b, p, n) over n text states."""
        prompts = self._texts.prompts
        if not self._parts:
            return torch.full((len(prompts), 1, n), 1.0 / n)
        tokens = [
            [
                (own, segment.shift, segment.first)
                for segment, watch in self._parts
                if (own := watch.tokens[index]) is not None
            ]
            for index in range(len(prompts))
        ]
        return text_weights(self.names, n, tokens, self._texts.spans)
