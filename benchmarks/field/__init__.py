"""The comparison over ten tables: every method on the same rows, judged by models that no method was trained against.

python -m field run [--table dutch] [--method fare] [--seeds 3] [--rows 8000]    `make field TABLE=... METHOD=...`
python -m field collect     all stored results in one file, `benchmarks/field/results.json`
python -m field page        docs/field.md and its pictures from that file

`data`: tables, one YAML file each. `protocol`: what a method is given and returns. `methods/`: one file per method.
`judges`: attackers and task models. `run`: one process per table, method and seed, with a time limit. `store`: results
as JSON. `summary` and `page`: what is shown.
"""
