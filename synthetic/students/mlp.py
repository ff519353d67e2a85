"""The multilayer perceptron on the concatenation of task encoding and input."""

from jaxtyping import Float
from torch import Tensor, nn

from synthetic.students.layers import Embedder, Generators, Linear, Sizes, Tape, TaskLinear, note


class MLP(nn.Module):
    """[z, x] -> hidden layers of ReLU -> output, for several members at once (paper, appendix on models)."""

    orthogonal_steps = ("first", "hidden")
    """Parts whose matrices the fast recipe trains with Muon."""

    def __init__(self, sizes: Sizes, rngs: Generators) -> None:
        super().__init__()
        self.embed = Embedder(sizes, rngs)
        self.first = TaskLinear(self.embed.out_dim, sizes.x_dim, sizes.width, rngs)
        self.hidden = nn.ModuleList(
            Linear(sizes.width, sizes.width, rngs) for _ in range(sizes.depth - 1)
        )
        self.out = Linear(sizes.width, sizes.out_dim, rngs)

    def forward(
        self, z: Float[Tensor, "e b z"], x: Float[Tensor, "e b t x"], tape: Tape = None
    ) -> Float[Tensor, "e b t o"]:
        """Predictions; with a tape, also the activations before ("hidden.0/pre") and after ("/post") each ReLU."""
        shape = x.shape[:3]
        h = self.first.of_task(self.embed(z), x)
        note(tape, "hidden.0/pre", h)
        h = h.relu_().flatten(1, 2)
        note(tape, "hidden.0/post", h.view(*shape, -1))
        for number, layer in enumerate(self.hidden, start=1):
            h = layer(h)
            note(tape, f"hidden.{number}/pre", h.view(*shape, -1))
            h = h.relu_()
            note(tape, f"hidden.{number}/post", h.view(*shape, -1))
        y: Tensor = self.out(h).view(*shape, -1)
        note(tape, "output", y)
        return y
