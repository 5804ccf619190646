import types
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import torch.overrides as overrides  # noqa: E402

from magpy_annotations import OpKind, Relation, default_registry  # noqa: E402
from magpy_annotations.catalogue.torch import _kinds, _operators, _torch  # noqa: E402

C = (types.BuiltinFunctionType, types.MethodDescriptorType, types.WrapperDescriptorType, types.MethodWrapperType)
METHOD_WRAPPER = types.MethodWrapperType


def _name(func: Any) -> str:
    return str(getattr(func, "__name__", func))


def test_every_overridable_c_function_is_classified() -> None:
    registry = default_registry()
    unknown = []
    for func, name in ((each, _name(each)) for each in overrides.get_testing_overrides() if isinstance(each, C)):
        if isinstance(func, types.MethodWrapperType) and isinstance(func.__self__, property):
            continue
        if registry.operator(func) is None:
            unknown.append(name)
    assert unknown == []


def test_every_ignored_c_function_is_known() -> None:
    registry = default_registry()
    ignored = [each for each in overrides.get_ignored_functions() if isinstance(each, C)]
    unknown = [
        _name(each)
        for each in ignored
        if registry.operator(each) is None and registry.lookup(each) is None and "__self__" not in dir(each)
    ]
    assert unknown == []


def test_every_function_and_attribute_is_classified() -> None:
    names = {name for _, name, _ in _operators.functions()} | {f".{name}" for _, name, _ in _operators.attributes()}
    assert sorted(name for name in names if _operators.classify(name) is None) == []


def test_the_lists_name_what_exists() -> None:
    names = {name for _, name, _ in _operators.functions()} | {f".{name}" for _, name, _ in _operators.attributes()}
    names |= {f".{name}=" for _, name, _ in _operators.attributes()}
    assert sorted(set(_kinds.EXPLICIT) - names) == []


def test_the_lists_agree_with_the_tags_of_torch() -> None:
    names = {name for _, name, _ in _operators.functions()}
    tagged = {name: kind for name in names if (kind := _operators.tagged_kind(name)) is not None}
    assert {"nonzero", "item"} <= set(tagged)
    assert {name: _kinds.EXPLICIT.get(name) for name in tagged} == tagged


ARGUMENTS: tuple[tuple[Any, ...], ...] = ((), (1,), (0, 1), (torch.float64,))


def _calls() -> list[tuple[Any, ...]]:
    other = torch.tensor([[0.5, 0.25], [0.75, 0.125]])
    return [*ARGUMENTS, (other,), (other, other), (0, torch.tensor([0, 1]), other), (other > 0.3, 1.0), ([0], 2.0)]


UPDATING = {OpKind.INPLACE, OpKind.SETTER, OpKind.IMPURE}


def test_methods_that_change_a_tensor_are_in_place() -> None:
    missed = set()
    for target, name, found in _operators.functions():
        node = _operators.classify(name)
        if ".TensorBase." not in target or node is None or node.kind in UPDATING:
            continue
        for arguments in _calls():
            tensor = torch.tensor([[0.1, 0.2], [0.3, 0.4]])
            try:
                found(tensor, *arguments)
            except Exception:
                continue
            if tensor._version != 0:
                missed.add(name)
    assert missed == set()


def _tensors_only(value: Any) -> bool:
    if isinstance(value, tuple | list):
        return all(map(_tensors_only, value))
    return isinstance(value, torch.Tensor)


def test_operators_give_tensors_and_metadata_do_not() -> None:
    wrong = set()
    for target, name, found in _operators.functions():
        node = _operators.classify(name)
        if ".TensorBase." not in target or node is None or name in {"map_", "map2_", "apply_"}:
            continue
        for arguments in _calls():
            tensor = torch.tensor([[0.1, 0.2], [0.3, 0.4]])
            try:
                value = found(tensor, *arguments)
            except Exception:
                continue
            if value is NotImplemented:
                continue
            tensors = _tensors_only(value) and value != ()
            if node.kind in {OpKind.OPERATOR, OpKind.DYNAMIC_SHAPE} and not tensors:
                wrong.add((name, type(value).__name__))
            if node.kind is OpKind.METADATA and tensors:
                wrong.add((name, "tensor"))
    assert wrong == set()


@pytest.mark.filterwarnings("ignore:The use of `x.T`:UserWarning")
def test_the_mode_reports_what_is_known() -> None:
    registry = default_registry()
    seen: dict[str, Any] = {}

    class Watch(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            node = registry.operator_call(func, args, kwargs or {})
            seen[_name(func)] = None if node is None else node.kind
            if type(func) is METHOD_WRAPPER:
                seen[f"{func.__self__.__name__}.{func.__name__}"] = None if node is None else node.kind
            return func(*args, **(kwargs or {}))

    x = torch.ones(3)
    with Watch():
        y = x + 1
        y += 1
        y.add_(2)
        y.shape  # noqa: B018
        y.T  # noqa: B018
        y.sum().item()
        y.requires_grad = False
        torch.zeros(2)
        torch.nonzero(x)
        sum([x, x])
    assert seen["add"] is OpKind.OPERATOR
    assert seen["add_"] is OpKind.INPLACE
    assert seen["shape.__get__"] is OpKind.METADATA
    assert seen["T.__get__"] is OpKind.OPERATOR
    assert seen["requires_grad.__set__"] is OpKind.SETTER
    assert seen["item"] is OpKind.VALUE
    assert seen["zeros"] is OpKind.OPERATOR
    assert seen["nonzero"] is OpKind.DYNAMIC_SHAPE
    assert None not in seen.values()


MASK = torch.tensor([True, False])
ONE = torch.tensor(1)
CALLS: list[tuple[Any, tuple[Any, ...], dict[str, Any], OpKind]] = [
    (torch.Tensor.__getitem__, (torch.ones(2), 0), {}, OpKind.OPERATOR),
    (torch.Tensor.__getitem__, (torch.ones(2), MASK), {}, OpKind.DYNAMIC_SHAPE),
    (torch.Tensor.__getitem__, (torch.ones(2, 2), (slice(None), MASK)), {}, OpKind.DYNAMIC_SHAPE),
    (torch.Tensor.__getitem__, (torch.ones(2), torch.tensor([0])), {}, OpKind.OPERATOR),
    (torch.Tensor.__getitem__, (torch.ones(2), ONE), {}, OpKind.VALUE),
    (torch.Tensor.__getitem__, (torch.ones(2), slice(0, ONE)), {}, OpKind.VALUE),
    (torch.Tensor.__setitem__, (torch.ones(2), MASK, 1.0), {}, OpKind.INPLACE),
    (torch.Tensor.__setitem__, (torch.ones(2), ONE, 1.0), {}, OpKind.VALUE),
    (torch.where, (MASK,), {}, OpKind.DYNAMIC_SHAPE),
    (torch.where, (MASK, torch.ones(2), torch.ones(2)), {}, OpKind.OPERATOR),
    (torch.repeat_interleave, (torch.ones(2), 2), {}, OpKind.OPERATOR),
    (torch.repeat_interleave, (torch.ones(2), torch.tensor([1, 2])), {}, OpKind.DYNAMIC_SHAPE),
    (torch.nn.functional.one_hot, (torch.tensor([0]), 3), {}, OpKind.OPERATOR),
    (torch.nn.functional.one_hot, (torch.tensor([0]),), {}, OpKind.DYNAMIC_SHAPE),
    (torch.Tensor.type, (torch.ones(2),), {}, OpKind.METADATA),
    (torch.Tensor.type, (torch.ones(2), torch.float64), {}, OpKind.OPERATOR),
    (torch.add, (torch.ones(2), 1), {"out": torch.ones(2)}, OpKind.INPLACE),
    (torch.add, (torch.ones(2), 1), {"alpha": ONE}, OpKind.VALUE),
    (torch.zeros, (ONE,), {}, OpKind.VALUE),
    (torch.zeros, (1,), {}, OpKind.OPERATOR),
    (torch.arange, (ONE,), {}, OpKind.VALUE),
    (torch.Tensor.view, (torch.ones(2), ONE, -1), {}, OpKind.VALUE),
    (torch.Tensor.view, (torch.ones(2), 2, 1), {}, OpKind.OPERATOR),
    (torch.cat, ([torch.ones(2)],), {}, OpKind.OPERATOR),
    (torch.tensor, ([1, 2],), {}, OpKind.OPERATOR),
    (torch.tensor, ([1, ONE],), {}, OpKind.VALUE),
    (torch.tensor_split, (torch.ones(2), torch.tensor([1])), {}, OpKind.DYNAMIC_SHAPE),
    (torch.clamp, (torch.ones(2),), {"min": ONE}, OpKind.OPERATOR),
]


@pytest.mark.parametrize(("func", "args", "kwargs", "kind"), CALLS)
def test_arguments_decide(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], kind: OpKind) -> None:
    node = default_registry().operator_call(func, args, kwargs)
    assert node is not None and node.kind is kind


def test_draws_without_a_draw_are_not_random() -> None:
    registry = default_registry()
    x = torch.ones(2)
    kept, drawn = (registry.operator_call(torch.dropout, (x, 0.5, train), {}) for train in (False, True))
    assert kept is not None and not kept.random
    assert drawn is not None and drawn.random


def test_hidden_updates_are_named() -> None:
    node = default_registry().operator(torch.batch_norm)
    assert node is not None and node.kind is OpKind.OPERATOR and node.mutates == ("running_mean", "running_var")


def test_python_functions_are_nobodys_operators() -> None:
    registry = default_registry()
    assert registry.operator(torch.nn.functional.dropout) is None
    assert registry.operator(torch.Tensor.norm) is None
    assert registry.operator(abs) is None


def test_operators_of_torch_ops_go_by_their_schema() -> None:
    registry = default_registry()
    for func in (torch.ops.aten.relu, torch.ops.aten.relu.default):
        node, annotation = registry.operator(func), registry.lookup(func)
        assert node is not None and node.kind is OpKind.OPERATOR
        assert annotation is not None and annotation.as_op_node == node


def test_attributes_are_attributes() -> None:
    annotation = default_registry().lookup(torch.Tensor.grad)
    assert (
        annotation is not None and annotation.output.relation is Relation.ATTRIBUTE and annotation.output.key == "grad"
    )


def test_private_names_are_what_they_are_taken_for() -> None:
    assert issubclass(torch.Tensor, _torch.TENSOR)
    assert type(torch.ops.aten.relu) in _torch.OVERLOADS and type(torch.ops.aten.relu.default) in _torch.OVERLOADS
    assert _torch.is_packet(torch.ops.aten.relu) and not _torch.is_packet(torch.ops.aten.relu.default)
    assert len(_torch.namespaces()) == 7
    assert {str(each.returns[0].type) for each in _torch.schemas("relu")} == {"Tensor"}
    assert _torch.schemas("no_such_operator") == ()
