"""Views of engine state in one convention, and the grammar for selection by name."""
