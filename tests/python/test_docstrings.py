"""Every public name of the package has a docstring, every method of a public class too, and every function and every class that users
construct has an example, which test_doctest runs."""
import inspect
import sys

import mha


def methods(kind):
    return {name: x for name, x in vars(kind).items() if not name.startswith("_") and (inspect.isfunction(x) or isinstance(x, (property, classmethod)))}


def documented(x):
    text = inspect.getdoc(x) or ""
    return len(text) > 20 and not text.startswith(f"{getattr(x, '__name__', '')}(")  # the docstring that dataclass() and NamedTuple generate


def is_record(kind):
    """Returns True for result and option classes. They need no example of their own: the examples of the functions that use them show them."""
    return hasattr(kind, "__dataclass_fields__") or issubclass(kind, (tuple, list)) or kind in (mha.Variant, mha.Trace, mha.TextStream, mha.Edit)


def has_example(x):
    return ">>>" in (x.__doc__ or "") or (inspect.isclass(x) and any(">>>" in (m.__doc__ or "") for m in methods(x).values()))


def main():
    public = {name: getattr(mha, name) for name in mha.__all__ if not isinstance(getattr(mha, name), str)}
    wrong = [f"mha.{name} must have a docstring" for name, x in public.items() if not documented(x)]
    for name, x in public.items():
        if inspect.isclass(x):
            wrong += [f"mha.{name}.{method} must have a docstring" for method, f in methods(x).items() if not inspect.getdoc(f)]
        if not (inspect.isclass(x) and is_record(x)) and not has_example(x) and name != "TokenizerTrainer":  # shown at mha.Tokenizer
            wrong.append(f"mha.{name} must have an example in its docstring")
    print(*wrong, f"{len(public)} public names", sep="\n")
    return bool(wrong or len(public) < 120)


if __name__ == "__main__":
    sys.exit(main())
