# %% [markdown]
# # Images
# Arrays of pixels are released as valid pixels of the same size and type. Here a bright corner reveals the group, and
# a diagonal stripe shows something else that should stay visible.

# %%
import os

import numpy as np
from matplotlib.figure import Figure

import fairveil as fv

rows = int(os.environ.get("FAIRVEIL_ROWS", "3000"))
generator = np.random.default_rng(0)
group, stripe = generator.integers(0, 2, (2, rows))
images = generator.normal(0.4, 0.1, (rows, 12, 12))
images[group == 1, :4, :4] += 0.3
images[stripe == 1] += 0.25 * np.eye(12)[::-1]
images = (255 * images.clip(0, 1)).astype(np.uint8)

# %% [markdown]
# `AffineTransport` moves each group to a common barycentre in a code of principal components. It needs no training
# steps. The budget bounds the mean sum of squared changes of an image, with white at 1.

# %%
encoder = fv.FairEncoder(
    6.0, architecture=fv.AffineTransport(n_components=32), sees_sensitive=True, unmet="warn", verbose=False
)
released = encoder.fit_transform(images, sensitive_features=group)
print(released.shape, released.dtype, f"distortion {encoder.distortion_.mean:.2f}")


# %%
def corner(x: np.ndarray) -> float:
    """How much brighter the corner of one group is, from 0 to 255."""
    means = x[:, :4, :4].astype(float).mean(axis=(1, 2))
    return float(means[group == 1].mean() - means[group == 0].mean())


print("brighter corner:", round(corner(images), 1), "before,", round(corner(released), 1), "after")

# %% [markdown]
# The mean image of each group, before and after.

# %%
picture = Figure(figsize=(6, 3.4), layout="constrained")
for axes, (name, x, s) in zip(
    picture.subplots(1, 4),
    [("0, before", images, 0), ("1, before", images, 1), ("0, after", released, 0), ("1, after", released, 1)],
    strict=True,
):
    axes.imshow(x[group == s].mean(axis=0), cmap="gray", vmin=60, vmax=200)
    axes.set_title(f"group {name}", fontsize=8)
    axes.axis("off")
