# %% [markdown]
# # A certificate
# A measurement holds for the attackers that were tried. A certificate bounds ΔDemP of every predictor, for a release of
# finitely many records, from rows that the encoder has not seen.

# %%
import os

import fairveil as fv

steps, rows = int(os.environ.get("FAIRVEIL_STEPS", "1000")), int(os.environ.get("FAIRVEIL_ROWS", "20000"))
train, test = fv.datasets.load_adult(case="I")
encoder = fv.FairEncoder(
    4.0, architecture=fv.Matrix(n_cells=16), sees_sensitive=True, training=fv.Training(steps=steps), unmet="warn",
    verbose=False,
)  # fmt: skip
encoder.fit(train.X[:rows], sensitive_features=train.S[:rows])

# %% [markdown]
# In a table of few values, rows may equal fitted ones by chance. `unseen_rows=True` states that none of these was
# fitted.

# %%
print(encoder.certify(test.X[:rows], sensitive_features=test.S[:rows], unseen_rows=True))
