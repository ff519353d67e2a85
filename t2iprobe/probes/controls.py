"""Controls: what a probe reaches with nothing to find, and what the prompt's words give for free.

**Shuffled labels.** Hewitt and Liang (2019, *Designing and Interpreting Probes with Control Tasks*,
arXiv 1909.03368) pair a probe with a control task whose outputs are random but fixed for each input
type, and call the difference of the two results *selectivity*: a probe that does well on random
outputs reads little from the representation. Here the type is the
task: target rows are permuted between tasks, never between images, so all seeds of a task keep one
common answer. As tasks are held out whole, the R2 of the control should be near 0 (below it by the
cost of fitting noise); one clearly above 0 shows that something leaks between folds. Controls are
further columns of the same solve and so nearly free.

**Bag of words.** A text encoder reads the words, so that presence can be decoded from it trivially.
Word counts of the prompt, put through the same probe, are the baseline its decodability has to be
read against.
"""

import re
from collections.abc import Sequence

import numpy as np
from jaxtyping import Float, Real

from t2iprobe.errors import DataError
from t2iprobe.seeding import derive

SHUFFLED = "shuffled/"
_WORD = re.compile(r"[^\W_]+(?:['’-][^\W_]+)*")


def shuffle_between_tasks(
    Y: Real[np.ndarray, "n c"], tasks: Sequence[str], seed: int
) -> Real[np.ndarray, "n c"]:
    """Targets with the rows permuted between tasks; the images of a task still agree.

    Args:
        Y: (n, c) targets, equal for all rows of a task.
        tasks: (n,) task of each row.
        seed: run seed; the permutation depends on it and on the order of tasks only.

    Raises:
        DataError: rows of one task have different targets.
    """
    number: dict[str, int] = {}
    index = np.array([number.setdefault(task, len(number)) for task in tasks], dtype=np.intp)
    _, first = np.unique(index, return_index=True)
    if not np.array_equal(Y[first][index], Y):
        raise DataError(
            "rows of one task have different targets: targets belong to the task, not to the image"
        )
    order = np.random.default_rng(derive("shuffled-labels", seed)).permutation(len(first))
    return np.asarray(Y[first[order]][index])


def with_controls(
    Y: Real[np.ndarray, "n c"], column_groups: Sequence[str], tasks: Sequence[str], seed: int
) -> tuple[Real[np.ndarray, "n e"], tuple[str, ...]]:
    """Targets followed by their shuffled copies, and all groups ("shuffled/..." for copies)."""
    shuffled = shuffle_between_tasks(Y, tasks, seed)
    groups = (*column_groups, *(SHUFFLED + group for group in column_groups))
    return np.concatenate([Y, shuffled], axis=1), groups


def words(prompt: str) -> list[str]:
    """Words of a prompt in lower case, without punctuation; "t-shirt" is one word."""
    return _WORD.findall(prompt.lower())


def bag_of_words(prompts: Sequence[str]) -> tuple[Float[np.ndarray, "n v"], tuple[str, ...]]:
    """Counts of each word in each prompt, and the words, sorted.

    Example:
        >>> bag_of_words(["a red cube", "a cube, a ball"])
        (array([[1., 0., 1., 1.],
               [2., 1., 1., 0.]]), ('a', 'ball', 'cube', 'red'))
    """
    found = [words(prompt) for prompt in prompts]
    vocabulary = tuple(sorted({word for row in found for word in row}))
    column = {word: v for v, word in enumerate(vocabulary)}
    counts = np.zeros((len(prompts), len(vocabulary)))
    for n, row in enumerate(found):
        for word in row:
            counts[n, column[word]] += 1.0
    return counts, vocabulary
