"""Verify mode: hits run natively, too, in copies of the process, and differences are found and told."""

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from serving import Served, reasons

import magpy
from magpy import VerificationWarning, _verify

pytestmark = pytest.mark.skipif(_verify.can_verify() is not None, reason="processes cannot be copied here")

SCALE = 2
LOG: list[Any] = []


def scaled(x: Any) -> Any:
    return x * SCALE


def logged(x: Any) -> Any:
    LOG.append(x + 1)
    return len(LOG)


def updates(x: Any) -> Any:
    x.add_(1)
    return x.sum()


def draws(x: Any) -> Any:
    return torch.dropout(x, 0.5, True)


def raising(x: Any) -> Any:
    raise ValueError(f"of shape {tuple(x.shape)}")


def takes(x: Any, iterator: Any) -> Any:
    return x * next(iterator)


def verified(function: Callable[..., Any], count: int = 2) -> Served:
    return Served(magpy.compile(function, backend="eager", verify=count))


@pytest.mark.parametrize("function", [scaled, updates, draws, raising])
def test_what_is_right_is_right(function: Callable[..., Any]) -> None:
    """The user gets what the program gives, once: effects are not doubled."""
    compiled = verified(function)
    one, other = torch.ones(3), torch.ones(3)
    for number, how in enumerate(("monitored", "hits", "hits", "hits")):
        outcomes = []
        for call, x in ((function, one), (lambda x, how=how: compiled(how, x), other)):
            torch.manual_seed(number)
            try:
                outcomes.append(call(x))
            except ValueError as error:
                outcomes.append(torch.tensor(len(str(error))))
        assert torch.equal(*outcomes) and torch.equal(one, other)
    assert not reasons(compiled.compiled)
    [record] = compiled.compiled.__magpy__.cache.records
    assert record.verified == 2 and record.hits == 3


def test_iterators_are_taken_once() -> None:
    compiled = verified(takes)
    for how in ("monitored", "hits", "hits"):
        iterator = iter([2, 3])
        assert compiled(how, torch.ones(1), iterator).item() == 2
        assert list(iterator) == [3]
    assert not reasons(compiled.compiled)


def test_modules_are_not_touched_twice() -> None:
    module = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.BatchNorm1d(3), torch.nn.Dropout(0.5))
    compiled = magpy.compile(module, backend="eager", verify=3)
    for _ in range(4):
        compiled(torch.ones(2, 3)).sum().backward()
    assert module[1].num_batches_tracked.item() == 4
    assert not magpy.info(compiled).reasons and magpy.info(compiled).hits == 3


def tampered(compiled: Served, monkeypatch: pytest.MonkeyPatch, **changes: Any) -> Any:
    """The record of a compiled function, changed."""
    [record] = compiled.compiled.__magpy__.cache.records
    record.native = None
    for name, value in changes.items():
        monkeypatch.setattr(record, name, value)
    return record


def told(function: Callable[..., Any], *args: Any) -> tuple[Any, str]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        result = function(*args)
    return result, " ".join(str(each.message) for each in caught if each.category is VerificationWarning)


def test_another_value_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = verified(scaled)
    x = torch.ones(3)
    compiled.monitored(x)
    tampered(compiled, monkeypatch, mock=lambda bound, run: torch.zeros(3))
    result, text = told(compiled.hit, x)
    assert result.tolist() == [2.0, 2.0, 2.0]
    assert "result" in text and "natively tensor([2., 2., 2.])" in text
    assert reasons(compiled.compiled) == ["verification-failed"]
    assert magpy.info(compiled.compiled).records == 0


def test_a_lost_effect_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = verified(logged)
    LOG.clear()
    compiled.monitored(torch.ones(1))
    LOG.clear()
    compiled.hit(torch.ones(1)) if False else None
    tampered(compiled, monkeypatch, mock=lambda bound, run: 1, guard=lambda args, kwargs: ())
    result, text = told(compiled.hit, torch.ones(1))
    assert result == 1 and len(LOG) == 1
    assert "global LOG" in text


def test_random_numbers_are_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = verified(draws)
    x = torch.zeros(3)
    compiled.monitored(x)
    tampered(compiled, monkeypatch, mock=lambda bound, run: torch.zeros(3))
    assert "random state of torch" in told(compiled.hit, x)[1]


def test_the_missing_fact_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = verified(scaled)
    x = torch.ones(3)
    compiled.monitored(x)
    bound = compiled.compiled.__magpy__.cache.records[0].guard((x,), {})
    tampered(compiled, monkeypatch, guard=lambda args, kwargs: (x,) if bound else ())
    monkeypatch.setitem(globals(), "SCALE", 5)
    result, text = told(compiled.hit, x)
    assert result.tolist() == [5.0, 5.0, 5.0]
    assert "not guarded: " in text and "SCALE" in text and "test_verify.py:" in text


def test_warnings_can_be_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = magpy.compile(scaled, backend="eager", verify=1)
    x = torch.ones(3)
    compiled(x)
    compiled.__magpy__.cache.records[0].mock = lambda bound, run: None
    with warnings.catch_warnings():
        warnings.simplefilter("error", VerificationWarning)
        with pytest.raises(VerificationWarning):
            compiled(x)


def test_what_cannot_be_verified_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    """An operation outside of the process's memory is not done twice; what comes behind it is verified by itself."""

    def prints(x: Any) -> Any:
        y = x + 1
        print("once", y.shape)
        return y * 2

    compiled = verified(prints, 1)
    compiled.monitored(torch.ones(1))
    compiled.hit(torch.ones(1))
    assert capsys.readouterr().out.count("once") == 2
    assert [reason.slug for reason in magpy.info(compiled.compiled).reasons] == ["unverified"]
    assert "print would be done twice" in magpy.info(compiled.compiled).reasons[0].message
    assert [record.verified for record in compiled.compiled.__magpy__.records()] == [1, 1]


def reads(x: Any) -> Any:
    if x.sum() > 0:
        x = x + SCALE
    LOG.append(x.max().item())
    return x * LOG[-1], int(x[0]), x.tolist(), x[x > 0], f"{LOG[-1]:.1f}"


def loops(x: Any) -> Any:
    count = 0
    while x.sum() < 9:
        x = x + 1
        count += 1
    return x, count


def catches(x: Any) -> Any:
    try:
        return torch.linalg.cholesky(x * torch.eye(3)) if x.sum() > 0 else torch.zeros(int(x[0]))
    except RuntimeError as error:
        return x * 2, type(error).__name__


def differentiates(x: Any) -> Any:
    weight = torch.full((3,), 2.0, requires_grad=True)
    loss = (weight * x).sum()
    loss.backward()
    return weight.grad, loss.item()


@pytest.mark.parametrize("function", [reads, loops, catches, differentiates])
def test_calls_that_pass_boundaries_are_verified(function: Callable[..., Any]) -> None:
    compiled = magpy.compile(function, backend="eager", verify=1)
    for x in (torch.ones(3), -torch.ones(3)) * 5:
        LOG.clear()
        with warnings.catch_warnings():
            warnings.simplefilter("error", VerificationWarning)
            given = compiled(x)
        LOG.clear()
        assert repr(given) == repr(function(x))
        assert len(LOG) == (function is reads)
    assert magpy.info(compiled).hits >= 6
    records = [record for record in compiled.__magpy__.records() if record.hits]
    assert records and all(record.verified for record in records)
    told = {reason.slug: reason.message for reason in magpy.info(compiled).reasons}
    assert "verification-failed" not in told and "no record yet" in told.get("unverified", "no record yet")


def test_a_difference_behind_a_boundary_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whichever record of the chain gave it, all go."""
    compiled = verified(loops, 1)
    x = torch.ones(3)
    compiled.monitored(x)
    last = next(record for record in compiled.compiled.__magpy__.records() if record.boundary is None)
    monkeypatch.setattr(last, "mock", lambda bound, run: (torch.zeros(3), 7))
    (result, count), text = told(compiled.hit, x)
    assert result.tolist() == [3.0, 3.0, 3.0] and count == 2
    assert "natively tensor([3., 3., 3.])" in text
    assert reasons(compiled.compiled) == ["verification-failed"] and not compiled.compiled.__magpy__.records()


def test_options(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(TypeError, match="verify must be int or None"):
        magpy.compile(scaled, verify="1")  # type: ignore[call-overload]
    monkeypatch.setattr("magpy._api.VERIFY", "3")
    assert magpy.compile(scaled, backend="eager").__magpy__.config.verify == 3  # type: ignore[attr-defined]


def factors(a: torch.Tensor) -> torch.Tensor:
    """A graph that raises for some values."""
    return torch.linalg.cholesky(a) * 2


def factors_what_is_small(a: torch.Tensor) -> torch.Tensor:
    """The same, behind a boundary."""
    return torch.linalg.cholesky(a * 2) if a.sum() < 100 else a


@pytest.mark.parametrize("function", [factors, factors_what_is_small])
def test_a_graph_that_raises_serves_no_call_and_is_no_difference(function: Callable[..., Any]) -> None:
    compiled = magpy.compile(function, backend="eager", verify=8)
    good, bad = torch.eye(3) + 0.5, -torch.eye(3)
    with warnings.catch_warnings():
        warnings.simplefilter("error", VerificationWarning)
        for a in (good, good, bad, good, bad, good):
            if a is good:
                assert torch.equal(compiled(a), function(a))
            else:
                with pytest.raises(RuntimeError, match="not positive-definite"):
                    compiled(a)
    assert "unverified" in reasons(compiled)
