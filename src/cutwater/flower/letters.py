"""Orders and reports as the letters of a lease: Flower's records as bytes, plain values and raw tensors.

A letter is a JSON head, which lists configs by value and arrays by type, shape and length, and the bytes of
the arrays after it. Whoever reads one learns no more than the same records in a message of Flower's would
say, and checks them in the same way (``wire``).
"""

import json
import struct
from typing import Any

from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict

from cutwater.flower.wire import WireError

_LENGTH = struct.Struct("<Q")


def to_letter(records: RecordDict) -> bytes:
    """The bytes of some records."""
    configs: dict[str, Any] = {}
    arrays, bodies, listed = [], [], []
    for name, record in records.items():
        if isinstance(record, ArrayRecord):
            arrays.append(name)
            for key, array in record.items():
                listed.append([name, key, array.dtype, list(array.shape), array.stype, len(array.data)])
                bodies.append(array.data)
        else:
            configs[name] = dict(record)
    head = json.dumps({"configs": configs, "arrays": arrays, "listed": listed}).encode()
    return b"".join((_LENGTH.pack(len(head)), head, *bodies))


def from_letter(letter: bytes) -> RecordDict:
    """The records in a letter, or a WireError."""
    try:
        return _read(letter)
    except (ValueError, KeyError, TypeError, AttributeError, struct.error) as error:
        raise WireError(f"has sent a letter that can't be read ({error})") from error


def _read(letter: bytes) -> RecordDict:
    (length,) = _LENGTH.unpack_from(letter)
    start = _LENGTH.size + length
    if start > len(letter):
        raise ValueError("its head is longer than the letter")
    head = json.loads(letter[_LENGTH.size : start])
    records: dict[str, Any] = {name: ConfigRecord(values) for name, values in head["configs"].items()}
    arrays: dict[str, dict[str, Array]] = {name: {} for name in head["arrays"]}
    for record, name, dtype, shape, stype, size in head["listed"]:
        end = start + _whole(size)
        if end > len(letter) or name in arrays[record]:
            raise ValueError(f"array {name!r:.100} ends beyond the letter, or is there twice")
        arrays[record][name] = Array(
            dtype=str(dtype), shape=tuple(map(_whole, shape)), stype=str(stype), data=letter[start:end]
        )
        start = end
    if start != len(letter):
        raise ValueError("it goes on after its last array")
    return RecordDict(records | {name: ArrayRecord(found) for name, found in arrays.items()})


def _whole(value: Any) -> int:
    if type(value) is not int or value < 0:
        raise ValueError(f"{value!r:.100} is no length")
    return value
