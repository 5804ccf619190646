"""Containers that are being built on the stack while a boundary runs: behind it they are older than the segment."""

from __future__ import annotations

import gc
import zlib
from collections.abc import Callable
from typing import Any

import pytest
import torch

import magpy

crc = zlib.crc32  # has no annotation, so each call is a boundary
W = torch.arange(16.0).reshape(8, 2)


def gather(*args: Any, **keywords: Any) -> Any:
    return args, keywords


def list_comprehension(w, words):
    return torch.stack([w[crc(word) % 8] for word in words]).sum(0)


def nested_comprehensions(w, words):
    return [[w[crc(one) % 8] + crc(other) % 5 for one in words] for other in words]


def set_comprehension(w, words):
    found = {crc(word) % 8 for word in words}
    return w[sorted(found)].sum(0), found


def dict_comprehension(w, words):
    return {crc(word) % 8: w[crc(word) % 3] for word in words}


def list_display(w, words):
    found = [*words, crc(words[0]) % 8, *words, crc(words[1]) % 8]
    return w + found[2], found


def tuple_display(w, words):
    return (*words, crc(words[0]), *words, w * 2)


def set_display(w, words):
    return {*words, crc(b"c"), *words, crc(b"d")}


def dict_display(w, words):
    return {**{"p": crc(words[0])}, "q": crc(words[1]), **{"r": w + 1}}


def call_with_stars(w, words):
    return gather(*words, crc(words[0]), *words, x=crc(b"x"), **{"y": crc(b"y"), **{"z": crc(b"z")}}), w * 2


def same(one: Any, other: Any) -> bool:
    if isinstance(one, torch.Tensor):
        return torch.equal(one, other)
    if isinstance(one, list | tuple):
        return type(one) is type(other) and len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, dict):
        return list(one) == list(other) and all(same(one[key], other[key]) for key in one)
    return type(one) is type(other) and bool(one == other)


@pytest.mark.parametrize(
    "function",
    [
        list_comprehension,
        nested_comprehensions,
        set_comprehension,
        dict_comprehension,
        list_display,
        tuple_display,
        set_display,
        dict_display,
        call_with_stars,
    ],
    ids=lambda function: function.__name__,
)
def test_a_container_that_is_being_built(function: Callable[..., Any]) -> None:
    fast = magpy.compile(function, backend="eager")
    for words in ([b"a", b"b"], [b"a", b"b"], [b"c", b"d"], [b"a", b"b"], [b"c", b"d"]):
        assert same(fast(W, words), function(W, words))
    info = magpy.info(fast)
    assert info.hits >= 3
    assert info.reasons == ()
    assert {boundary.reason for boundary in info.boundaries} == {"unannotated-call"}


def test_no_garbage_is_collected_behind_a_boundary_either() -> None:
    """A finalizer that ran inside of a watched operator would be seen as the program's."""
    seen: list[int] = []

    def notice(phase: str, info: dict[str, int]) -> None:
        if torch._C._len_torch_function_stack():
            seen.append(1)

    gc.callbacks.append(notice)
    before = gc.get_threshold()
    try:
        fast = magpy.compile(nested_comprehensions, backend="eager")
        gc.set_threshold(1, 1, 1)
        fast(W, [b"a", b"b"])
        assert gc.isenabled()
    finally:
        gc.set_threshold(*before)
        gc.callbacks.remove(notice)
    assert magpy.info(fast).boundaries
    assert seen == []
