"""Homes of whole daemons lie in memory where the system has such a folder."""

from tests.support.memory_home import tmp_path

__all__ = ["tmp_path"]
