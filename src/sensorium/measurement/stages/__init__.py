"""Stages: imperfections beyond the standard chain, each with config and behaviour in one class.

They use only the public contract of `StageCfg`, as a plugin's stage would.
"""
