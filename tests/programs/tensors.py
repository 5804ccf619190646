"""Tensor operations with Python around them."""

import random
import time

import numpy as np
import torch
import torch.nn.functional as F
from torch.autograd import Variable

from .model import Call, Program, calls, ints, program, rand


@program
def inplace_on_locals():
    def f(x):
        y = x.clone()
        y.add_(1).mul_(2)
        y[0] = 0
        y[:, 1] += x[:, 0]
        y[y.shape[0] - 1, ...] = x[0]
        z = torch.zeros(3, 3)
        z.copy_(y)
        z.fill_diagonal_(5.0)
        z[torch.tensor([0, 2])] = 7.0
        return y, z, z.masked_fill_(z > 6, 1.0) is z

    return Program(target=f, calls=calls(3, 3))


@program
def inplace_on_inputs():
    def f(x, out):
        x.mul_(2)
        out[:2] = x[:2]
        out += 1
        torch.add(x, 1, out=out)
        return out

    return Program(target=f, calls=calls(4, count=2))


@program
def inplace_through_views():
    def f(x):
        first = x[0]
        first.zero_()
        flat = x.view(-1)
        flat[-1] = 9.0
        return x.sum(), first, flat

    return Program(target=f, calls=calls(3, 2))


@program
def size_arithmetic():
    def f(x):
        b, c, *spatial = x.shape
        h, w = spatial
        n = x.size(0) * x.shape[1]
        new = x.shape[:2] + (h * w,)
        y = x.view(*new).transpose(1, 2)
        grid = torch.arange(h)[:, None] * w + torch.arange(w)
        pad = (-h) % 4, (w + 3) // 4
        return y.reshape(b, h, w, -1), grid, n, pad, len(x.shape), x.numel() // c, y.shape == (b, h * w, c)

    return Program(target=f, calls=calls(2, 3, 4, 5))


@program
def einops_like():
    def rearrange(x, pattern, **sizes):
        left, right = (side.split() for side in pattern.split("->"))
        for name, size in zip(left, x.shape):
            assert sizes.setdefault(name, size) == size
        x = x.permute(*(left.index(name) for name in right if name not in "()"))
        shape, group = [], None
        for name in right:
            if name == "(":
                group = 1
            elif name == ")":
                shape.append(group)
                group = None
            elif group is not None:
                group *= sizes[name]
            else:
                shape.append(sizes[name])
        return x.reshape(shape)

    def f(x):
        heads = rearrange(x, "b n h d -> b h n d")
        scores = torch.einsum("bhid,bhjd->bhij", heads, heads).softmax(-1)
        out = torch.einsum("bhij,bhjd->bhid", scores, heads)
        return rearrange(out, "b h n d -> b n ( h d )"), rearrange(x, "b n h d -> ( b n ) h d", h=2)

    return Program(target=f, calls=calls(2, 3, 2, 4))


@program
def creation():
    def f(x):
        n = x.shape[0]
        parts = [
            torch.zeros(n), torch.ones(n, 2), torch.full((n,), 3.0), torch.arange(n), torch.linspace(0, 1, n), torch.eye(n),
            torch.empty_like(x).fill_(1), x.new_ones(2), x.new_tensor([1.0, 2.0]), torch.tensor([[1, 2], [3, n]]),
            torch.zeros_like(x, dtype=torch.int64), torch.as_tensor([1.0, n]), torch.tril(torch.ones(n, n)).bool(),
        ]  # fmt: skip
        return parts, torch.meshgrid(torch.arange(2), torch.arange(n), indexing="ij")

    return Program(target=f, calls=calls(3))


@program
def joining_and_splitting():
    def f(x):
        a, b = x.chunk(2, dim=1)
        c, d, e = torch.split(x, [1, 2, 1], dim=1)
        rows = x.unbind(0)
        f1 = x.split(2, dim=0)
        parts = [
            torch.cat([a, b], 1),
            torch.stack([c, e], -1),
            torch.hstack([d, c]),
            torch.cat(rows),
            torch.vstack(rows),
        ]
        return parts, f1, x.tensor_split(3, dim=1), x.repeat(1, 2), x.repeat_interleave(2, dim=0), x.roll(1, 0)

    return Program(target=f, calls=calls(4, 4))


@program
def indexing_and_masks():
    def f(x, ids):
        mask = x > 0
        a = torch.where(mask, x, torch.zeros_like(x))
        b = x.masked_fill(~mask, -1.0)
        c = x.gather(1, ids)
        d = torch.zeros_like(x).scatter_(1, ids, 1.0)
        e = x.index_select(0, torch.tensor([0, 2]))
        g = F.one_hot(ids, 4).sum(1)
        h = x[torch.arange(3), ids[:, 0]]
        return a, b, c, d, e, g, h, mask.any(), mask.float().mean(dim=-1, keepdim=True), x.clamp(min=0), ids.flip(-1)

    entries = [Call((rand(3, 4, seed=s), ints(3, 2, high=4, seed=s))) for s in (1, 2)]
    return Program(target=f, calls=entries)


@program
def dtype_and_device():
    def f(x):
        device = x.device if x.is_cuda else torch.device("cpu")
        y = x.to(device, dtype=torch.float64, non_blocking=True).to(x)
        half = x.half().float()
        same = x.to("cpu")
        z = x.type(torch.int32) if x.dtype.is_floating_point else x
        eps = torch.finfo(x.dtype).eps
        return (
            y,
            half,
            same is x,
            z,
            x.type_as(z),
            eps,
            x.cpu(),
            str(x.device),
            x.dtype,
            x.long().bool(),
            x.is_contiguous(),
        )

    return Program(target=f, calls=calls(3))


@program
def metadata_branches():
    def f(x, y=None):
        if torch.is_tensor(x) and not x.requires_grad and x.ndim == 2 and x.is_floating_point():
            x = x + 1
        if y is None:
            y = x
        elif y.shape != x.shape:
            y = y.expand_as(x)
        if x.size(0) == x.shape[1] or isinstance(y, int):
            return x @ y
        return x * y, x.nelement(), x.is_sparse, x.layout == torch.strided, torch.is_complex(x), torch.numel(y)

    return Program(target=f, calls=calls(2, 3))


@program
def functional_wrappers():
    def f(x):
        parts = [
            F.relu(x), F.gelu(x, approximate="tanh"), F.softmax(x, dim=1), F.log_softmax(x, -1), F.dropout(x, 0.5, False),
            F.layer_norm(x, x.shape[1:]), F.normalize(x, dim=-1), F.silu(x), F.softplus(x), F.hardtanh(x), F.glu(x, 1),
            F.cosine_similarity(x, x + 1), F.threshold(x, 0.1, 0.0), F.selu(x), F.mish(x), F.elu(x), F.prelu(x, x.new_ones(1)),
        ]  # fmt: skip
        image = x.view(1, 1, *x.shape)
        pooled, where = F.max_pool2d(image, 2, return_indices=True)
        grid = F.affine_grid(torch.eye(2, 3)[None], [1, 1, 4, 4], align_corners=False)
        parts += [F.avg_pool2d(image, 2), pooled, where, F.interpolate(image, size=(3, 3)), F.unfold(image, 2)]
        parts += [F.grid_sample(image, grid, align_corners=False), F.max_unpool2d(pooled, where, 2)]
        return parts, F.scaled_dot_product_attention(image, image, image, is_causal=True)

    return Program(target=f, calls=calls(4, 4))


@program
def tensor_methods_in_python():
    def f(x):
        return (
            x.norm(),
            x.split(1),
            x.unflatten(0, (2, 2)),
            x.unique_consecutive is not None,
            x.T.mT,
            reversed(x),
            -x,
            2 - x,
            2 / x,
            2**x,
            x.__len__(),
        )

    return Program(target=f, calls=calls(4, 4))


@program
def comparisons_and_dunders():
    def f(x, y):
        return (
            x == y,
            x != 0,
            x < y,
            ~(x > y),
            (x > 0) & (y > 0),
            x // 2,
            x % 3,
            abs(x),
            +x,
            divmod(7, 2),
            x @ y,
            y.__rsub__(1),
        )

    return Program(target=f, calls=calls(3, 3, count=2))


@program
def variables():
    def f(x):
        h = Variable(torch.zeros(x.size(0), 3))
        v = Variable(x, requires_grad=False)
        return h + v, v is x

    return Program(target=f, calls=calls(2, 3))


@program
def detach_and_data():
    def f(x):
        y = x.detach().clone()
        y.requires_grad_(False)
        return y, x.data + 1, y.requires_grad, y.is_leaf, y.grad is None, y.grad_fn is None

    return Program(target=f, calls=calls(3), served="any")


@program
def requires_grad_assignment():
    def f(x):
        y = x.clone()
        y.requires_grad = True
        with torch.no_grad():
            z = y * 2
        return z, y.requires_grad

    return Program(target=f, calls=calls(3), served="any")


@program
def random_numbers():
    def f(x):
        noise = torch.randn_like(x)
        keep = torch.rand(x.shape) > 0.5
        return x + noise * keep, torch.randperm(4), F.dropout(x, 0.3, training=True), torch.bernoulli(x.sigmoid())

    return Program(target=f, calls=calls(3, 3))


@program
def python_random():
    def f(x):
        return x * random.random() if random.randint(0, 9) >= 0 else x

    return Program(target=f, calls=calls(3), served="native", reason="impure-call")


@program
def clock():
    log = []

    def f(x):
        log.append(time.perf_counter() > 0)
        return x + 1

    return Program(target=f, calls=calls(3), observe=lambda: log, served="split", misses=1, reason="impure-call")


@program
def item():
    def f(x):
        return x * x.sum().item()

    return Program(target=f, calls=calls(3), served="split", misses=1, reason="tensor-value")


@program
def data_dependent_branch():
    def f(x):
        return x * 2 if x.sum() > 0 else x - 1

    return Program(target=f, calls=calls(3), served="split", misses=1, reason="tensor-value")


@program
def boolean_mask():
    def f(x):
        return x[x > 0].sum()

    return Program(target=f, calls=calls(8))


@program
def to_numpy_and_back():
    def f(x):
        a = x.numpy() * 2
        return torch.from_numpy(a) + 1

    return Program(target=f, calls=calls(3), served="any")


@program
def numpy_config():
    anchors = np.array([1.0, 2.0, 4.0])

    def f(x):
        sizes = [int(a) for a in anchors]
        n = int(np.prod(x.shape))
        return x * float(np.sqrt(n)) + sum(sizes) + np.pi, n

    return Program(target=f, calls=calls(3), served="any")


@program
def printing():
    def f(x):
        print("shape", tuple(x.shape))
        return x + 1

    return Program(target=f, calls=calls(3), served="any")


@program
def complex_and_fft():
    def f(x):
        z = torch.fft.rfft(x)
        return z.abs(), z.real, torch.fft.irfft(z * 1j), torch.view_as_real(z), torch.complex(x, x).angle()

    return Program(target=f, calls=calls(8))


@program
def linear_algebra():
    def f(x):
        a = x @ x.T + torch.eye(3)
        return (
            torch.linalg.inv(a),
            torch.linalg.norm(a),
            torch.bmm(a[None], a[None]),
            torch.det(a),
            a.trace(),
            torch.outer(x[0], x[1]),
        )

    return Program(target=f, calls=calls(3, 3))


@program
def same_tensor_twice():
    def f(a, b):
        a.add_(1)
        return a * b, a is b

    one, two = rand(3, seed=1), rand(3, seed=2)
    return Program(target=f, calls=[Call((one, one)), Call((two, two))])


@program
def tensors_in_closures_change():
    box = {"bias": rand(3, seed=3)}

    def between(number):
        if number == 1:
            box["bias"] = rand(3, seed=4)
        if number == 2:
            box["bias"].add_(1)

    def f(x):
        return x + box["bias"]

    # Another tensor with the same metadata: whether it needs a record of its own is MagPy's choice; right it must be.
    return Program(target=f, calls=calls(3), between=between, served="any")


@program
def beam_like_loop():
    weight = rand(6, 6, seed=8)

    def f(x):
        scores, paths = torch.zeros(x.shape[0]), []
        for step in range(3):
            logits = (x @ weight).log_softmax(-1)
            best, index = logits.max(-1)
            scores = scores + best
            paths.append(index)
            x = F.one_hot(index, 6).float() + x * 0.5
        return scores, torch.stack(paths, 1)

    return Program(target=f, calls=calls(2, 6))
