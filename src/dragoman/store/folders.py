"""Folders for what is private: entries, settings, weights. Knows nothing of what is kept in them."""

from pathlib import Path

__all__ = ["make_private_folder"]


def make_private_folder(folder: Path) -> Path:
    """Return the folder. It, and each parent that was missing, is made for its owner alone, whatever the umask."""
    if not folder.is_dir():
        if folder.parent != folder:
            make_private_folder(folder.parent)
        folder.mkdir(mode=0o700, exist_ok=True)
    return folder
