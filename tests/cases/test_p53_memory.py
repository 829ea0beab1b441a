"""P53: nothing of ours keeps the person's tensors alive; memory that is not told is None."""

import gc
import weakref


def test_a_failed_cell_leaves_no_tensor_alive(torch_shell):
    import pytest

    shell = torch_shell
    with pytest.raises(RuntimeError, match="stop"):
        shell.run("""%%tpu_run -q -o report
import torch
big = torch.ones(64, 64)
product = big @ big
raise RuntimeError("stop")
""")
    alive = [weakref.ref(shell.user_ns[name]) for name in ("big", "product")]
    assert shell.user_ns["report"].peak_memory_bytes is None  # XLA's CPU device does not tell
    shell.run("del big, product")
    shell.run("1")
    gc.collect()
    assert [reference() for reference in alive] == [None, None]


def test_a_finished_cell_leaves_no_twin_alive(torch_shell):
    shell = torch_shell
    shell.run("import torch\nhost = torch.ones(32, 32)")
    shell.run("%%tpu_run -q\ntotal = float((host @ host).sum())")
    assert shell.user_ns["total"] == 32.0**3
    assert shell.user_ns["host"].device.type == "cpu"
    from tpu_magic.frameworks import adapter

    assert not adapter("torch").placement._twins


def test_out_of_memory_names_the_largest_objects(torch_shell):
    from tpu_magic.frameworks import adapter

    shell = torch_shell
    shell.run("""%%tpu_run -q
import torch
small = torch.ones(4, 4) @ torch.ones(4, 4)
large = torch.ones(64, 64) @ torch.ones(64, 64)
""")
    hint = adapter("torch").explain(
        RuntimeError("RESOURCE_EXHAUSTED: Attempting to allocate 42.81G"), shell.user_ns
    )
    assert hint is not None
    assert hint.index("large") < hint.index("small")
