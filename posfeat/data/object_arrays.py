"""Read .npz files whose arrays hold Python objects without running what a pickle may contain.

Such arrays are stored as pickles, and a pickle may call any function. This reader rebuilds numbers, text, lists, tuples,
dictionaries and numpy arrays, and refuses a file that names anything else.
"""

from __future__ import annotations

import io
import pickle
import zipfile
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from posfeat.types import DataError


class ArchiveReader:
    """The arrays of one .npz file, read one at a time by name."""

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            self._archive = zipfile.ZipFile(path)
        except (OSError, zipfile.BadZipFile) as error:
            raise DataError(f"{path} is no .npz file or is cut off: {error}") from error
        self.names = frozenset(name.removesuffix(".npy") for name in self._archive.namelist())

    def __enter__(self) -> ArchiveReader:
        return self

    def __exit__(self, *_: object) -> None:
        self._archive.close()

    def read(self, name: str) -> npt.NDArray[Any]:
        """One array; DataError where it is missing, damaged, or would run code."""
        if name not in self.names:
            raise DataError(f"{self._path} has no array {name}; it has {', '.join(sorted(self.names))}")
        try:
            with self._archive.open(f"{name}.npy") as file:
                return _read_array(io.BytesIO(file.read()))
        except pickle.UnpicklingError as error:
            raise DataError(f"array {name} of {self._path} is not read: {error}") from error
        except Exception as error:  # a damaged pickle fails in any way
            raise DataError(f"array {name} of {self._path} is damaged: {type(error).__name__} {error}") from error


def _read_array(file: BinaryIO) -> npt.NDArray[Any]:
    version = np.lib.format.read_magic(file)
    header = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, fortran_order, dtype = header(file)
    if not dtype.hasobject:
        file.seek(0)
        return np.asarray(np.lib.format.read_array(file, allow_pickle=False))
    array = _PlainUnpickler(file, encoding="latin1").load()
    if not isinstance(array, np.ndarray) or array.size != int(np.prod(shape)):
        raise ValueError("the stored objects do not fill the array")
    return array.reshape(shape, order="F" if fortran_order else "C") if array.shape != shape else array


class _PlainUnpickler(pickle.Unpickler):
    """Knows the few functions that numpy's own pickles name, and nothing else."""

    def find_class(self, module: str, name: str) -> Any:
        known = {
            ("numpy", "ndarray"): np.ndarray,
            ("numpy", "dtype"): np.dtype,
            ("numpy.core.multiarray", "_reconstruct"): _empty_array,
            ("numpy.core.multiarray", "scalar"): _scalar,
            ("numpy.core.numeric", "_frombuffer"): _array_from_buffer,
            ("_codecs", "encode"): _latin1_bytes,
        }.get((module.replace("numpy._core", "numpy.core"), name))
        if known is None:
            raise pickle.UnpicklingError(f"it names {module}.{name}, which is neither data nor numpy's")
        return known


def _empty_array(kind: type, shape: tuple[int, ...], _: bytes) -> npt.NDArray[Any]:
    """An array that the pickle then fills."""
    if kind is not np.ndarray or shape != (0,):
        raise pickle.UnpicklingError("it builds an array in an unusual way")
    return np.ndarray((0,), dtype=np.int8)


def _scalar(dtype: np.dtype[Any], data: bytes) -> Any:
    if dtype.hasobject:
        raise pickle.UnpicklingError("it holds a scalar of objects")
    return np.frombuffer(data, dtype=dtype, count=1)[0]


def _array_from_buffer(buffer: Any, dtype: np.dtype[Any], shape: tuple[int, ...], order: str) -> npt.NDArray[Any]:
    if dtype.hasobject or order not in ("C", "F"):
        raise pickle.UnpicklingError("it builds an array in an unusual way")
    return np.frombuffer(buffer, dtype=dtype).reshape(shape, order="F" if order == "F" else "C")


def _latin1_bytes(text: str, encoding: str) -> bytes:
    """How old pickles write bytes."""
    if encoding != "latin1":
        raise pickle.UnpicklingError(f"it encodes text as {encoding}")
    return text.encode("latin1")
