# %% [markdown]
# # Two sensitive columns, hidden jointly
# With several sensitive columns their joint value is hidden: here sex and race together.

# %%
import os

import fairveil as fv

steps, rows = int(os.environ.get("FAIRVEIL_STEPS", "1000")), int(os.environ.get("FAIRVEIL_ROWS", "20000"))
train, _ = fv.datasets.load_adult(case="I")
X = train.X[:rows].drop(columns="race")
S = train.S[:rows].assign(white=train.X["race"][:rows].eq("White").map({True: "white", False: "other"}))

# %%
encoder = fv.FairEncoder(3.0, sees_sensitive=True, training=fv.Training(steps=steps), unmet="warn", verbose=False)
encoder.fit(X, sensitive_features=S)
print(encoder.veil_.sensitive.joint_values())  # the four groups
print(encoder.transform(X, sensitive_features=S).head())
