"""Small tables and settings that train in a second or two."""

import numpy as np
import pandas as pd

from fairveil import Training

#: A game short enough for a unit test; what it learns is not judged.
QUICK = Training(
    steps=12, batch_size=128, adversary_steps=1, hidden=(16,), noise_dim=4, adversary_hidden=((16,),), rounds=3
)


def people(n: int = 600, seed: int = 0) -> tuple[pd.DataFrame, pd.DataFrame, pd.Series]:
    """X that tells sex by `role` and `height`, S = (sex, region), and a target that needs `skill`."""
    generator = np.random.default_rng(seed)
    sex = generator.choice(["f", "m"], n, p=[0.4, 0.6])
    region = generator.choice(["n", "s", "w"], n)
    role = np.where(generator.random(n) < 0.8, np.where(sex == "f", "wife", "husband"), "other")
    skill = generator.integers(0, 10, n)
    frame = pd.DataFrame(
        {
            "role": role,
            "town": np.where(generator.random(n) < 0.1, None, generator.choice(["x", "y", "z"], n)),
            "skill": skill,
            "height": np.round(generator.normal(np.where(sex == "f", 165.0, 178.0), 7.0), 1),
        }
    )
    y = pd.Series((skill + generator.normal(0, 1, n) > 5).astype(int), name="hired")
    return frame, pd.DataFrame({"sex": sex, "region": region}), y
