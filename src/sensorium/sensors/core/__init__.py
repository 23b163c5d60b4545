"""Base classes of every sensor: the contract for authors and the interface for readers."""
