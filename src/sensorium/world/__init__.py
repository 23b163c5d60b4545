"""Views of engine state in one convention, and the one grammar for choosing things by name."""
