"""Only the standard library's own modules may ask for the thread's state; a file that is merely called like one may not."""

import torch

import magpy

SOURCE = """
import threading

def f(x):
    return x * 2, threading.get_ident()
"""


def test_a_file_that_is_called_like_a_library_is_the_users(tmp_path):
    namespace = {}
    exec(compile(SOURCE, str(tmp_path / "my_inspect.py"), "exec"), namespace)
    compiled = magpy.compile(namespace["f"], backend="eager")
    for _ in range(2):
        compiled(torch.ones(2))
    info = magpy.info(compiled)
    assert [boundary.reason for boundary in info.boundaries] == ["impure-call"]
