"""What functions return: trees of every kind, transformers' outputs, aliases of inputs and of each other."""

import types
import typing
from dataclasses import dataclass

import torch

from .model import Call, Program, calls, program, rand


class Result(typing.NamedTuple):
    value: torch.Tensor
    aux: dict
    note: str = "none"


class Typed(typing.TypedDict):
    a: torch.Tensor
    b: int


class Plain:
    def __init__(self, **fields):
        self.__dict__.update(fields)


@dataclass
class Nested:
    inner: object
    more: list


@program
def named_tuple_class():
    def f(x):
        return Result(x + 1, {"k": x.sum(), "v": [1, (2, x)]})

    return Program(target=f, calls=calls(3))


@program
def typed_dict_and_plain():
    def f(x):
        return Typed(a=x, b=3), Plain(x=x * 2, y=Plain(z=[x])), types.SimpleNamespace(t=x - 1)

    return Program(target=f, calls=calls(3))


@program
def none_and_constants():
    def f(x):
        x + 1
        return None, True, 1.5, "text", b"bytes", ..., (), NotImplemented, 10**30, float("inf"), torch.float32, x.device

    return Program(target=f, calls=calls(3))


@program
def nothing():
    log = []

    def f(x):
        log.append(x * 2)

    return Program(target=f, calls=calls(3), observe=lambda: log)


@program
def model_output():
    from transformers.modeling_outputs import BaseModelOutput, SequenceClassifierOutput

    def f(x):
        out = BaseModelOutput(last_hidden_state=x * 2, hidden_states=(x, x + 1))
        if out.attentions is None and "hidden_states" in out and len(out) == 2:
            out["attentions"] = (x,)
        return out, out[0], out.to_tuple()[1], SequenceClassifierOutput(logits=out.last_hidden_state)

    return Program(target=f, calls=calls(3))


@program
def views_of_inputs():
    def f(x):
        return x.view(-1), x.T, x[0], x.detach(), x.expand(2, 2, 3), x.unsqueeze(0), x.reshape(3, 2)

    return Program(target=f, calls=calls(2, 3))


@program
def aliases_among_outputs():
    def f(x):
        y = x * 2
        return y, y.view(-1), y[0], [y, y], y.contiguous(), y.to(torch.float32), y.float()

    return Program(target=f, calls=calls(2, 3))


@program
def parameters_returned():
    weight = torch.nn.Parameter(rand(3, 3, seed=4))

    def f(x):
        return x @ weight, weight, weight.data, weight.t()

    return Program(target=f, calls=calls(2, 3), observe=lambda: weight)


@program
def functions_returned():
    def f(x):
        y = x * 2

        def later(t):
            return t + y

        return later, torch.relu, len

    def target(x):
        later, relu, length = f(x)
        return later(x), relu(x), length([x]), relu is torch.relu

    return Program(target=target, calls=calls(3))


@program
def closure_escapes():
    def f(x):
        y = x * 2
        return {"fn": lambda t: t + y, "y": y}

    return Program(target=f, calls=calls(3), served="any")


@program
def generator_escapes():
    def f(x):
        return (x * i for i in range(3))

    return Program(target=f, calls=calls(3), served="native")


@program
def return_types():
    def f(x):
        m = x.max(dim=1)
        s = torch.sort(x, descending=True)
        return m, m.values, m.indices, s[0], torch.topk(x, 2), torch.linalg.qr(x).R

    return Program(target=f, calls=calls(3, 4))


@program
def sizes_returned():
    def f(x):
        return (
            x.shape,
            x.size(),
            x.stride(),
            x.shape[1:],
            torch.Size([1, 2]),
            x.shape.numel(),
            x.size(-1),
            list(x.shape),
        )

    return Program(target=f, calls=calls(2, 3))


@program
def shapes_change():
    def f(x):
        b, n = x.shape
        return x.reshape(n, b) * b + torch.arange(b), f"{b}x{n}"

    entries = [Call((rand(2, 3, seed=1),)), Call((rand(4, 3, seed=2),)), Call((rand(2, 3, seed=3),))]
    return Program(target=f, calls=entries, misses=1)


@program
def dtypes_change():
    def f(x):
        return x * 2 if x.dtype == torch.float32 else x + 1

    entries = [Call((rand(2, seed=1),)), Call((rand(2, seed=2).double(),)), Call((rand(2, seed=3),))]
    return Program(target=f, calls=entries, misses=1)


@program
def scalars_change():
    def f(x, k, flag):
        return x * k if flag else x + k

    entries = [Call((rand(2, seed=1), 2, True)), Call((rand(2, seed=2), 2.0, True)), Call((rand(2, seed=3), 2, 1))]
    return Program(target=f, calls=entries, served="any")
