# %% [markdown]
# # S is not at hand when rows are released
# With `sees_sensitive=False` (the default) the encoder needs S only in `fit`. It hides less at the same budget.

# %%
import os

import fairveil as fv

steps, rows = int(os.environ.get("FAIRVEIL_STEPS", "1000")), int(os.environ.get("FAIRVEIL_ROWS", "20000"))
train, test = fv.datasets.load_adult(case="I")
encoder = fv.FairEncoder(3.0, training=fv.Training(steps=steps), unmet="warn", verbose=False)
encoder.fit(train.X[:rows], sensitive_features=train.S[:rows])

# %%
print(encoder.transform(test.X[:rows]).head())  # no S here
