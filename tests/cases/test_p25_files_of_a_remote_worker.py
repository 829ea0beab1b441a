"""P25: a remote TPU worker cannot read local files: said, and only then."""

from __future__ import annotations

import pytest

from tpu_magic.frameworks import keras_errors


class UnimplementedError(Exception):
    """Named as TensorFlow's."""


def test_the_error_is_translated():
    error = UnimplementedError(
        "File system scheme '[local]' not implemented (file: '/content/data/train.tfrecord')"
    )
    hint = keras_errors.explain(error, {})
    assert "another machine" in hint
    assert "gs://" in hint
    assert "/job:localhost" in hint


@pytest.mark.parametrize("text", ["No such file: /content/data", "scheme 'gs' not implemented"])
def test_other_errors_about_files_are_not(text):
    assert keras_errors.explain(UnimplementedError(text), {}) is None
