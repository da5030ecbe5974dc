"""The build backend: scikit-build-core, with the C sources added to the sdist.

An sdist contains only files below its pyproject.toml, but the C sources are next to the folder `python` of the checkout. Therefore
an sdist is built from a copy of `python` with the sources in its subfolder `source`, where CMakeLists.txt finds them.
"""
import os
import shutil
import tempfile
from pathlib import Path

from scikit_build_core import build as _build
from scikit_build_core.build import (
    build_editable,
    build_wheel,
    get_requires_for_build_editable,
    get_requires_for_build_sdist,
    get_requires_for_build_wheel,
    prepare_metadata_for_build_editable,
    prepare_metadata_for_build_wheel,
)

__all__ = ["build_editable", "build_sdist", "build_wheel", "get_requires_for_build_editable", "get_requires_for_build_sdist",
           "get_requires_for_build_wheel", "prepare_metadata_for_build_editable", "prepare_metadata_for_build_wheel"]

_SOURCES = ("CMakeLists.txt", "LICENSE", "bench", "cli", "cmake", "conformance", "include", "mpi", "share", "src")
_IGNORED = shutil.ignore_patterns("__pycache__", "*.pyc", "build", "source")


def _stage(top, folder):
    """Copies the folder `python` of the checkout `top`, and the C sources into its subfolder `source`."""
    shutil.copytree(top / "python", folder, ignore=_IGNORED)
    for name in _SOURCES:
        of, to = top / name, folder / "source" / name
        if of.is_dir():
            shutil.copytree(of, to, ignore=_IGNORED)
        else:
            to.parent.mkdir(exist_ok=True)
            shutil.copy2(of, to)


def build_sdist(sdist_directory, config_settings=None):
    here = Path.cwd()
    if (here / "source").is_dir():  # the folder is an unpacked sdist
        return _build.build_sdist(sdist_directory, config_settings)
    target = os.path.abspath(sdist_directory)
    with tempfile.TemporaryDirectory() as place:
        _stage(here.parent, Path(place, "mha"))
        os.chdir(Path(place, "mha"))
        try:
            return _build.build_sdist(target, config_settings)
        finally:
            os.chdir(here)
