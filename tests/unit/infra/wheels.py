"""A package index of small wheels, whose packages cannot be imported."""

import hashlib
import zipfile
from collections.abc import Mapping
from pathlib import Path


def write(index: Path, package: str, members: Mapping[str, bytes], version: str = "1.0") -> str:
    """Add a wheel to the folder; its SHA-256."""
    index.mkdir(exist_ok=True)
    name = package.replace("-", "_")
    wheel = index / f"{name}-{version}-py3-none-any.whl"
    info = f"{name}-{version}.dist-info"
    with zipfile.ZipFile(wheel, "w") as archive:
        for member, data in members.items():
            archive.writestr(member, data)
        archive.writestr(f"{name}/__init__.py", "raise SystemExit('never import a model package')")
        archive.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {package}\nVersion: {version}\n")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")
    return hashlib.sha256(wheel.read_bytes()).hexdigest()
