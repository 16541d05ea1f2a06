# %% [markdown]
# # Several budgets at once
# All budgets are trained together in one game. The points show how much of each budget was spent.

# %%
import os

import fairveil as fv

steps, rows = int(os.environ.get("FAIRVEIL_STEPS", "1000")), int(os.environ.get("FAIRVEIL_ROWS", "20000"))
train, test = fv.datasets.load_adult(case="I")
X, S = train.X[:rows], train.S[:rows]

# %%
encoder = fv.FairEncoder(sees_sensitive=True, training=fv.Training(steps=steps), unmet="warn", verbose=False)
frontier = fv.FairFrontier(encoder, budgets=[1.0, 2.0, 4.0]).fit(X, sensitive_features=S)
print(frontier.points_[["budget", "distortion", "upper", "met"]])

# %% [markdown]
# `at` gives the encoder of one budget; `to_html` writes a page with a slider, to send to a colleague.

# %%
released = frontier.at(4.0).transform(test.X[:rows], sensitive_features=test.S[:rows])
print(released.shape)
frontier.to_html("frontier.html")
picture = frontier.plot()
