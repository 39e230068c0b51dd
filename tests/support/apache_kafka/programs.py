"""Compiles programs of one Java file, once for each state of the file. A JVM that is given the source compiles it at every start.

The jar with a program's classes lies in a folder below the jars that it needs, where the wildcard of a class path does not find it.
"""

import os
import subprocess
import tempfile
from hashlib import blake2b
from pathlib import Path
from zipfile import ZipFile

_COMPILER = "jdk.compiler/com.sun.tools.javac.Main"
_SECONDS = 120


def in_class_path(program: str | Path, libs: Path) -> list[str]:
    """The last options of a JVM that runs a class of these jars, or the program in a source file."""
    if isinstance(program, str):
        return ["-cp", f"{libs}/*", program]
    return ["-cp", f"{libs}/*{os.pathsep}{_jar(program, libs)}", program.stem]


def _jar(source: Path, libs: Path) -> Path:
    folder = libs / "programs"
    jar = folder / f"{source.stem}-{blake2b(source.read_bytes(), digest_size=8).hexdigest()}.jar"
    if jar.exists():
        return jar
    folder.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        classes, written = Path(scratch, "classes"), Path(scratch, jar.name)
        needed = os.pathsep.join(map(str, libs.glob("*.jar")))
        command = ["java", "-XX:TieredStopAtLevel=1", "-m", _COMPILER, "-nowarn", "-cp", needed, "-d", str(classes), str(source)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, check=False)
        assert done.returncode == 0, done.stderr
        with ZipFile(written, "w") as archive:
            for file in sorted(classes.rglob("*.class")):
                archive.write(file, file.relative_to(classes))
        written.rename(jar)  # another process may have compiled it, too
    return jar
