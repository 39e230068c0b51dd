"""What an exception of Spark is about, in one line: its text is pages of Java stack traces."""

_MOST = 400


def innermost(error: BaseException | str) -> str:
    """The cause that everything else follows from."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    causes = [line.removeprefix("Caused by: ") for line in lines if line.startswith("Caused by:")]
    if causes:
        return causes[-1][:_MOST]
    return next((line for line in lines if "Exception" in line), lines[0] if lines else type(error).__name__)[:_MOST]
