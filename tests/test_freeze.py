"""freeze=True: parameters are constants of the compiled graph, and no update of them is missed that torch counts."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

import magpy
from magpy import _freeze, _strict
from magpy._api import states
from magpy_runtime import FrozenCheck, may_freeze


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 8)
        self.norm = nn.BatchNorm1d(8)
        self.register_buffer("shift", torch.randn(8))
        self.plain = torch.randn(8)

    def forward(self, x):
        return torch.relu(self.norm(self.linear(x))) + self.shift * self.plain


@pytest.fixture
def net():
    torch.manual_seed(0)
    return Net().eval()


def records(compiled):
    return [record for state in states(compiled) for record in state.records()]


def check(compiled, net, x, *, monitored, hits):
    """Two calls give eager's results; the books say how they were served since the last look."""
    before = magpy.info(compiled)
    with torch.no_grad():
        for _ in range(2):
            torch.testing.assert_close(compiled(x), net(x), rtol=1e-5, atol=1e-6)
    after = magpy.info(compiled)
    assert (after.monitored - before.monitored, after.hits - before.hits, after.native) == (monitored, hits, 0)


def in_place(net):
    net.linear.weight.mul_(2)


def buffer_in_place(net):
    net.shift.add_(1)


def through_a_view(net):
    net.linear.weight.view(-1)[3:9].fill_(0.5)


def load_state(net):
    net.load_state_dict(
        {name: each + 1 if each.is_floating_point() else each for name, each in net.state_dict().items()}
    )


def load_state_by_assignment(net):
    state = {name: each + 1 if each.is_floating_point() else each for name, each in net.state_dict().items()}
    net.load_state_dict(state, assign=True)


def optimizer_step(net):
    with torch.enable_grad():
        optimizer = torch.optim.SGD(net.parameters(), lr=0.5)
        net(torch.randn(4, 8)).sum().backward()
        optimizer.step()


def adam_step(net):
    with torch.enable_grad():
        optimizer = torch.optim.Adam(net.parameters(), lr=0.5)
        net(torch.randn(4, 8)).sum().backward()
        optimizer.step()


def new_data(net):
    net.linear.weight.data = torch.randn(8, 8)


def new_data_twice(net):
    # The second allocation may well lie where the first memory was.
    net.linear.weight.data = torch.randn(8, 8)
    net.linear.weight.data = torch.randn(8, 8)


def new_parameter(net):
    net.linear.weight = nn.Parameter(torch.randn(8, 8))


def new_buffer(net):
    net.shift = torch.randn(8)


def swapped(net):
    torch.utils.swap_tensors(net.linear.weight, nn.Parameter(torch.randn(8, 8)))


def set_memory(net):
    net.linear.weight.set_(torch.randn(8, 8))


def statistics_in_training(net):
    net.train()
    net(torch.randn(4, 8))
    net.eval()


UPDATES = [
    in_place, buffer_in_place, through_a_view, load_state, load_state_by_assignment, optimizer_step, adam_step, new_data,
    new_data_twice, new_parameter, new_buffer, swapped, set_memory, statistics_in_training,
]  # fmt: skip


@pytest.mark.parametrize("update", UPDATES)
def test_updates_lead_to_a_new_record(net, update):
    compiled = magpy.compile(net, freeze=True)
    x = torch.randn(4, 8)
    check(compiled, net, x, monitored=1, hits=1)
    [record] = records(compiled)
    assert record.frozen is not None and len(record.frozen.tensors) == 7
    for _ in range(2):
        with torch.no_grad():
            update(net)
        check(compiled, net, x, monitored=1, hits=1)
    assert all(each.frozen is not None and len(each.frozen.tensors) == 7 for each in records(compiled))


def test_updates_of_what_is_no_parameter_are_seen(net):
    compiled = magpy.compile(net, freeze=True)
    x = torch.randn(4, 8)
    check(compiled, net, x, monitored=1, hits=1)
    net.plain.mul_(3)
    check(compiled, net, x, monitored=0, hits=2)


def test_another_dtype(net):
    compiled = magpy.compile(net, freeze=True)
    check(compiled, net, torch.randn(4, 8), monitored=1, hits=1)
    net.double()
    net.plain = net.plain.double()
    check(compiled, net, torch.randn(4, 8).double(), monitored=1, hits=1)


def test_many_updates_do_not_use_up_the_record_limit(net):
    compiled = magpy.compile(net, freeze=True, record_limit=2, backend="inductor")
    x = torch.randn(4, 8)
    for number in range(4):
        with torch.no_grad():
            net.shift.fill_(number)
        check(compiled, net, x, monitored=1, hits=1)
    assert len(records(compiled)) == 1


def test_what_is_updated_before_each_call_is_no_constant_any_more(net):
    compiled = magpy.compile(net, freeze=True)
    x = torch.randn(4, 8)
    with torch.no_grad():
        for _ in range(5):
            net.shift.add_(1)
            torch.testing.assert_close(compiled(x), net(x), rtol=1e-5, atol=1e-6)
    info = magpy.info(compiled)
    assert (info.monitored, info.hits) == (2, 3)
    [record] = records(compiled)
    assert len(record.frozen.tensors) == 6


def test_where_gradients_are_wanted_nothing_is_frozen(net):
    compiled = magpy.compile(net, freeze=True)
    x = torch.randn(4, 8)
    for _ in range(2):
        compiled(x).sum().backward()
        assert net.linear.weight.grad is not None
        net.zero_grad()
        with torch.no_grad():
            net.linear.weight.add_(0.1)
    info = magpy.info(compiled)
    assert (info.monitored, info.hits) == (1, 1)
    assert [record.frozen for record in records(compiled)] == [None]
    check(compiled, net, x, monitored=1, hits=1)


def test_tied_parameters(net):
    net.shift = net.norm.running_mean
    compiled = magpy.compile(net, freeze=True)
    x = torch.randn(4, 8)
    check(compiled, net, x, monitored=1, hits=1)
    with torch.no_grad():
        net.norm.running_mean.add_(1)
    check(compiled, net, x, monitored=0, hits=2)  # running statistics that are used elsewhere are not frozen


def test_a_function_that_holds_a_module(net):
    def function(x):
        return net(x) * 2

    compiled = magpy.compile(function, freeze=True)
    x = torch.randn(4, 8)
    with torch.no_grad():
        for _ in range(3):
            torch.testing.assert_close(compiled(x), function(x))
        net.linear.bias.add_(1)
        torch.testing.assert_close(compiled(x), function(x))
    assert magpy.info(compiled).monitored == 2


def test_copies_do_not_share_constants(net):
    other = copy.deepcopy(net)
    with torch.no_grad():
        other.linear.weight.mul_(3)
    first, second = magpy.compile(net, freeze=True), magpy.compile(other, freeze=True)
    x = torch.randn(4, 8)
    check(first, net, x, monitored=1, hits=1)
    check(second, other, x, monitored=1, hits=1)


def test_the_check():
    weight, bias = nn.Parameter(torch.randn(3)), torch.randn(2)
    check = FrozenCheck([weight, bias], ["weight", "bias"])
    assert check() and check.moved() == [] and check.checksum() is None
    with torch.no_grad():
        bias.add_(1)
    assert not check() and check.moved() == ["bias"]


def test_statistics_that_nobody_counts_are_no_constants():
    class Bare(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("mean", torch.zeros(8))
            self.register_buffer("var", torch.ones(8))
            self.register_buffer("scale", torch.tensor(0.1))
            self.register_buffer("zero", torch.tensor(0, dtype=torch.int32))
            self.register_buffer("shift", torch.ones(8))

        def forward(self, x):
            x = torch.nn.functional.batch_norm(x, self.mean, self.var, training=self.training) + self.shift
            return torch.fake_quantize_per_tensor_affine(x, self.scale, self.zero, -128, 127)

    net = Bare().eval()
    compiled = magpy.compile(net, freeze=True)
    x = torch.randn(4, 8)
    check(compiled, net, x, monitored=1, hits=1)
    [record] = records(compiled)
    assert len(record.frozen.tensors) == 1
    net.train()(torch.randn(4, 8) + 3)
    net.eval()
    check(compiled, net, x, monitored=0, hits=2)


UNSEEN = {
    "through data": lambda weight: weight.data.mul_(2),
    "through numpy": lambda weight: weight.detach().numpy().__setitem__(0, 7.0),
    "a sign": lambda weight: weight.data.neg_(),
    "two exchanged": lambda weight: weight.data.copy_(weight.data.flip(0)),
}


@pytest.mark.parametrize("write", UNSEEN.values(), ids=UNSEEN)
def test_strict_mode_sees_what_no_counter_shows(write):
    weight = nn.Parameter(torch.randn(3) + 1)
    check = FrozenCheck([weight], ["weight"])
    strict = _freeze.StrictFrozenCheck([weight], ["weight"])
    assert strict()
    write(weight)
    assert check(), "no counter shows it"
    with pytest.raises(_strict.StrictError, match="a frozen tensor was changed"):
        strict()


def test_what_may_be_a_constant():
    with torch.inference_mode():
        inference = torch.ones(1)
    assert may_freeze(torch.ones(1)) and may_freeze(nn.Parameter(torch.ones(1))) and may_freeze(torch.ones(0))
    assert (
        not may_freeze(inference)
        and not may_freeze(torch.ones(1).to_sparse())
        and not may_freeze(torch.ones(1, device="meta"))
    )


def test_only_inductor_freezes():
    for backend in ("eager", "aot_eager", lambda module, inputs: module):
        with pytest.raises(ValueError, match="freeze=True needs the backend 'inductor'"):
            magpy.compile(lambda x: x, freeze=True, backend=backend)
    with pytest.raises(TypeError, match="freeze must be bool"):
        magpy.compile(lambda x: x, freeze=1)
