"""Sources by name: real files, real downloads from a server on this machine, and what is refused."""

import gzip
import hashlib
import struct
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest
import torch

from cutwater.base.errors import DataError
from cutwater.data import sources
from cutwater.data.sources import SOURCES, load

IDX = (
    "train-images-idx3-ubyte",
    "train-labels-idx1-ubyte",
    "t10k-images-idx3-ubyte",
    "t10k-labels-idx1-ubyte",
)
CIFAR = [f"data_batch_{n}.bin" for n in range(1, 6)] + ["test_batch.bin"]


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.delenv("CUTWATER_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache"


def idx(array):
    array = np.asarray(array, np.uint8)
    return bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()


def write_idx(folder, train=20, test=8, size=4, labels=None, suffix=".gz"):
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(train)
    for count, (images, classes) in zip((train, test), (IDX[:2], IDX[2:]), strict=True):
        y = np.arange(count) % 10 if labels is None else np.resize(labels, count)
        for name, content in ((images, idx(rng.integers(0, 256, (count, size, size)))), (classes, idx(y))):
            (folder / f"{name}{suffix}").write_bytes(gzip.compress(content) if suffix else content)


def write_cifar(folder, each=4):
    folder.mkdir(parents=True, exist_ok=True)
    for number, name in enumerate(CIFAR):
        records = np.full((each, 3073), number, np.uint8)
        records[:, 0] = np.arange(each) % 10
        records[:, 1 + 2048 :] = 200
        (folder / name).write_bytes(records.tobytes())


class Handler(SimpleHTTPRequestHandler):
    def log_message(self, *args):
        pass

    def do_GET(self):
        if self.path.startswith("/away/"):
            self.send_response(302)
            self.send_header("Location", "http://example.com/" + self.path[6:])
            self.end_headers()
        else:
            super().do_GET()


@pytest.fixture
def mirror(tmp_path):
    """A web server on this machine: (its folder, its address)."""
    folder = tmp_path / "mirror"
    folder.mkdir()
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, directory=folder))
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    yield folder, f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()
    thread.join()
    server.server_close()


def test_digits_are_those_of_scikit_learn():
    from sklearn.datasets import load_digits

    theirs, ours = load_digits(), load("digits")
    images = np.concatenate([ours.train.inputs, ours.test.inputs])[:, 0]
    labels = np.concatenate([ours.train.labels, ours.test.labels])
    assert (len(labels), ours.input, ours.classes) == (1797, "1x8x8", 10)

    def lines(x, y):
        return sorted(map(bytes, np.column_stack([x.reshape(1797, 64), y]).astype(np.uint8)))

    assert lines(images, labels) == lines(theirs.images, theirs.target)


def test_digits_have_a_test_set_with_every_class_in_proportion():
    data = load("digits")
    assert len(data.test) == 355
    assert np.bincount(data.test.labels).min() >= 34


@pytest.mark.parametrize("name", ["digits", "mnist"])
def test_a_batch_of_a_whole_training_set_has_mean_zero_and_spread_one(name, request, monkeypatch):
    if name == "mnist":
        monkeypatch.setenv("CUTWATER_DATA", str(request.getfixturevalue("mnist_folder")))
    data = load(name)
    (inputs,), labels = data.train.batch(np.arange(len(data.train)))
    assert inputs.dtype == torch.float32
    assert labels.dtype == torch.int64
    assert abs(inputs.mean(dtype=torch.float64)) < 1e-3
    assert abs(inputs.double().std() - 1) < 1e-3


def test_real_mnist_is_found_by_the_environment_and_stays_in_bytes(mnist_folder, monkeypatch):
    monkeypatch.setenv("CUTWATER_DATA", str(mnist_folder))
    data = load("mnist", mirrors=())
    assert (len(data.train), len(data.test), data.input, data.classes) == (60_000, 10_000, "1x28x28", 10)
    assert data.train.inputs.nbytes == 60_000 * 28 * 28
    assert data.train.labels[:5].tolist() == [5, 0, 4, 1, 9]


def test_a_sample_is_the_same_bits_in_any_batch():
    data = load("digits")
    whole = data.train.batch(np.arange(100)).inputs[0]
    assert torch.equal(data.train.batch(np.array([42, 7])).inputs[0], whole[[42, 7]])


@pytest.mark.parametrize("suffix", [".gz", ""])
@pytest.mark.parametrize("inside", [".", "mnist", "MNIST/raw"])
def test_idx_files_are_found_raw_or_gzipped_where_people_put_them(tmp_path, suffix, inside):
    write_idx(tmp_path / "files" / inside, suffix=suffix)
    data = load("mnist", folder=tmp_path / "files", mirrors=())
    assert (len(data.train), len(data.test), data.input) == (20, 8, "1x4x4")


def test_the_environment_comes_before_the_scenario_and_the_scenario_before_the_cache(
    tmp_path, own_cache, monkeypatch
):
    for count, place in (
        (10, own_cache / "cutwater" / "mnist"),
        (20, tmp_path / "own"),
        (30, tmp_path / "env"),
    ):
        write_idx(place, train=count)
    assert len(load("mnist", mirrors=()).train) == 10
    assert len(load("mnist", folder=tmp_path / "own").train) == 20
    monkeypatch.setenv("CUTWATER_DATA", str(tmp_path / "env"))
    assert len(load("mnist", folder=tmp_path / "own").train) == 30


def test_mnist_is_downloaded_once_checked_and_cached(mirror, own_cache, mnist_folder):
    folder, url = mirror
    for name in IDX:
        (folder / f"{name}.gz").write_bytes((mnist_folder / f"{name}.gz").read_bytes())
    said = []
    data = load("mnist", mirrors=[url], say=said.append)
    assert len(data.train) == 60_000
    assert len(said) == 4
    assert sorted(path.name for path in (own_cache / "cutwater" / "mnist").iterdir()) == sorted(
        f"{name}.gz" for name in IDX
    )
    assert len(load("mnist", mirrors=()).train) == 60_000, "the second time no mirror is needed"


def test_a_broken_mirror_is_passed_over_and_a_half_done_cache_completed(
    mirror, own_cache, tmp_path, monkeypatch
):
    folder, url = mirror
    write_idx(folder / "good")
    write_idx(folder / "bad", train=30)
    sums = {f"{n}.gz": hashlib.md5((folder / "good" / f"{n}.gz").read_bytes()).hexdigest() for n in IDX}
    monkeypatch.setattr(sources, "_MNIST_SUMS", sums)
    cache = own_cache / "cutwater" / "mnist"
    cache.mkdir(parents=True)
    (cache / f"{IDX[0]}.gz").write_bytes(b"half")
    said = []
    data = load("mnist", mirrors=[f"{url}nowhere", f"{url}bad", f"{url}good/"], say=said.append)
    assert len(data.train) == 20
    assert hashlib.md5((cache / f"{IDX[0]}.gz").read_bytes()).hexdigest() == sums[f"{IDX[0]}.gz"]


@pytest.mark.parametrize(
    ("path", "reason"),
    [("bad/", "MD5"), ("nowhere/", "not found"), ("away/", "not an https")],
)
def test_a_failed_download_says_which_files_and_how_to_get_them(mirror, own_cache, path, reason):
    folder, url = mirror
    write_idx(folder / "bad")
    with pytest.raises(DataError, match=reason) as caught:
        load("mnist", mirrors=[url + path])
    assert all(word in str(caught.value) for word in (*IDX, "CUTWATER_DATA", "folder of DataSettings"))
    assert "\n" not in str(caught.value)
    assert not list(own_cache.rglob("*ubyte*")), "what failed its check is never kept"


def test_plain_http_is_refused_but_for_this_machine():
    with pytest.raises(DataError, match=r"http://example\.com/.* is not an https:// address"):
        load("mnist", mirrors=["http://example.com/mnist"])


def test_a_cache_that_cant_be_written_is_named(mirror, own_cache, mnist_folder):
    folder, url = mirror
    for name in IDX:
        (folder / f"{name}.gz").symlink_to(mnist_folder / f"{name}.gz")
    own_cache.mkdir()
    (own_cache / "cutwater").write_text("a file in the way")
    with pytest.raises(DataError, match="can't be written"):
        load("mnist", mirrors=[url])


def test_fashion_mnist_is_read_from_local_files(tmp_path):
    write_idx(tmp_path / "fashion-mnist")
    assert len(load("fashion-mnist", folder=tmp_path).train) == 20


def test_mnist_in_place_of_fashion_mnist_is_noticed_and_passed_over(tmp_path, mnist_folder, monkeypatch):
    monkeypatch.setattr(sources, "_PACKAGED", tmp_path / "none")
    monkeypatch.setenv("CUTWATER_DATA", str(mnist_folder))
    with pytest.raises(DataError, match="holds mnist, but fashion-mnist was asked for"):
        load("fashion-mnist")
    write_idx(tmp_path / "own")
    assert len(load("fashion-mnist", folder=tmp_path / "own").train) == 20


def test_what_debian_packages_is_found(tmp_path, monkeypatch):
    monkeypatch.setattr(sources, "_PACKAGED", tmp_path)
    write_idx(tmp_path / "fashion-mnist")
    assert len(load("fashion-mnist").train) == 20


def test_cifar10_is_read_from_its_binary_version(tmp_path):
    write_cifar(tmp_path / "cifar-10-batches-bin")
    data = load("cifar10", folder=tmp_path)
    assert (len(data.train), len(data.test), data.input, data.classes) == (20, 4, "3x32x32", 10)
    (inputs,), labels = data.train.batch(np.array([0, 5]))
    assert labels.tolist() == [0, 1]
    assert torch.allclose(inputs[1, 0], torch.tensor((1 - 125.31) / 62.99))
    assert torch.allclose(inputs[1, 2], torch.tensor((200 - 113.87) / 66.70))


@pytest.mark.parametrize("name", ["data_batch_1", "cifar-10-python.tar.gz"])
def test_the_pickled_version_of_cifar10_is_refused(tmp_path, name):
    (tmp_path / name).write_bytes(b"\x80\x02}q\x01.")
    with pytest.raises(DataError, match="pickled and never read; unpack the binary version"):
        load("cifar10", folder=tmp_path)


@pytest.mark.parametrize(("name", "file"), [("fashion-mnist", IDX[3]), ("cifar10", CIFAR[5])])
def test_missing_files_are_named_with_where_they_may_be(tmp_path, name, file, monkeypatch):
    monkeypatch.setattr(sources, "_PACKAGED", tmp_path / "none")
    with pytest.raises(DataError) as caught:
        load(name, folder=tmp_path)
    assert all(word in str(caught.value) for word in (file, str(tmp_path), "CUTWATER_DATA"))


def test_a_folder_that_does_not_exist_is_named(tmp_path, monkeypatch):
    with pytest.raises(DataError, match=r"folder of DataSettings names .*nowhere, which is not a folder"):
        load("mnist", folder=tmp_path / "nowhere")
    monkeypatch.setenv("CUTWATER_DATA", str(tmp_path / "gone"))
    with pytest.raises(DataError, match=r"CUTWATER_DATA names .*gone"):
        load("mnist")


def broken(content: bytes) -> dict[str, bytes]:
    return {
        "cut off": content[:-3],
        "too long": content + b"x",
        "other type": b"\x00\x00\x0d" + content[3:],
        "empty": b"",
        "no header": content[:6],
        "huge claim": content[:4] + b"\xff" * 12 + content[16:],
    }


@pytest.mark.parametrize("how", list(broken(b"x" * 20)))
@pytest.mark.parametrize("suffix", [".gz", ""])
def test_a_broken_idx_file_is_named(tmp_path, how, suffix):
    write_idx(tmp_path, suffix=suffix)
    content = broken(idx(np.zeros((8, 4, 4))))[how]
    (tmp_path / (IDX[2] + suffix)).write_bytes(gzip.compress(content) if suffix else content)
    with pytest.raises(DataError, match=IDX[2]):
        load("mnist", folder=tmp_path, mirrors=())


def test_broken_compression_and_broken_records_are_named(tmp_path):
    write_idx(tmp_path)
    path = tmp_path / f"{IDX[0]}.gz"
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(DataError, match=f"{IDX[0]}.gz can't be read"):
        load("mnist", folder=tmp_path)
    write_cifar(tmp_path)
    (tmp_path / CIFAR[2]).write_bytes(b"x" * 3000)
    with pytest.raises(DataError, match=f"{CIFAR[2]} has 3,000 bytes"):
        load("cifar10", folder=tmp_path)


def test_labels_outside_the_classes_are_refused(tmp_path):
    write_idx(tmp_path, labels=[0, 1, 10])
    with pytest.raises(DataError, match="training sample 2 of 'mnist' has label 10, but with 10 classes"):
        load("mnist", folder=tmp_path)


def test_sets_that_do_not_match_are_refused(tmp_path):
    write_idx(tmp_path)
    (tmp_path / f"{IDX[2]}.gz").write_bytes(gzip.compress(idx(np.zeros((8, 5, 5)))))
    with pytest.raises(DataError, match="training images of 1x4x4 but test images of 1x5x5"):
        load("mnist", folder=tmp_path)
    (tmp_path / f"{IDX[2]}.gz").write_bytes(gzip.compress(idx(np.zeros((7, 4, 4)))))
    with pytest.raises(DataError, match="7 inputs but 8 labels"):
        load("mnist", folder=tmp_path)
    write_idx(tmp_path, test=0)
    with pytest.raises(DataError, match="no test samples"):
        load("mnist", folder=tmp_path)


def test_an_unknown_source_gets_the_nearest_name():
    with pytest.raises(DataError, match="did you mean 'fashion-mnist'"):
        load("fashion_mnist")
    with pytest.raises(DataError, match="takes no options"):
        load("digits", options={"size": 3})


def test_a_model_made_for_other_samples_is_refused():
    data = load("digits")
    data.check_fits("1x8x8", 10)
    with pytest.raises(DataError, match='build it for "1x8x8" or'):
        data.check_fits("1x28x28", 10)
    with pytest.raises(DataError, match="give it an output for each of them"):
        data.check_fits("1x8x8", 5)


def test_every_source_is_known_by_the_documentation():
    assert all(f"``{name}``" in (sources.__doc__ or "") for name in SOURCES)


def test_data_needs_no_torch_until_a_batch_is_made():
    import subprocess
    import sys

    code = (
        "import sys; from cutwater.data.sources import load; from cutwater.data.share_out import partition;"
        "d = load('digits'); partition(len(d.train), d.train.labels, ['a', 'b']).table(d.train.labels);"
        "sys.exit('torch' in sys.modules)"
    )
    assert (
        subprocess.run([sys.executable, "-c", code], check=False, cwd=Path(__file__).parent).returncode == 0
    )
