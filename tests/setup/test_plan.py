from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from packaging.requirements import Requirement
from packaging.version import Version

from tpu_magic.host.detect import HostFacts
from tpu_magic.setup import versions
from tpu_magic.setup.plan import make_plan
from tpu_magic.setup.situation import Situation

CPU_INDEX = "https://download.pytorch.org/whl/cpu"
COLAB = {
    "torch": "2.9.0+cpu",
    "torch_xla": "2.9.0",
    "libtpu": "0.0.21.1",
    "jax": "0.7.2",
    "jaxlib": "0.7.2",
    "keras": "3.13.2",
    "numpy": "2.1.3",
}
KAGGLE = {
    "torch": "2.8.0+cpu",
    "torch_xla": "2.8.0",
    "libtpu": "0.0.17",
    "tensorflow-cpu": "2.20.0",
    "keras": "3.12.0",
    "jax": "0.8.1",
}


@pytest.fixture
def plan(make_situation, places):
    def make(installed=None, place="plain", **more):
        return make_plan(make_situation(installed, places[place], **more))

    return make


@pytest.mark.parametrize(("image", "python"), [(COLAB, (3, 13)), (KAGGLE, (3, 12))])
@pytest.mark.parametrize("framework", ["torch", "keras", "jax"])
def test_nothing_to_do_on_the_product_images_though_their_pins_disagree(
    plan, image, python, framework
):
    made = plan(image, "v5e", python=python, framework=framework, demands={"jax": "==0.0.23"})
    assert made.fits
    assert made.installs == made.uninstalls == ()


def test_torch_without_torch_xla_gets_the_release_of_its_number_and_stays(plan):
    made = plan({"torch": "2.8.0+cpu", "numpy": "2.1.3"})
    assert made.installs == ("torch_xla==2.8.1",)
    assert made.constraints == ("torch==2.8.0+cpu", "numpy==2.1.3")
    assert made.indexes == ()


def test_a_tpu_gets_the_libtpu_that_the_release_was_built_for(plan):
    assert plan({"torch": "2.8.0"}, "v5e").installs == (
        "torch_xla==2.8.1",
        "libtpu==0.0.17",
        "tpu-info",
    )


@pytest.mark.parametrize(("minor", "libtpu"), [(12, "0.0.21"), (13, "0.0.21.1")])
def test_on_python_3_13_the_libtpu_with_a_wheel_is_taken(plan, minor, libtpu):
    made = plan({"torch": "2.9.0", "torch_xla": "2.9.0"}, "v5e", python=(3, minor))
    assert made.installs == (f"libtpu=={libtpu}",)
    # the extra would pin the one without a wheel
    assert "[tpu]" not in " ".join(made.installs)


def test_nothing_installed_gets_the_cpu_build_of_torch_in_one_call(plan):
    made = plan({"numpy": "2.1.3"}, "v5e", python=(3, 11))
    assert made.installs == (
        "torch==2.9.0+cpu",
        "torch_xla==2.9.0",
        "libtpu==0.0.21",
        "tpu-info",
    )
    assert made.indexes == (CPU_INDEX,)
    assert made.constraints == ("numpy==2.1.3",)


def test_companions_move_with_torch(plan):
    made = plan({"torch": "2.13.0", "torchvision": "0.28.0", "torchaudio": "2.11.0"}, version="2.9")
    assert made.installs == (
        "torch==2.9.0+cpu",
        "torchvision==0.24.0+cpu",
        "torchaudio==2.9.0+cpu",
        "torch_xla==2.9.0",
    )


def test_a_mismatch_is_told_and_torch_xla_follows_torch(plan):
    made = plan({"torch": "2.8.0+cpu", "torch_xla": "2.9.0"})
    assert (
        "torch 2.8.0 and torch_xla 2.9.0 are different releases; torch_xla 2.9.0 needs torch 2.9.x"
        in made.reasons
    )
    assert made.installs == ("torch_xla==2.8.1",)
    assert "--version 2.9" in made.ways[0]


def test_a_torch_that_no_torch_xla_exists_for_is_refused_with_two_ways_out(plan):
    made = plan({"torch": "2.13.0"})
    assert "2.13.0" in made.refusal
    assert made.installs == ()
    assert len(made.ways) == 2
    assert "--version 2.9" in made.ways[0]
    assert "torch_tpu==0.2.0" in made.ways[1]


def test_torch_tpu_is_no_way_out_for_a_torch_that_it_does_not_take(plan):
    assert len(plan({"torch": "2.10.0"}).ways) == 1


def test_a_mismatch_without_a_release_for_torch_is_refused_and_explained(plan):
    made = plan({"torch": "2.13.0", "torch_xla": "2.9.0"}, "v5e")
    assert made.refusal.startswith(
        "torch 2.13.0 and torch_xla 2.9.0 are different releases; torch_xla 2.9.0 needs torch "
        "2.9.x, and there is no torch_xla for torch 2.13.0"
    )


def test_the_placeholder_release_counts_as_missing(plan):
    made = plan({"torch": "2.9.0", "torch_xla": "1.0"})
    assert made.installs == ("torch_xla==2.9.0",)
    assert any("placeholder" in reason for reason in made.reasons)


def test_a_python_without_wheels_is_told_which_have_them(plan):
    made = plan({"torch": "2.7.0"}, python=(3, 13))
    assert "Python 3.9 to 3.11, this is 3.13" in made.refusal
    assert "--version 2.9" in made.ways[0]
    assert plan({}, python=(3, 14)).refusal


def test_another_platform_is_told_and_can_use_torch_as_it_is(plan):
    assert "Linux" in plan({"torch": "2.9.0"}, linux_x86_64=False).refusal
    made = plan({"torch": "2.9.0"}, linux_x86_64=False, device="cpu")
    assert (made.fits, made.adapter) == (True, "torch-eager")


def test_torch_on_a_gpu_is_left_as_it_is(plan):
    made = plan({"torch": "2.13.0"}, "gpu")
    assert (made.fits, made.adapter) == (True, "torch-eager")


def test_torch_for_a_gpu_is_its_default_build(plan):
    made = plan({}, "gpu")
    assert (made.installs, made.indexes, made.adapter) == (("torch",), (), "torch-eager")
    assert plan({"torch": "2.9.0"}, "gpu", version="2.13").installs == ("torch==2.13",)
    assert plan({"torch": "2.9.0+cu128"}, "gpu", version="2.9").fits


def test_a_change_of_release_changes_libtpu_only_when_it_must(plan):
    wrong = {"torch": "2.9.0", "torch_xla": "2.8.0"}
    made = plan({**wrong, "libtpu": "0.0.21.1"}, "v5e")
    assert made.installs == ("torch_xla==2.9.0", "tpu-info")
    made = plan({**wrong, "libtpu": "0.0.17", "tpu-info": "0.8"}, "v5e")
    assert made.installs == ("torch_xla==2.9.0", "libtpu==0.0.21")
    made = plan({**wrong, "libtpu-nightly": "0.1", "tpu-info": "0.8"}, "v5e")
    assert (made.uninstalls, made.installs[-1]) == (("libtpu-nightly",), "libtpu==0.0.21")
    made = plan({**wrong, "libtpu-nightly": "0.1", "libtpu": "0.0.21"}, "v5e")
    assert made.uninstalls == ("libtpu", "libtpu-nightly")


def test_a_release_that_is_asked_for_never_leaves_torch_tpu_beside_it(plan):
    both = {"torch": "2.9.0", "torch_xla": "2.9.0", "torch_tpu": "0.2.0"}
    assert plan(both, version="2.9").uninstalls == ("torch_tpu",)
    assert plan(both, version="2.8").uninstalls == ("torch_tpu",)


def test_the_processor_of_a_tpu_machine_is_torch_as_it_is(plan):
    assert plan(COLAB, "v5e", device="cpu").adapter == "torch-eager"
    assert plan(COLAB, "plain", device="cpu").adapter == "torch"


@pytest.mark.parametrize(
    ("torch", "goes", "adapter"),
    [("2.9.0", "torch_tpu", "torch"), ("2.13.0", "torch_xla", "torch-tpu")],
)
def test_torch_xla_beside_torch_tpu_is_never_left(plan, torch, goes, adapter):
    made = plan({"torch": torch, "torch_xla": "2.9.0", "torch_tpu": "0.2.0"}, "v5e")
    assert (made.uninstalls, made.installs, made.adapter) == ((goes,), (), adapter)


def test_two_libtpus_both_go_before_one_comes_back(plan):
    made = plan({**COLAB, "libtpu-nightly": "0.1.dev20240916"}, "v5e")
    assert made.uninstalls == ("libtpu", "libtpu-nightly")
    assert made.installs == ("libtpu==0.0.21",)
    assert not any(pin.startswith("libtpu") for pin in made.constraints)


def test_another_libtpu_is_told_and_left_alone(plan):
    made = plan({**COLAB, "libtpu": "0.0.23"}, "v5e")
    assert made.fits
    assert any("0.0.23" in reason for reason in made.reasons)


def test_libtpu_is_of_no_concern_without_a_tpu(plan):
    assert plan({"torch": "2.9.1", "torch_xla": "2.9.0"}).fits


@pytest.mark.parametrize(
    ("version", "installs"),
    [
        ("2.8", ("torch==2.8.0+cpu", "torch_xla==2.8.1")),
        ("2.8.1", ("torch==2.8.0+cpu", "torch_xla==2.8.1")),
        ("2.9", ()),
    ],
)
def test_a_release_that_is_asked_for(plan, version, installs):
    assert plan({"torch": "2.9.0", "torch_xla": "2.9.0"}, version=version).installs == installs


def test_a_release_that_torch_already_has_keeps_torch(plan):
    made = plan({"torch": "2.8.0", "torch_xla": "2.9.0"}, version="2.8")
    assert made.installs == ("torch_xla==2.8.1",)


def test_an_old_release_on_a_tpu_takes_its_libtpu_from_the_page_that_has_it(plan):
    made = plan({}, "v5e", python=(3, 10), version="2.5")
    assert "libtpu-nightly==0.1.dev20240916" in made.installs
    assert made.links == ("https://storage.googleapis.com/libtpu-releases/index.html",)


def test_an_unknown_release_is_answered_with_those_that_there_are(plan):
    made = plan({}, version="2.11", python=(3, 12))
    assert made.refusal == "torch_xla has no release 2.11"
    assert made.ways[0].endswith("2.9, 2.8")


def test_a_nightly_is_refused_in_words_that_name_the_way(plan):
    refusal = plan({}, version="nightly").refusal
    assert refusal.startswith("--version nightly: there are no nightly wheels")
    assert "2.9.0" in refusal
    made = plan({"jax": "0.7.2"}, version="nightly", framework="jax")
    assert made.refusal.startswith("--version nightly: ")
    assert "torch" not in made.refusal
    assert made.ways[0].startswith("%tpu_setup --framework jax takes")


def test_torch_tpu_on_a_tpu_fits_when_libtpu_is_there(plan):
    both = {"torch": "2.13.0", "torch_tpu": "0.2.0"}
    assert plan(both, "v5e").installs == ("libtpu==0.0.50.1",)
    made = plan({**both, "libtpu": "0.0.52"}, "v5e")
    assert (made.fits, made.adapter) == (True, "torch-tpu")


def test_torch_tpu_without_a_tpu_is_left_alone(plan):
    made = plan({"torch": "2.13.0", "torch_tpu": "0.2.0", "libtpu": "0.0.52"})
    assert "no TPU" in made.refusal
    assert plan({"torch": "2.13.0", "torch_tpu": "0.2.0"}, device="cpu").adapter == "torch-eager"


@pytest.mark.parametrize("torch", ["2.10.0", "2.15.1"])
def test_torch_tpu_with_a_torch_that_it_does_not_take(plan, torch):
    made = plan({"torch": torch, "torch_tpu": "0.2.0"}, "v5e")
    assert "2.11.0 to 2.15.0" in made.refusal


def test_keras_on_a_tpu_runs_on_jax_and_tensorflow_is_said_to_be_missing(plan):
    made = plan({**COLAB}, "v5e", framework="keras", python=(3, 13))
    assert made.environ == {"KERAS_BACKEND": "jax"}
    assert any("tensorflow is missing" in reason for reason in made.reasons)


@pytest.mark.parametrize(
    ("installed", "more", "backend"),
    [
        ({"keras": "3.10.0", "jax": "0.7.2"}, {}, "jax"),
        ({"keras": "3.10.0", "tensorflow-cpu": "2.20.0"}, {}, "tensorflow"),
        ({"keras": "3.10.0", "tensorflow-cpu": "2.20.0", "jax": "0.7.2"}, {}, "jax"),
        (
            {"keras": "3.10.0", "tensorflow": "2.20.0", "jax": "0.7.2"},
            {"loaded": ("tensorflow",)},
            "tensorflow",
        ),
        ({"keras": "3.10.0", "torch": "2.9.0"}, {"environ": {"KERAS_BACKEND": "torch"}}, "torch"),
    ],
)
def test_keras_takes_the_backend_that_is_configured_loaded_or_installed(
    plan, installed, more, backend
):
    made = plan(installed, framework="keras", **more)
    assert made.environ == {"KERAS_BACKEND": backend}
    assert made.fits


def test_a_configured_backend_that_is_not_installed_is_refused(plan):
    made = plan({"keras": "3.10.0"}, framework="keras", environ={"KERAS_BACKEND": "torch"})
    assert "torch is not installed" in made.refusal


def test_keras_on_a_tpu_build_of_tensorflow(plan):
    installed = {"keras": "3.10.0", "tensorflow-tpu": "2.19.1", "libtpu": "0.0.10"}
    made = plan(installed, "v5e", framework="keras")
    assert (made.fits, made.environ) == (True, {"KERAS_BACKEND": "tensorflow"})


@pytest.mark.parametrize(
    ("python", "jax"), [((3, 12), "0.12.0.1"), ((3, 11), "0.7.2"), ((3, 10), "0.6.2")]
)
def test_keras_with_nothing_installed_gets_a_jax_for_this_python(plan, python, jax):
    made = plan({}, framework="keras", python=python)
    assert made.installs == ("keras>=3.10", f"jax=={jax}")


def test_an_old_keras_or_another_release_is_replaced(plan):
    assert plan({"keras": "2.15.0", "jax": "0.7.2"}, framework="keras").installs == ("keras>=3.10",)
    made = plan({"keras": "3.15.1", "jax": "0.7.2"}, framework="keras", version="3.13.2")
    assert made.installs == ("keras==3.13.2",)


def test_a_refusal_below_keras_installs_nothing(plan):
    made = plan({}, framework="keras", python=(3, 9))
    assert (made.refusal != "", made.installs) == (True, ())


def test_jax_takes_the_libtpu_that_it_wants(plan):
    made = plan({"jax": "0.8.1"}, "v5e", framework="jax", demands={"jax": "==0.0.30.*"})
    assert made.installs == ("libtpu==0.0.30.*",)
    assert plan({}, "v5e", framework="jax", python=(3, 12)).installs == (
        "jax==0.12.0.1",
        "libtpu==0.0.50.1",
    )


@pytest.mark.parametrize(("python", "jax"), [((3, 12), "0.7.2"), ((3, 10), "0.6.2")])
def test_jax_beside_torch_xla_never_moves_libtpu(plan, python, jax):
    made = plan(
        {"torch": "2.9.0", "torch_xla": "2.9.0", "libtpu": "0.0.21"},
        "v5e",
        framework="jax",
        python=python,
    )
    assert f"jax=={jax}" in made.installs
    assert not any(name.startswith("libtpu") for name in made.installs) or python == (3, 10)


def test_jax_release_that_is_asked_for(plan):
    assert plan({"jax": "0.7.2"}, framework="jax", version="0.7.1").installs == ("jax==0.7.1",)


def test_tensorflow_off_a_tpu(plan):
    assert plan({"tensorflow-cpu": "2.20.0"}, framework="tf").fits
    assert plan({}, framework="tf").installs == ("tensorflow-cpu",)
    made = plan({"tensorflow": "2.20.0"}, framework="tf", version="2.19.1")
    assert made.installs == ("tensorflow-cpu==2.19.1",)


def test_tensorflow_on_a_tpu_has_consequences_that_are_said(plan):
    made = plan(COLAB, "v5e", framework="tf", python=(3, 12))
    assert "torch_xla and jax" in made.refusal
    assert "0.0.10" in made.refusal
    assert any("keras" in way for way in made.ways)
    assert "3.10 to 3.12" in plan(COLAB, "v5e", framework="tf", python=(3, 13)).refusal
    alone = plan({"tensorflow-cpu": "2.20.0"}, "v5e", framework="tf", python=(3, 12))
    assert alone.installs == ("tensorflow-tpu==2.19.1", "libtpu==0.0.10")
    assert "no TPU kernels" in alone.reasons[0]
    assert plan({"tensorflow-tpu": "2.19.1"}, "v5e", framework="tf").fits


PACKAGES = st.dictionaries(
    st.sampled_from(versions.PACKAGES),
    st.sampled_from(["1.0", "2.5.1", "2.8.0+cpu", "2.9.0", "2.13.0", "3.12.0", "0.0.21", "0.7.2"]),
)


FACTS = st.builds(
    lambda chips, gpu: HostFacts("plain", None, None, chips, chips, 1, gpu, (), ()),
    st.integers(0, 1),
    st.booleans(),
)
SITUATIONS = st.builds(
    Situation,
    facts=FACTS,
    framework=st.sampled_from(["torch", "keras", "tf", "jax"]),
    versions=PACKAGES,
    python=st.tuples(st.just(3), st.integers(8, 15)),
    linux_x86_64=st.booleans(),
    version=st.sampled_from([None, "2.8", "2.9.0", "7", "nightly"]),
    device=st.sampled_from(["auto", "tpu", "gpu", "cpu"]),
)


@given(SITUATIONS)
def test_any_plan_is_honest(situation):
    made, installed = make_plan(situation), situation.versions
    assert made.refusal or made.reasons
    if made.refusal:
        assert not made.installs
        assert not made.uninstalls
    changed = {name.replace("_", "-") for name in made.changed}
    kept = {Requirement(pin).name.replace("_", "-") for pin in made.constraints}
    assert not changed & kept
    names = [Requirement(pin).name for pin in made.installs]
    assert len(set(names)) == len(names)
    after = {
        name: version for name, version in installed.items() if name not in made.uninstalls
    } | {Requirement(pin).name: pin.partition("==")[2] for pin in made.installs}
    if made.adapter == "torch" and situation.framework == "torch" and not made.refusal:
        assert versions.minor(after["torch"]) == versions.minor(after["torch_xla"])
        assert "torch_tpu" not in after
    if made.fits and made.adapter == "torch-tpu":
        assert Version(versions.public(after["torch"])) >= Version("2.11")
