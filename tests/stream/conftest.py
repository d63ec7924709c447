"""Without the extra packages of the stream its tests can't even be imported; one of them then says so."""

from importlib.util import find_spec

collect_ignore_glob: list[str] = []
if not all(find_spec(name) for name in ("cryptography", "grpc", "xxhash")):
    collect_ignore_glob = ["test_stream_[!i]*.py"]
