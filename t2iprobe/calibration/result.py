"""What calibration finds about a model, and why: every label keeps the rule and the numbers it rests on."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from t2iprobe.calibration.grid import rectangle
from t2iprobe.calibration.steps import ScheduledCall
from t2iprobe.calibration.tokens import Segment
from t2iprobe.errors import SiteError, unknown
from t2iprobe.places import CONDITIONING, Site, Stream

Cut = tuple[int | None, int | None]
"""Token positions as slice bounds."""

ALL: Cut = (None, None)


@dataclass(frozen=True)
class Evidence:
    """Why a label was given: the rule, and how far the stream moved in the replays, in units of its own length.

    Attributes:
        rule: in words.
        text: median change, with the text disturbed, of the positions that moved; None where that was not tried.
        picture: the same with the picture disturbed.
    """

    rule: str
    text: float | None = None
    picture: float | None = None

    def __str__(self) -> str:
        if self.text is None or self.picture is None:
            return self.rule
        return (
            f"{self.rule}: moved {self.text:.2g} with the text, {self.picture:.2g} with the picture"
        )


@dataclass(frozen=True)
class Reading:
    """How a stream is read from a site's output.

    Attributes:
        item: name of the tensor in the output ("" when the output is a tensor).
        axis: batch axis.
        cut: token positions; None for a feature map (rows, channels, height, width).
        shape: of the stream for one image: (tokens, width) or (channels, height, width).
        channels_last: whether a feature map has its channels behind height and width.
        evidence: why it is read so.
    """

    item: str
    axis: int
    cut: Cut | None
    shape: tuple[int, ...] = ()
    channels_last: bool = False
    evidence: Evidence = field(default=Evidence(""), compare=False)

    @property
    def where(self) -> str:
        """Which part of the output it is, in words."""
        item = f" of item {self.item}" if self.item else " of the output"
        if self.cut is None:
            return f"a feature map{item}, channels {'last' if self.channels_last else 'first'}"
        first, stop = self.cut
        if (first or 0) < 0:
            return f"positions {first} to {stop or 'the end'}{item}, counted from the end"
        if self.cut == ALL:
            return f"all positions{item}"
        return f"positions {first or 0} to {'the end' if stop is None else stop}{item}"


@dataclass
class Denoiser:
    """What calibration knows about one denoiser.

    Attributes:
        conditioning: dotted name of the argument that carries the text states.
        evidence: why it is that one.
        unconditional: samples of text states that do not depend on the prompt: how unconditional rows are known.
        guidance: in words, how the rows of a step are laid out.
        schedule: every conditional call of a run; empty until all denoisers are known.
        n_steps: entries of the schedule, which several denoisers may share.
        readings: by path and stream, how a site is read.
        grids: image tokens -> (height, width), for the token counts that occur.
        segments: where the encoders' tokens are among the text states.
        states_shape: shape of one prompt's text states; () where it is given none, or token ids in their place.
        moves_in_batch: a site that reads differently in a batch of texts of different lengths; None where none does.
        in_order: whether image tokens come row by row, as far as it can be told: pictures that a pipeline has packed
            itself are taken to.
        notes: sentences for the user.
    """

    conditioning: str
    unconditional: list[Tensor]
    guidance: str
    schedule: list[ScheduledCall] = field(default_factory=list)
    n_steps: int = 0
    readings: dict[str, dict[Stream, Reading]] = field(default_factory=dict)
    grids: dict[int, tuple[int, int]] = field(default_factory=dict)
    segments: list[Segment] = field(default_factory=list)
    states_shape: tuple[int, ...] = ()
    moves_in_batch: str | None = None
    in_order: bool = True
    evidence: Evidence = field(default=Evidence(""), compare=False)
    notes: list[str] = field(default_factory=list)


@dataclass
class Encoder:
    """What calibration knows about one text encoder.

    Attributes:
        embedding: path of the token embedding.
        n_tokens: tokens it was given for one prompt, pads included.
        readings: how its layers and its final norm are read.
    """

    embedding: str
    n_tokens: int
    readings: dict[str, Reading]


@dataclass
class Calibration:
    """Everything that calibration knows about a model.

    Attributes:
        notes: sentences for the user.
        max_batch: 1 where several prompts at once fail, or are read otherwise than alone; None without a limit.
        unused: text encoders that were not called; some are for what stands in quotation marks.
    """

    denoisers: dict[str, Denoiser]
    encoders: dict[str, Encoder]
    max_batch: int | None
    image_size: tuple[int, int]
    notes: list[str]
    unused: tuple[str, ...] = ()


def image_grid(denoiser: Denoiser, n: int, size: tuple[int, int]) -> tuple[int, int] | None:
    """(height, width) of n image tokens: from the sizes seen in calibration, else from the shape of the image.

    None where they make no rectangle, or do not come row by row.
    """
    if not denoiser.in_order:
        return None
    if n in denoiser.grids:
        return denoiser.grids[n]
    height, width = rectangle(n, size)
    return (height, width) if height else None


def _step(value: Any, part: str) -> Any:
    if part.isdigit() and isinstance(value, list | tuple):
        return value[int(part)]
    return value[part] if isinstance(value, Mapping) else getattr(value, part)


def pick(output: Any, item: str, site: Site) -> Tensor:
    """A tensor of an output by the dotted name it had in calibration; "" is the output itself.

    Raises:
        SiteError: the output has another structure now.
    """
    value = output
    for part in item.split(".") if item else ():
        try:
            value = _step(value, part)
        except (KeyError, IndexError, TypeError, AttributeError) as error:
            raise SiteError(f"{site}: its output has no {item!r} any more") from error
    if not isinstance(value, Tensor):
        raise SiteError(f"{site}: {item or 'output'!r} is a {type(value).__name__}, not a tensor")
    return value


def why(calibration: Calibration, site: str) -> list[str]:
    """For each stream of a site the rule and the numbers that its label rests on, one sentence each.

    Args:
        calibration: of the model.
        site: COMPONENT.PATH, with or without :STREAM.

    Raises:
        SiteError: nothing is read there; the message names the nearest sites and what the notes say of the component.

    Example:
        >>> reading = Reading("0", 0, (0, 77), (77, 32), evidence=Evidence("follows the text", 0.8, 0.0))
        >>> encoder = Encoder("embed", 77, {"layers.0": reading})
        >>> why(Calibration({}, {"t5": encoder}, None, (64, 64), []), "t5.layers.0")
        ['t5.layers.0:text: follows the text: moved 0.8 with the text, 0 with the picture; positions 0 to 77 of item 0']
    """
    reasons = dict(_reasons(calibration))
    sites = [known for known in reasons if site in (str(known), known.module)]
    if not sites:
        component = site.partition(".")[0]
        notes = [note for note in calibration.notes if note.startswith(f"{component}:")]
        raise SiteError("; ".join([unknown("site", site, map(str, reasons)), *notes]))
    return [f"{known}: {reasons[known]}" for known in sites]


def _reasons(calibration: Calibration) -> Iterator[tuple[Site, str]]:
    """Every site with the reason for its label."""
    for name, encoder in calibration.encoders.items():
        embedding = Site(name, encoder.embedding, "text")
        yield embedding, "takes the token ids, which change with the prompt"
        for path, reading in encoder.readings.items():
            yield Site(name, path, "text"), f"{reading.evidence}; {reading.where}"
    for name, denoiser in calibration.denoisers.items():
        yield Site(name, CONDITIONING, "text"), f"{denoiser.conditioning} {denoiser.evidence}"
        for path, streams in denoiser.readings.items():
            for stream, reading in streams.items():
                yield Site(name, path, stream), f"{reading.evidence}; {reading.where}"
