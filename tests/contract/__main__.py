"""``python -m tests.contract`` writes `docs/contract.md` anew."""

from .render import PAGE, render

PAGE.write_text(render(), encoding="utf-8")
print(f"wrote {PAGE}")
