# %% [markdown]
# # Auditing what another tool released
# The audit sees tables, never an encoder. Here a column is removed and the rest is published: a leaking release.

# %%
import os

import fairveil as fv

rows = int(os.environ.get("FAIRVEIL_ROWS", "20000"))
train, _ = fv.datasets.load_adult(case="I")
X, S = train.X[:rows], train.S[:rows]
released = X.drop(columns="relationship")

# %%
result = fv.audit(released, S, original=X, verbose=False)
print(result.headline())
print(result.exceeded(auc=0.6, balanced_advantage=0.1, gap=0.1))  # the default limits of `fairveil audit`
picture = result.plot()
