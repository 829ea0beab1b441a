"""What every result object can do: turn into a dict, JSON, a file, text and HTML."""

from __future__ import annotations

import dataclasses
import json
import os
import tempfile
import typing
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from tpu_magic.report import render

R = TypeVar("R", bound="Result")


@dataclasses.dataclass(frozen=True)
class Result:
    """Base of `CellReport`, `TimingResult`, `CheckReport` and `SetupReport`.

    A subclass is a dataclass with a `kind`, and says how it looks once, in `view()`;
    the text and the HTML are made from that view, so they cannot differ in a number.
    """

    kind: ClassVar[str]
    format_version: ClassVar[int] = 1

    def view(self) -> render.View:
        """Return what a person is shown."""
        raise NotImplementedError

    @classmethod
    def mime_type(cls) -> str:
        """Return the MIME type of the JSON form."""
        return f"application/vnd.tpu-magic.{cls.kind}+json"

    def to_dict(self) -> dict[str, Any]:
        """Return the result as plain JSON types, with its kind and format version."""
        return {"kind": self.kind, "version": self.format_version, **_plain(self)}

    def to_json(self, indent: int | None = None) -> str:
        """Return the result as JSON text."""
        return json.dumps(self.to_dict(), indent=indent)

    @classmethod
    def from_dict(cls: type[R], data: dict[str, Any]) -> R:
        """Build the result from what `to_dict` returned.

        Raises
        ------
        ValueError
            When the data is of another kind, or from a newer version of tpu_magic.
        """
        if data.get("kind") != cls.kind:
            raise ValueError(f"this is a {data.get('kind')!r}, not a {cls.kind!r}")
        if data.get("version", 0) > cls.format_version:
            raise ValueError(
                f"this {cls.kind} was written by a newer tpu_magic (format {data['version']})"
            )
        return typing.cast("R", _build(cls, data))

    @classmethod
    def from_json(cls: type[R], text: str) -> R:
        """Build the result from what `to_json` returned."""
        return cls.from_dict(json.loads(text))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the JSON to `path`; the file is either whole or not there."""
        target = Path(path)
        handle, temporary = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                file.write(self.to_json(indent=2) + "\n")
            Path(temporary).replace(target)
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise

    def __str__(self) -> str:
        return render.text(self.view())

    def _repr_mimebundle_(
        self,
        include: Any = None,
        exclude: Any = None,
    ) -> dict[str, Any]:
        view = self.view()
        return {
            "text/plain": render.text(view),
            "text/html": render.html(view),
            self.mime_type(): self.to_dict(),
        }

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(str(self))


def _plain(value: Any) -> Any:
    """Turn dataclasses, tuples and paths into JSON types."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: _plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [_plain(item) for item in value]
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    return value


def _build(annotation: Any, value: Any) -> Any:
    """Undo `_plain` for the type that a dataclass field declares."""
    if value is None:
        return None
    if dataclasses.is_dataclass(annotation) and isinstance(annotation, type):
        hints = typing.get_type_hints(annotation)
        known = {f.name for f in dataclasses.fields(annotation) if f.init}
        return annotation(
            **{name: _build(hints[name], item) for name, item in value.items() if name in known}
        )
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin in (list, tuple):
        inner = arguments[0] if arguments else Any
        return origin(_build(inner, item) for item in value)
    if origin is dict:
        return {key: _build(arguments[1], item) for key, item in value.items()}
    choices = [argument for argument in arguments if argument is not type(None)]
    if origin is not None and len(choices) == 1:
        return _build(choices[0], value)
    return value
