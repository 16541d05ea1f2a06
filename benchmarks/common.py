"""What the benchmarks share: how their parts are called, and the paper's own setting on UCI Adult."""

import argparse
from collections.abc import Callable, Mapping

from fairveil import Training

#: Networks and rates of the authors' code for Adult (soft vectors, one small adversary, no average, no decay).
PAPER = Training(steps=2000, batch_size=2048, adversary_steps=1, learning_rate=1e-3, adversary_learning_rate=1e-3,
                 hidden=(170, 130), noise_dim=113, adversary_hidden=((10, 5),), adversary_dropout=0.0,
                 adversary_decay=0.0, average=0.0, final_rate=1.0)  # fmt: skip


#: A whole frontier of UCI Adult, case I, from hardly changed to nothing left of sex.
EIGHT = (0.5, 0.7, 0.9, 1.0, 1.1, 1.4, 1.8, 2.3)


def run_parts(description: str | None, parts: Mapping[str, Callable[[], object]]) -> None:
    """Run the parts named on the command line, or all of them."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", help=f"any of {', '.join(parts)}; all of them by default")
    for name in parser.parse_args().parts or list(parts):
        parts[name]()
