"""One-line definitions of every word the report uses, and what each file of a run folder holds."""

TERMS = {
    "task family": "a prompt template with slots, and the values each slot can take.",
    "constituent": "one slot of the family, such as color1 or relation.",
    "task": "one choice of a value for every constituent; it makes one prompt.",
    "scene": "what the picture should show; differently worded tasks that show the same share one scene.",
    "site": "a place inside the model where activations are read: component, module and stream (image or text).",
    "step": "index into the denoising schedule; 0 is the first step, from pure noise.",
    "coding": "how a task becomes the probe's target: slot (each constituent as worded), scene (as it should look), "
    "presence (which values occur), binding (which values belong together).",
    "decodability": "held-out R² of a linear probe that predicts the coding from a site's pooled activation; "
    "1 is perfect, 0 is no better than the mean, below 0 is worse.",
    "held-out R²": "measured on combinations of values, and scenes, that the probe was not fitted on.",
    "headline site": "the image-stream site and step chosen on one half of the folds; the value is from the other.",
    "success": "share of a task's images in which the scorer finds every constituent right.",
    "wrong": "clean objects, but another value than asked: a failure to compose.",
    "malformed": "not the right number of clean objects: it says little about composition.",
    "unscored": "no scorer could judge the image (NaN, black frame, broken judge): counted, never taken as a failure.",
    "seen / held out": "whether the model's training showed the task's scene, as its model card says.",
    "shuffled labels": "the same probe fitted on permuted targets: what a probe of this size finds in nothing.",
    "bag of words": "the same probe fitted on which words the prompt has: what the wording gives for free.",
    "Spearman": "rank correlation over tasks, from −1 to 1, with a bootstrap interval and a permutation p, by task.",
}

FILES = {
    "run.json": "settings, versions, model and the state of every stage",
    "tasks.jsonl": "every task with its prompt, values and fold",
    "scores.parquet": "every image with its outcome, reason and constituents",
    "probes.parquet": "every probe: site, step, coding, constituent, R² and controls",
    "headline.json": "the headline site as each half of the folds chose it, and the bag of words by coding",
    "decodability.parquet": "every task's decodability at the headline site, by coding and constituent",
    "correlation.json": "every correlation with its interval, p, n and method",
    "summary.json": "the numbers of this page's first screen",
}
