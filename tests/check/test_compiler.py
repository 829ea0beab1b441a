"""The real compiler on programs whose figures are known by hand."""

import sys
from pathlib import Path

import pytest

from tests.check.conftest import needs_compiler
from tpu_magic.check import assemble, compiler, environment
from tpu_magic.check.child import Program
from tpu_magic.check.places import CELL, Person
from tpu_magic.check.targets import TARGETS, target_of

pytestmark = needs_compiler


@pytest.fixture
def ask(tmp_path):
    """Return a function that compiles a jax function for targets, O1, and gives the reports."""
    import jax
    from jaxlib.mlir.dialects import stablehlo

    def run(function, *shapes, targets=("v5e-1",), level="O1", precision="default"):
        lowered = jax.jit(function).trace(*shapes).lower(lowering_platforms=("tpu",))
        path = tmp_path / f"{len(list(tmp_path.iterdir()))}.bc"
        path.write_bytes(
            stablehlo.serialize_portable_artifact(
                lowered.compiler_ir("stablehlo"), stablehlo.get_minimum_version()
            )
        )
        jobs = [
            compiler.Job(str(path), target_of(name), 1, level, False, False) for name in targets
        ]
        outcome = compiler.compile_all(jobs, environment.required(), tmp_path, 200)
        reports = [
            assemble.program_report(
                Program(str(path), None),
                answer,
                job.target,
                precision,
                Person({}),
                timed=level == "full",
            )
            for job, answer in zip(jobs, outcome.answers, strict=True)
        ]
        return reports if len(reports) > 1 else reports[0], outcome

    return run


def shape(*sizes, dtype="bfloat16"):
    import jax

    return jax.ShapeDtypeStruct(sizes, dtype)


def test_a_chain_of_matrix_products(ask):
    report, outcome = ask(lambda a, b, c: (a @ b) @ c, *[shape(2048, 2048)] * 3, level="full")
    assert report.flops == pytest.approx(2 * 2 * 2048**3, rel=0.02)
    assert report.arguments_bytes == 3 * 2048**2 * 2
    assert report.outputs_bytes == 2048**2 * 2
    # 34.4 G operations at 197 T a second; 33.6 MB at 819 GB a second take a quarter of it.
    assert report.floor_s == pytest.approx(2 * 2 * 2048**3 / 197e12)
    assert report.bound_by == "compute"
    # The compiler's clock and the chip table's peak agree within what overlap can cost.
    assert report.floor_s <= report.estimate_s < 3 * report.floor_s
    assert outcome.peak_bytes > 1 << 26


@pytest.mark.parametrize("layers", [1, 10, 100])
def test_a_scan_counts_its_layers(ask, layers):
    import jax

    def scan(w, x):
        return jax.lax.scan(lambda h, one: (jax.numpy.tanh(h @ one), None), x, w)[0]

    report, _ = ask(scan, shape(layers, 512, 512), shape(256, 512))
    assert report.flops == pytest.approx(layers * 2 * 256 * 512 * 512, rel=0.02)


def test_a_convolution_and_an_embedding(ask):
    import jax

    convolution, _ = ask(
        lambda x, k: jax.lax.conv_general_dilated(x, k, (1, 1), "SAME"),
        shape(8, 64, 28, 28),
        shape(128, 64, 3, 3),
    )
    assert convolution.flops == pytest.approx(2 * 8 * 128 * 64 * (3 * 28 - 2) ** 2, rel=0.02)
    embedding, _ = ask(
        lambda e, i: e[i], shape(50_000, 512, dtype="float32"), shape(8, 128, dtype="int32")
    )
    assert embedding.arguments_bytes == pytest.approx(50_000 * 512 * 4 + 8 * 128 * 4, rel=0.02)
    assert embedding.outputs_bytes == 8 * 128 * 512 * 4
    assert embedding.bound_by == "memory"


def test_each_target_is_the_generation_that_is_compiled_for(ask):
    names = tuple(TARGETS)
    reports, outcome = ask(lambda a: a @ a, shape(512, 512), targets=names)
    for name, report, answer in zip(names, reports, outcome.answers, strict=True):
        generation = TARGETS[name].generation
        assert answer.device_kind in generation.device_kinds
        assert report.fits
        # The compiler keeps some of the memory to itself, and has no more than there is.
        assert 0.9 * generation.hbm_bytes_per_device < answer.limit_bytes
        assert answer.limit_bytes <= 1.01 * generation.hbm_bytes_per_device


def test_memory_grows_with_the_batch(ask):
    needs = []
    for batch in (64, 128, 256):
        report, _ = ask(lambda x, w: (x @ w) @ w.T, shape(batch, 4096), shape(4096, 4096))
        needs.append(report.arguments_bytes + report.outputs_bytes + report.temporaries_bytes)
    assert needs == sorted(needs)
    assert needs[0] < needs[-1]


def test_too_large_is_told_with_how_much(ask):
    import jax.numpy as jnp

    report, outcome = ask(
        lambda a: jnp.sort(a @ a.T, axis=0), shape(65_536, 128, dtype="float32")
    )  # 65536² floats are 16 GiB
    assert report.fits is False
    assert report.hbm_needed_bytes >= 16 * 2**30
    assert outcome.answers[0].limit_bytes < 16 * 2**30


def test_a_question_asked_again_is_answered_from_what_was_kept(ask, own_cache):
    def square(a):
        return a @ a

    def again(target):
        return ask(square, shape(256, 256), targets=(target,))  # one line: lines are in programs

    first, outcome = again("v5e-1")
    assert outcome.peak_bytes is not None
    kept, outcome = again("v5e-1")
    assert outcome.peak_bytes is None  # no child ran
    assert kept.cached
    assert not first.cached
    assert kept.arguments_bytes == first.arguments_bytes
    assert not again("v6e-1")[0].cached
    for path in own_cache.iterdir():
        path.write_bytes(b"not an answer")
    assert not again("v5e-1")[0].cached


def test_a_refusal_is_told_at_the_persons_line(tmp_path):
    kind = "tensor<256xcomplex<f64>>"
    path = tmp_path / "fft.mlir"
    path.write_text(
        f"module @m {{ func.func @main(%a: {kind}) -> {kind} {{\n"
        f"  %0 = stablehlo.fft %a, type = FFT, length = [256] : ({kind}) -> {kind} "
        f'loc("{CELL}":3:0)\n  return %0 : {kind}\n}} }}'
    )
    target = target_of("v5e-1")
    job = compiler.Job(str(path), target, 1, "O1", infer_aliases=False, shardy=False)
    (answer,) = compiler.compile_all([job], environment.required(), tmp_path, 200).answers
    person = Person({CELL: "\na = 1\nb = fft(a)"})
    report = assemble.program_report(
        Program(str(path), None), answer, target, "default", person, timed=False
    )
    assert report.compiles is False
    assert report.fits is None
    assert report.line == 3
    assert "FFT" in report.error
    (advice,) = assemble.wide_advice([answer], person)
    assert "complex128 (line 3: b = fft(a))" in advice.message


@pytest.mark.parametrize(
    ("program", "words"),
    [
        (
            "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)",
            "the compiler crashed with SIGSEGV",
        ),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", "ran out of memory"),
        ("import time; time.sleep(600)", "did not finish in 2 s"),
    ],
)
def test_a_compiler_that_breaks_is_a_sentence(tmp_path, monkeypatch, program, words):
    fake = tmp_path / "compiler.py"
    fake.write_text(program)
    monkeypatch.setattr(compiler, "PROGRAM", fake)
    (tmp_path / "graph").write_bytes(b"graph")
    job = compiler.Job(str(tmp_path / "graph"), target_of("v5e-1"), 1, "O1", False, False)
    place = environment.CompilerPlace(Path(sys.executable), {"jax": "0", "libtpu": "0"}, own=False)
    (answer,) = compiler.compile_all([job], place, tmp_path, 2).answers
    assert answer.compiles is None
    assert words in answer.error
