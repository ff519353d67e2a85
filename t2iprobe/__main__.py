"""`python -m t2iprobe` is `t2iprobe`."""

import sys

from t2iprobe.cli.main import main

sys.exit(main())
