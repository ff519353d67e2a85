"""How a stream is read from a site's output, and what is known of a call beforehand."""

from dataclasses import dataclass

Cut = tuple[int | None, int | None]


@dataclass(frozen=True)
class Layout:
    """Token positions of each stream in one tensor, as slice bounds; None where a stream is not in it.

    `doubt` says why a stream that may be in it is left out.
    """

    image: Cut | None = None
    text: Cut | None = None
    doubt: str = ""


ALL: Cut = (None, None)


def bounds(cut: Cut, n: int) -> tuple[int, int]:
    """First and one past the last position of a cut of n positions."""
    first, last, _ = slice(*cut).indices(n)
    return first, last


@dataclass(frozen=True)
class Reading:
    """How a stream is read from a site's output.

    Attributes:
        item: name of the tensor in the output ("" when the output is a tensor).
        axis: batch axis.
        cut: token positions; None for a feature map (rows, channels, height, width).
        shape: of the stream for one image: (tokens, width) or (channels, height, width).
        channels_last: whether a feature map has its channels behind height and width.
    """

    item: str
    axis: int
    cut: Cut | None
    shape: tuple[int, ...] = ()
    channels_last: bool = False


@dataclass(frozen=True)
class Geometry:
    """Sizes that a call is known to have.

    Attributes:
        image_counts: possible numbers of image tokens, likeliest first.
        n_text: number of text tokens the denoiser is given; 0 when it gets none.
        rows: rows of the batch.
        row: the conditional row.
        text_leading: text tokens at the front that are the same for both prompts.
        text_trailing: the same at the end.
        double_rows: rows of the batch for two prompts; None where batches fail.
        size: height and width of the image.
    """

    image_counts: tuple[int, ...]
    n_text: int
    rows: int
    row: int
    text_leading: int
    text_trailing: int
    double_rows: int | None
    size: tuple[int, int]
