"""One adapter per simulator; an adapter is the only place that imports its simulator. Nothing is imported here."""
