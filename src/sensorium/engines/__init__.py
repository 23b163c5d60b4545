"""Adapters, one per simulator; only an adapter imports its simulator. This module imports none of them."""
