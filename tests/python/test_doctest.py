"""The examples in the docstrings of the package must print the documented results. Modules that require a missing
package are skipped."""
import doctest
import importlib
import pkgutil
import sys

import mha


def main():
    attempted = failed = 0
    for found in pkgutil.walk_packages(mha.__path__, "mha."):
        try:
            module = importlib.import_module(found.name)
        except ImportError as missing:
            print(f"skipped: the examples of {found.name}: {missing}")
            continue
        result = doctest.testmod(module)
        attempted, failed = attempted + result.attempted, failed + result.failed
    print(f"{attempted - failed} of {attempted} examples print the documented results")
    return bool(failed or attempted < 20)


if __name__ == "__main__":
    sys.exit(main())
