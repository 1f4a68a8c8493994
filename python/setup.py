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

    def finalize_options(self):
        super().finalize_options()
        self.root_is_pure = False

    def get_tag(self):
        return "py3", "none", super().get_tag()[2]


setuptools.setup(cmdclass={"build_py": WithLibrary, "bdist_wheel": AnyPython})
