"""Write docs/errors.md from the table of signatures."""

from pathlib import Path

from tpu_magic.setup.signatures import page

TARGET = Path(__file__).resolve().parent.parent / "docs" / "errors.md"

if __name__ == "__main__":
    TARGET.write_text(page(), encoding="utf-8")
