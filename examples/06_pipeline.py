# %% [markdown]
# # In a scikit-learn pipeline
# The encoder is a transformer; `sensitive_features` is routed to it as metadata.

# %%
import os

import sklearn
from sklearn.compose import make_column_selector, make_column_transformer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

import fairveil as fv

steps, rows = int(os.environ.get("FAIRVEIL_STEPS", "300")), int(os.environ.get("FAIRVEIL_ROWS", "5000"))
train, _ = fv.datasets.load_adult(case="I")
X, S, y = train.X[:rows], train.S[:rows], train.targets["salary"][:rows]

# %%
with sklearn.config_context(enable_metadata_routing=True):
    encoder = fv.FairEncoder(
        handle_unknown="most_frequent",  # a fold may hold a rare category that the other folds lack
        training=fv.Training(steps=steps), unmet="warn", verbose=False, random_state=0,
    )  # fmt: skip
    numbers = make_column_transformer(
        (OneHotEncoder(handle_unknown="ignore"), make_column_selector(dtype_exclude="number")),
        remainder=StandardScaler(),
    )
    encoder.set_fit_request(sensitive_features=True)
    model = Pipeline([("hide", encoder), ("numbers", numbers), ("predict", LogisticRegression(max_iter=500))])
    search = GridSearchCV(model, {"hide__budget": [2.0, 6.0]}, cv=2, error_score="raise")
    search.fit(X, y, sensitive_features=S["sex"])
print(search.cv_results_["params"], search.cv_results_["mean_test_score"].round(3))
