"""Partitions: against the exact channel, against transport, on new rows, and what they refuse."""

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import torch

import fairveil as fv
from fairveil import Column, FairEncoder, FairFrontier, InputError, Schema, Training
from fairveil.encoders import Partition, Signature, build_encoder
from fairveil.encoders.partition import PartitionEncoder
from fairveil.theory.channel import information_channel

#: A finite release has tables for adversaries: they learn fast and whole.
TRAINING = Training(steps=600, batch_size=2048, adversary_steps=2, learning_rate=0.01, adversary_learning_rate=0.05,
                    adversary_hidden=((32,),), adversary_dropout=0.0, adversary_decay=0.0,
                    rounds=6)  # fmt: skip
LINE = Schema((Column("x", "continuous", family="number", lower=-3.0, upper=4.0, grid=0.1),))


def on_a_line(rows: int) -> tuple[pd.DataFrame, np.ndarray]:
    """Two groups whose numbers, on a grid of 71, lie around 0 and around 1."""
    generator = np.random.default_rng(0)
    s = generator.integers(0, 2, rows)
    return pd.DataFrame({"x": np.round(np.clip(generator.normal(s, 0.8), -3.0, 4.0), 1)}), s


def subjects(rows: int, seed: int) -> tuple[pd.DataFrame, np.ndarray]:
    """Ten people, each a little elsewhere, doing two things that lie far apart."""
    generator = np.random.default_rng(seed)
    places = np.random.default_rng(99).normal(0.0, 0.6, (10, 8))
    who, what = generator.integers(0, 10, rows), generator.integers(0, 2, rows)
    x = places[who] + 4.0 * what[:, None] + generator.normal(0.0, 0.5, (rows, 8))
    return pd.DataFrame(x, columns=[f"c{i}" for i in range(8)]), who


#: The bound allows for a change of a whole column in 0.5 % of the rows, so ranges must not be too wide.
SUBJECTS = Schema(tuple(Column(f"c{i}", "continuous", family="number", lower=-3.5, upper=7.5) for i in range(8)))


@pytest.fixture(scope="module")
def people():
    x, who = subjects(6000, 0)
    frontier = FairFrontier(
        FairEncoder(
            architecture=Partition(n_cells=60),
            sees_sensitive=True,
            schema=SUBJECTS,
            training=Training(
                steps=60,
                batch_size=1024,
                adversary_steps=1,
                learning_rate=3e-3,
                adversary_learning_rate=0.03,
                adversary_hidden=((),),
                rounds=3,
            ),
            verbose=False,
            random_state=0,
        ),
        [3.5, 6.0],
    )
    return frontier.fit(x, sensitive_features=who)


def guessed(encoder: FairEncoder) -> float:
    """How often who it is can be told from the record alone, on new rows, learned from other new rows."""
    shares = []
    for seed in (1, 2):
        x, who = subjects(6000, seed)
        seen = encoder.transform(x, sensitive_features=who)
        shares.append((seen.round(6).astype(str).agg("|".join, axis=1).to_numpy(), who))
    (records, who), (others, truth) = shares
    table = pd.crosstab(records, who)
    best = dict(zip(table.index, table.to_numpy().argmax(axis=1), strict=True))
    return float(np.mean([best.get(record, 0) for record in others] == truth))


def channel_of(encoder: PartitionEncoder, values: np.ndarray) -> np.ndarray:
    """P(record | x, s) as (2, |x|, records)."""
    rows = torch.from_numpy(values.astype(np.float32))[:, None]
    logits = [encoder.propose(rows, torch.eye(2)[g].expand(len(rows), 2), None)[0] for g in (0, 1)]
    return np.stack([each.softmax(dim=-1).double().numpy() for each in logits])


def nats(joint: np.ndarray) -> float:
    alone = np.outer(joint.sum(axis=1), joint.sum(axis=0))
    return float((joint * np.log(joint.clip(1e-300) / alone.clip(1e-300))).sum())


def test_it_hides_nearly_what_the_exact_channel_hides():
    x, s = on_a_line(100_000)
    encoder = FairEncoder(
        0.16,
        architecture=Partition(n_cells=7),
        sees_sensitive=True,
        schema=LINE,
        training=TRAINING,
        distortion="squared",
        verbose=False,
        random_state=0,
    )
    encoder.fit(x, sensitive_features=s)
    learned = encoder.veil_.encoder
    assert isinstance(learned, PartitionEncoder)
    column = encoder.schema_.columns[0]
    grid = np.sort(x["x"].unique())
    joint = np.array([(x["x"].to_numpy()[s == g, None] == grid).sum(axis=0) for g in (0, 1)]) / len(x)
    scaled = (grid - column.center) / column.scale
    channel = channel_of(learned, scaled)
    apart = np.square(np.subtract.outer(scaled, learned.table[:, -1].numpy()))
    spent = float(np.einsum("sx,sxr,xr->", joint, channel, apart))
    exact = information_channel(joint, apart, spent, sees_sensitive=True)
    found = nats(np.einsum("sx,sxr->sr", joint, channel))
    assert 0.12 < spent <= 0.16
    assert exact.value <= found + 1e-9
    hidden, can_be = (nats(joint) - each for each in (found, exact.value))
    assert hidden > 0.98 * can_be
    assert can_be > 0.8 * nats(joint)


def test_potentials_of_transport_give_the_wanted_shares():
    signature = Signature(Schema((Column("x", "continuous", family="number"),)).layout, sensitive_width=2)
    encoder = build_encoder(Partition(n_cells=6, codebook=tuple((float(i),) for i in range(6))), signature)
    assert isinstance(encoder, PartitionEncoder)
    rows = torch.linspace(-1.0, 4.0, 2000)[:, None]
    wanted = torch.tensor([0.05, 0.1, 0.2, 0.3, 0.2, 0.15])
    found = encoder.potentials_of(rows, wanted, rounds=500)
    with torch.no_grad():
        encoder.potentials.copy_(found.expand_as(encoder.potentials))
        shown = torch.eye(2)[0].expand(len(rows), 2)
        shares = encoder.propose(rows, shown, None)[0].softmax(dim=-1).mean(dim=0)
    torch.testing.assert_close(shares, wanted, atol=2e-3, rtol=0)


def test_many_groups_are_released_alike_also_on_new_rows(people):
    near, far = (people.at(budget) for budget in (3.5, 6.0))
    nearest = fv.Quantiser(60, schema=SUBJECTS, random_state=0).fit(subjects(6000, 0)[0])

    class Nearest:
        def transform(self, x, **_):
            return nearest.transform(x)

    assert guessed(Nearest()) > 0.4  # the control: records alone do not hide who it is
    assert guessed(far) < guessed(near) < 0.4
    assert guessed(far) < 0.14  # ten subjects: chance is 0.1


def test_what_lies_far_apart_stays_apart(people):
    """The thing done is four deviations away in every column: nobody moves that far to look like somebody else."""
    x, who = subjects(3000, 3)
    released = people.at(6.0).transform(x, sensitive_features=who)
    assert np.mean((released.mean(axis=1) > 2) == (x.mean(axis=1) > 2)) > 0.98


def test_the_bound_holds_on_new_rows(people):
    x, who = subjects(6000, 4)
    for budget in (3.5, 6.0):
        released = people.at(budget).transform(x, sensitive_features=who)
        assert np.square(released.to_numpy() - x.to_numpy()).sum(axis=1).mean() < budget


def test_it_can_be_had_without_settings():
    x, who = subjects(6000, 0)
    encoder = FairEncoder(
        5.0, architecture=Partition(n_cells=60), sees_sensitive=True, schema=SUBJECTS, verbose=False, random_state=0
    )
    encoder.fit(x, sensitive_features=who)
    # A mean over draws: a single one misses it by 0.01 either way.
    assert np.mean([guessed(encoder.set_params(random_state=draw)) for draw in range(4)]) < 0.18


def test_a_column_that_is_passed_on_leaves_nothing_to_certify():
    x, who = subjects(2000, 0)
    schema = Schema((*SUBJECTS.columns, Column("name", "categorical", role="pass", categories=("a",))))
    encoder = FairEncoder(
        8.0, architecture=Partition(n_cells=20), sees_sensitive=True, schema=schema, verbose=False, random_state=0
    )
    encoder.fit(x.assign(name="a"), sensitive_features=who)
    with pytest.raises(InputError, match="'name'"):
        encoder.certify(x.assign(name="a"), sensitive_features=who, unseen_rows=True)


def test_it_is_certified_by_its_draws_and_saved(people, tmp_path):
    x, who = subjects(20_000, 5)
    encoder = people.at(6.0)
    made = encoder.certify(x, sensitive_features=who, unseen_rows=True)
    assert 0 < made.observed < made.bound < 0.35
    again = encoder.set_params(random_state=None).certify(x, sensitive_features=who, unseen_rows=True)
    assert again.bound == made.bound  # it cannot be rolled until it looks well
    encoder.set_params(random_state=0)
    encoder.save(tmp_path / "who.veil")
    loaded = fv.load(tmp_path / "who.veil").set_params(random_state=0)
    again = loaded.transform(x[:200], sensitive_features=who[:200])
    pd.testing.assert_frame_equal(again, encoder.transform(x[:200], sensitive_features=who[:200]))


def test_a_certificate_averages_exact_probabilities(people):
    """By brute force: the frequencies of very many draws approach the averages; the bound adds Hoeffding's margin."""
    encoder = people.at(6.0)
    x, who = subjects(4000, 6)
    made = encoder.certify(x, sensitive_features=who, unseen_rows=True)
    assert set(made.pairs["method"]) == {"probabilities"}
    cells = encoder.veil_.encoder
    count = np.zeros((10, cells.alphabet))
    for draw in range(150):
        released = encoder.set_params(random_state=draw).transform(x, sensitive_features=who)
        codes = cells.cell_of(encoder.veil_.codec.encode_rows(pa.Table.from_pandas(released)).x).numpy()
        np.add.at(count, (who, codes), 1)
    encoder.set_params(random_state=0)
    shares = count / count.sum(axis=1, keepdims=True)
    first, second = (made.pairs[name].str.strip("'").astype(int) for name in ("first", "second"))
    drawn = 0.5 * np.abs(shares[first] - shares[second]).sum(axis=1)
    np.testing.assert_allclose(made.pairs["observed"], drawn, atol=0.01)
    margin = np.sqrt((1 / made.pairs["first_rows"] + 1 / made.pairs["second_rows"]) * np.log(45 / 0.05) / 2)
    np.testing.assert_allclose(made.pairs["bound"], np.minimum(made.pairs["observed"] + margin, 1.0), rtol=1e-9)


def test_certificates_of_people_and_of_listed_values(people):
    encoder = people.at(6.0)
    x, who = subjects(8000, 7)
    settings = {"sensitive_features": who, "unseen_rows": True}
    alone = encoder.certify(x, **settings).bound
    assert encoder.certify(x, clusters=np.repeat(np.arange(1600), 5), **settings).bound > alone
    y = (x["c0"] > 2).to_numpy().astype(int)
    assert encoder.certify(x, y=y, y_values=[0, 1], **settings).bound < 1.0
    assert encoder.certify(x, y=y, y_values=[0, 1, 2], **settings).bound == 1.0
    assert encoder.certify(x, asymptotic=True, **settings).kind == "asymptotic"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"sees_sensitive": False}, "sees_sensitive=True"),
        ({"release": "probabilities"}, "release='sampled'"),
        ({"schema": SUBJECTS.edit("c0", role="keep")}, "all columns must be encoded"),
        (
            {"distortion": lambda released, original: (released - original).abs().sum(dim=-1)},
            "changed categories and squared numbers",
        ),
    ],
)
def test_what_cannot_be_divided_is_refused(settings, message):
    x, who = subjects(400, 0)
    plain = {"architecture": Partition(n_cells=8), "sees_sensitive": True, "schema": SUBJECTS, "verbose": False}
    with pytest.raises(InputError, match=message):
        FairEncoder(5.0, **{**plain, **settings}).fit(x, sensitive_features=who)
