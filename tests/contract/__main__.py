"""``python -m tests.contract`` regenerates `docs/contract.md`."""

from .render import PAGE, render

PAGE.write_text(render(), encoding="utf-8")
print(f"wrote {PAGE}")
