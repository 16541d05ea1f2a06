# %% [markdown]
# # A numeric sensitive attribute
# A number is hidden as up to eight ranges of about equal size or, with `loss="squared"`, as a number: then the
# adversary predicts it by regression.

# %%
import os

import numpy as np
import pandas as pd

import fairveil as fv

steps, rows = int(os.environ.get("FAIRVEIL_STEPS", "500")), int(os.environ.get("FAIRVEIL_ROWS", "5000"))
generator = np.random.default_rng(0)
age = pd.Series(generator.uniform(20, 80, rows), name="age")
X = pd.DataFrame(
    {"grey": (age + generator.normal(0, 8, rows)).round(1), "skill": generator.normal(0, 1, rows).round(2)}
)

# %%
for loss in ("log", "squared"):
    encoder = fv.FairEncoder(1.5, loss=loss, training=fv.Training(steps=steps), unmet="warn", verbose=False)
    released = encoder.fit_transform(X, sensitive_features=age)
    print(loss, "correlation with age:", round(float(np.corrcoef(released["grey"], age)[0, 1]), 2))
print("before:", round(float(np.corrcoef(X["grey"], age)[0, 1]), 2))
