"""Makes `page/vendor/` of the inspector from npm packages of fixed versions, or compares what is there with that.

`python scripts/vendor.py` writes the folder: one minified module of all libraries, their licences, and a manifest of
versions and hashes. `--check` makes it again in a temporary folder and exits with 1 where a byte differs. It needs npm
and its registry; without them it exits with 3.
"""

import argparse
import hashlib
import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
VENDOR = ROOT / "src/dragoman/web/inspector/page/vendor"
NO_NPM = 3
SECONDS = 300

PACKAGES = {
    "preact": "10.29.8",
    "@preact/signals": "2.3.2",
    "@preact/signals-core": "1.12.1",
    "htm": "3.1.1",
    "uplot": "1.6.32",
    "diff": "8.0.2",
}
TOOLS = {"esbuild": "0.25.12"}

# What the page uses of them: all of it comes from this one module.
ENTRY = """\
export { h, render, Fragment, createContext } from "preact";
export { useState, useEffect, useLayoutEffect, useRef, useMemo, useCallback } from "preact/hooks";
export { signal, computed, effect, batch, untracked } from "@preact/signals";
export { diffLines } from "diff";
export { default as uPlot } from "uplot";
import { h } from "preact";
import htm from "htm";
export const html = htm.bind(h);
"""
BUILD = ("--bundle", "--format=esm", "--minify", "--target=es2022", "--legal-comments=none", "--charset=utf8")


def main() -> int:
    """Write the folder or compare it; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="compare, write nothing")
    chosen = parser.parse_args()
    npm = shutil.which("npm")
    if npm is None:
        print("npm is not here: nothing was made", file=sys.stderr)
        return NO_NPM
    with tempfile.TemporaryDirectory() as folder:
        try:
            made = make(npm, Path(folder))
        except subprocess.SubprocessError as error:
            print(f"npm could not make it: {error}", file=sys.stderr)
            return NO_NPM
    if chosen.check:
        return compare(made)
    VENDOR.mkdir(parents=True, exist_ok=True)
    for name, data in made.items():
        (VENDOR / name).write_bytes(data)
        print(f"{len(data):>8,} {name}")
    return 0


def make(npm: str, folder: Path) -> dict[str, bytes]:
    """Return the files of the folder, by their names."""
    (folder / "package.json").write_text(json.dumps({"private": True, "dependencies": PACKAGES | TOOLS}))
    install = (npm, "install", "--ignore-scripts", "--no-audit", "--no-fund", "--no-package-lock", "--loglevel=error")
    subprocess.run(install, cwd=folder, check=True, timeout=SECONDS, stdout=subprocess.DEVNULL)
    (folder / "entry.js").write_text(ENTRY)
    build = ("node_modules/.bin/esbuild", "entry.js", *BUILD, "--outfile=libraries.js")
    subprocess.run(build, cwd=folder, check=True, timeout=SECONDS, capture_output=True)
    files = {
        "libraries.js": (folder / "libraries.js").read_bytes(),
        "uplot.css": (folder / "node_modules/uplot/dist/uPlot.min.css").read_bytes(),
        "LICENSES.txt": licences(folder).encode(),
    }
    manifest = {
        "madeBy": "scripts/vendor.py",
        "packages": PACKAGES,
        "bundler": TOOLS,
        "sha256": {name: hashlib.sha256(data).hexdigest() for name, data in files.items()},
    }
    return {**files, "manifest.json": (json.dumps(manifest, indent=2) + "\n").encode()}


def licences(folder: Path) -> str:
    """Return the licence of every package, after a line with its name and version."""
    pieces = []
    for name, version in PACKAGES.items():
        package = folder / "node_modules" / name
        text = next(path.read_text() for path in sorted(package.iterdir()) if path.name.upper().startswith("LICEN"))
        pieces.append(f"{name} {version}\n{'=' * 40}\n\n{text.strip()}\n")
    return "\n\n".join(pieces)


def compare(made: dict[str, bytes]) -> int:
    """Say which files differ; return the exit status."""
    there = {path.name: path.read_bytes() for path in VENDOR.iterdir() if path.suffix != ".ts"}
    different = sorted(name for name in made.keys() | there.keys() if made.get(name) != there.get(name))
    for name in different:
        print(f"differs: {name}", file=sys.stderr)
    return 1 if different else 0


if __name__ == "__main__":
    raise SystemExit(main())
