"""torch.nn: containers, recurrent and attention modules, norms in training, hooks, buffers, tying, parametrizations."""

import torch
import torch.nn.functional as F
from torch import nn

from .model import Call, Program, calls, ints, program, rand


def seeded(make):
    torch.manual_seed(0)
    return make()


@program
def module_containers():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.stem = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.LayerNorm(8))
            self.layers = nn.ModuleList(nn.Linear(8, 8) for _ in range(3))
            self.acts = nn.ModuleDict({"relu": nn.ReLU(), "gelu": nn.GELU()})
            self.scales = nn.ParameterList(nn.Parameter(torch.ones(8) * i) for i in range(3))
            self.named = nn.ParameterDict({"bias": nn.Parameter(torch.zeros(8))})
            self.head = nn.Sequential(*[nn.Linear(8, 2), nn.Identity(), nn.Dropout(0.5)])

        def forward(self, x, act="gelu"):
            x = self.stem(x)
            for i, (layer, scale) in enumerate(zip(self.layers, self.scales)):
                x = self.acts[act](layer(x)) * scale + (self.layers[i - 1].bias if i else 0)
            x = x + self.named["bias"] * len(self.layers)
            return self.head(x), [name for name, _ in self.named_children()], "relu" in self.acts

    return Program(target=seeded(Net), calls=calls(2, 4))


@program
def convolutional():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.c1, self.bn = nn.Conv2d(1, 4, 3, padding="same", padding_mode="reflect"), nn.BatchNorm2d(4)
            self.up = nn.ConvTranspose2d(4, 2, 2, stride=2)
            self.pool = nn.AdaptiveAvgPool2d(1)
            self.gn = nn.GroupNorm(2, 4)

        def forward(self, x):
            y = F.leaky_relu(self.gn(self.bn(self.c1(x))), 0.1, inplace=True)
            skip = F.interpolate(y, scale_factor=0.5, mode="bilinear", align_corners=False)
            z = self.up(F.max_pool2d(y, 2) + skip)
            return F.pad(z, (1, 1, 0, 0)), self.pool(z).flatten(1)

    return Program(target=seeded(Net), calls=calls(1, 1, 8, 8))


@program
def weight_tying():
    class LM(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed = nn.Embedding(10, 6, padding_idx=0)
            self.out = nn.Linear(6, 10, bias=False)
            self.out.weight = self.embed.weight

        def forward(self, ids):
            return self.out(self.embed(ids)), self.out.weight is self.embed.weight

    return Program(target=seeded(LM), calls=[Call((ints(2, 3, high=10, seed=s),)) for s in (1, 2)], grad=True)


@program
def batch_norm_training():
    net = seeded(lambda: nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4)))
    return Program(target=net, calls=calls(6, 4), train=True)


@program
def dropout_training():
    net = seeded(lambda: nn.Sequential(nn.Linear(4, 16), nn.Dropout(0.5), nn.Linear(16, 2)))
    return Program(target=net, calls=calls(6, 4), train=True)


@program
def train_eval_flips():
    net = seeded(lambda: nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Dropout(0.1)))
    return Program(target=net, calls=calls(6, 4), between=lambda n: net.train(n == 2), misses=1)


@program
def lstm_module():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.lstm = nn.LSTM(3, 5, num_layers=2, batch_first=True, bidirectional=True)
            self.head = nn.Linear(10, 1)

        def forward(self, x):
            y, (h, c) = self.lstm(x)
            return self.head(y[:, -1]), h, c

    return Program(target=seeded(Net), calls=calls(2, 4, 3))


@program
def gru_and_cells():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.gru, self.rnn = nn.GRU(3, 4), nn.RNN(4, 4, nonlinearity="relu")
            self.cell = nn.LSTMCell(4, 4)

        def forward(self, x, h=None):
            y, h = self.gru(x, h)
            z, _ = self.rnn(y)
            state = (z[0], z[1])
            for t in range(z.shape[0]):
                state = self.cell(z[t], state)
            return state, h

    return Program(target=seeded(Net), calls=calls(5, 2, 3))


@program
def multihead_attention():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.att = nn.MultiheadAttention(8, 2, batch_first=True)

        def forward(self, x, mask=None):
            causal = torch.triu(torch.full((x.size(1), x.size(1)), float("-inf")), diagonal=1)
            y, w = self.att(x, x, x, attn_mask=causal, need_weights=True)
            z, none = self.att(x, x, x, need_weights=False)
            return y, w, z, none

    return Program(target=seeded(Net), calls=calls(2, 4, 8))


@program
def transformer_encoder_without_mask():
    layer = seeded(lambda: nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, dropout=0.0))
    return Program(target=nn.TransformerEncoder(layer, 2), calls=calls(2, 5, 8), compiling=True)


@program
def transformer_encoder_with_padding():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, dropout=0.0)
            self.encoder = nn.TransformerEncoder(layer, 2)

        def forward(self, x, padding):
            return self.encoder(x, src_key_padding_mask=padding)

    padding = torch.zeros(2, 5, dtype=torch.bool)
    padding[1, 3:] = True
    entries = [Call((rand(2, 5, 8, seed=s), padding.clone())) for s in (1, 2)]
    # Eager's fast path makes nested tensors, whose shapes depend on the mask's values; it is not taken while compiling.
    return Program(target=seeded(Net), calls=entries, compiling=True)


@program
def transformer_whole():
    net = seeded(lambda: nn.Transformer(8, 2, 1, 1, 16, dropout=0.0, batch_first=True))
    return Program(target=net, calls=calls(2, 3, 8, count=2), compiling=True, train=True)


@program
def hooks():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(3, 3), nn.Linear(3, 3)

        def forward(self, x):
            return self.b(self.a(x))

    net, seen = seeded(Net), {}

    def keep(module, args, output):
        seen["a"] = output
        return output * 2

    def before(module, args):
        seen.setdefault("order", []).append(type(module).__name__)
        return (args[0] + 1,)

    net.a.register_forward_hook(keep)
    net.b.register_forward_pre_hook(before)
    net.register_forward_hook(lambda m, args, kwargs, out: {"out": out}, with_kwargs=True)
    # The first call adds the list, later ones find it.
    return Program(target=net, calls=calls(2, 3), observe=lambda: seen, misses=1)


@program
def buffers_updated():
    class Ema(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("mean", torch.zeros(3))
            self.register_buffer("count", torch.tensor(0))
            self.register_buffer("cache", None, persistent=False)

        def forward(self, x):
            self.mean.mul_(0.9).add_(x.mean(0), alpha=0.1)
            self.count += 1
            self.mean = self.mean * 1.0
            return (x - self.mean) / self.count

    return Program(target=Ema(), calls=calls(4, 3))


@program
def lazy_cache():
    class Positions(nn.Module):
        def __init__(self):
            super().__init__()
            self.cache = None

        def forward(self, x):
            if self.cache is None or self.cache.shape[0] < x.shape[0]:
                self.cache = torch.arange(x.shape[0], dtype=x.dtype)[:, None]
            return x + self.cache[: x.shape[0]]

    return Program(target=Positions(), calls=calls(4, 3), misses=1)


@program
def attributes_of_the_module():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.lin = nn.Linear(3, 3)
            self.last, self.history, self.info = None, [], {}

        def forward(self, x):
            y = self.lin(x)
            self.last = y
            self.history.append(y.detach())
            self.info["shape"] = tuple(y.shape)
            self.lin.extra = 3
            return y * 2

    return Program(target=seeded(Net), calls=calls(2, 3))


@program
def submodule_replaced():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.block = nn.Linear(3, 3)

        def forward(self, x):
            return self.block(x)

    net = seeded(Net)
    spare = nn.Sequential(nn.Linear(3, 3), nn.Tanh())

    def between(number):
        if number == 2:
            net.block = spare

    return Program(target=net, calls=calls(2, 3), between=between, misses=1)


@program
def parameters_walked():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 1))

        def forward(self, x):
            penalty = sum(p.pow(2).sum() for p in self.parameters() if p.requires_grad)
            names = [n for n, _ in self.named_parameters()]
            kinds = [type(m).__name__ for m in self.modules() if not list(m.children())]
            return self.net(x).mean() + 0.01 * penalty, names, kinds, len(self.state_dict())

    return Program(target=seeded(Net), calls=calls(2, 3), grad=True)


@program
def forward_variants():
    class Base(nn.Module):
        def __init__(self):
            super().__init__()
            self.lin = nn.Linear(3, 3)

        def encode(self, x):
            return self.lin(x)

        def forward(self, x, *args, return_dict=True, **kwargs):
            return self.encode(x)

    class Sub(Base):
        def forward(self, x, **kwargs):
            y = super().forward(x, 1, 2, **kwargs)
            return {"y": y, "n": len(kwargs)} if kwargs.pop("return_dict", False) else y

    return Program(target=seeded(Sub), calls=calls(2, 3, return_dict=True, flag=None))


@program
def weight_norm_and_spectral():
    def make():
        return nn.Sequential(
            nn.utils.parametrizations.weight_norm(nn.Linear(4, 4)),
            nn.utils.parametrizations.orthogonal(nn.Linear(4, 4)),
        )

    return Program(target=seeded(make), calls=calls(2, 4), served="any")


@program
def old_weight_norm():
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        net = seeded(lambda: nn.utils.weight_norm(nn.Conv1d(2, 3, 3)))
    return Program(target=net, calls=calls(1, 2, 6))


@program
def losses():
    def f(logits, target):
        a = F.cross_entropy(logits, target, label_smoothing=0.1)
        b = nn.NLLLoss(reduction="sum")(F.log_softmax(logits, 1), target)
        c = F.mse_loss(logits, torch.zeros_like(logits))
        d = nn.SmoothL1Loss()(logits, logits * 2)
        e = F.binary_cross_entropy_with_logits(logits, torch.ones_like(logits), pos_weight=torch.ones(5))
        g = F.kl_div(F.log_softmax(logits, -1), F.softmax(logits.flip(0), -1), reduction="batchmean")
        h = nn.CosineEmbeddingLoss()(logits, logits + 1, torch.ones(logits.shape[0]))
        return a + b + c + d + e + g + h

    entries = [Call((rand(3, 5, seed=s), ints(3, high=5, seed=s))) for s in (1, 2)]
    return Program(target=f, calls=entries)


@program
def training_step():
    net = seeded(lambda: nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Linear(8, 2)))

    def f(x):
        return net(x).square().mean()

    return Program(target=f, calls=calls(5, 4), grad=True, observe=lambda: [p.grad for p in net.parameters()])


@program
def custom_autograd_function():
    class Clip(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, limit):
            ctx.save_for_backward(x)
            ctx.limit = limit
            return x.clamp(-limit, limit)

        @staticmethod
        def backward(ctx, grad):
            (x,) = ctx.saved_tensors
            return grad * (x.abs() < ctx.limit), None

    w = torch.ones(3, requires_grad=True)

    def f(x):
        return Clip.apply(x * w, 0.5)

    return Program(target=f, calls=calls(3), grad=True, observe=lambda: w.grad, served="any")


@program
def recurrent_state_kept():
    class Stateful(nn.Module):
        def __init__(self):
            super().__init__()
            self.cell, self.h = nn.GRUCell(3, 3), None

        def forward(self, x):
            h = self.h if self.h is not None else x.new_zeros(x.size(0), 3)
            self.h = self.cell(x, h)
            return self.h

    return Program(target=seeded(Stateful), calls=calls(2, 3), misses=1)


@program
def embedding_bag_and_unfold():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.bag = nn.EmbeddingBag(10, 4, mode="mean")
            self.unfold = nn.Unfold(2)
            self.shuffle = nn.PixelShuffle(2)

        def forward(self, ids, image):
            return self.bag(ids), self.unfold(image), self.shuffle(image)

    entries = [Call((ints(3, 2, high=10, seed=s), rand(1, 4, 4, 4, seed=s))) for s in (1, 2)]
    return Program(target=seeded(Net), calls=entries)
