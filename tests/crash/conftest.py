"""What is killed here are processes, not disks: a kill loses nothing that was written, fsynced or not."""

from tests.support.memory_home import tmp_path

__all__ = ["tmp_path"]
