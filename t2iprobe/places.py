"""Where activations are read: a site of the model, and a place, which is a site with its pooling and step.

Each is one type with one spelling, from the hooks to the report:

    transformer.blocks.3:image                 a site: component, path in it, stream
    transformer.blocks.3:image/grid@5          a place of it, at step 5 of the schedule
    text_encoder.layers.1:text/span-color1     a place in a text encoder, which has no steps
"""

import re
from dataclasses import dataclass
from typing import Any, Literal, get_args

from t2iprobe.errors import DataError

Stream = Literal["image", "text"]

CONDITIONING = "conditioning"
"""Path of the site that is not a module's output but the text states the denoiser is given."""

_SITE = re.compile(r"(?P<component>[^.:]+)\.(?P<path>[^:]+):(?P<stream>[a-z]+)")
_PLACE = re.compile(r"(?P<site>[^:]+:[a-z]+)/(?P<pooling>[^@]+?)(?:@(?P<step>\d+))?")


@dataclass(frozen=True, order=True)
class Site:
    """A place inside the model: component name, dotted module path in it, stream."""

    component: str
    path: str
    stream: Stream

    def __str__(self) -> str:
        return f"{self.module}:{self.stream}"

    @classmethod
    def parse(cls, text: str) -> "Site":
        """The site of a spelling.

        Raises:
            DataError: the text is no site.

        Example:
            >>> Site.parse("transformer.blocks.3:image")
            Site(component='transformer', path='blocks.3', stream='image')
        """
        match = _SITE.fullmatch(text)
        if match is None or match["stream"] not in get_args(Stream):
            raise DataError(f"{text!r} is no site: COMPONENT.PATH:STREAM is meant")
        stream: Any = match["stream"]
        return cls(match["component"], match["path"], stream)

    @classmethod
    def of_module(cls, module: str, stream: Stream) -> "Site":
        """The site of a module by its dotted path in the pipeline, as tables have it."""
        component, _, path = module.partition(".")
        return cls(component, path, stream)

    @property
    def module(self) -> str:
        """Component and path, joined by a dot: where the module is in the pipeline."""
        return f"{self.component}.{self.path}"

    @property
    def is_conditioning(self) -> bool:
        """Whether it is what a denoiser is given, not a module's output."""
        return self.path == CONDITIONING


@dataclass(frozen=True)
class Place:
    """One array of activations: where it was read and how it was pooled.

    Attributes:
        site: the site.
        pooling: mean, grid, eot, or span-<constituent>.
        step: index into the denoising schedule; None where there are no steps.
    """

    site: Site
    pooling: str
    step: int | None = None

    def __str__(self) -> str:
        return f"{self.site}/{self.pooling}{'' if self.step is None else f'@{self.step}'}"

    @classmethod
    def parse(cls, text: str) -> "Place":
        """The place of a spelling, which is also the key of a shard.

        Raises:
            DataError: the text is no place.

        Example:
            >>> place = Place.parse("text_encoder.layers.1:text/span-color1")
            >>> place.site.module, place.pooling_kind, place.constituent, place.step
            ('text_encoder.layers.1', 'span', 'color1', None)
        """
        match = _PLACE.fullmatch(text)
        if match is None:
            raise DataError(f"{text!r} is no place: COMPONENT.PATH:STREAM/POOLING@STEP is meant")
        step = match["step"]
        return cls(Site.parse(match["site"]), match["pooling"], None if step is None else int(step))

    @property
    def pooling_kind(self) -> str:
        """The pooling without its constituent: "span" of span-color1."""
        return self.pooling.partition("-")[0]

    @property
    def constituent(self) -> str | None:
        """The constituent whose own tokens were pooled; None for poolings of all tokens."""
        return self.pooling.partition("-")[2] or None

    @property
    def in_text_encoder(self) -> bool:
        """Whether it is inside a text encoder, not what a denoiser receives from it."""
        return self.step is None and not self.site.is_conditioning

    @property
    def order(self) -> tuple[str, str, str, int]:
        """What places are sorted by: module, stream, pooling, step."""
        step = -1 if self.step is None else self.step
        return self.site.module, self.site.stream, self.pooling, step

    def columns(self) -> dict[str, Any]:
        """The columns of a table that say the place: site (the module), component, stream, pooling (its kind), step."""
        return {
            "site": self.site.module,
            "component": self.site.component,
            "stream": self.site.stream,
            "pooling": self.pooling_kind,
            "step": self.step,
        }
