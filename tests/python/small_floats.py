# SPDX-License-Identifier: Apache-2.0
"""The element types of Rondo in NumPy: how each is stored, and its values as float64."""

import numpy as np

# name: (dtype of the array, bits of the fraction, bias of the exponent) for types that NumPy lacks.
SMALL = {"bf16": (np.uint16, 7, 127), "f8e4m3": (np.uint8, 3, 7), "f8e5m2": (np.uint8, 2, 15)}
STORED = {"f64": np.float64, "f32": np.float32, "f16": np.float16, "i64": np.int64, "u64": np.uint64, "i32": np.int32, "u32": np.uint32,
          "i8": np.int8, "u8": np.uint8, "u16": np.uint16, "i16": np.int16, **{name: row[0] for name, row in SMALL.items()}}
FLOATS = ["f64", "f32", "f16", "bf16", "f8e4m3", "f8e5m2"]
INTEGERS = ["i64", "u64", "i32", "u32", "i16", "u16", "i8", "u8"]


def _values(name):
    """The value of each positive code with a normal exponent, by code, in ascending order."""
    _, fraction, bias = SMALL[name]
    top = 1 << (15 if name == "bf16" else 7)
    codes = np.arange(1 << fraction, top - (2 << fraction))
    return codes, np.ldexp(1 + (codes & ((1 << fraction) - 1)) / (1 << fraction), (codes >> fraction) - bias)


def encode(values, name):
    """Numbers as stored elements; each must be zero, or positive and representable."""
    if name not in SMALL:
        return np.asarray(values).astype(STORED[name])
    codes, known = _values(name)
    index = np.minimum(np.searchsorted(known, values), len(known) - 1)
    exact = np.where(np.asarray(values) == 0, 0, codes[index])
    assert np.array_equal(np.where(exact == 0, 0, known[index]), values), f"{name} cannot hold all of {values}"
    return exact.astype(STORED[name])


def decode(elements, name):
    """Stored elements as float64."""
    if name not in SMALL:
        return np.asarray(elements).astype(np.float64)
    codes, known = _values(name)
    index = np.minimum(np.searchsorted(codes, elements), len(codes) - 1)
    return np.where(np.asarray(elements) == 0, 0.0, known[index])
