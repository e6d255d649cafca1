"""``python -m barnabas_pipeline.cli``."""

from barnabas_pipeline.cli import main

raise SystemExit(main())
