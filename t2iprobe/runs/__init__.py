"""One run: its settings, its folder, and the five stages that hand results to each other through the folder alone.

The stages, in order, each with `run(folder, config)`; `stages` runs them:

    generate    model -> images/, activations/, tasks.jsonl       with maker, pieces, budget, estimate, shards
    score       images -> scores.parquet
    probe       activations -> probes.parquet, headline.json, decodability.parquet       with array, targets
    correlate   scores, decodability -> correlation.json, summary.json                   with outcomes, summary
    report      all of them -> report.html, figures/

Everything else serves them: `config` (settings), `records` (the schema of the folder's files), `folder` and `results`
(where they lie, and whether they are as they were left), `run_tasks` (which tasks), `cost`, `memory`, `progress`.
"""
