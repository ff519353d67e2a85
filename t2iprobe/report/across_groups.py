"""Which runs of a comparison belong together, and the colour and marker that say so."""

from collections.abc import Sequence

from t2iprobe.report import style
from t2iprobe.report.places import ordered
from t2iprobe.report.points import RunPoint


def groups_of(points: Sequence[RunPoint]) -> list[str]:
    """The group of each run, by name.

    Of images: a training run that several share, else its way of sampling, else its model. Of students: the support,
    and every setting in which it differs from most students; seeds and the number of combinations tell no groups apart.
    """
    shared = [point.training_run for point in points]
    usual = _usual([point for point in points if point.kind == "synthetic"])
    return [
        ", ".join([point.sampling or point.model, *_differs(point, usual)])
        if point.kind == "synthetic"
        else point.training_run
        if point.training_run and shared.count(point.training_run) > 1
        else point.sampling or point.model
        for point in points
    ]


def _usual(students: Sequence[RunPoint]) -> dict[str, str]:
    """The most frequent value of every setting; of equally frequent ones the first."""
    names = ordered(name for student in students for name, _ in _kept(student))
    values = {n: [dict(s.setup)[n] for s in students if n in dict(s.setup)] for n in names}
    return {name: max(ordered(found), key=found.count) for name, found in values.items()}


def _differs(student: RunPoint, usual: dict[str, str]) -> list[str]:
    return [
        f"{name.replace('_', ' ')} {value}"
        for name, value in _kept(student)
        if value != usual[name]
    ]


def _kept(student: RunPoint) -> list[tuple[str, str]]:
    return [
        (name, value)
        for name, value in student.setup
        if name != "support" and not name.endswith("seed")
    ]


def group_looks(points: Sequence[RunPoint]) -> list[tuple[str, str]]:
    """Colour and marker of each run, one pair per group; 48 groups have different ones."""
    groups = groups_of(points)
    order = ordered(groups)
    return [_look(order.index(group)) for group in groups]


def _look(index: int) -> tuple[str, str]:
    n_colors, n_markers = len(style.SERIES), len(style.MARKERS)
    lap = index // (n_colors * n_markers // 2)  # 6 colours and 8 markers meet again after 24
    return style.SERIES[index % n_colors], style.MARKERS[(index + lap) % n_markers]
