"""Task supports by name: from a request (M, K, how much is held out) to seen and held-out combinations.

The counts follow the reference (paper, appendix on task support): a fraction f of N combinations holds out
floor(N f). A request that cannot be met says why and what is possible.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import ceil, floor

import numpy as np

from synthetic.supports.combos import (
    Bools,
    Support,
    all_combinations,
    count_combinations,
    count_components,
    min_connected,
    uses_any,
)
from synthetic.supports.drawn import ATTEMPTS, balanced_seen, random_seen
from t2iprobe.errors import ConfigError, unknown
from t2iprobe.seeding import derive

DEFAULT_FRAC_OOD = 0.25
MAX_COMBINATIONS = 5_000_000


@dataclass(frozen=True)
class Request:
    """What a support is asked for: M, K, the number of seen combinations wanted, and a source of randomness."""

    num_modules: int
    num_hot: int
    num_seen: int
    rng: np.random.Generator

    @property
    def combos(self) -> Bools:
        """(N, M) all combinations."""
        return all_combinations(self.num_modules, self.num_hot)


Built = tuple[Bools, Bools, str]


def make_support(
    name: str,
    num_modules: int,
    num_hot: int,
    frac_ood: float | None = None,
    num_train_tasks: int | None = None,
    seed: int = 0,
) -> Support:
    """The support of that name.

    Args:
        name: one of SUPPORTS, or the reference's name for it (ALIASES).
        num_modules: M, 2 to 62.
        num_hot: K, the largest number of modules active at once, 1 to M.
        frac_ood: the fraction of combinations to hold out, in (0, 1); 0.25 when neither it nor a number is given.
        num_train_tasks: the number of combinations to train on, instead of the fraction.
        seed: of the split alone.

    Raises:
        ConfigError: the name is unknown or the request cannot be met.
    """
    name = ALIASES.get(name, name)
    if name not in SUPPORTS:
        raise ConfigError(unknown("support", name, [*SUPPORTS, *ALIASES]))
    _check_sizes(num_modules, num_hot)
    if name in FIXED and (frac_ood is not None or num_train_tasks is not None):
        raise ConfigError(
            f"support '{name}' decides by itself what is held out: leave out --frac-ood and --train-tasks"
        )
    num_seen = _num_seen(num_modules, num_hot, frac_ood, num_train_tasks)
    rng = np.random.default_rng(derive("support", name, num_modules, num_hot, seed))
    seen, held_out, note = SUPPORTS[name](Request(num_modules, num_hot, num_seen, rng))
    if len(seen) == 0 or len(held_out) == 0:
        raise ConfigError(
            f"support '{name}' with {num_modules} modules, {num_hot} hot has {len(seen)} seen and "
            f"{len(held_out)} held-out combinations: both must be at least 1"
        )
    support = Support(name, seen, held_out, note)
    if support.unseen_modules and name != "omitted":
        raise ConfigError(
            f"support '{name}' with {num_modules} modules, {num_hot} hot and {len(seen)} seen combinations leaves "
            f"modules {', '.join(map(str, support.unseen_modules))} unseen: use --hot 2 or more and hold out less"
        )
    return support


def _check_sizes(num_modules: int, num_hot: int) -> None:
    if not 2 <= num_modules <= 62:
        raise ConfigError(f"--modules {num_modules}: must be 2 to 62")
    if not 1 <= num_hot <= num_modules:
        raise ConfigError(f"--hot {num_hot}: must be 1 to the number of modules ({num_modules})")
    count = count_combinations(num_modules, num_hot)
    if count > MAX_COMBINATIONS:
        raise ConfigError(
            f"{num_modules} modules with up to {num_hot} hot are {count:,} combinations; "
            f"at most {MAX_COMBINATIONS:,} are handled: lower --modules or --hot"
        )


def _num_seen(
    num_modules: int, num_hot: int, frac_ood: float | None, num_train_tasks: int | None
) -> int:
    """The number of seen combinations asked for, at least 1 and with at least 1 held out."""
    total = count_combinations(num_modules, num_hot)
    if frac_ood is not None and num_train_tasks is not None:
        raise ConfigError("give --frac-ood or --train-tasks, not both")
    if num_train_tasks is not None:
        if not 1 <= num_train_tasks < total:
            raise ConfigError(
                f"--train-tasks {num_train_tasks}: there are {total} combinations of up to {num_hot} of "
                f"{num_modules} modules, so 1 to {total - 1} can be seen"
            )
        return num_train_tasks
    fraction = DEFAULT_FRAC_OOD if frac_ood is None else frac_ood
    num_held = floor(total * fraction + 1e-9)
    if not 0 < fraction < 1 or not 1 <= num_held < total:
        raise ConfigError(
            f"--frac-ood {fraction:g} holds out {num_held} of {total} combinations: must be at least "
            f"{ceil(1e6 / total) / 1e6:g} (1 held out) and at most {floor(1e6 * (total - 1) / total) / 1e6:g} (1 seen)"
        )
    return total - num_held


def _check_connectable(request: Request) -> None:
    """Refuse a number of seen combinations that cannot use and join all modules."""
    fewest = min_connected(request.num_modules, request.num_hot)
    total = count_combinations(request.num_modules, request.num_hot)
    if fewest is None:
        raise ConfigError(
            "--hot 1: tasks of one module cannot join modules, so no support is connected; "
            "use --hot 2 or more, or --support omitted"
        )
    if request.num_seen < fewest:
        raise ConfigError(
            f"{request.num_seen} seen combinations cannot use and join {request.num_modules} modules with "
            f"{request.num_hot} hot: at least {fewest} are needed "
            f"(--train-tasks {fewest}, or --frac-ood up to {floor(1e6 * (total - fewest) / total) / 1e6:g})"
        )


def _split(combos: Bools, mask: Bools, note: str = "") -> Built:
    return combos[mask], combos[~mask], note


def _random(request: Request) -> Built:
    _check_connectable(request)
    mask = random_seen(request.num_modules, request.num_hot, request.num_seen, request.rng)
    return _split(request.combos, mask)


def _balanced(request: Request) -> Built:
    _check_connectable(request)
    mask = balanced_seen(request.num_modules, request.num_hot, request.num_seen, request.rng)
    return _split(request.combos, mask)


def _ring_and_halves(request: Request) -> tuple[Bools, Bools, Bools]:
    """All combinations, those within an arc of K + 1 neighbours on a ring, and those within one half."""
    combos, size = request.combos, request.num_modules
    if size < request.num_hot + 3 or size < 5 or request.num_hot < 2:
        raise ConfigError(
            f"connected and disconnected supports need --hot of 2 or more and at least 5 modules and 3 more than "
            f"--hot: got {size} modules, {request.num_hot} hot"
        )
    ring = np.zeros(len(combos), dtype=bool)
    for start in range(size):
        arc = np.zeros(size, dtype=bool)
        arc[(start + np.arange(request.num_hot + 1)) % size] = True
        ring |= ~uses_any(combos, ~arc)
    half = size // 2
    halves = ~uses_any(combos, slice(half)) | ~uses_any(combos, slice(half, None))
    return combos, ring, halves


def _connected(request: Request) -> Built:
    combos, ring, halves = _ring_and_halves(request)
    note = "neighbours on a ring; the held-out combinations are those of 'disconnected' too"
    return combos[ring], combos[~(ring | halves)], note


def _disconnected(request: Request) -> Built:
    combos, ring, halves = _ring_and_halves(request)
    note = "two halves that never meet; the held-out combinations are those of 'connected' too"
    return combos[halves], combos[~(ring | halves)], note


def _disconnected_one(request: Request) -> Built:
    """The reference's split at the largest cross fraction within the request; 1 against M - 1 at 0.25."""
    combos = request.combos
    num_held = len(combos) - request.num_seen
    best = 1
    for size in range(1, request.num_modules // 2 + 1):
        crossing = int((~_within(combos, size)).sum())
        if crossing <= num_held:
            best = size
    mask = _within(combos, best)
    extra = max(0, int(mask.sum()) - request.num_seen)
    free = np.flatnonzero(mask & (combos.sum(axis=1) > 1))
    for _ in range(ATTEMPTS if extra <= len(free) and request.num_hot > 1 else 0):
        chosen = mask.copy()
        chosen[request.rng.choice(free, extra, replace=False)] = False
        if count_components(combos[chosen]) == 2:
            return _split(combos, chosen, f"modules 0 to {best - 1} never meet the others")
    raise ConfigError(
        f"support 'disconnected-one' cannot hold out {num_held} of {len(combos)} combinations with "
        f"{request.num_modules} modules, {request.num_hot} hot and keep two joined "
        "groups: use --hot 2 or more and a lower --frac-ood"
    )


def _within(combos: Bools, size: int) -> Bools:
    return ~uses_any(combos, slice(size)) | ~uses_any(combos, slice(size, None))


def _omitted(request: Request) -> Built:
    combos = request.combos
    note = f"module {request.num_modules - 1} is never seen: not a test of composition but its lower end"
    return _split(combos, ~combos[:, -1], note)


def _popular(request: Request) -> Built:
    """Everything that uses one of the first n modules, then a random part of what uses the next one."""
    combos = request.combos
    counts = [
        int(uses_any(combos, slice(size)).sum()) for size in range(1, request.num_modules + 1)
    ]
    size = sum(count <= request.num_seen for count in counts)
    if size == 0:
        raise ConfigError(
            f"support 'popular' needs at least {counts[0]} seen combinations (all that use one module); "
            f"{request.num_seen} asked: lower --frac-ood to {1 - counts[0] / len(combos):.4g} or less"
        )
    mask = uses_any(combos, slice(size))
    candidates = (
        np.flatnonzero(~mask & combos[:, size]) if size < request.num_modules else np.array([], int)
    )
    count = min(request.num_seen - int(mask.sum()), len(candidates))
    mask[request.rng.choice(candidates, count, replace=False)] = True
    return _split(combos, mask, f"modules 0 to {size - 1} are in every combination they can be in")


def _rare(request: Request) -> Built:
    """Everything within the first n modules; the others tied to module 0 once; then the first of them more often.

    The same for every seed, as in the reference.
    """
    combos, total = request.combos, request.num_modules
    core = max(
        (
            size
            for size in range(2, total)
            if count_combinations(size, min(size, request.num_hot)) + total - size
            <= request.num_seen
        ),
        default=0,
    )
    if core == 0 or request.num_hot < 2:
        fewest = count_combinations(2, min(2, request.num_hot)) + total - 2
        raise ConfigError(
            f"support 'rare' needs --hot of 2 or more and at least {fewest} seen combinations with {total} modules; "
            f"got --hot {request.num_hot} and {request.num_seen} seen"
        )
    mask = ~uses_any(combos, slice(core, None))
    pairs = combos.sum(axis=1) == 2
    mask |= pairs & combos[:, 0] & uses_any(combos, slice(core, None))
    first = (
        combos[:, core] & uses_any(combos, slice(core)) & ~uses_any(combos, slice(core + 1, None))
    )
    candidates = np.flatnonzero(first & ~mask)
    mask[candidates[: request.num_seen - int(mask.sum())]] = True
    return _split(
        combos,
        mask,
        f"modules {core + 1} to {total - 1} are seen once, with module 0; no randomness",
    )


SUPPORTS: dict[str, Callable[[Request], Built]] = {
    "random": _random,
    "balanced": _balanced,
    "connected": _connected,
    "disconnected": _disconnected,
    "disconnected-one": _disconnected_one,
    "popular": _popular,
    "rare": _rare,
    "omitted": _omitted,
}

FIXED = ("connected", "disconnected", "omitted")
"""They decide by themselves what is held out."""

ALIASES = {
    "equal": "balanced",
    "pseudo_random_disconnected": "disconnected-one",
    "non_compositional": "omitted",
    "popular_modules": "popular",
    "unpopular_modules": "rare",
}
