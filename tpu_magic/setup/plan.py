"""From facts to a plan: pure, so that every row of the tables is a test without a machine.

A plan is one resolver call with exact pins, a list of what must not move, and the reasons.
"Everything fits" is the common case: then nothing is installed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from packaging.utils import canonicalize_name
from packaging.version import Version

from tpu_magic.frameworks.keras import choose
from tpu_magic.setup import versions as table
from tpu_magic.setup.plan_torch import torch_plan
from tpu_magic.setup.situation import Plan, Situation

_RELEASES_ONLY = (
    "--version nightly: tpu_magic installs releases only, since it knows no index of nightly "
    "builds of which it can say that they fit together"
)
_NO_NIGHTLY = {
    "torch": "--version nightly: there are no nightly wheels to install, torch_xla's ended with "
    f"its last release, {table.TORCH_XLA[0].torch_xla}"
}


def make_plan(situation: Situation) -> Plan:
    """Return the plan for what is wanted, from what is here."""
    if "nightly" in (situation.version or ""):
        return Plan(
            situation.framework,
            adapter=situation.framework,
            refusal=_NO_NIGHTLY.get(situation.framework, _RELEASES_ONLY),
            ways=(
                f"%tpu_setup --framework {situation.framework} takes the newest release that fits, "
                "--version 2.8 (a number) one that you name",
            ),
        )
    makers: dict[str, Callable[[Situation], Plan]] = {
        "torch": torch_plan,
        "keras": _keras_plan,
        "tf": _tensorflow_plan,
        "jax": _jax_plan,
    }
    return with_constraints(makers[situation.framework](situation), situation)


def with_constraints(plan: Plan, situation: Situation) -> Plan:
    """Add the pins of what is installed and not changed, so that nothing else moves."""
    if not plan.installs:
        return plan
    changed = {canonicalize_name(name) for name in plan.changed}
    kept = tuple(
        f"{name}=={version}"
        for name, version in situation.versions.items()
        if canonicalize_name(name) not in changed
    )
    return replace(plan, constraints=kept)


def _jax_plan(situation: Situation) -> Plan:
    plan, version = partial(Plan, "jax", "jax"), situation.version
    python, found = situation.python[1], situation.versions.get("jax")
    on_tpu = situation.target == "tpu"
    row = next((row for row in table.JAX if row[0] <= python), None)
    if found and version in (None, found):
        if not on_tpu or situation.has("libtpu"):
            return plan(reasons=(f"jax {found} is installed",))
        wanted = situation.demands.get("jax", "")
        why = f"jax {found} is installed; the TPU needs libtpu, of which it wants {wanted or 'any'}"
        return plan(installs=(f"libtpu{wanted}",), reasons=(why,))
    if version is not None:
        return plan(installs=(f"jax=={version}",), reasons=(f"jax {version} is asked for",))
    if row is None:
        return plan(refusal=f"no jax that works with a TPU has wheels for Python 3.{python}")
    first, release, libtpu = row
    if situation.has("torch_xla") and first >= table.JAX_BESIDE_TORCH_XLA[0]:
        release = table.JAX_BESIDE_TORCH_XLA[1]
        why = f"jax {release} goes with torch_xla; without its tpu extra, which would move libtpu"
        return plan(installs=(f"jax=={release}",), reasons=(why,))
    return plan(
        installs=(f"jax=={release}", *((f"libtpu=={libtpu}",) if on_tpu else ())),
        reasons=(f"jax {release} is the newest that is known to fit Python 3.{python}",),
    )


def _keras_plan(situation: Situation) -> Plan:
    """Plan Keras and its backend."""
    version = situation.version
    chosen = choose(
        None,
        situation.environ,
        situation.has,
        tensorflow_loaded="tensorflow" in situation.loaded,
        on_tpu=situation.target == "tpu",
    )
    backend = chosen.name
    reasons = [f"Keras backend {backend}: {chosen.why}"]
    if situation.target == "tpu" and backend == "jax":
        reasons.append(_NO_TENSORFLOW)
    keras = situation.versions.get("keras")
    if keras and (keras == version if version else Version(keras) >= Version(table.KERAS)):
        reasons.append(f"keras {keras} is installed")
        installs: tuple[str, ...] = ()
    else:
        reasons.append(f"keras {keras} is not what is wanted" if keras else "keras is missing")
        installs = (f"keras=={version}" if version else f"keras>={table.KERAS}",)
    makers = {"jax": _jax_plan, "tensorflow": _tensorflow_plan}
    maker = makers.get(backend, partial(_other_backend, backend=backend))
    below = maker(replace(situation, version=None))
    return replace(
        below,
        framework="keras",
        adapter="keras",
        environ={"KERAS_BACKEND": backend},
        installs=() if below.refusal else (*installs, *below.installs),
        reasons=(*reasons, *below.reasons),
    )


def _other_backend(situation: Situation, backend: str) -> Plan:
    """Take a backend that this plan cannot install: it is there, or refused."""
    if situation.has(backend):
        return Plan("keras", "keras", reasons=(f"{backend} is installed",))
    refusal = f"KERAS_BACKEND={backend} is set, but {backend} is not installed"
    return Plan("keras", "keras", refusal=refusal, ways=("set KERAS_BACKEND=jax",))


_NO_TENSORFLOW = (
    "tensorflow is missing for the TPU: today's images carry none, since its libtpu clashes with "
    "torch_xla's and jax's. Keras on JAX needs none; what tensorflow-tpu would take: "
    "%tpu_setup --framework tf --dry-run"
)


def _tensorflow_plan(situation: Situation) -> Plan:
    plan, version = partial(Plan, "tf", "tf"), situation.version
    present = next((n for n in table.MODULES["tensorflow"] if situation.has(n)), None)
    found = f"{present} {situation.versions[present]}" if present else ""
    if situation.target != "tpu":
        if present and version in (None, situation.versions[present]):
            return plan(reasons=(f"{found} is installed",))
        pin = f"tensorflow-cpu=={version}" if version else "tensorflow-cpu"
        why = f"{found} is not what is asked for" if present else "tensorflow is missing"
        return plan(installs=(pin,), reasons=(why,))
    if situation.has("tensorflow-tpu"):
        return plan(
            reasons=(f"tensorflow-tpu {situation.versions['tensorflow-tpu']} is installed",)
        )
    release, libtpu, (first, last) = table.TENSORFLOW_TPU
    missing = "tensorflow is missing: today's TPU images carry none for the TPU"
    reasons = (f"{found} has no TPU kernels" if present else missing,)
    on_jax = "%tpu_setup --framework keras runs Keras on JAX, which needs no TensorFlow"
    if not first <= situation.python[1] <= last:
        return plan(
            refusal=f"tensorflow-tpu {release} has wheels for Python 3.{first} to 3.{last}, "
            f"this is 3.{situation.python[1]}",
            reasons=reasons,
            ways=(on_jax,),
        )
    installs = (f"tensorflow-tpu=={release}", f"libtpu=={libtpu}")
    if others := [name for name in ("torch_xla", "torch_tpu", "jax") if situation.has(name)]:
        return plan(
            refusal=f"tensorflow-tpu {release} needs libtpu {libtpu}, with which "
            f"{' and '.join(others)} stop working here",
            reasons=reasons,
            ways=(f"in an environment of its own: pip install {' '.join(installs)}", on_jax),
        )
    return plan(installs=installs, reasons=reasons)
