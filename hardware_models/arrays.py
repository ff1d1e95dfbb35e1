"""Types of numpy arrays by element, for annotations.

At run time they are plain ``ndarray``: importing ``numpy.typing`` takes a tenth of a small
simulation.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from typing import Any, TypeAlias

    from numpy.typing import NDArray

    AnyArray: TypeAlias = NDArray[Any]
    BoolArray: TypeAlias = NDArray[np.bool_]
    FloatArray: TypeAlias = NDArray[np.float64]
    IntArray: TypeAlias = NDArray[np.int64]
    IndexArray: TypeAlias = NDArray[np.intp]
    Int32Array: TypeAlias = NDArray[np.int32]
    ByteArray: TypeAlias = NDArray[np.uint8]
else:
    AnyArray = BoolArray = FloatArray = IntArray = np.ndarray
    IndexArray = Int32Array = ByteArray = np.ndarray
