# %% [markdown]
# # A release on a Ray cluster
# `engine="ray"` draws the batches of a release in Ray tasks, on this machine or, with `address=`, on a running cluster.
# The same secret gives the same rows with any engine. Without Ray (`pip install 'fairveil[ray]'`), this script uses
# threads.

# %%
import importlib.util
import os
import tempfile
from pathlib import Path

import fairveil as fv
from fairveil import workflows

engine = "ray" if importlib.util.find_spec("ray") else "local"
steps, rows = int(os.environ.get("FAIRVEIL_STEPS", "300")), int(os.environ.get("FAIRVEIL_ROWS", "20000"))
folder = Path(tempfile.mkdtemp())
train, _ = fv.datasets.load_adult(case="I")
train.X[:rows].assign(sex=train.S["sex"][:rows]).to_parquet(folder / "adult.parquet")

# %%
recipe = workflows.Recipe(("sex",), steps=steps, show_progress=False)
workflows.fit_file(folder / "adult.parquet", folder / "sex.veil", 12.0, recipe)
options = workflows.Options(engine=engine, show_progress=False)
card = workflows.release_file(folder / "adult.parquet", folder / "sex.veil", folder / "censored.parquet", options)
print(f"engine {engine}:", card["release"]["rows"], "rows, distortion", round(card["distortion"]["total"], 2))

# %% [markdown]
# A frozen veil is also a function of batches for the workers of any other engine, such as `map_batches` of Ray Data or
# `mapInArrow` of Spark; see the guide "From one file to a cluster".
