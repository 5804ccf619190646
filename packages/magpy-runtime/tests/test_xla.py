"""The XLA backend: results, gradients, memory, random numbers, shapes, and what it does not take. Skipped without JAX."""

from __future__ import annotations

import dataclasses
import gc
import subprocess
import sys
import weakref
from pathlib import Path

import pytest
import torch
import torch.fx
from torch import nn

jax = pytest.importorskip("jax")

from magpy_runtime import resolve  # noqa: E402
from magpy_runtime.xla import TABLE, OutOfRangeError, UnsupportedOperatorError, lowers  # noqa: E402
from magpy_runtime.xla._decompositions import table  # noqa: E402
from magpy_runtime.xla._layouts import Output, inverse, order_of  # noqa: E402
from magpy_runtime.xla._program import _SIZES  # noqa: E402
from magpy_runtime.xla._table import ABSENT, common  # noqa: E402

sys.path.insert(0, str(Path(__file__).parent))

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")


def traced(function, *inputs, **options):
    """A function's graph, compiled."""
    return resolve("xla", options or None)(torch.fx.symbolic_trace(function), list(inputs))


def test_importing_the_runtime_brings_no_jax():
    program = (
        "import sys, magpy_runtime as m; m.resolve('xla'); assert 'xla' in m.names(); sys.exit('jax' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False, stdin=subprocess.DEVNULL).returncode == 0


def test_without_jax_there_is_a_clear_error():
    program = (
        "import sys, torch, torch.fx, magpy_runtime as m; sys.modules['jax'] = None\n"
        "try: m.resolve('xla')(torch.fx.symbolic_trace(lambda x: (x + 1,)), [torch.ones(1)])\n"
        "except ImportError as e: sys.exit(0 if 'magpy-runtime[xla]' in str(e) else 1)\n"
        "sys.exit(2)"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False, stdin=subprocess.DEVNULL).returncode == 0


def test_the_table_covers_core_aten():
    """All of core ATen has a lowering, but for what is listed here with a reason."""
    by_torch = {
        # A seed gives eager's numbers.
        "rand.default", "randn.default", "randperm.default",
        # The size depends on values, or a value becomes a number.
        "nonzero.default", "_local_scalar_dense.default",
        # Arrays have no strides.
        "sym_is_contiguous.default", "sym_stride.int", "sym_storage_offset.default",
    }  # fmt: skip
    sizes = {"sym_size.int", "sym_numel.default"}  # numbers that are known while a graph is traced
    functionalized = {"atan2.out", "_native_batch_norm_legit.default"}
    decomposed = {"native_dropout.default", "native_group_norm_backward.default", "native_layer_norm_backward.default"}
    without = by_torch | sizes | functionalized | decomposed
    missing, count = set(), 0
    for packet in dir(torch.ops.aten):
        found = getattr(torch.ops.aten, packet)
        for overload in getattr(found, "overloads", list)():
            target = getattr(found, overload)
            count += torch.Tag.core in target.tags
            if torch.Tag.core in target.tags and target not in TABLE:
                missing.add(str(target).removeprefix("aten."))
    assert missing <= without, sorted(missing - without)
    if torch.__version__.startswith("2.13."):
        assert (count, count - len(missing - sizes)) == (191, 179)  # docs/how-to/xla.md says so
    assert {str(target).removeprefix("aten.") for target in _SIZES} == sizes
    assert decomposed <= {str(target).removeprefix("aten.") for target in table()}
    assert set(ABSENT) <= {"view_of.default", "avg_pool1d_backward.default"}


def test_two_lowerings_of_one_operator_are_refused():
    with pytest.raises(ValueError, match="two lowerings of relu"):
        lowers("relu.default")(lambda trace, x: x)


def test_element_types_are_torchs():
    numbers = [
        torch.ones(2, dtype=d)
        for d in (torch.bool, torch.uint8, torch.int32, torch.int64, torch.float32, torch.float64)
    ]
    numbers += [n.sum().to(n.dtype) for n in numbers] + [torch.ones(2, dtype=torch.bfloat16)]
    for x in numbers:
        for y in [*numbers, True, 3, 2.5]:
            with jax.enable_x64(True):
                left = jax.numpy.zeros(tuple(x.shape), str(x.dtype)[6:])
                right = jax.numpy.zeros(tuple(y.shape), str(y.dtype)[6:]) if isinstance(y, torch.Tensor) else y
                assert str(common(left, right)) == str(torch.result_type(x, y))[6:], (x, y)


def test_64_bit_types_and_the_users_settings_stay():
    before = jax.config.jax_enable_x64
    x, y = torch.arange(5, dtype=torch.int64) * 2**40, torch.rand(5, dtype=torch.float64)
    run = traced(lambda x, y: (x + 3, y * 2 + x, x / 2), x, y)
    for found, expected in zip(run(x, y), (x + 3, y * 2 + x, x / 2), strict=True):
        assert found.dtype == expected.dtype and torch.allclose(found, expected, rtol=1e-15)
    assert jax.config.jax_enable_x64 == before
    assert jax.numpy.arange(3).dtype == ("int64" if before else "int32")


def test_under_other_settings_of_jax():
    x = torch.arange(4).reshape(2, 2)
    with (
        jax.numpy_rank_promotion("raise"),
        jax.numpy_dtype_promotion("strict"),
        jax.disable_jit(True),
        jax.debug_nans(True),
    ):
        run = traced(lambda x: (x * 1.5 + torch.ones(2),), x)
        assert torch.equal(run(x)[0], x * 1.5 + torch.ones(2))
        assert traced(lambda x: (x / 0,), torch.zeros(1))(torch.zeros(1))[0].isnan().all()


def test_results_share_no_memory():
    """Neither with inputs nor with each other, unless eager's do."""
    x = torch.arange(6.0)
    run = traced(lambda x: (x.clone(), x.clone(), x * 1, x[1:], x.view(2, 3)), x)
    one, two, three, four, five = run(x)
    assert len({t.data_ptr() for t in (x, one, two, three)}) == 4
    assert four.data_ptr() == x[1:].data_ptr() and five.data_ptr() == x.data_ptr()
    one.add_(1), three.add_(5)
    assert torch.equal(x, torch.arange(6.0)) and torch.equal(two, x)
    assert torch.equal(run(x)[0], x)


def test_strides_are_eagers():
    x = torch.rand(2, 3, 4, 5)

    def function(x):
        y = x + 1
        return y.permute(0, 2, 3, 1), y.transpose(1, 2) * 2, (y.sum(1, keepdim=True) + 0).expand(y.shape), y[:, :, ::2]

    for given in (x, x.to(memory_format=torch.channels_last), x.transpose(0, 3), x[:, :, 1:], x[:1].expand(2, 3, 4, 5)):
        run = traced(function, given)
        for found, expected in zip(run(given), function(given), strict=True):
            assert found.stride() == expected.stride() and torch.allclose(found, expected)


@pytest.mark.parametrize(
    ("size", "stride", "dense", "order"),
    [
        ((2, 3), (3, 1), True, None), ((2, 3), (1, 2), True, (1, 0)), ((2, 3), (4, 1), False, None),
        ((2, 1, 3), (3, 99, 1), True, None), ((1, 2, 3), (1, 1, 2), True, (0, 2, 1)), ((0, 3), (3, 1), True, None),
        ((2, 3), (0, 1), False, None), ((), (), True, None),
    ],
)  # fmt: skip
def test_orders(size, stride, dense, order):
    assert order_of(size, stride) == (dense, order)
    if order:
        assert [order[k] for k in inverse(order)] == list(range(len(size)))


@pytest.mark.parametrize("stride", [(12, 4, 1), (1, 2, 6), (0, 4, 1), (0, 0, 0), (24, 8, 2), (0, 8, 2)])
def test_outputs(stride):
    wanted = torch.rand(100).as_strided((2, 3, 4), stride)
    output = Output((2, 3, 4), stride)
    given = wanted
    for dim in output.repeated:
        given = given.narrow(dim, 0, 1)
    given = (given.permute(output.order) if output.order else given).contiguous()
    found = output.tensor(given)
    assert torch.equal(found, wanted) and found.stride() == stride


class Small(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.convolution, self.norm, self.head = nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4), nn.Linear(4, 2)

    def forward(self, x):
        x = nn.functional.max_pool2d(torch.relu(self.norm(self.convolution(x))), 2)
        return self.head(x.mean((2, 3)))


def captured(model, x):
    """A model's graph with parameters and buffers as inputs, in this order, and these tensors."""
    named = {**dict(model.named_parameters()), **dict(model.named_buffers())}

    def call(x, *tensors):
        return torch.func.functional_call(model, dict(zip(named, tensors, strict=True)), (x,))

    graph = torch.fx.Graph()
    inputs = [graph.placeholder("x"), *(graph.placeholder(name.replace(".", "_")) for name in named)]
    graph.output((graph.call_function(call, tuple(inputs)),))
    return torch.fx.GraphModule({}, graph), list(named.values())


def test_training_by_the_compiled_backward():
    torch.manual_seed(0)
    models = Small(), Small()
    models[1].load_state_dict(models[0].state_dict())
    module, tensors = captured(models[0], torch.rand(2, 3, 8, 8))
    run = resolve("xla")(module, [torch.rand(2, 3, 8, 8), *tensors])
    optimizers = [torch.optim.SGD(model.parameters(), 0.1, momentum=0.9) for model in models]
    for step in range(4):
        x = torch.rand(2, 3, 8, 8)
        losses = []
        for call, optimizer in zip((lambda x: run(x, *tensors)[0], models[1]), optimizers, strict=True):
            optimizer.zero_grad()
            loss = call(x).square().mean()
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())
        assert torch.allclose(*losses, atol=1e-6), step
        for one, other in zip(models[0].state_dict().values(), models[1].state_dict().values(), strict=True):
            assert torch.allclose(one, other, atol=1e-5)
    assert [report.name for report in run.reports] == ["forward", "backward"]
    assert all(report.xla_parts == 1 and not report.refused for report in run.reports)


def test_updates_of_parameters_are_seen_in_every_way():
    x, p = torch.rand(3), nn.Parameter(torch.rand(3))
    with torch.no_grad():
        run = traced(lambda x, p: (x * p,), x, p)

        def check():
            for _ in range(2):
                assert torch.allclose(run(x, p)[0], x * p)

        check()
        p.add_(1), check()
        p.data.mul_(3), check()
        p.data = torch.rand(3)
        check()
        p.numpy()[:] = 7
        check()
        p.data = p.data.clone().as_strided((3,), (0,))
        check()
        p.data = torch.rand(4)[1:]
        check()
        p.data.add_(1), check()
        p.untyped_storage().resize_(0), p.untyped_storage().resize_(16), p.data.fill_(2)
        check()


def test_parameters_are_converted_once_and_not_held():
    x, p, buffer = torch.rand(3), nn.Parameter(torch.rand(3)), torch.rand(3)
    with torch.no_grad():
        run = traced(lambda x, p, b: (x * p + b,), x, p, buffer)
        (part,) = run.reports[0].parts
        counts = []
        for _ in range(6):
            before = part._keeper.conversions
            run(torch.rand(3), p, buffer)
            counts.append(part._keeper.conversions - before)
        assert counts[0] == 3 and counts[-1] == 1
    gone = weakref.ref(p)
    storage = weakref.ref(p.untyped_storage())
    del p
    gc.collect()
    assert gone() is None and part._keeper._kept is None
    assert storage() is None


def test_dropout_draws_eagers_numbers():
    def function(x):
        y = nn.functional.dropout(x, 0.4) + nn.functional.dropout(x * 2, 0.2)
        return (y + torch.rand_like(x) + torch.randn(x.shape),)

    x = torch.rand(40, requires_grad=True)
    run = traced(function, x)
    torch.manual_seed(5)
    expected = [function(x)[0] for _ in range(3)]
    torch.manual_seed(5)
    for each in expected:
        found = run(x)[0]
        assert torch.allclose(found, each)
        assert torch.allclose(*(torch.autograd.grad(y.sum(), x)[0] for y in (found, each)))
    assert run.reports[0].xla_parts == 1 and run.reports[1].torch_parts == 0


def test_values_for_which_eager_raises():
    weight, x = torch.rand(4, 2), torch.tensor([0, 3])
    run = traced(lambda w, x: (nn.functional.embedding(x, w), w[x], 12 // (x + 1)), weight, x)
    for each, expected in zip(run(weight, x), (weight[x], weight[x], 12 // (x + 1)), strict=True):
        assert torch.equal(each, expected)
    for wrong in ([0, 4], [-1, 2], [0, 2**40]):
        with pytest.raises(OutOfRangeError):
            run(weight, torch.tensor(wrong))
    assert torch.equal(run(weight, x)[0], weight[x])


def test_an_operator_without_a_lowering_runs_by_torch():
    module = torch.fx.symbolic_trace(lambda x: (torch.special.i0(x + 1) * 2,))
    x = torch.rand(4)
    run = resolve("xla")(module, [x])
    assert torch.allclose(run(x)[0], torch.special.i0(x + 1) * 2)
    (report,) = run.reports
    assert report.xla_parts == 2 and report.torch_parts == 1
    assert "aten.i0" in " ".join(report.text()) and "no lowering" in " ".join(report.text())
    assert module.meta["reports"] is run.reports
    with pytest.raises(Exception, match="aten.i0") as caught:
        traced(lambda x: (torch.special.i0(x + 1) * 2,), x, fallback=False)
    assert isinstance(caught.value, UnsupportedOperatorError) or isinstance(
        caught.value.__cause__, UnsupportedOperatorError
    )


def test_a_lowering_that_fails_leaves_its_part_to_torch(monkeypatch):
    entry = TABLE[torch.ops.aten.sin.default]
    x = torch.rand(4)
    for wrong in (lambda trace, x: x[:2], lambda trace, x: 1 / 0):
        monkeypatch.setitem(TABLE, torch.ops.aten.sin.default, dataclasses.replace(entry, function=wrong))
        run = traced(lambda x: (x.sin() + 1,), x)
        assert torch.equal(run(x)[0], x.sin() + 1)
        assert run.reports[0].xla_parts == 0 and "a lowering failed: aten.sin.default" in run.reports[0].text()[1]


def test_a_lowering_that_fails_for_later_sizes_leaves_its_part_to_torch(monkeypatch):
    entry = TABLE[torch.ops.aten.sin.default]
    monkeypatch.setitem(
        TABLE, torch.ops.aten.sin.default, dataclasses.replace(entry, function=lambda trace, x: x[:, :0])
    )
    run = traced(lambda x: (x.nonzero().sin() + 1,), torch.ones(4))
    for x in (torch.ones(4), torch.zeros(2)):
        assert torch.equal(run(x)[0], x.nonzero().sin() + 1)
    (report,) = run.reports
    assert "run by torch for some sizes" in report.text()[-1] and "aten.sin.default" in report.text()[-1]


def test_a_result_whose_size_depends_on_values_is_torchs():
    def function(x):
        y = (x * 2).sin()
        return y[y > 0.5].sum() + 1, (torch.nonzero(y > 0.2) * 2).T, y.masked_select(y < 0.3).reshape(1, -1) - 1

    run = traced(function, torch.rand(6))
    for x in (torch.rand(6), torch.zeros(6), torch.ones(6), torch.rand(6)):
        for found, expected in zip(run(x), function(x), strict=True):
            assert found.shape == expected.shape and torch.allclose(found, expected)
    (report,) = run.reports
    assert set(report.refused) == {"aten.index.Tensor", "aten.nonzero.default", "aten.masked_select.default"}
    assert report.xla_parts == 2 and report.torch_parts == 1
    with pytest.raises(Exception, match="aten.nonzero"):
        traced(function, torch.rand(6), fallback=False)


@pytest.mark.parametrize("kind", ["value", "stride"])
def test_numbers_that_torch_reads(kind):
    """A value that becomes a number (`item`), or a stride, in a graph as torch.compile hands it over."""
    from magpy_runtime.xla import xla

    def backend(module, inputs):
        runs.append(xla(module, inputs))
        return runs[-1]

    def function(x, n):
        return (x * n.item()) + 1 if kind == "value" else x.T.contiguous() * x.stride(0)

    runs = []
    torch._dynamo.reset()
    with torch._dynamo.config.patch(capture_scalar_outputs=True):
        compiled = torch.compile(function, backend=backend, dynamic=True, fullgraph=True)
        for size in (3, 5, 4):
            x, n = torch.rand(2, size), torch.tensor(size)
            assert torch.allclose(compiled(x, n), function(x, n))
    assert len(runs) == 1 and runs[0].reports[0].xla_parts
    if kind == "value":
        assert "aten._local_scalar_dense.default" in runs[0].reports[0].refused


def test_steps_of_dimensions_of_length_1_mean_nothing():
    """JAX takes them for a memory layout."""
    plain = torch.rand(6, 1)
    run = traced(lambda x: (x + 1,), plain)
    for stride in ((1, 1), (1, 6), (1, 99), (1, 0)):
        x = plain.as_strided((6, 1), stride)
        assert torch.equal(run(x)[0], x + 1)
    empty = torch.empty(0, 3)
    run = traced(lambda x: (x + 1,), empty)
    assert run(torch.empty(3, 0).T)[0].shape == run(empty)[0].shape == (0, 3)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
class TestOnCuda:
    """What differs on a GPU: devices, streams, random numbers, memory that both sides have."""

    @pytest.fixture(autouse=True)
    def _jax_has_it(self):
        try:
            jax.devices("cuda")
        except RuntimeError:
            pytest.skip("JAX has no CUDA plugin")

    def test_results_and_where_they_are(self):
        def function(x, number):
            y = x @ x.T * number
            return y, number + 1, y.sum()

        x, number = torch.rand(64, 64, device="cuda"), torch.tensor(2.0)
        run = traced(function, x, number)
        for _ in range(3):
            for found, expected in zip(run(x, number), function(x, number), strict=True):
                assert found.device == expected.device and torch.allclose(found, expected, rtol=1e-4)
        assert run.reports[0].xla_parts == 1

    def test_both_sides_wait(self):
        x = torch.rand(1024, 1024, device="cuda")
        run = traced(lambda x: (x @ x,), x)
        side = torch.cuda.Stream()
        for stream in (torch.cuda.current_stream(), side):
            with torch.cuda.stream(stream):
                value = x
                for _ in range(20):
                    value = run(value / 512)[0] + run(value / 512)[0]
                torch.cuda.synchronize()
                expected = x
                for _ in range(20):
                    expected = (expected / 512) @ (expected / 512) * 2
            torch.cuda.synchronize()
            assert torch.allclose(value, expected, rtol=1e-3)

    def test_updates_of_parameters(self):
        p = nn.Parameter(torch.rand(8, device="cuda"))
        with torch.no_grad():
            run = traced(lambda x, p: (x * p,), torch.rand(8, device="cuda"), p)
            for _ in range(4):
                p.data.add_(1)
                x = torch.rand(8, device="cuda")
                assert torch.allclose(run(x, p)[0], x * p)

    def test_training_and_dropout(self):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Dropout(0.3), nn.Linear(16, 2)).cuda()
        x = torch.rand(4, 8, device="cuda")
        module, tensors = captured(model, x)
        run = resolve("xla")(module, [x, *tensors])
        results = []
        for call in (lambda: run(x, *tensors)[0], lambda: model(x)):
            torch.manual_seed(7)
            loss = call().square().sum()
            results.append([loss, *torch.autograd.grad(loss, list(model.parameters()))])
        for one, other in zip(*results, strict=True):
            assert torch.allclose(one, other, rtol=1e-4, atol=1e-5)


def test_an_unknown_option():
    with pytest.raises(TypeError):
        traced(lambda x: (x + 1,), torch.ones(1), nonsense=1)


def test_shapes_that_vary_are_compiled_up_to_a_limit():
    """A graph for any size, as torch.compile hands one over."""

    def backend(module, inputs):
        from magpy_runtime.xla import xla

        runs.append(xla(module, inputs, {"recompile_limit": 3}))
        return runs[-1]

    runs = []
    torch._dynamo.reset()

    def function(x, y):
        return torch.cat([x * x.shape[0], y.T.reshape(-1)])[: x.shape[0]] @ x

    compiled = torch.compile(function, backend=backend, dynamic=True)
    for size in (5, 6, 7, 5, 8, 9, 6):
        x, y = torch.rand(size), torch.rand(size, 2)
        assert torch.allclose(compiled(x, y), function(x, y))
    (run,) = runs
    parts = run.reports[0].parts
    assert [len(part.executables) for part in parts] == [3] and sum(part.fallbacks for part in parts) == 2


SAMPLED = """
abs add addmm amax any argmax as_strided bmm cat clamp cumsum diagonal div embedding eq exp expand fmod full_like gather
index_put index_select log_softmax masked_scatter max mean mul neg nn.functional.avg_pool2d nn.functional.conv2d
nn.functional.conv_transpose2d nn.functional.grid_sample nn.functional.gelu nn.functional.group_norm nn.functional.layer_norm
nn.functional.max_pool2d nn.functional.pad pow prod remainder round scatter scatter_add select sigmoid sign slice softmax
sort split squeeze sub sum tanh tril unsqueeze var where
""".split()


def test_samples_of_operators():
    """A part of what `xla_opinfo.py` runs, within a time limit."""
    pytest.importorskip("expecttest")
    import xla_opinfo

    by_name = {info.name: info for info in xla_opinfo.operators() if not info.variant_test_name}
    infos = [by_name[name] for name in SAMPLED if name in by_name]
    found = list(xla_opinfo.results(infos, xla_opinfo.DTYPES, 1, gradients=False, seconds=25.0))
    assert [r for r in found if r.state in ("differs", "refused")] == []
    assert sum(r.state == "ok" for r in found) > 20
