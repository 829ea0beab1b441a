"""P31: `inspect.getsource` failed for what a magic's cell defined, and so did its users."""

from __future__ import annotations

import inspect

import pytest

SOURCE = "def f(x):\n    return x + 1\n"


@pytest.mark.parametrize(
    "cell",
    [
        f"%%tpu_run --framework torch\n{SOURCE}",
        f"%%tpu_run\n\n\n{SOURCE}",
        f"%%tpu_run\nfrom __future__ import annotations\n{SOURCE}",
        f"%%tpu_run --repeat 2\n{SOURCE}",
        f"get_ipython().run_cell_magic('tpu_run', '', {SOURCE!r})",
    ],
)
def test_the_source_is_the_text_of_the_cell(fake_shell, cell):
    fake_shell.run(cell)
    assert inspect.getsource(fake_shell.user_ns["f"]) == SOURCE


def test_classes_and_dataclasses_of_a_cell_are_the_notebooks(fake_shell):
    fake_shell.run(
        "%%tpu_run\nfrom dataclasses import dataclass\n@dataclass\nclass D:\n    x: int = 1"
    )
    kind = fake_shell.user_ns["D"]
    assert kind.__module__ == "__main__"
    assert kind.__qualname__ == "D"
    assert kind(3) == kind(x=3)


@pytest.mark.kernel
def test_objects_of_a_class_of_a_cell_are_pickled(fake_kernel):
    reply = fake_kernel.run(
        "%%tpu_run -q\nimport pickle\nclass P:\n    pass\n"
        "type(pickle.loads(pickle.dumps(P()))) is P"
    )
    assert reply.value == "True"


@pytest.mark.torch
def test_scripted_functions_of_a_cell_work(torch_shell):
    torch_shell.run("import torch")
    source = (
        "@torch.jit.script\ndef g(x: torch.Tensor):\n    return x + 1\nfloat(g(torch.ones(())))"
    )
    assert torch_shell.run(f"%%tpu_run -q\n{source}") == 2.0
