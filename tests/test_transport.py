"""The transport encoder: its distribution over records, its exact averages, and what it hides at which cost."""

import itertools
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import stats
from scipy.optimize import linprog
from torch.nn import functional as F

import fairveil as fv
from fairveil import FairEncoder, FairFrontier, InputError, Schema, Training
from fairveil.auditing import probe
from fairveil.data.frames import read_table
from fairveil.data.table_codec import Codec
from fairveil.encoders import Signature, Transport, build_encoder
from fairveil.encoders.transport.autoregressive import AutoregressiveColumns
from fairveil.objectives import LogLoss, make_distortion
from fairveil.objectives.bounds import Bounds
from fairveil.training.confidence_bound import DRAWS
from fairveil.training.panel import Opponent, Panel
from fairveil.training.steps import distortion_of, panel_losses
from helpers import people

SHORT = Training(
    steps=20,
    batch_size=128,
    adversary_hidden=((16,),),
    rounds=3,
    pretraining_steps=30,
    learning_rate=4e-3,
    adversary_learning_rate=4e-3,
    adversary_decay=1.0,
    warm_up=0.0,
    spending=0.0,
)
SMALL = Transport(hidden=(16,), matchings=1, matched_rows=200)


def letters(n: int = 200) -> pd.DataFrame:
    generator = np.random.default_rng(0)
    return pd.DataFrame({"a": generator.choice(list("xyz"), n), "b": generator.choice(list("uv"), n),
                         "c": generator.choice(list("pqrs"), n)})  # fmt: skip


def in_turn(schema: Schema, scale: float = 1.0) -> AutoregressiveColumns:
    columns = AutoregressiveColumns(schema.layout, 2, (8,))
    columns.initialise(torch.Generator().manual_seed(0))
    with torch.no_grad():
        for parameter in (columns.before, columns.out):
            parameter.mul_(10.0 * scale)
        columns.preference.mul_(0.3)
    return columns


def test_chances_of_all_records_sum_to_one_and_draws_follow_them():
    schema = Schema.infer(read_table(letters()))
    columns = in_turn(schema)
    codes = torch.tensor(list(itertools.product(range(3), range(2), range(4))))
    records = torch.cat([F.one_hot(codes[:, i], w) for i, w in enumerate((3, 2, 4))], dim=1).float()
    row, sensitive = records[5].expand(len(records), -1), torch.tensor([[0.0, 1.0]]).expand(len(records), -1)
    chances = torch.exp(-columns.nats(row, sensitive, records)).detach().double()
    assert float(chances.sum()) == pytest.approx(1.0, abs=1e-5)
    n = 20_000
    prepared = columns.prepare(row[:1], sensitive[:1]).expand(n, -1)
    drawn = columns.draw(prepared, row[:1].expand(n, -1), torch.rand(n, 3, generator=torch.Generator().manual_seed(1)))
    assert torch.equal(drawn.sum(dim=1), torch.full((n,), 3.0))
    counts = (drawn @ records.T == 3).sum(dim=0).double().numpy()
    expected = chances.numpy() / chances.sum().item() * n
    likely = expected >= 5
    merged = [np.append(v[likely], v[~likely].sum()) for v in (counts, expected)]
    assert stats.chisquare(*[m[merged[1] > 0] for m in merged]).pvalue > 1e-4


def test_gates_look_only_at_rows_that_may_move():
    schema = Schema.infer(read_table(letters()))
    encoder = build_encoder(Transport(hidden=(8,), levels=3), Signature(schema.layout, sensitive_width=2), 2)
    generator = torch.Generator().manual_seed(0)
    encoder.initialise([generator, generator])
    with torch.no_grad():
        encoder.mover.stays[0] = 1.0
    x = Codec(schema).encode(read_table(letters()).arrow)
    sensitive = F.one_hot(torch.arange(len(x)) % 2, 2).float()
    release = encoder(x, sensitive, encoder.noise(len(x), generator))
    stays = sensitive[:, 0] > 0.5
    assert torch.equal(
        release.weights[:, stays], torch.eye(1, 1 + encoder.architecture.levels).expand(2, int(stays.sum()), -1)
    )
    assert torch.equal(release.atoms[:, stays], x[stays].expand(len(release.atoms), -1, -1))
    assert torch.equal(release.values[:, stays], x[stays].expand(2, -1, -1))
    assert torch.allclose(release.weights.sum(dim=-1), torch.ones(2, len(x)))
    assert (release.atoms[-1, ~stays] != x[~stays]).any()
    [slope] = torch.autograd.grad(release.weights[:, ~stays, 0].sum(), [encoder.gate.layers[0].weight])
    assert slope.abs().sum() > 0


def test_it_learns_what_columns_apart_cannot():
    generator = torch.Generator().manual_seed(0)
    schema = Schema.infer(read_table(pd.DataFrame({"a": list("xy") * 50, "b": list("uv") * 50})))
    columns = AutoregressiveColumns(schema.layout, 1, (8,))
    columns.initialise(generator)
    same = torch.randint(2, (4000,), generator=generator)
    record = torch.cat([F.one_hot(same, 2), F.one_hot(same, 2)], dim=1).float()  # a and b agree, either way
    row = torch.tensor([[1.0, 0.0, 0.0, 1.0]]).expand(4000, -1)
    optimiser = torch.optim.Adam(columns.parameters(), lr=0.02)
    for _ in range(200):
        optimiser.zero_grad()
        loss = columns.nats(row, torch.ones(4000, 1), record).mean()
        loss.backward()
        optimiser.step()
    assert loss.item() == pytest.approx(np.log(2), abs=0.02)  # columns drawn apart: 2 log 2 at best
    drawn = columns.draw(columns.prepare(row, torch.ones(4000, 1)), row, torch.rand(4000, 2, generator=generator))
    assert float((drawn[:, 0] == drawn[:, 2]).float().mean()) > 0.98


def transport(frame: pd.DataFrame, members: int = 2, keep: tuple[str, ...] = ()):
    schema = Schema.infer(read_table(frame), fewest=1)
    for name in keep:
        schema = schema.edit(name, role="keep")
    encoder = build_encoder(Transport(hidden=(8,), levels=3), Signature(schema.layout, sensitive_width=2), members)
    encoder.initialise([torch.Generator().manual_seed(i) for i in range(members)])
    with torch.no_grad():
        encoder.mover.columns.out.mul_(20.0)
        encoder.mover.columns.preference.mul_(0.1)
        encoder.mover.stays[1] = 1.0
        encoder.mover.levels[0, : schema.layout.groups[0].stop] = 1.0
        encoder.mover.levels[0, schema.layout.groups[0].stop :] = 0.0
    return schema, encoder, Codec(schema).encode(read_table(frame).arrow)


def drawn_from(encoder, x, sensitive, seed=0):
    return encoder(x, sensitive, encoder.noise(len(x), torch.Generator().manual_seed(seed)))


def test_the_reference_stays_and_numbers_are_always_drawn_anew():
    frame, _, _ = people(400)
    schema, encoder, x = transport(frame)
    s = F.one_hot(torch.arange(400) % 2, 2).float()
    release = drawn_from(encoder, x, s)
    written = Codec(schema).decode(release.values[0].detach()).to_pandas()
    stays = (torch.arange(400) % 2 == 1).numpy()
    for name in ("role", "town"):
        assert written.loc[stays, name].fillna("").tolist() == frame.loc[stays, name].fillna("").tolist()
    assert (written.loc[~stays, "role"] != frame.loc[~stays, "role"]).any()
    bins = schema["height"].bins()
    place = [np.searchsorted(bins[:, 0], table.loc[stays, "height"], side="right") for table in (written, frame)]
    assert np.array_equal(*place)
    wide = bins[place[0] - 1, 1] > bins[place[0] - 1, 0]
    assert (written.loc[stays, "height"].to_numpy()[wide] != frame.loc[stays, "height"].to_numpy()[wide]).any()


def test_kept_columns_are_not_moved():
    frame, _, _ = people(300)
    schema, encoder, x = transport(frame, keep=("role", "skill"))
    written = Codec(schema).decode(drawn_from(encoder, x, torch.eye(2)[:1].expand(300, -1)).values[0].detach())
    assert written["role"].to_pylist() == frame["role"].tolist()
    assert written["skill"].to_pylist() == frame["skill"].tolist()


def test_averages_over_the_gate_are_exact():
    frame, _, _ = people(200)
    schema, encoder, x = transport(frame)
    with torch.no_grad():
        encoder.gate.layers[-1].weight.mul_(30.0)
    s = F.one_hot(torch.arange(200) % 2, 2).float()
    release = drawn_from(encoder, x, s)
    assert torch.allclose(release.weights.sum(dim=-1), torch.ones(2, 200), atol=1e-6)
    panel = Panel(schema.layout.width, [Opponent((8,), 2)], members=2)
    panel.initialise([torch.Generator().manual_seed(i) for i in range(2)])
    secret = torch.arange(200) % 2
    found = panel_losses(panel, [LogLoss()], release, [secret])[:, 0]
    by_hand = torch.zeros(2)
    for a, atom in enumerate(release.atoms):
        losses = LogLoss().rows(panel(atom.expand(2, -1, -1))[0], secret.expand(2, -1))
        by_hand = by_hand + (release.weights[..., a] * losses).mean(dim=1)
    assert torch.allclose(found, by_hand, atol=1e-5)
    # Distortion: the expectation over the gate is the weighted mean over the atoms.
    distortion = make_distortion("auto", schema.layout, "sampled")
    prices, fixed = distortion.prices(x)
    expected = distortion.expected(release, x).sum(dim=-1)
    of_atoms = torch.stack([(prices * atom[:, schema.layout.grouped]).sum(dim=1) + fixed for atom in release.atoms])
    assert torch.allclose(expected, torch.einsum("ar,mra->mr", of_atoms, release.weights), atol=1e-3)


def test_the_spread_of_distortion_is_that_of_a_mean_of_draws():
    frame, _, _ = people(300)
    schema, encoder, x = transport(frame)
    release = drawn_from(encoder, x, F.one_hot(torch.arange(300) % 2, 2).float())
    distortion = make_distortion("auto", schema.layout, "sampled")
    problem = SimpleNamespace(distortion=distortion, bounds=Bounds.of([1.0, 2.0]))
    rows, spread = distortion_of(problem, release, x)
    assert torch.allclose(rows[..., 0], distortion.expected(release, x).sum(dim=-1), atol=1e-5)
    assert rows.requires_grad
    assert not spread.requires_grad
    each = distortion.of_atoms(release.atoms, x).sum(dim=-1).T  # (rows, atoms)
    generator = torch.Generator().manual_seed(0)
    for member in range(2):
        simulated = []
        for _ in range(100):
            level = torch.multinomial(release.weights[member].detach(), DRAWS, replacement=True, generator=generator)
            simulated.append(each.gather(1, level).mean(dim=1).var())
        assert spread[member, 0].item() == pytest.approx(float(torch.stack(simulated).mean().sqrt()), rel=0.03)


def test_a_uniform_number_beyond_the_last_sum_draws_the_last_value():
    columns = in_turn(Schema.infer(read_table(letters())))
    row = torch.zeros(3, 9)
    drawn = columns.draw(columns.prepare(row, torch.zeros(3, 2)), row, torch.full((3, 3), 1.0))
    assert torch.equal(drawn, torch.tensor([0, 0, 1, 0, 1, 0, 0, 0, 1.0]).expand(3, -1))


def test_the_level_drawn_follows_the_weights():
    frame = pd.DataFrame({"a": list("xyxy") * 50, "b": list("uuvv") * 50})
    _, encoder, x = transport(frame, members=1)
    one, s = x[:1].expand(20_000, -1), torch.eye(2)[:1].expand(20_000, -1)
    with torch.no_grad():
        encoder.gate.layers[-1].bias.copy_(torch.tensor([0.5, 0.0, 1.0, -0.5]))
    with torch.no_grad():
        release = drawn_from(encoder, one, s)
    same = (release.values[0].unsqueeze(0) == release.atoms).all(dim=-1).float()
    chance = torch.einsum("ar,ra->r", same, release.weights[0])  # of the record that was drawn, row by row
    equal = (release.atoms.unsqueeze(0) == release.atoms.unsqueeze(1)).all(dim=-1).float()
    expected = torch.einsum("ra,abr,rb->r", release.weights[0], equal, release.weights[0])
    assert chance.mean().item() == pytest.approx(expected.mean().item(), abs=0.01)
    assert expected.mean().item() < 0.9  # there is something to draw


@pytest.fixture(scope="module")
def discrete():
    """Two groups over 3 x 2 records with a known cheapest transport, 12,000 rows."""
    generator = np.random.default_rng(0)
    shares = {"m": np.array([0.35, 0.10, 0.20, 0.15, 0.05, 0.15]), "f": np.array([0.05, 0.20, 0.10, 0.15, 0.30, 0.20])}
    s = generator.choice(["m", "f"], 12_000, p=[0.6, 0.4])
    cells = np.where(s == "m", *(generator.choice(6, 12_000, p=shares[g]) for g in ("m", "f")))
    frame = pd.DataFrame({"a": np.array(list("xyz"))[cells // 2], "b": np.array(list("uv"))[cells % 2]})
    return frame, pd.Series(s, name="sex"), cells


def cheapest(cells: np.ndarray, s: np.ndarray) -> float:
    """The least mean Hamming distance per row of "f" at which all of "f" can look like "m", a linear program."""
    price = np.array([[(i // 2 != j // 2) + (i % 2 != j % 2) for j in range(6)] for i in range(6)], dtype=float)
    p, q = (np.bincount(cells[s == g], minlength=6) / np.sum(s == g) for g in ("f", "m"))
    rows, columns = np.kron(np.eye(6), np.ones(6)), np.kron(np.ones(6), np.eye(6))
    return float(linprog(price.ravel(), A_eq=np.vstack([rows, columns]), b_eq=np.concatenate([p, q])).fun)


def found_in(table: pd.DataFrame, s: pd.Series) -> float:
    """The AUC of a fresh model on the second half of the rows."""
    half = len(table) // 2
    return probe(table.iloc[:half], s.iloc[:half], table.iloc[half:], s.iloc[half:]).auc.value


def cell_shares(table: pd.DataFrame) -> np.ndarray:
    cells = table["a"].map({"x": 0, "y": 2, "z": 4}) + table["b"].map({"u": 0, "v": 1})
    return np.bincount(cells, minlength=6) / len(table)


def test_toward_a_group_it_hides_s_at_the_least_cost_at_which_it_can_be_hidden(discrete):
    frame, s, cells = discrete
    least = cheapest(cells, s.to_numpy()) * np.mean(s == "f")
    frontier = FairFrontier(
        FairEncoder(architecture=Transport(toward="m"), sees_sensitive=True, verbose=False, random_state=0),
        [0.5 * least, 1.5 * least],
    )
    frontier.fit(frame, sensitive_features=s)
    released = frontier.at(1.5 * least).transform(frame, sensitive_features=s)
    # Of all rows: the mean of the few that are held out has a standard error of 7 %.
    assert (released != frame).sum(axis=1).mean() == pytest.approx(least, rel=0.12)
    pd.testing.assert_frame_equal(released[s == "m"], frame[s == "m"])
    assert found_in(frame, s) > 0.72  # the control
    assert found_in(released, s) < 0.525
    partly = frontier.at(0.5 * least)
    assert partly.distortion_.upper <= 0.5 * least
    assert 0.525 < found_in(partly.transform(frame, sensitive_features=s), s) < found_in(frame, s) - 0.05


def test_toward_the_population_every_group_meets_all_rows_and_columns_keep_their_distributions(discrete):
    frame, s, cells = discrete
    shares = s.value_counts(normalize=True)
    least = cheapest(cells, s.to_numpy()) * 2 * shares["f"] * shares["m"]
    # By name: `auto` solves a table of so few combinations exactly.
    settings = FairEncoder(architecture="transport", sees_sensitive=True, verbose=False, random_state=0)
    frontier = FairFrontier(settings, [0.5 * least, 1.5 * least]).fit(frame, sensitive_features=s)
    encoder = frontier.at(1.5 * least)
    released = encoder.transform(frame, sensitive_features=s)
    assert (released != frame).sum(axis=1).mean() == pytest.approx(least, rel=0.12)
    assert found_in(released, s) < 0.525
    population = cell_shares(frame)
    for group in ("m", "f"):
        apart = 0.5 * np.abs(cell_shares(released[s == group]) - population).sum()
        before = 0.5 * np.abs(cell_shares(frame[s == group]) - population).sum()
        # The control: the groups are 0.4 apart, and each is the other's share of this away from all rows.
        assert before == pytest.approx(0.4 * shares["f" if group == "m" else "m"], abs=0.02)
        assert apart < 0.03
    partly = frontier.at(0.5 * least)
    assert partly.distortion_.upper <= 0.5 * least
    half = partly.transform(frame, sensitive_features=s)
    assert 0.525 < found_in(half, s) < found_in(frame, s) - 0.05
    for table, share in ((released, 1.0), (half, 0.5)):
        changed = (table != frame).any(axis=1)
        # At least as many rows as the groups are apart, less a fifth for the margin within the budget.
        assert changed[s == "m"].mean() > 0.8 * share * 0.4 * shares["f"]
        assert changed[s == "f"].mean() > 0.8 * share * 0.4 * shares["m"]
        for name in frame:
            drift = table[name].value_counts(normalize=True) - frame[name].value_counts(normalize=True)
            assert 0.5 * drift.abs().sum() < 0.02


def test_a_pair_has_one_gate_and_each_side_moves_by_the_share_of_the_other():
    frame = pd.DataFrame({"a": list("xyxy") * 50, "b": list("uuvv") * 50})
    _, encoder, x = transport(frame, members=1)
    with torch.no_grad():
        encoder.mover.stays.copy_(torch.tensor([0.3, 0.7]))
        encoder.gate.layers[-1].weight.mul_(30.0)
    row, other = x[:1].expand(2000, -1), x[3:4].expand(2000, -1)  # they differ in both columns
    opened = []
    for own, record, group in ((row, other, 0), (other, row, 1)):
        s = torch.eye(2)[group : group + 1].expand(2000, -1)
        with torch.no_grad():
            release = drawn_from(encoder, own, s)
        same = (release.atoms[-1] == record).all(dim=-1)
        assert same.any()
        opened.append(release.weights[0, same][0] / (1.0 - encoder.mover.stays[group]))
    assert torch.allclose(opened[0][1:], opened[1][1:], atol=1e-6)
    assert opened[0][1:].min() > 0


@pytest.mark.parametrize("toward", ["nobody", "barycentre", 1, None])
def test_an_unknown_target_is_refused(toward):
    X, S, _ = people(200)
    with pytest.raises(InputError, match="'population', 'cheapest', or the name of a group of S"):
        FairEncoder(5.0, architecture=Transport(toward=toward), sees_sensitive=True, training=SHORT,
                    verbose=False).fit(X, sensitive_features=S["sex"])  # fmt: skip


def test_a_target_of_several_columns_is_named_by_its_values(tmp_path):
    X, S, _ = people(600)
    name = " & ".join(S.iloc[0])
    architecture = replace(SMALL, toward=name)
    encoder = FairEncoder(900.0, architecture=architecture, sees_sensitive=True, training=SHORT, verbose=False,
                          random_state=0).fit(X, sensitive_features=S)  # fmt: skip
    target = S.agg(" & ".join, axis=1) == name
    released = encoder.transform(X, sensitive_features=S)
    assert released["role"][target].tolist() == X["role"][target].tolist()
    assert (released["role"][~target] != X["role"][~target]).any()
    encoder.save(tmp_path / "t.veil")
    veil = fv.load(tmp_path / "t.veil").veil_
    assert veil.encoder.architecture.toward == name
    manifest, weights = veil.to_parts()
    forged = {**manifest, "architecture": {**manifest["architecture"], "toward": "x"}}
    with pytest.raises(fv.VeilFileError, match="do not fit together"):
        type(veil).from_parts(forged, weights)


def test_a_saved_transport_is_the_same_and_a_frontier_shares_one_mover(tmp_path, discrete):
    frame, s, _ = discrete
    frame, s = frame.iloc[:1500], s.iloc[:1500]
    frontier = FairFrontier(
        FairEncoder(architecture=SMALL, sees_sensitive=True, training=SHORT, verbose=False, random_state=1),
        [0.3, 0.6],
    ).fit(frame, sensitive_features=s)
    met = frontier.points_.loc[frontier.points_["met"], "budget"]
    assert len(met)
    one = frontier.at(met.iloc[-1])
    one.save(tmp_path / "t.veil")
    again = fv.load(tmp_path / "t.veil")
    again.random_state = 1
    pd.testing.assert_frame_equal(
        again.transform(frame, sensitive_features=s), one.transform(frame, sensitive_features=s)
    )
    movers = [one.veil_.encoder.mover.state_dict() for one in frontier.estimators_]
    assert all(torch.equal(movers[0][name], movers[1][name]) for name in movers[0])


def test_an_interrupted_fit_goes_on_exactly(tmp_path, discrete, monkeypatch):
    frame, s, _ = discrete
    frame, s = frame.iloc[:1500], s.iloc[:1500]

    def fit(checkpoint=None):
        training = replace(SHORT, checkpoint=checkpoint)
        return FairEncoder(
            0.8, architecture=SMALL, sees_sensitive=True, training=training, verbose=False, random_state=3
        ).fit(frame, sensitive_features=s)

    whole = fit()
    from fairveil.training.game import Game

    turn = Game.turn

    def stop(self, *args):
        if self.step == 15:
            raise KeyboardInterrupt
        turn(self, *args)

    monkeypatch.setattr(Game, "turn", stop)
    with pytest.raises(KeyboardInterrupt):
        fit(checkpoint=tmp_path / "c")
    monkeypatch.setattr(Game, "turn", turn)
    resumed = fit(checkpoint=tmp_path / "c")
    a, b = whole.veil_.encoder.state_dict(), resumed.veil_.encoder.state_dict()
    assert all(torch.equal(a[name], b[name]) for name in a)


def test_a_group_of_which_validation_rows_have_none():
    X, S, _ = people(500)
    few = S["sex"].copy()
    few.iloc[:] = "many"
    few.iloc[[3, 77, 200]] = "few"
    encoder = FairEncoder(
        60.0,
        architecture=SMALL,
        sees_sensitive=True,
        training=replace(SHORT, validation=0.02),
        verbose=False,
        random_state=0,
    )
    encoder.fit(X, sensitive_features=few)
    for group in ("few", "many"):  # nobody moves, or all may
        assert len(encoder.transform(X, sensitive_features=few.where(few == group, group))) == 500


def test_three_groups_a_budget_by_kind_and_a_handful_of_rows():
    X, S, _ = people(500)
    encoder = FairEncoder(
        {"categorical": 2.0, "continuous": 60.0},
        architecture=SMALL,
        sees_sensitive=True,
        training=SHORT,
        verbose=False,
        random_state=0,
    )
    encoder.fit(X, sensitive_features=S["region"])
    released = encoder.transform(X, sensitive_features=S["region"])
    assert set(released["role"]) <= set(X["role"])
    assert released.dtypes.equals(X.dtypes)
    few = FairEncoder(900.0, architecture=SMALL, sees_sensitive=True, training=SHORT, verbose=False, random_state=0)
    few.fit(X.iloc[:60], sensitive_features=S["sex"].iloc[:60])


def test_auto_takes_transport_for_two_groups_seen_or_not(discrete):
    frame, s, _ = discrete
    X, S, y = people(1600)

    reasons = []

    def chosen(X, s, y=None, **settings):
        encoder = FairEncoder(900.0, training=SHORT, verbose=False, random_state=0, **settings)
        encoder.fit(X, y, sensitive_features=s)
        reasons.append(encoder.architecture_reason_)
        return encoder.architecture_.name

    assert chosen(X, S["sex"], sees_sensitive=True) == "transport"
    assert "two groups of at least 100 rows" in reasons[-1]
    assert chosen(X.iloc[:150], S["sex"].iloc[:150], sees_sensitive=True) == "feedforward"  # too few
    assert "rows; transport needs 100" in reasons[-1]
    assert chosen(X, S["sex"]) == "transport"  # S is not seen
    assert "scores rows by S" in reasons[-1]
    assert chosen(X, S["region"], sees_sensitive=True) == "feedforward"  # three groups
    assert chosen(X, S["sex"], y, sees_sensitive=True, target_weight=1.0) == "transport"  # a task changes nothing
    assert chosen(X[["role", "town"]], X["height"], sees_sensitive=True, loss="squared") == "feedforward"
    assert chosen(frame.iloc[:1000], s.iloc[:1000], sees_sensitive=True) == "matrix"  # few combinations
    assert "can be solved" in reasons[-1]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"sees_sensitive": False, "architecture": Transport(toward="cheapest")}, "needs sees_sensitive=True"),
        ({"distortion": "cross_entropy"}, "adds up over columns"),
        ({"distortion": lambda r, x: (r - x).square().sum(-1)}, "adds up over columns"),
        ({"release": "probabilities"}, "needs release='sampled'"),
    ],
)
def test_what_transport_cannot_do_is_said(settings, message):
    X, S, _ = people(200)
    encoder = FairEncoder(5.0, **{"architecture": "transport", "sees_sensitive": True, "training": SHORT,
                                  "verbose": False, **settings})  # fmt: skip
    with pytest.raises(InputError, match=message):
        encoder.fit(X, sensitive_features=S["sex"])
