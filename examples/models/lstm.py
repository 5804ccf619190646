"""A stacked LSTM written as Python loops over its cells, after Hochreiter and Schmidhuber (1997)."""

import torch
from torch import Tensor, nn

State = tuple[Tensor, Tensor]


class LSTMCell(nn.Module):
    """One step of one layer; the four gates come from one matrix product each for input and state."""

    def __init__(self, inputs: int, hidden: int) -> None:
        super().__init__()
        self.hidden = hidden
        self.from_input = nn.Linear(inputs, 4 * hidden)
        self.from_state = nn.Linear(hidden, 4 * hidden, bias=False)

    def forward(self, x: Tensor, state: State) -> State:
        h, c = state
        gates = self.from_input(x) + self.from_state(h)
        i, f, g, o = gates.chunk(4, dim=-1)
        c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
        h = torch.sigmoid(o) * torch.tanh(c)
        return h, c


class LSTM(nn.Module):
    """Layers of cells, run step by step.

    Args:
        inputs: Features of an input step.
        hidden: Features of the state.
        layers: How many layers there are.
    """

    def __init__(self, inputs: int = 32, hidden: int = 64, layers: int = 2) -> None:
        super().__init__()
        self.cells = nn.ModuleList(LSTMCell(inputs if n == 0 else hidden, hidden) for n in range(layers))
        self.hidden = hidden
        self.head = nn.Linear(hidden, 10)

    def initial_state(self, x: Tensor) -> State:
        """A state of zeros [batch, hidden] on the input's device."""
        zeros = torch.zeros(x.size(0), self.hidden, dtype=x.dtype, device=x.device)
        return zeros, zeros.clone()

    def forward(self, x: Tensor, states: list[State] | None = None) -> tuple[Tensor, list[State]]:
        """Scores [batch, time, 10] and the final states for x [batch, time, inputs]."""
        if states is None:
            states = [self.initial_state(x) for _ in self.cells]
        states = list(states)
        outputs = []
        for t in range(x.size(1)):
            step = x[:, t]
            for n, cell in enumerate(self.cells):
                states[n] = cell(step, states[n])
                step = states[n][0]
            outputs.append(self.head(step))
        return torch.stack(outputs, dim=1), states
