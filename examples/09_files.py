# %% [markdown]
# # The command line's workflows, from Python
# Inspect a file, fit a veil, release a censored copy with its card, and read the card.

# %%
import os
import tempfile
from pathlib import Path

import fairveil as fv
from fairveil import workflows

steps, rows = int(os.environ.get("FAIRVEIL_STEPS", "1000")), int(os.environ.get("FAIRVEIL_ROWS", "20000"))
folder = Path(tempfile.mkdtemp())
train, _ = fv.datasets.load_adult(case="I")
train.X[:rows].assign(sex=train.S["sex"][:rows]).to_csv(folder / "adult.csv", index=False)

# %%
found = workflows.inspect_file(workflows.open_table(folder / "adult.csv"), ["sex"])
(folder / "schema.yaml").write_text(found.to_yaml())
print({column.column.name: column.tells for column in found.found})

# %%
recipe = workflows.Recipe(schema=folder / "schema.yaml", steps=steps, show_progress=False)
workflows.fit_file(folder / "adult.csv", folder / "sex.veil", 12.0, recipe)
card = workflows.release_file(
    folder / "adult.csv", folder / "sex.veil", folder / "censored.csv", workflows.Options(show_progress=False)
)
print(workflows.card_text(card))
