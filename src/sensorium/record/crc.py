"""CRC-32, the checksum of MCAP files: with the vector instructions of the processor where `isal` is installed."""

try:
    from isal.isal_zlib import crc32
except ImportError:  # no wheel for this processor
    from zlib import crc32

__all__ = ["crc32"]
