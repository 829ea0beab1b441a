"""P48: in a cell the device can be named, since torch_xla is there before the person's code."""

import pytest


def test_the_name_works_in_a_cell_that_imports_nothing_for_it(kernel):
    pytest.importorskip("torch_xla")
    reply = kernel.run(
        '%%tpu_run -q --framework torch\nimport torch\nstr(torch.ones(1).to("xla").device)'
    )
    assert reply.check().value == "'xla:0'"
    assert kernel.run("import tpu_magic\nstr(tpu_magic.device())").check().value == "'xla:0'"
