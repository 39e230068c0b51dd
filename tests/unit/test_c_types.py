"""The declarations of C types are made of what the sources say: slots, annotations, first values and constants."""

import ast
from pathlib import Path

import pytest

from declarations.writer import Writer, write


def declared(folder: Path, hot: str, **others: str) -> list[str]:
    """The lines of the declarations of a module with this text, beside other modules that are not compiled."""
    return [line.strip() for line in writer(folder, hot, **others).declarations("ottla.hot").splitlines()]


def writer(folder: Path, hot: str, **others: str) -> Writer:
    """A writer for one compiled module beside others."""
    (folder / "ottla").mkdir()
    for name, text in {"hot": hot, **others}.items():
        (folder / "ottla" / f"{name}.py").write_text(text)
    return Writer(folder, ("ottla.hot",))


READER = """
class Reader:
    __slots__ = ("_at", "is_done", "last", "named", "names", "share", "then")

    def __init__(self, names: list[str], then: Callable[[], None]) -> None:
        self._at = 0
        self.names = names
        self.is_done = not names
        self.share = 0.5
        self.then = then
        self.last: int | None = None
        self.named: dict[str, Reader] = {}
"""


def test_an_attribute_has_the_type_of_its_annotation_or_of_its_first_value(tmp_path: Path) -> None:
    found = declared(tmp_path, READER)
    assert [line for line in found if line.startswith("cdef public")] == [
        "cdef public int64_t _at",
        "cdef public bint is_done",
        "cdef public object last",  # no number of C is None
        "cdef public dict named",
        "cdef public list names",
        "cdef public double share",
        "cdef public object then",
    ]


@pytest.mark.parametrize(
    ("body", "line"),
    [
        ("    def size(self, at: int) -> int:\n        return at\n", "cpdef int64_t size(self, int64_t at)"),
        (
            "    def bounds(self, at: int = 0) -> tuple[int, bool]:\n        return at, True\n",
            "cpdef (int64_t, bint) bounds(self, int64_t at=*)",
        ),
        ("    def end(self, by: float | None) -> None:\n        self.end(by)\n", "cpdef void end(self, object by)"),
        (
            "    def turn(self) -> None:\n        self._turn(True)\n    def _turn(self, on: bool) -> None: ...\n",
            "cdef void _turn(self, bint on)",
        ),
        (
            "    def turn(self) -> None:\n        later(self._turn)\n    def _turn(self, at: int) -> None: ...\n",
            "cpdef void _turn(self, int64_t at)",  # something else calls it
        ),
    ],
)
def test_a_method_is_c_if_compiled_code_calls_it_or_if_it_deals_with_numbers(body: str, line: str, tmp_path: Path) -> None:
    assert line in declared(tmp_path, f"{READER}\n{body}")


@pytest.mark.parametrize(
    "body",
    [
        "    def size(self, *, at: int) -> int:\n        return at\n",
        "    def size(self, at: int) -> int:\n        return (lambda: at)()\n",
        "    def size(self, at: int) -> bool:\n        return any(each for each in self.names)\n",
        "    def size(self, at: int) -> Iterator[int]:\n        yield at\n",
        "    async def size(self, at: int) -> int:\n        return at\n",
        "    @property\n    def size(self) -> int:\n        return 0\n",
        "    def size(self, at: int) -> int:\n        return super().size(at)\n",
        "    def size(self, names: list[str]) -> object:\n        return names\n",  # nothing is won
    ],
)
def test_what_c_cannot_do_and_what_nothing_gains_stays_a_method_of_python(body: str, tmp_path: Path) -> None:
    assert not [line for line in declared(tmp_path, f"{READER}\n{body}") if "size(" in line]


def test_a_variable_has_the_type_of_its_first_value(tmp_path: Path) -> None:
    body = """
    def walk(self, number: int) -> int:
        names = self.names
        count = len(names)
        reader = self.named.get("a")
        low, high = self.bounds(count)
        known: object = 1
        for each in self.named.values():
            count += each._at
        return count

    def bounds(self, at: int) -> tuple[int, int]:
        return at, at
"""
    kinds = "names=list, count=int64_t, reader=Reader, low=int64_t, high=int64_t, each=Reader"
    assert f"@cython.locals({kinds})" in declared(tmp_path, READER + body)


HOT = """
from typing import TYPE_CHECKING, Final

from ottla.limits import ABOVE, LIMIT, NAME, WHEN

if TYPE_CHECKING:
    from ottla.other import Other

MORE: Final = 2 * LIMIT
unused = 1

class Taker:
    __slots__ = ("_other",)

    def take(self, other: Other, count: int) -> bool:
        return count < LIMIT and count < MORE < ABOVE and NAME and WHEN
"""
LIMITS = "import sys\nLIMIT: Final = 1 << 4\nABOVE: Final[int] = sys.maxsize\nNAME: Final = 'a'\nWHEN = 1\nWHEN = 2\n"


def test_numbers_that_never_change_are_constants_of_c_wherever_they_are_defined(tmp_path: Path) -> None:
    found = declared(tmp_path, HOT, limits=LIMITS)
    constants = [line for line in found if line.startswith("cdef int64_t")]
    assert constants == ["cdef int64_t ABOVE", "cdef int64_t LIMIT", "cdef int64_t MORE"]


def test_what_is_imported_for_annotations_alone_is_any_object(tmp_path: Path) -> None:
    other = "class Other:\n    __slots__ = ()\n"
    assert "cpdef bint take(self, object other, int64_t count)" in declared(tmp_path, HOT, limits=LIMITS, other=other)


def test_python_may_import_the_constants_of_a_compiled_module(tmp_path: Path) -> None:
    assert writer(tmp_path, HOT, limits=LIMITS).source("ottla.hot").endswith("\nglobals().update(MORE=MORE)\n")


def test_declarations_tell_what_a_decorator_of_a_class_means_in_c(tmp_path: Path) -> None:
    text = "@final\nclass Kept:\n    __slots__ = ()\n\n@short_lived\nclass Made:\n    __slots__ = ()\n"
    found = writer(tmp_path, text)
    assert "@cython.final\ncdef class Kept:\n    pass\n" in found.declarations("ottla.hot")
    assert "@cython.no_gc\n@cython.freelist(16)\ncdef class Made:" in found.declarations("ottla.hot")
    assert found.source("ottla.hot") == text.replace("@final", "").replace("@short_lived", "")


def test_python_cannot_see_what_is_private_in_a_final_class(tmp_path: Path) -> None:
    attributes = [line for line in declared(tmp_path, f"@final{READER}") if line.startswith("cdef ") and not line.endswith(":")]
    assert "cdef int64_t _at" in attributes
    assert "cdef public list names" in attributes
    assert [line for line in attributes if not line.startswith("cdef public ")] == ["cdef int64_t _at"]


def test_a_final_class_that_overrides_methods_is_not_final_in_c(tmp_path: Path) -> None:
    last = "@final\nclass Last(First):\n    __slots__ = ('_at',)\n    def __init__(self):\n        self._at = 0\n"
    text = f"class First:\n    __slots__ = ()\n\n{last}"
    found = writer(tmp_path, text).declarations("ottla.hot")
    assert "cdef class Last(First):\n    cdef int64_t _at\n" in found
    assert "@cython.final" not in found


def test_annotations_are_not_compiled_and_lines_keep_their_numbers(tmp_path: Path) -> None:
    text = """
from typing import TYPE_CHECKING
if TYPE_CHECKING:
    from elsewhere import Thing

class Größe:
    def of(self, ä: Thing, *rest: "Thing", last: dict[
        str, int
    ] = 5, **more: int) -> Thing: return ä

async def wait(first: int = 1) -> None: ...
"""
    found = writer(tmp_path, text).source("ottla.hot")
    assert "Thing" not in found
    assert ast.unparse(ast.parse(found)) == ast.unparse(
        ast.parse("""
from typing import TYPE_CHECKING

class Größe:
    def of(self, ä, *rest, last=5, **more): return ä

async def wait(first=1): ...
""")
    )
    assert [line.partition("return")[1] for line in found.splitlines()] == [line.partition("return")[1] for line in text.splitlines()]
    assert len(found.splitlines()) == len(text.splitlines())


def test_types_and_functions_that_people_declare_are_taken_from_them(tmp_path: Path) -> None:
    (tmp_path / "ottla").mkdir()
    (tmp_path / "ottla" / "fields.pxd").write_text("ctypedef uint8_t[::1] View\ncdef inline (int64_t, Py_ssize_t) pair(View data):\n")
    (tmp_path / "ottla" / "fields.py").write_text("pair = Struct('>qq').unpack_from\n")
    text = """
from ottla import fields

class Reader:
    __slots__ = ("data", "first", "second")

    def read(self, frame: memoryview) -> None:
        self.data: fields.View = frame
        self.first, self.second = fields.pair(self.data)
"""
    (tmp_path / "ottla" / "hot.py").write_text(text)
    found = Writer(tmp_path, ("ottla.hot",)).declarations("ottla.hot")
    for line in (
        "from ottla cimport fields",
        "from ottla.fields cimport View",
        "    cdef View data",
        "    cpdef void read(self, object frame)",
    ):
        assert line in found.splitlines()
    assert "cdef public int64_t first\n    cdef public int64_t second\n" in found


def test_a_module_with_functions_of_c_keeps_the_name_that_its_importer_gives_it(tmp_path: Path) -> None:
    made = writer(
        tmp_path, "from ottla import fields as read\n\n\ndef first(data: bytes) -> int:\n    return read.int32(data, 0)\n", fields=""
    )
    (tmp_path / "ottla" / "fields.pxd").write_text("cdef inline int32_t int32(View data, Py_ssize_t at):\n    return 0\n")
    assert "from ottla cimport fields as read" in made.declarations("ottla.hot").splitlines()


def test_all_that_cython_reads_is_in_one_folder(tmp_path: Path) -> None:
    root, into = tmp_path / "root", tmp_path / "into"
    (root / "ottla" / "inner").mkdir(parents=True)
    (root / "ottla" / "inner" / "hot.py").write_text(READER)
    write(root, into, ("ottla.inner.hot",), ["ottla/inner/hot.py", "ottla/inner/not_there.pxd"])
    assert sorted(str(path.relative_to(into)) for path in into.rglob("*.p*")) == [
        "ottla/__init__.py",
        "ottla/inner/__init__.py",
        "ottla/inner/hot.pxd",
        "ottla/inner/hot.py",
    ]
