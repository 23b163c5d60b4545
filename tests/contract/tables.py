"""All documents, in the order of the page."""

from __future__ import annotations

from .carla import CARLA
from .genelab import GENELAB
from .genesis import GENESIS
from .isaaclab import ISAACLAB
from .mjlab import MJLAB
from .rows import Document

DOCUMENTS: tuple[Document, ...] = (ISAACLAB, MJLAB, GENESIS, GENELAB, CARLA)
