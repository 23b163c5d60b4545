"""What Isaac Lab's `omni.isaac.lab.sensors` page names."""

from __future__ import annotations

from .rows import Document, Row

SECTIONS: dict[str, int] = {}
ROWS: tuple[Row, ...] = ()

ISAACLAB = Document("Isaac Lab", "omni.isaac.lab.sensors", SECTIONS, ROWS)
