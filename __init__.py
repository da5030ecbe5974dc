"""A script beside a checkout that is called mha imports this folder as the package mha: it is the one in python/mha."""
from pathlib import Path

__path__ = [str(Path(__file__).with_name("python") / "mha")]
exec(compile((Path(__path__[0]) / "__init__.py").read_text(encoding="utf-8"), __path__[0] + "/__init__.py", "exec"))
