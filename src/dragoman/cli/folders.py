"""Where this platform keeps a user's settings, data and state. Creates nothing."""

import os
import sys
from pathlib import Path

__all__ = ["CONFIG_VARIABLE", "config_file", "data_folder", "default_store", "state_folder"]

APPLICATION = "dragoman"
CONFIG_VARIABLE = "DRAGOMAN_CONFIG"


def config_file() -> Path:
    """Return where the user's own settings are, whether they are there or not; DRAGOMAN_CONFIG names another file."""
    chosen = os.environ.get(CONFIG_VARIABLE)
    if chosen:
        return Path(chosen).expanduser()
    return _folder("XDG_CONFIG_HOME", ".config", "APPDATA") / "config.toml"


def data_folder() -> Path:
    """Return the folder for what a user keeps."""
    return _folder("XDG_DATA_HOME", ".local/share", "LOCALAPPDATA")


def state_folder() -> Path:
    """Return the folder for what the commands remember."""
    return _folder("XDG_STATE_HOME", ".local/state", "LOCALAPPDATA")


def default_store() -> Path:
    """Return the file in which sessions are kept where no other store is named."""
    return data_folder() / "sessions.db"


def _folder(variable: str, usual: str, windows: str) -> Path:
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Application Support" / APPLICATION
    if os.name == "nt":
        return Path(os.environ.get(windows) or Path.home() / "AppData" / "Local") / APPLICATION
    named = os.environ.get(variable, "")
    # The specification of these variables says that a relative path counts as none.
    return (Path(named) if named.startswith("/") else Path.home() / usual) / APPLICATION
