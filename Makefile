# The newcomer's two commands are `make run` and `make test`. Everything else builds on the same .venv.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
export OMP_NUM_THREADS ?= 2
# Plots are drawn without a screen.
export MPLBACKEND := Agg

.PHONY: run test test-ray cluster studio-test screenshots gallery docs check bench adult tables theory audit ablation compare reproduce peers field field-page stress clean

run: $(VENV)/.installed  ## learn a frontier on UCI Adult, release a censored table, show what attackers find
	$(BIN)/fairveil demo --output results

# One process per core with one thread each: small networks gain nothing from a second thread.
test: check  ## everything: lint, types, tests, doctests
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest --numprocesses 2 --dist loadfile

test-ray: $(VENV)/.installed  ## the work of a Ray cluster of several nodes in processes, and an S3 server
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[test-ray]'
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest tests/test_ray.py tests/test_engines.py tests/test_s3.py tests/test_batch_function.py

cluster: $(VENV)/.installed  ## 50 workers, 10 nodes and 10 drivers killed in a release of 5 million rows; the rate of Ray
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[test-ray]'
	$(BIN)/python benchmarks/cluster.py

studio-test: $(VENV)/.installed  ## the studio in a real browser (installs playwright and Debian's chromium)
	which chromium || apt-get install --yes --no-install-recommends chromium
	$(BIN)/python -m pip install --quiet --constraint constraints.txt playwright
	$(BIN)/python -m pytest tests/test_studio.py tests/test_studio_browser.py

screenshots: studio-test  ## the pictures of the studio in docs, by the same test
	FAIRVEIL_SCREENSHOTS=docs/studio $(BIN)/python -m pytest tests/test_studio_browser.py -k ten_clicks

gallery: $(VENV)/.installed  ## run the numbered examples again and store their pages in docs/examples (a few minutes)
	$(BIN)/python examples/gallery.py

docs: $(VENV)/.installed  ## the documentation site in results/site; broken links and warnings fail
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[docs]'
	$(BIN)/python -m mkdocs build --strict

check: $(VENV)/.installed  ## lint and types only
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: $(VENV)/.installed  ## training and transform against the rate of a matrix product; scaling
	$(BIN)/python benchmarks/frontier_speed.py

adult: $(VENV)/.installed  ## the claims on UCI Adult: three seeds, both cases, twenty budgets (about two hours)
	$(BIN)/python benchmarks/adult.py

tables: $(VENV)/.installed  ## heavy tails, five public tables, few rows, many columns
	$(BIN)/python benchmarks/tables.py

theory: $(VENV)/.installed  ## learned encoders against exact optima, k-NN information against exact values
	$(BIN)/fairveil reproduce gaussian
	$(BIN)/python benchmarks/theory.py

audit: $(VENV)/.installed  ## whether the audit can be believed (about 45 minutes)
	$(BIN)/python benchmarks/audit.py

ablation: $(VENV)/.installed  ## variants of the game on UCI Adult, judged on validation rows (about an hour and a half)
	$(BIN)/python benchmarks/ablation.py
	$(BIN)/python benchmarks/matched.py

compare: $(VENV)/.installed  ## fair predictors and representations for a known task, ours and others' (26 minutes)
	$(BIN)/python benchmarks/known_task.py --picture docs/known_task.png

reproduce: $(VENV)/.installed  ## every experiment of the paper, in small
	$(BIN)/fairveil reproduce all --output docs/paper

stress: $(VENV)/.installed  ## releases killed at random moments, a stream of 5 GB, 10,000 mutated files
	$(BIN)/python benchmarks/release.py
	$(BIN)/python benchmarks/fuzz.py

peers: $(VENV)/.installed  ## other ways to hide an attribute, on the same rows and by the same fresh models
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[peers]'
	$(BIN)/python benchmarks/peers.py --picture docs/peers.png

# One table or method: make field TABLE=dutch METHOD=fare. Stored results are not made again.
field: $(VENV)/.installed  ## every method on ten tables, judged by models that none was trained against; resumable
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[field]'
	PYTHONPATH=benchmarks $(BIN)/python -m field run $(if $(TABLE),--table $(TABLE)) $(if $(METHOD),--method "$(METHOD)")
	PYTHONPATH=benchmarks $(BIN)/python -m field collect
	PYTHONPATH=benchmarks $(BIN)/python -m field page

field-page: $(VENV)/.installed  ## docs/field.md from the stored results in benchmarks/field/results.json
	PYTHONPATH=benchmarks $(BIN)/python -m field page

$(VENV)/.installed: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	touch $@

clean:
	rm -rf $(VENV) results .pytest_cache .mypy_cache .ruff_cache
