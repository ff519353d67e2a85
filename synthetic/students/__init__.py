"""Networks that learn the tasks. To add one: write one file, add one line here, add one test."""

STUDENTS = {
    "mlp": "synthetic.students.mlp:MLP",
    "transformer": "synthetic.students.transformer:Transformer",
    "hypernetwork": "synthetic.students.hypernetwork:Hypernetwork",
}
