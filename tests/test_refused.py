"""What C code reads without a report: arguments that torch refuses, errors of numpy's scalars, a tensor's state."""

from typing import Any

import numpy as np
import pytest
import torch
from serving import Served

import magpy

INPUT = torch.ones(2)


def compiled(function: Any) -> Served:
    return Served(magpy.compile(function, backend="eager"))


def test_arguments_that_torch_refuses_are_facts() -> None:
    def program(tensors: list[Any], x: torch.Tensor) -> torch.Tensor:
        return torch.cat(tensors) + x.sum()

    served = compiled(program)
    for how in ("monitored", "hits"):
        with pytest.raises(TypeError, match="got float"):
            served(how, [1.0, INPUT], INPUT)
    assert torch.equal(served.monitored([INPUT, INPUT], INPUT), program([INPUT, INPUT], INPUT))
    with pytest.raises(TypeError, match="got NoneType"):
        served.monitored([None, INPUT], INPUT)


class Loud(torch.Tensor):
    """A subclass that torch asks."""


def test_elements_decide_about_torch_functions() -> None:
    tensors = [torch.ones(2), torch.ones(2)]

    def program(x: torch.Tensor) -> Any:
        return x * 2, torch.overrides.has_torch_function(tensors)

    served = compiled(program)
    assert served.monitored(INPUT)[1] is False
    assert served.hit(INPUT)[1] is False
    tensors[0] = tensors[0].as_subclass(Loud)
    assert served.compiled(INPUT)[1] is True


def test_python_code_of_torch_hands_over_to_a_subclass() -> None:
    tensors = [torch.ones(2).as_subclass(Loud), torch.ones(2)]

    def program(x: torch.Tensor) -> Any:
        return torch.block_diag(*tensors), len(tensors[0]), 1.0 in tensors[0]

    result = compiled(program).compiled(INPUT)
    assert torch.equal(result[0], program(INPUT)[0])
    assert result[1:] == (2, True)


def test_attributes_of_a_tensor_are_its_state() -> None:
    weight = torch.ones(2)

    def program(x: torch.Tensor) -> Any:
        return x * 2, weight.__getstate__()

    served = compiled(program)
    for _ in range(2):  # `copyreg` notes at the first one that the class has no slots
        assert served.compiled(INPUT)[1] is None
    assert served.hit(INPUT)[1] is None
    weight.note = 3
    assert served.compiled(INPUT)[1] == {"note": 3}


@pytest.mark.parametrize(
    "calculate",
    [
        lambda: np.float64(1) / 0,
        lambda: 1 / np.float32(0),
        lambda: np.divide(np.float64(1), 0),
        lambda: np.float64(1).__truediv__(0),
        lambda: np.float32(1e300),
        lambda: np.float64(1e39).astype("f4"),
        lambda: np.int8(127) + np.int8(1),
    ],
)
def test_errors_of_numpy_are_raised_when_asked_for(calculate: Any) -> None:
    served = compiled(lambda x: (x * 2, calculate()))
    with np.errstate(all="ignore"):
        served.compiled(INPUT)
        served.compiled(INPUT)
    with np.errstate(all="raise"), pytest.raises(FloatingPointError):
        served.compiled(INPUT)


COMPLEX = np.complex64(1 + 2j)


@pytest.mark.parametrize(
    "calculate",
    [
        lambda: np.float32(COMPLEX),
        lambda: COMPLEX.astype("f4"),
        lambda: float(COMPLEX),
        lambda: COMPLEX.__float__(),
        lambda: int(COMPLEX),
    ],
)
def test_warnings_of_numpy_are_shown_once_a_call(calculate: Any) -> None:
    served = compiled(lambda x: (x * 2, calculate()))
    for _ in range(3):
        with pytest.warns(np.exceptions.ComplexWarning) as shown:
            assert served.compiled(INPUT)[1] == 1
        assert [each.filename for each in shown] == [__file__]


SCALARS = [
    np.float64(1.5),
    np.float32(1.5),
    np.float16(1.5),
    np.int32(2),
    np.int64(2),
    np.bool_(True),
]


@pytest.mark.parametrize("scalar", SCALARS, ids=lambda scalar: type(scalar).__name__)
@pytest.mark.parametrize("make", [torch.tensor, torch.as_tensor, lambda each: torch.tensor([each]), INPUT.new_tensor])
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_tensors_take_their_type_from_scalars_of_numpy(make: Any, scalar: Any, backend: str) -> None:
    def program(x: torch.Tensor) -> Any:
        return x * 2, make(scalar)

    served = Served(magpy.compile(program, backend=backend))
    for call in (served.monitored, served.hit):
        result, expected = call(INPUT)[1], make(scalar)
        assert result.dtype == expected.dtype
        assert torch.equal(result, expected)


@pytest.mark.parametrize("calculate", [torch.arange, lambda scalar: INPUT.long() + scalar])
def test_a_truth_value_of_numpy_is_no_truth_value_of_torch(calculate: Any) -> None:
    truth = np.bool_(True)
    served = compiled(lambda x: (x * 2, calculate(truth)))
    for _ in range(3):
        result = served.compiled(INPUT)[1]
        assert result.dtype == torch.float32
        assert torch.equal(result, calculate(truth))
