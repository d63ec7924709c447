"""A session's codecs are ready before its first mini-batch: nothing is compiled or loaded while it waits."""

import subprocess
import sys
import textwrap


def test_the_first_mini_batch_loads_no_loop_of_its_codec():
    # In a process of its own: loops that another test has used are there already.
    program = """
        import sys

        import torch

        from cutwater.codec import CODECS
        from cutwater.train.wire import Coder

        def loaded():
            modules = [vars(each) for name, each in sys.modules.items() if name.startswith("cutwater.codec.")]
            loops = {id(each): each for names in modules for each in names.values()}
            return sum(len(each.overloads) for each in loops.values() if hasattr(each, "overloads"))

        for name in CODECS:
            before = loaded()
            coder = Coder.of(name, "up", 1)
            ready = loaded()
            for number, shape in enumerate([(4, 8, 16, 16), (4, 10), (1, 3000), (2, 5, 7)]):
                coder.across(number, (torch.randn(shape),))
            print(name, ready - before, loaded() - ready)
    """
    run = [sys.executable, "-c", textwrap.dedent(program)]
    told = subprocess.run(run, check=True, capture_output=True, text=True).stdout
    later = {name: int(more) for name, _, more in map(str.split, told.splitlines())}
    assert later == dict.fromkeys(later, 0)
    assert int(told.split("int8 ")[1].split()[0]) > 0, "loops were found, and int8 has some"
