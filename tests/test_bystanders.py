"""What others in the process do, compilers above all, that is not about the program: its records stay as they are."""

from __future__ import annotations

import abc
import collections.abc
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import nn

import magpy

X = torch.ones(2, 2)


def asks(x: torch.Tensor, config: Any) -> torch.Tensor:
    return x + len(config) if isinstance(config, collections.abc.Mapping) else x - 1


class Settings:
    def __len__(self) -> int:
        return 3


def test_a_registration_of_others_leaves_a_record_as_it_is() -> None:
    fast = magpy.compile(asks, backend="eager")
    for config in ({"a": 1}, Settings()):
        for _ in range(2):
            collections.abc.Sequence.register(type("Foreign", (), {}))
            assert torch.equal(fast(X, config), asks(X, config))
    info = magpy.info(fast)
    assert (info.monitored, info.hits, info.native) == (2, 2, 0)


def test_a_registration_of_the_class_that_was_asked_about_is_seen() -> None:
    class Late:
        def __len__(self) -> int:
            return 5

    fast, config = magpy.compile(asks, backend="eager"), Late()
    for _ in range(2):
        assert torch.equal(fast(X, config), X - 1)
    collections.abc.Mapping.register(Late)
    for _ in range(2):
        assert torch.equal(fast(X, config), X + 5)
    info = magpy.info(fast)
    assert (info.monitored, info.hits) == (2, 2)


def test_hooks_of_users_are_not_asked_by_a_guard() -> None:
    asked: list[type] = []

    class Marked(abc.ABC):  # noqa: B024
        @classmethod
        def __subclasshook__(cls, other: type) -> bool:
            asked.append(other)
            return hasattr(other, "mark")

    def program(x: torch.Tensor, obj: Any) -> torch.Tensor:
        return x * 2 if isinstance(obj, Marked) else x

    fast, config = magpy.compile(program, backend="eager"), Settings()
    fast(X, config)
    collections.abc.Sequence.register(type("Foreign", (), {}))
    before = len(asked)
    fast(X, config)
    assert len(asked) - before <= 1  # the program's own question
    Settings.mark = True  # type: ignore[attr-defined]
    try:
        collections.abc.Sequence.register(type("Foreign", (), {}))
        assert torch.equal(fast(X, config), program(X, config))
    finally:
        del Settings.mark  # type: ignore[attr-defined]


class Sliced(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(2, 2) for _ in range(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers[1:]:  # makes a module
            x = layer(x)
        return x


@pytest.fixture
def tagging() -> Iterator[None]:
    from torch._dynamo import mutation_guard

    init, setstate = nn.Module.__init__, nn.Module.__setstate__
    needed = getattr(nn.Module, "___needs_generation_tag_patch", True)
    nn.Module.___needs_generation_tag_patch = True  # type: ignore[attr-defined]
    mutation_guard.install_generation_tagging_init()
    yield
    nn.Module.__init__, nn.Module.__setstate__ = init, setstate  # type: ignore[method-assign]
    nn.Module.___needs_generation_tag_patch = needed  # type: ignore[attr-defined]


def test_dynamo_that_tags_new_modules_costs_no_record(tagging: None) -> None:
    model = Sliced()
    fast = magpy.compile(model, backend="eager")
    for _ in range(4):
        assert torch.equal(fast(X), model(X))
    info = magpy.info(fast)
    assert (info.monitored, info.hits, info.native) == (1, 3, 0)
