# %% [markdown]
# # A first release
# Fit an encoder that hides sex in UCI Adult, release the rows, and attack the release with fresh models.

# %%
import os

import fairveil as fv

steps, rows = int(os.environ.get("FAIRVEIL_STEPS", "1000")), int(os.environ.get("FAIRVEIL_ROWS", "20000"))
train, _ = fv.datasets.load_adult(case="I")
X, S, salary = train.X[:rows], train.S[:rows], train.targets["salary"][:rows]

# %% [markdown]
# The budget bounds the mean distortion of a row. If held-out rows do not confirm the bound, `fit` raises
# `BudgetNotMet` (with `unmet="warn"` it only warns).

# %%
encoder = fv.FairEncoder(2.5, sees_sensitive=True, training=fv.Training(steps=steps), unmet="warn", verbose=False)
encoder.fit(X, sensitive_features=S)
print(f"distortion {encoder.distortion_.mean:.2f}, at most {encoder.distortion_.upper:.2f}")

# %%
released = encoder.transform(X, sensitive_features=S)  # the same columns and types
print(released.head())

# %% [markdown]
# Fresh attackers, with controls: they must succeed on the original rows and fail on a shuffled S.

# %%
result = fv.audit(released, S, {"salary": salary}, original=X, verbose=False)
print(result.headline())
print(result.columns[["column", "changed", "drift"]])
picture = result.plot()  # every attacker, with its interval

# %% [markdown]
# What happened to the columns: the distribution of each, before and after.

# %%
picture = result.plot("columns")
