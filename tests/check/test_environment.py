"""The compiler's own environment: found, planned, made only on consent, removed when it fails."""

import pytest

from tpu_magic.check import environment

SERVES = {"jax": "0.10.2", "jaxlib": "0.10.2", "libtpu": "0.0.42.1", "numpy": "2.4.6"}


@pytest.fixture
def nowhere(monkeypatch, tmp_path):
    """Return a machine where no interpreter has the compiler."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(environment, "_versions", lambda python: {})
    return tmp_path


@pytest.mark.parametrize(
    ("versions", "serves"),
    [
        (SERVES, True),
        ({**SERVES, "jax": "0.7.2"}, False),  # Colab's: its own place is needed there
        ({name: SERVES[name] for name in ("jax", "jaxlib", "numpy")}, False),
    ],
)
def test_what_serves(versions, serves):
    assert environment._serves(versions) is serves


def test_without_consent_the_plan_is_shown_and_nothing_is_made(nowhere, shell, capsys):
    shell.run("%tpu_setup --compiler")
    said = capsys.readouterr().out
    assert str(nowhere) in said
    assert "nothing was done: %tpu_setup --compiler --yes consents to it" in said
    assert not environment.folder().parent.exists()


def test_a_look_is_no_consent(nowhere, shell, capsys):
    shell.run("%tpu_setup --compiler --yes --dry-run")
    assert "nothing was done" in capsys.readouterr().out
    assert not environment.folder().parent.exists()


def test_where_it_is_already_nothing_is_made(monkeypatch, shell, capsys, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(environment, "_versions", lambda python: SERVES)
    shell.run("%tpu_setup --compiler --yes")
    said = capsys.readouterr().out
    assert "the compiler is there: libtpu 0.0.42.1, jax 0.10.2, in this notebook's packages" in said
    assert not environment.folder().parent.exists()


def test_a_failed_installation_leaves_nothing_behind(nowhere, monkeypatch):
    from IPython.core.error import UsageError

    monkeypatch.setattr(environment, "_REQUIREMENTS", ("no-such-package-of-anyone==0",))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    with pytest.raises(UsageError, match="could not be made"):
        environment.prepare(consent=True)
    assert not environment.folder().exists()


def test_a_check_without_a_compiler_says_how_to_get_it(nowhere):
    from IPython.core.error import UsageError

    with pytest.raises(UsageError, match="%tpu_setup --compiler"):
        environment.required()
