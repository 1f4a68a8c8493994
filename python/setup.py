"""Puts librubato.so into the package. It must have been built: ./dev python."""

import pathlib
import shutil

import setuptools
from setuptools.command.build_py import build_py

try:
    from wheel.bdist_wheel import bdist_wheel
except ImportError:  # newer setuptools have it themselves
    from setuptools.command.bdist_wheel import bdist_wheel

LIBRARY = pathlib.Path(__file__).resolve().parent.parent / "build" / "librubato.so"


class WithLibrary(build_py):
    def run(self):
        if not LIBRARY.exists():
            raise SystemExit(f"{LIBRARY} does not exist; build it first with: ./dev python")
        super().run()
        into = pathlib.Path(self.build_lib) / "rubato"
        into.mkdir(parents=True, exist_ok=True)
        shutil.copy2(LIBRARY, into)


class AnyPython(bdist_wheel):
    """The library has a C interface, so one wheel serves every version of Python."""

    def get_tag(self):
        return "py3", "none", super().get_tag()[2]


class WithBinary(setuptools.Distribution):
    """A wheel of Python files alone would be one for every kind of machine, and would keep its files elsewhere."""

    def has_ext_modules(self):
        return True


setuptools.setup(distclass=WithBinary, cmdclass={"build_py": WithLibrary, "bdist_wheel": AnyPython})
