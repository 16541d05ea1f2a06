"""Two popular ways to remove an attribute, audited: fairlearn's CorrelationRemover and LEACE, on UCI Adult.

Both remove what a *linear* model could use. Fresh attackers are not linear: they find sex in all, or nearly all, rows.
LEACE needs `pip install concept-erasure`; it is skipped where that is absent. About two minutes.

    python examples/peers_caught.py
"""

import numpy as np
import pandas as pd
from fairlearn.preprocessing import CorrelationRemover

import fairveil as fv


def main() -> None:
    train, test = fv.datasets.load_adult("I")
    x = pd.concat([train.X, test.X], ignore_index=True)
    sex = pd.concat([train.S["sex"], test.S["sex"]], ignore_index=True)
    salary = pd.concat([train.targets["salary"], test.targets["salary"]]).to_numpy()
    split = np.repeat(["train", "test"], [len(train), len(test)])
    numbers = pd.get_dummies(x, dtype=float)
    numbers = (numbers - numbers.mean()) / numbers.std()
    man = (sex == "Male").to_numpy().astype(float)
    fitted = split == "train"

    released = {"original, one-hot": numbers.to_numpy()}
    remover = CorrelationRemover(sensitive_feature_ids=["man"]).fit(numbers.assign(man=man)[fitted])
    released["CorrelationRemover"] = remover.transform(numbers.assign(man=man))
    try:
        import torch
        from concept_erasure import LeaceEraser
    except ImportError:
        print("concept-erasure is not installed: LEACE is skipped.")
    else:
        rows = torch.from_numpy(numbers.to_numpy())
        released["LEACE"] = LeaceEraser.fit(rows[fitted], torch.from_numpy(man[fitted])[:, None])(rows).numpy()

    for name, table in released.items():
        result = fv.audit(table, sex, {"salary": salary}, split=split, verbose=False)
        task = result.tasks.query("model == 'LightGBM'").iloc[0]
        print(f"\n{name}: {result.verdict()}")
        print(f"  salary {100 * task['utility']:.1f} %, ΔDemP {task['parity_gap']:.3f}")


if __name__ == "__main__":
    main()
