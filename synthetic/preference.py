"""The compositional preference grid: tasks are mixtures of preferences over the objects of a four-room grid.

A task z gives object kind f the worth sum_m z_m B_mf, with a fixed Gaussian basis B; the student imitates the optimal
policy (paper, section 2 and appendix on the preference grid).
"""

import torch
from jaxtyping import Float
from torch import Tensor

from synthetic.grid import ACTIONS, ROOMS, Boards, Episodes, demonstrate, draw_boards, observe, plan
from t2iprobe.errors import ConfigError
from t2iprobe.seeding import generator


class PreferenceGrid:
    """The preference basis, drawn once from the teacher's own seed.

    Attributes:
        basis: (m, f) float64, what each preference gives to each kind of object.
    """

    def __init__(
        self,
        num_modules: int = 8,
        num_features: int = 16,
        num_objects: int = 4,
        horizon: int = 8,
        discount: float = 0.9,
        stationary: bool = True,
        seed: int = 0,
    ) -> None:
        if num_features < num_modules:
            raise ConfigError(
                f"--features {num_features}: must be at least the number of modules ({num_modules}), "
                "or preferences cannot be told apart"
            )
        if not 1 <= num_objects <= 10:
            raise ConfigError(f"--objects {num_objects}: must be 1 to 10")
        if horizon < 1:
            raise ConfigError(f"--horizon {horizon}: must be at least 1")
        if not 0 <= discount < 1:
            raise ConfigError(
                f"--discount {discount:g}: must be 0 to below 1; at 1 waiting would cost nothing"
            )
        self.num_modules, self.num_features, self.num_objects = (
            num_modules,
            num_features,
            num_objects,
        )
        self.horizon, self.discount, self.stationary = horizon, discount, stationary
        rng = generator("teacher", "preferences", seed)
        self.basis = torch.randn(num_modules, num_features, generator=rng, dtype=torch.float64)
        self.input_dim = ROOMS.size**2 * (num_features + 2)
        self.output_dim = len(ACTIONS)

    def draw_boards(self, num_tasks: int, rng: torch.Generator) -> Boards:
        """Boards of random places and kinds."""
        return draw_boards(num_tasks, self.num_objects, self.num_features, rng)

    def worth(self, task_latents: Float[Tensor, "b m"], boards: Boards) -> Float[Tensor, "b n"]:
        """The reward for each object; objects of one kind have exactly the same."""
        return (task_latents.double() @ self.basis).gather(1, boards.features)

    def demonstrate(self, task_latents: Float[Tensor, "b m"], boards: Boards) -> Episodes:
        """What the optimal policy does on each board."""
        worth = self.worth(task_latents, boards)
        return demonstrate(boards, worth, self.horizon, self.discount, self.stationary)

    def observe(self, boards: Boards, episodes: Episodes) -> Float[Tensor, "b t d"]:
        """What is seen before each action; once an episode is over, what would be seen in staying on (not scored)."""
        return observe(boards, episodes.cells, episodes.sets, self.num_features)

    def values_along(
        self, task_latent: Float[Tensor, " m"], boards: Boards, episodes: Episodes
    ) -> Float[Tensor, "b t a"]:
        """Q of every action under another task's preferences, in the states of given episodes (for baselines)."""
        worth = self.worth(task_latent.expand(len(boards.agent), -1), boards)
        arrival = plan(boards, worth, self.horizon, self.discount)[-1]
        rows = torch.arange(len(boards.agent)).view(-1, 1, 1)
        return arrival[ROOMS.move[episodes.cells], rows, episodes.sets.unsqueeze(2)]
