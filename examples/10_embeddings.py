# %% [markdown]
# # Hiding an attribute in embeddings
# Arrays of numbers are tables without names. The Gaussian encoder shifts vectors and adds noise with a learned
# covariance.

# %%
import os

import numpy as np

import fairveil as fv

steps, rows = int(os.environ.get("FAIRVEIL_STEPS", "500")), int(os.environ.get("FAIRVEIL_ROWS", "5000"))
generator = np.random.default_rng(0)
group = generator.integers(0, 2, rows)
vectors = generator.normal(size=(rows, 16)) + np.outer(group - 0.5, generator.normal(size=16))

# %%
encoder = fv.FairEncoder(
    16.0, architecture=fv.Gaussian(full=True), sees_sensitive=True, training=fv.Training(steps=steps), unmet="warn",
    verbose=False,
)  # fmt: skip
released = encoder.fit_transform(vectors, sensitive_features=group)


# %%
def distance(x: np.ndarray) -> float:
    """Between the means of the groups, in standard deviations."""
    return float(np.linalg.norm((x[group == 1].mean(axis=0) - x[group == 0].mean(axis=0)) / x.std(axis=0)))


print("distance between the groups:", round(distance(vectors), 2), "before,", round(distance(released), 2), "after")
