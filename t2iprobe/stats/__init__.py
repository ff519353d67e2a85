"""Statistics of a run. The unit is the task, not the image; undefined is NaN with a reason."""

from t2iprobe.stats.correlation import auroc, pearson, spearman
from t2iprobe.stats.dispersion import Dispersion, overdispersion
from t2iprobe.stats.estimate import Estimate, StatisticsWarning
from t2iprobe.stats.intervals import (
    bootstrap_interval,
    detectable_correlation,
    fisher_interval,
    split_half_r2,
    success_rate,
    wilson,
)
from t2iprobe.stats.multiple import MaxT, benjamini_hochberg, max_t_spearman
from t2iprobe.stats.permutation import monte_carlo_p
from t2iprobe.stats.strata import Stratified, stratified_spearman

__all__ = [
    "Dispersion",
    "Estimate",
    "MaxT",
    "StatisticsWarning",
    "Stratified",
    "auroc",
    "benjamini_hochberg",
    "bootstrap_interval",
    "detectable_correlation",
    "fisher_interval",
    "max_t_spearman",
    "monte_carlo_p",
    "overdispersion",
    "pearson",
    "spearman",
    "split_half_r2",
    "stratified_spearman",
    "success_rate",
    "wilson",
]
