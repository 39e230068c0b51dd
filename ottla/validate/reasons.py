"""Summarizes an exception of Spark in one line; its own text is pages of Java stack traces."""

from collections.abc import Iterator

_MOST = 400
_FULL = ("No space left on device", "Disk quota exceeded")


def innermost(error: BaseException | str) -> str:
    """The innermost cause."""
    lines = [line.strip(" \t:") for line in _text(error).splitlines() if line.strip(" \t:")]  # Py4J writes ": " before the text of Java
    causes = [line.removeprefix("Caused by: ") for line in lines if line.startswith("Caused by:")]
    if causes:
        return causes[-1][:_MOST]
    return next((line for line in lines if "Exception" in line), lines[0] if lines else type(error).__name__)[:_MOST]


def is_full_disk(error: BaseException) -> bool:
    """Whether the cause is a full disk, on any machine."""
    return any(sign in text for text in _told(error) for sign in _FULL)


def _told(error: BaseException) -> Iterator[str]:
    """The texts of the exception and its causes, in Python and in Java. PySpark 4.0 has the names with an underscore, 3.5 the others."""
    yield _text(error)
    for name in ("_stackTrace", "stackTrace"):
        yield str(getattr(error, name, ""))
    for cause in (error.__cause__, getattr(error, "_cause", None), getattr(error, "cause", None)):
        if isinstance(cause, BaseException):
            yield from _told(cause)


def _text(error: BaseException | str) -> str:
    try:
        return str(error)
    except Exception:  # Py4J asks the JVM for the text of its exceptions
        return "Spark's JVM has ended"
