"""Supports drawn at random: uniformly, or with every module used equally often."""

import numpy as np

from synthetic.supports.combos import Bools, Ints, all_combinations, codes, is_compositional
from t2iprobe.errors import ConfigError

ATTEMPTS = 60


def random_seen(num_modules: int, num_hot: int, num_seen: int, rng: np.random.Generator) -> Bools:
    """(N,) mask of a uniform draw among the sets that use and join all modules.

    By rejection, as in the reference; where that finds none (sets near the smallest possible one), a random chain of
    combinations that joins all modules is laid first and the rest is drawn uniformly.
    """
    combos = all_combinations(num_modules, num_hot)
    for _ in range(ATTEMPTS):
        mask = _draw(len(combos), num_seen, rng)
        if is_compositional(combos[mask]):
            return mask
    chain = _chain(combos, num_hot, rng)
    return _fill(chain, num_seen, rng)


def balanced_seen(num_modules: int, num_hot: int, num_seen: int, rng: np.random.Generator) -> Bools:
    """(N,) mask of a joined draw in which the usage of any two modules differs by at most 1.

    Raises:
        ConfigError: no such draw was found at this size.
    """
    combos = all_combinations(num_modules, num_hot)
    nothing = np.zeros(len(combos), dtype=bool)
    for attempt in range(2 * ATTEMPTS):
        fixed = nothing if attempt < ATTEMPTS else _chain(combos, num_hot, rng)
        mask = _balance(combos, _fill(fixed, num_seen, rng), fixed, rng)
        usage = combos[mask].sum(axis=0)
        if usage.max() - usage.min() <= 1 and is_compositional(combos[mask]):
            return mask
    raise ConfigError(
        f"no balanced and connected support of {num_seen} tasks was found for {num_modules} modules, "
        f"{num_hot} hot: ask for more training tasks, or use --support random"
    )


def _draw(num_all: int, num_seen: int, rng: np.random.Generator) -> Bools:
    mask = np.zeros(num_all, dtype=bool)
    mask[rng.choice(num_all, num_seen, replace=False)] = True
    return mask


def _fill(fixed: Bools, num_seen: int, rng: np.random.Generator) -> Bools:
    """A mask of num_seen rows that holds the fixed ones and a uniform draw of the others."""
    mask = fixed.copy()
    others = np.flatnonzero(~fixed)
    mask[rng.choice(others, num_seen - int(fixed.sum()), replace=False)] = True
    return mask


def _chain(combos: Bools, num_hot: int, rng: np.random.Generator) -> Bools:
    """The mask of a smallest set that joins all modules, each link sharing one module with the one before."""
    num_modules = combos.shape[1]
    order = rng.permutation(num_modules)
    links = np.zeros((0, num_modules), dtype=bool)
    start = 0
    while start < num_modules - 1 or len(links) == 0:
        link = np.zeros((1, num_modules), dtype=bool)
        link[0, order[start : start + num_hot]] = True
        links = np.concatenate([links, link])
        start += max(num_hot - 1, 1)
    return np.isin(codes(combos), codes(links))


def _balance(combos: Bools, mask: Bools, fixed: Bools, rng: np.random.Generator) -> Bools:
    """Exchange combinations with their twins until usages differ by at most 1, or nothing more can be exchanged.

    The twin of a combination that uses i and not j uses j in the place of i. With usage(i) >= usage(j) + 2 there are
    at least two seen combinations with an unseen twin, so without fixed rows this always ends balanced.
    """
    all_codes = codes(combos)
    order = np.argsort(all_codes)
    sorted_codes = all_codes[order]
    mask = mask.copy()
    usage = combos[mask].sum(axis=0)
    while usage.max() - usage.min() > 1:
        most, least = int(usage.argmax()), int(usage.argmin())
        rows = np.flatnonzero(mask & ~fixed & combos[:, most] & ~combos[:, least])
        flip = np.int64((1 << most) | (1 << least))
        twins: Ints = order[np.searchsorted(sorted_codes, all_codes[rows] ^ flip)]
        free = ~mask[twins]
        rows, twins = rows[free], twins[free]
        count = min(len(rows), int(usage[most] - usage[least]) // 2)
        if count == 0:
            return mask
        chosen = rng.choice(len(rows), count, replace=False)
        mask[rows[chosen]] = False
        mask[twins[chosen]] = True
        usage[most] -= count
        usage[least] += count
    return mask
